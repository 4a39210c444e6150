"""What the commands have in common: arguments, exit codes, how errors look.

Takes an argument list and the work to do, returns an exit code: 0 done, 1 failed, 2 wrong usage or input. An error that
a user can cause is one or two sentences on stderr without a traceback. Imports no torch.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from flashcart import __version__
from flashcart.config import Config, describe_keys, load_keys
from flashcart.environment import read_environment, set_allocator_default
from flashcart.errors import FlashCartError, FlashCartWarning, UserError

DONE, FAILED, WRONG_INPUT = 0, 1, 2
_logger = logging.getLogger("flashcart")


@dataclass(frozen=True)
class Command:
    """A command that takes one optional YAML file and `key=value` overrides; `keys` says which ones there are."""

    name: str
    summary: str
    keys: type[Config] = Config


@dataclass(frozen=True)
class Arguments:
    """A parsed command line."""

    config_path: Path | None
    overrides: tuple[str, ...]
    debug: bool


def run_command(command: Command, argv: Sequence[str] | None, work: Callable[[Any], int]) -> int:
    """Parse `argv`, check the environment variables, read the configuration and do the work; return the exit code.

    `work` takes the configuration, a `command.keys`.
    """
    arguments = parse_arguments(command, argv)

    def start() -> int:
        read_environment()
        config = load_keys(command.keys, arguments.config_path, arguments.overrides)
        note = set_allocator_default()
        with _log_on_terminal():
            if note:
                _logger.info(note)
            return work(config)

    return exit_code_of(start, name=command.name, debug=arguments.debug)


def exit_code_of(work: Callable[[], int], *, name: str, debug: bool = False) -> int:
    """Do the work; return its exit code, or that of the error it raises, which is printed."""
    try:
        return work()
    except UserError as error:
        return _report(name, str(error), WRONG_INPUT, debug)
    except KeyboardInterrupt:
        return _report(name, "interrupted.", FAILED, debug)
    except (FlashCartError, OSError) as error:
        return _report(name, str(error), FAILED, debug)
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":
            sentence = f"the GPU has too little memory ({error}); make the batch size smaller."
        else:
            sentence = f"internal error, {type(error).__name__}: {error} (--debug shows where)."
        return _report(name, sentence, FAILED, debug)


def parse_arguments(command: Command, argv: Sequence[str] | None) -> Arguments:
    """Return the parsed command line; --help, --version and wrong usage end the process."""
    parser = _Parser(
        prog=command.name,
        usage=f"{command.name} [run.yaml] [key=value ...]",
        description=f"{command.summary}\n\nKeys, in the YAML file or as key=value (nested keys dotted: "
        f"train_loss.weighted_sum.0.weight=2):\n\n{describe_keys(command.keys)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parsed = parser.parse_intermixed_args(argv)
    words = parsed.arguments
    has_file = bool(words) and "=" not in words[0]
    for word in words[has_file:]:
        if "=" not in word:
            parser.error(f"{word!r}: expected key=value; one YAML file may stand first.")
    return Arguments(Path(words[0]) if has_file else None, tuple(words[has_file:]), parsed.debug)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Print the message and end the process with the code of wrong usage."""
        self.exit(WRONG_INPUT, f"{self.prog}: {message} (--help lists what is understood)\n")


@contextmanager
def _log_on_terminal() -> Iterator[None]:
    """Print what the package logs, from INFO on, and its warnings; errors are for `_report`."""
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(lambda record: logging.INFO <= record.levelno < logging.ERROR)
    _logger.addHandler(handler)
    _logger.setLevel(logging.INFO)
    show = warnings.showwarning
    warnings.showwarning = lambda message, category, *rest, **more: (
        _logger.warning(str(message))
        if issubclass(category, FlashCartWarning)
        else show(message, category, *rest, **more)
    )
    try:
        yield
    finally:
        warnings.showwarning = show
        _logger.removeHandler(handler)


def _report(name: str, sentence: str, code: int, debug: bool) -> int:
    """Print a sentence on stderr, and the current traceback where asked for; return the code."""
    if debug:
        traceback.print_exc()
    print(f"{name}: {sentence}", file=sys.stderr)
    return code
