"""flashcart-profile as a process: start-up, variables, exit codes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flashcart import __version__
from flashcart.cli import profile as cli_profile
from flashcart.config import load_keys
from flashcart.config_profile import ProfileConfig
from flashcart.environment import parse_environment
from flashcart.profiling.sweep import expand

COMMAND = [sys.executable, "-m", "flashcart.cli.profile"]


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_torch(option: str):
    code = (
        "import sys\nfrom flashcart.cli.profile import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n"
        "    assert end.code == 0\nassert not {'torch', 'numpy', 'ase'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert ("profile_sweep" if option == "--help" else __version__) in done.stdout


def test_variables_are_checked_before_anything_else():
    environment = {**os.environ, "FLASHCART_TP_CSR_GROUP_BUDGET": "many"}
    done = subprocess.run(
        [*COMMAND, "nowhere.yaml", "x=1"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == (
        "flashcart-profile: FLASHCART_TP_CSR_GROUP_BUDGET='many' is not allowed; allowed: an integer of at least 1.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.yaml"], "nowhere.yaml: no such configuration file."),
        (
            [],
            "profile_train_path: no structures for training; give profile_train_path, train_path or profile_data_path.",
        ),
        (["profile_phas=both"], "did you mean profile_phase?"),
        (["profile_sweep={FLASHCART_X: 1}"], "profile_sweep: FLASHCART_X is no variable of FlashCart"),
    ],
)
def test_wrong_input_is_a_sentence_and_exit_code_2(arguments: list[str], sentence: str, capsys):
    assert cli_profile.main(["device=cpu", *arguments] if "nowhere.yaml" not in arguments else arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_compilations_in_timed_runs_are_a_failure(monkeypatch, capsys):
    late = {"generated_files": 0, "triton_kernels": 2, "torch_graphs": 0}
    document = {"phases": {"inference": {"compilations_in_timed_runs": late}}}
    monkeypatch.setattr("flashcart.profiling.run.run_profile", lambda config, loss: document)
    assert cli_profile.main(["device=cpu"]) == 1
    assert "timed runs of inference contain compilations" in capsys.readouterr().err


@pytest.mark.parametrize("extra", [(), ("profile_sweep={}",)], ids=["run", "sweep"])
@pytest.mark.parametrize("key", ["profile_json", "profile_trace_dir"])
def test_places_that_cannot_be_written_are_a_sentence_before_any_work(key: str, extra, tmp_path: Path, capsys):
    (tmp_path / "file").write_text("")
    assert cli_profile.main(["train_path=nowhere.xyz", f"{key}={tmp_path / 'file' / 'a' / 'b'}", *extra]) == 2
    assert f"{key}: {tmp_path / 'file' / 'a'}" in capsys.readouterr().err


@pytest.mark.parametrize("extra", [(), ("profile_sweep={}",)], ids=["run", "sweep"])
def test_a_folder_cannot_be_the_file_for_results(extra, tmp_path: Path, capsys):
    assert cli_profile.main(["train_path=nowhere.xyz", f"profile_json={tmp_path}", *extra]) == 2
    assert f"profile_json: {tmp_path} is a folder; give the name of a file." in capsys.readouterr().err


def test_commands_of_the_documentation_name_keys_that_exist(tmp_path: Path, monkeypatch):
    root = Path(__file__).resolve().parents[2]
    (tmp_path / "examples").symlink_to(root / "examples")
    (tmp_path / "run.yaml").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    text = (root / "docs" / "profiling.md").read_text(encoding="utf-8")
    commands = re.findall(r"^flashcart-profile (.+)$", text, flags=re.M)
    assert len(commands) >= 5
    for command in commands:
        words = shlex.split(command)
        has_file = "=" not in words[0]
        config = load_keys(ProfileConfig, words[0] if has_file else None, words[has_file:])
        for setting in expand(config):
            load_keys(ProfileConfig, None, setting.overrides)
            parse_environment(setting.variables)
