"""The folder of generated files: contractions by request, contractions by key, kernels by content.

Every file ends with a checksum of what stands before it, is written to a temporary name and renamed, and is made again
where it is missing, cut short or changed. So several processes may start at once on one shared folder, and versions
stand side by side (the names hash what made the file). Where the folder cannot be written, a temporary one serves this
process.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import linecache
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import flashcart
from flashcart.environment import read_environment
from flashcart.errors import FlashCartWarning
from flashcart.ir.contraction import Contraction, parse
from flashcart.ir.requests import Request, request_name

_CHECKSUM = "# sha256 "


@lru_cache(maxsize=1)
def cache_folder() -> Path:
    """The folder in use: FLASHCART_CACHE_DIR or its default; a temporary one, with one warning, where that fails.

    A folder that can be read but not written is used as it is as long as nothing is missing from it.
    """
    return read_environment().cache_dir.expanduser()


@lru_cache(maxsize=1)
def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="flashcart-cache-"))
    warnings.warn(
        f"the cache folder {cache_folder()} cannot be written; using {folder} for this process. "
        "Set FLASHCART_CACHE_DIR to a writable folder to keep generated files.",
        FlashCartWarning,
        stacklevel=2,
    )
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def stored(name: str, make: Callable[[], str]) -> tuple[str, Path]:
    """The text of a cached file, made where it is missing or damaged.

    Args:
        name: path below the cache folder.
        make: returns the text.

    Returns:
        The text without its checksum line, and the file that holds it.
    """
    path = cache_folder() / name
    text = read_checked(path)
    if text is not None:
        return text, path
    text = make()
    try:
        write_checked(path, text)
    except OSError:
        path = _temporary_folder() / name
        write_checked(path, text)
    return text, path


def load_module(name: str, make: Callable[[], str]) -> ModuleType:
    """The module of a cached Python file; arguments as in `stored`."""
    text, path = stored(name, make)
    module = ModuleType(f"flashcart_generated_{path.stem.replace('-', '_')}")
    module.__file__ = str(path)
    # What was checked is what runs and what Triton sees as its source; Python's own cache of bytecode has no checksums.
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def read_checked(path: Path) -> str | None:
    """The text of a file with a right checksum line, else None."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    text, mark, checksum = content.rpartition(_CHECKSUM)
    return text if mark and checksum.strip() == _digest(text) else None


def write_checked(path: Path, text: str) -> None:
    """Write text and checksum to a temporary file beside `path` and rename it; who may read it is up to the umask.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}{secrets.token_hex(6)}.part")
    try:
        with temporary.open("x", encoding="utf-8") as stream:
            stream.write(f"{text}{_CHECKSUM}{_digest(text)}\n")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@lru_cache(maxsize=1)
def generator_hash() -> str:
    """Hash of the sources that turn a request into a contraction."""
    root = Path(flashcart.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*(root / "algebra").glob("*.py"), *(root / "ir").glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_known: dict[str, Contraction] = {}


def contraction_of_request(request: Request, make: Callable[[], Contraction]) -> Contraction:
    """The contraction of a request; `make` (which needs sympy) is called on a cache miss only."""
    name = f"requests/{request_name(request)}-{generator_hash()}.txt"
    text, path = stored(name, lambda: make().text)
    try:
        program = parse(text)
    except ValueError:  # whole, but not ours
        program = make()
        with contextlib.suppress(OSError):
            write_checked(path, program.text)
    return contraction_of_key(key_of(program))


def remember(program: Contraction) -> str:
    """Make a contraction known to this process, without a file; return its key."""
    return _known.setdefault(program.key, program).key


def key_of(program: Contraction) -> str:
    """The key of a contraction, resolvable by `contraction_of_key` here and, through its file, in later processes."""
    if program.key not in _known:
        stored(f"contractions/{program.key}.txt", lambda: program.text)
        _known[program.key] = program
    return program.key


def contraction_of_key(key: str) -> Contraction:
    """The contraction that a key names.

    Raises:
        KeyError: no contraction of this key was ever registered in this process or cache folder.
    """
    if key not in _known:
        text = read_checked(cache_folder() / f"contractions/{key}.txt")
        if text is None:
            raise KeyError(f"no contraction with key {key} in {cache_folder()}")
        _known[key] = parse(text)
    return _known[key]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
