"""Frames of an extended XYZ file, one at a time.

Takes a path, yields ASE structures with the place they stand at, so that every later complaint can name file, frame and
line. Holds one frame in memory. Labels are not looked at. Frames and atoms count from 0 as in ASE, lines from 1.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import ase
import numpy as np
from ase.data import atomic_numbers
from ase.io.extxyz import key_val_str_to_dict, read_xyz

from flashcart.errors import DataError

Progress = Callable[[int, int], None]
"""Called now and then with the bytes read and the bytes in all."""

_BYTES_BETWEEN_REPORTS = 1 << 18


@dataclass(frozen=True)
class FramePlace:
    """Where a frame stands: file, number of the frame, number of its first line."""

    path: Path
    frame: int
    line: int

    def error(self, message: str, *, atom: int | None = None, line: int | None = None) -> DataError:
        """Return the error to raise; `atom` points at that atom's line, `line` at any other."""
        number = self.line if line is None else line
        number = number if atom is None else self.line + 2 + atom
        return DataError(f"{self.path}, frame {self.frame} (line {number}): {message}")


@dataclass(frozen=True)
class Frame:
    """One structure as ASE reads it, and its place."""

    place: FramePlace
    atoms: ase.Atoms


def read_frames(path: str | Path, progress: Progress | None = None) -> Iterator[Frame]:
    """Yield the frames of an extended XYZ file in one pass.

    Raises DataError for a file that is missing or has no frames, and for a frame that is truncated, malformed, empty or
    holds an unknown element.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            yield from _frames_of(file, path, size, progress)
    except FileNotFoundError:
        raise DataError(f"{path}: no such data file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    if progress is not None:
        progress(size, size)


def _frames_of(file: BinaryIO, path: Path, size: int, progress: Progress | None) -> Iterator[Frame]:
    number, line, done, reported = 0, 1, 0, 0
    while header := file.readline():
        done += len(header)
        if not header.strip():
            line += 1
            continue
        place = FramePlace(path, number, line)
        lines = [header] + [file.readline() for _ in range(_n_atoms(header, place) + 1)]
        done += sum(len(text) for text in lines[1:])
        yield _parse(lines, place)
        number, line = number + 1, line + len(lines)
        if progress is not None and done - reported >= _BYTES_BETWEEN_REPORTS:
            progress(done, size)
            reported = done
    if number == 0:
        raise DataError(f"{path}: holds no frames.")


def _n_atoms(header: bytes, place: FramePlace) -> int:
    text = header.strip()
    if not text.isdigit():
        shown = text[:60].decode(errors="replace")
        raise place.error(f"expected the number of atoms of the next frame, got {shown!r}.")
    if int(text) == 0:
        raise place.error("the frame has no atoms.")
    return int(text)


def _parse(lines: Sequence[bytes], place: FramePlace) -> Frame:
    """Return the frame that these lines hold, by ASE; where ASE refuses, say which line is wrong."""
    n_found = sum(1 for line in lines if line)
    if n_found < len(lines):
        message = f"the file ends after {max(n_found - 2, 0)} of {len(lines) - 2} atoms."
        raise place.error(message, line=place.line + n_found - 1)
    try:
        texts = [line.decode("utf-8") for line in lines]
    except UnicodeDecodeError:
        raise place.error("the frame is not UTF-8 text.") from None
    if not _names_positions(texts[1]):
        raise place.error("the Properties of the frame do not name species and pos.", line=place.line + 1)
    try:
        atoms = next(read_xyz(io.StringIO("".join(texts)), index=0))
    except Exception as error:
        raise _explain(texts, place, error) from None
    for index in np.flatnonzero(atoms.numbers == 0):
        raise place.error(f"atom {index} has no element ({texts[2 + index].split()[0]!r}).", atom=int(index))
    return Frame(place, atoms)


def _names_positions(comment: str) -> bool:
    """Say whether `Properties`, where there are any, are triples that name species and positions; ASE does not ask."""
    match = re.search(r"\bProperties=[\"']?([^\"'\s]+)", comment)
    parts = match[1].split(":") if match else ["species", "S", "1", "pos", "R", "3"]
    return len(parts) % 3 == 0 and "pos" in parts[::3] and ("species" in parts[::3] or "Z" in parts[::3])


def _explain(texts: Sequence[str], place: FramePlace, error: Exception) -> DataError:
    """Find the line that ASE could not read and say what is wrong with it."""
    comment_line = place.line + 1
    try:
        columns = _columns(texts[1])
    except (ValueError, KeyError, IndexError) as problem:
        return place.error(f"the line with the frame's keys is malformed ({problem}).", line=comment_line)
    for index, text in enumerate(texts[2:]):
        words = text.split()
        if len(words) < len(columns):
            return place.error(f"atom {index} has {len(words)} of {len(columns)} columns.", atom=index)
        for (name, kind), word in zip(columns, words, strict=False):
            if kind in "RI" and not _is_number(word):
                return place.error(f"atom {index} has {word!r} in a column of {name}, not a number.", atom=index)
            if name == "species" and word.capitalize() not in atomic_numbers:
                return place.error(f"atom {index} is of the unknown element {word!r}.", atom=index)
    return place.error(f"the frame is malformed ({error}).", line=comment_line)


def _columns(comment: str) -> list[tuple[str, str]]:
    """Return name and kind (S, R, I or L) of every column of an atom's line."""
    properties = key_val_str_to_dict(comment).get("Properties", "species:S:1:pos:R:3").split(":")
    columns = []
    for name, kind, count in zip(properties[::3], properties[1::3], properties[2::3], strict=True):
        columns += [(name, kind)] * int(count)
    return columns


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
