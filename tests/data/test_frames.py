"""One pass over extended XYZ: what is yielded, and where errors point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase.io import read

from flashcart.data.frames import read_frames
from flashcart.errors import DataError

from .frames_text import water


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tést set.xyz"
    path.write_text(text, encoding="utf-8")
    return path


def _message(tmp_path: Path, text: str) -> str:
    with pytest.raises(DataError) as caught:
        list(read_frames(_write(tmp_path, text)))
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_frames_are_those_of_ase_with_their_places(tmp_path: Path) -> None:
    path = _write(tmp_path, water() + water("REF_energy=-1") + "\n" + water() + "\n\n")
    frames = list(read_frames(path))
    assert [frame.place.frame for frame in frames] == [0, 1, 2]
    assert [frame.place.line for frame in frames] == [1, 6, 12]
    for frame, atoms in zip(frames[:2], read(path, index="0:2", format="extxyz"), strict=True):
        assert frame.atoms == atoms
        np.testing.assert_array_equal(frame.atoms.arrays["REF_forces"], atoms.arrays["REF_forces"])


def test_a_file_with_windows_line_ends_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_bytes(water().replace("\n", "\r\n").encode())
    assert next(read_frames(tmp_path / "a.xyz")).atoms == next(read_frames(_write(tmp_path, water()))).atoms


def test_frames_are_read_one_by_one(tmp_path: Path) -> None:
    frames = read_frames(_write(tmp_path, water() + "nonsense\n"))
    assert next(frames).place.frame == 0
    with pytest.raises(DataError):
        next(frames)


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = _write(tmp_path, water("REF_energy=-14.5 note=" + "x" * 1000) * 1000)
    reports: list[tuple[int, int]] = []
    list(read_frames(path, lambda done, total: reports.append((done, total))))
    assert len(reports) > 2
    assert reports == sorted(reports)
    assert reports[-1] == (path.stat().st_size,) * 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "tést set.xyz: holds no frames."),
        ("\n\n", "tést set.xyz: holds no frames."),
        (
            water() + "\n".join(water().splitlines()[:4]),
            "tést set.xyz, frame 1 (line 9): the file ends after 2 of 3 atoms.",
        ),
        (water() + "3\n", "tést set.xyz, frame 1 (line 6): the file ends after 0 of 3 atoms."),
        (
            water() + "x" + water(),
            "tést set.xyz, frame 1 (line 6): expected the number of atoms of the next frame, got 'x3'.",
        ),
        ("4" + water()[1:] + water(), "tést set.xyz, frame 0 (line 6): atom 3 has 1 of 7 columns."),
        (
            "2" + water()[1:] + water(),
            "tést set.xyz, frame 1 (line 5): expected the number of atoms of the next frame, got 'H 0.0 -0.76 -0.48 "
            "-0.1 -0.1 -0.1'.",
        ),
        (
            water() + water().replace("0.76", "O.76"),
            "tést set.xyz, frame 1 (line 9): atom 1 has 'O.76' in a column of pos, not a number.",
        ),
        (
            water().replace("H 0.0 -0.76 -0.48 -0.1", "H 0.0 -0.76"),
            "tést set.xyz, frame 0 (line 5): atom 2 has 5 of 7 columns.",
        ),
        (water(symbols="O H Qq"), "tést set.xyz, frame 0 (line 5): atom 2 is of the unknown element 'Qq'."),
        (water(symbols="X H H"), "tést set.xyz, frame 0 (line 3): atom 0 has no element ('X')."),
        ("0\n\n", "tést set.xyz, frame 0 (line 1): the frame has no atoms."),
        (
            "-3" + water()[1:],
            "tést set.xyz, frame 0 (line 1): expected the number of atoms of the next frame, got '-3'.",
        ),
    ],
)
def test_a_bad_frame_is_named_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    assert _message(tmp_path, text) == sentence


@pytest.mark.parametrize("bad", ['Lattice="1 2 3"', "Properties=species:S:1:pos:R:x", 'stress="1 2 3 4 5 6"'])
def test_a_malformed_line_of_keys_is_named(tmp_path: Path, bad: str) -> None:
    message = _message(tmp_path, f"1\n{bad}\nH 0 0 0\n")
    assert message.startswith("tést set.xyz, frame 0 (line 2): the line with the frame's keys is malformed")


@pytest.mark.parametrize("columns", ["species:S:1:pos:R", "species:S:1", "pos:R:3", "species:S:1:position:R:3"])
def test_columns_without_species_and_positions_are_named(tmp_path: Path, columns: str) -> None:
    message = _message(tmp_path, f"1\nProperties={columns} REF_energy=1\nH 0 0 0\n")
    assert message == "tést set.xyz, frame 0 (line 2): the Properties of the frame do not name species and pos."


def test_a_missing_file_a_folder_and_a_binary_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such data file"):
        list(read_frames(tmp_path / "absent.xyz"))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_frames(tmp_path))
    (tmp_path / "binary.xyz").write_bytes(b"1\n\xff\xfe\nH 0 0 0\n")
    with pytest.raises(DataError, match=r"frame 0 \(line 1\): the frame is not UTF-8 text"):
        list(read_frames(tmp_path / "binary.xyz"))
