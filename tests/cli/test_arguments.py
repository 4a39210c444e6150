"""Command lines, exit codes, how errors look."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

from flashcart import __version__
from flashcart.cli import test as cli_test
from flashcart.cli import train as cli_train
from flashcart.cli.arguments import DONE, FAILED, WRONG_INPUT, Command, exit_code_of, parse_arguments, run_command
from flashcart.environment import read_environment
from flashcart.errors import FlashCartError, FlashCartWarning, UserError

COMMAND = Command("flashcart-something", "Do something.")


def raising(error: BaseException):
    def work(*_: object) -> int:
        raise error

    return work


def test_yaml_file_then_overrides():
    arguments = parse_arguments(COMMAND, ["run.yaml", "lr=1", "--debug", "train_loss.weighted_sum.0.weight=-2"])
    assert str(arguments.config_path) == "run.yaml"
    assert arguments.overrides == ("lr=1", "train_loss.weighted_sum.0.weight=-2")
    assert arguments.debug


def test_the_file_is_optional():
    assert parse_arguments(COMMAND, ["lr=1"]).config_path is None


@pytest.mark.parametrize("argv", [["a.yaml", "b.yaml"], ["lr=1", "a.yaml"], ["--nonsense"]])
def test_other_words_are_wrong_usage(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(COMMAND, argv)
    assert ended.value.code == WRONG_INPUT
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_warnings_of_the_package_are_lines_of_the_log(capsys):
    def work(_: object) -> int:
        warnings.warn("cannot be written.", FlashCartWarning, stacklevel=1)
        return DONE

    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run_command(COMMAND, [], work) == DONE
    assert capsys.readouterr().out == "cannot be written.\n"
    assert warnings.showwarning is before


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("u"), WRONG_INPUT),
        (FlashCartError("f"), FAILED),
        (OSError("o"), FAILED),
        (ZeroDivisionError(), FAILED),
    ],
)
def test_exit_code_and_one_sentence_without_traceback(error, code, capsys):
    assert exit_code_of(raising(error), name="x") == code
    captured = capsys.readouterr()
    assert captured.err.startswith("x: ")
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


def test_interruption_is_a_failure_without_traceback(capsys):
    assert exit_code_of(raising(KeyboardInterrupt()), name="x") == FAILED
    assert capsys.readouterr().err == "x: interrupted.\n"


def test_debug_shows_the_traceback(capsys):
    assert exit_code_of(raising(UserError("the sentence")), name="x", debug=True) == WRONG_INPUT
    assert "Traceback" in capsys.readouterr().err


def test_out_of_memory_suggests_a_smaller_batch(capsys):
    error = type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")
    assert exit_code_of(raising(error), name="x") == FAILED
    assert "batch size smaller" in capsys.readouterr().err


def test_environment_variables_are_checked_before_anything_else(monkeypatch, capsys):
    monkeypatch.setenv("FLASHCART_KERNEL_L_MAX", "abc")
    read_environment.cache_clear()
    try:
        assert run_command(COMMAND, ["nonsense=1"], raising(AssertionError())) == WRONG_INPUT
    finally:
        read_environment.cache_clear()
    assert "FLASHCART_KERNEL_L_MAX='abc'" in capsys.readouterr().err


@pytest.mark.parametrize("main", [cli_train.main, cli_test.main])
def test_unknown_key_gives_the_nearest_name(main, capsys):
    assert main(["train_batch_siz=3"]) == WRONG_INPUT
    assert "did you mean train_batch_size?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["missing.yaml"], "missing.yaml: no such configuration file"),
        (["lr=fast"], "lr: got 'fast'"),
        ([], "required"),
        (["train_path=missing.xyz", "output_path=run", "valid_fraction=0.1"], "missing.xyz: no such data file"),
    ],
)
def test_wrong_input_of_training(argv, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli_train.main(argv) == WRONG_INPUT
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["train", "test"])
def test_help_and_version_load_no_torch(name):
    """--help and --version answer at once because nothing heavy is imported for them."""
    script = (
        "import sys\n"
        f"from flashcart.cli import {name} as command\n"
        "for word in ('--version', '--help'):\n"
        "    try:\n"
        "        command.main([word])\n"
        "    except SystemExit as ended:\n"
        "        assert not ended.code\n"
        "heavy = {'torch', 'sympy', 'ase', 'numpy', 'scipy', 'triton'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == DONE, done.stderr
    assert done.stdout.startswith(f"flashcart-{name} {__version__}\n")
    for key in ("train_path", "n_hidden_feats", "muon_ns_steps", "valid_losses"):
        assert f"  {key}: " in done.stdout


def test_import_of_the_package_loads_no_torch():
    script = "import flashcart, sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
