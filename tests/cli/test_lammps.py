"""flashcart-lammps: path, check, run; fast help."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashcart.cli import lammps as command
from flashcart.lib import plugin_path

BIN = Path(sys.executable).parent

GOOD = """units metal
newton on
read_data water.data
pair_style flashcart device cpu &
    dtype float64
pair_coeff * * model.safetensors H NULL  # second type is left alone
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import torch

    from flashcart.deploy import save_model
    from flashcart.model import FlashCart, ModelConfig

    config = ModelConfig(("H", "O"), 3.0, n_hidden_feats=2, l_max_hidden_feats=0, l_max_edge_attrs=1, correlation=1)
    save_model(tmp_path / "model.safetensors", FlashCart(config, dtype=torch.float64))
    return tmp_path


def _run(*words: object) -> subprocess.CompletedProcess[str]:
    line = [str(BIN / "flashcart-lammps"), *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_are_quick(word: str) -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        assert _run(word).returncode == 0
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5  # the fastest: other work shares the cores


def test_path_is_the_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["path"]) == 0
    assert Path(capsys.readouterr().out.strip()) == plugin_path()


def test_without_plugin_every_command_says_how_to_get_it(monkeypatch, capsys, folder: Path) -> None:
    monkeypatch.setattr(command, "plugin_path", lambda: None)
    assert command.main(["path"]) == 2
    assert "LAMMPS_INCLUDE_DIR" in capsys.readouterr().err


def test_check_of_a_good_deck_finds_the_model(folder: Path) -> None:
    (folder / "in.deck").write_text(GOOD)
    result = _run("check", folder / "in.deck")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "flashcart is registered in LAMMPS 20250722" in result.stdout
    assert "elements H O, cutoff 3 Angstrom" in result.stdout
    assert "All checks passed." in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("units metal", "units lj", "write 'units metal'"),
        ("newton on", "newton off", "write 'newton on'"),
        ("H NULL", "H Cu", "Cu: not in the model, which knows H O"),
        ("model.safetensors", "other.safetensors", "no such model file"),
        ("pair_coeff", "#", "no line such as: pair_coeff"),
    ],
)
def test_check_names_what_is_wrong_in_a_deck(folder: Path, old: str, new: str, said: str) -> None:
    from flashcart.cli.lammps_check import _commands, _deck

    (folder / "in.deck").write_text(GOOD.replace(old, new))
    bad = [str(finding) for finding in _deck(_commands(folder / "in.deck"), folder) if not finding.good]
    assert len(bad) == 1
    assert said in bad[0]


@pytest.mark.parametrize("words", [["run"], ["run", "-in", "absent"], ["check", "absent"], ["sing"], []])
def test_wrong_usage_has_exit_code_2(words: list[str]) -> None:
    result = _run(*words)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_run_passes_options_on_and_fails_with_the_deck(tmp_path: Path) -> None:
    (tmp_path / "in.deck").write_text('print "value ${number}"\n')
    good = _run("run", "-in", tmp_path / "in.deck", "-log", "none", "-v", "number", "17")
    assert good.returncode == 0
    assert "value 17" in good.stdout
    (tmp_path / "in.deck").write_text("nonsense\n")
    bad = _run("run", "-in", tmp_path / "in.deck", "-log", "none")
    assert bad.returncode == 1
    assert "Unknown command: nonsense" in bad.stderr


@pytest.mark.parametrize("word", ["check", "path"])
def test_bad_environment_variables_are_said_before_anything_else(word: str) -> None:
    done = subprocess.run(
        [BIN / "flashcart-lammps", word],
        capture_output=True,
        text=True,
        env={**os.environ, "FLASHCART_KERNEL_L_MAX": "abc"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "FLASHCART_KERNEL_L_MAX" in done.stderr
    assert "Traceback" not in done.stderr
