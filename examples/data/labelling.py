"""Reference labels (GFN1-xTB through tblite) and extended-XYZ output shared by the example-data scripts.

Every label is computed at the coordinates exactly as they are stored: positions and cell are
rounded first (:func:`round_geometry`), the engine sees the rounded geometry, and the writer prints
the same number of decimals.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from ase import Atoms
from tblite.ase import TBLite

METHOD = "GFN1-xTB"
ACCURACY = 0.1  # tblite's SCF and integral accuracy; 1.0 is its default, smaller is tighter
ELECTRONIC_TEMPERATURE = 300.0  # K, tblite's default Fermi smearing; forces are those of the free energy
DECIMALS = 6  # of positions (Angstrom), cell (Angstrom) and forces (eV/Angstrom)
MAX_BYTES = 3_000_000  # of all files in the folder together


def make_calculator(**options) -> TBLite:
    """Return a tblite calculator with the settings of the example data."""
    return TBLite(
        method=METHOD, accuracy=ACCURACY, electronic_temperature=ELECTRONIC_TEMPERATURE, verbosity=0, **options
    )


def round_geometry(atoms: Atoms) -> None:
    """Round positions and cell in place to the number of decimals that is written."""
    atoms.set_cell(np.round(atoms.cell.array, DECIMALS))
    atoms.set_positions(np.round(atoms.positions, DECIMALS))


def label(atoms: Atoms, calculator: TBLite, **info) -> Atoms:
    """Round ``atoms`` in place, compute it, and return a bare copy that carries the reference labels."""
    round_geometry(atoms)
    calculator.calculate(atoms, ["energy", "forces", "stress"])
    results = calculator.results
    frame = Atoms(atoms.symbols, positions=atoms.positions, cell=atoms.cell, pbc=True)
    voigt = np.asarray(results["stress"])
    frame.info.update(info)
    frame.info["REF_energy"] = float(results["energy"])
    frame.info["REF_stress"] = voigt[[0, 5, 4, 5, 1, 3, 4, 3, 2]]
    frame.arrays["REF_forces"] = np.array(results["forces"])
    return frame


def frame_to_text(frame: Atoms) -> str:
    """Return one frame as extended XYZ with a fixed number of decimals."""
    lattice = " ".join(f"{x:.{DECIMALS}f}" for x in frame.cell.array.ravel())
    stress = " ".join(f"{x:.8f}" for x in np.ravel(frame.info["REF_stress"]))
    extra = " ".join(f"{k}={v}" for k, v in frame.info.items() if not k.startswith("REF_"))
    header = (
        f'Lattice="{lattice}" Properties=species:S:1:pos:R:3:REF_forces:R:3 '
        f'REF_energy={frame.info["REF_energy"]:.8f} REF_stress="{stress}" {extra} pbc="T T T"'
    )
    rows = [
        f"{s} " + " ".join(f"{x:.{DECIMALS}f}" for x in (*r, *f))
        for s, r, f in zip(frame.get_chemical_symbols(), frame.positions, frame.arrays["REF_forces"], strict=True)
    ]
    return "\n".join([str(len(frame)), header, *rows]) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that an interrupted run never leaves half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def write_frames(path: Path, frames: list[Atoms]) -> None:
    """Write frames to an extended-XYZ file and print its size and SHA-256."""
    text = "".join(frame_to_text(frame) for frame in frames)
    write_atomically(path, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    print(f"{path.name}: {len(frames)} frames, {len(text)} bytes, sha256 {digest}", flush=True)


def energy_at(atoms: Atoms) -> float:
    """Return the energy of a geometry from a calculation with no memory of an earlier one."""
    calculator = make_calculator()
    calculator.calculate(atoms, ["energy"])
    return float(calculator.results["energy"])


def finite_difference_force(atoms: Atoms, atom: int, axis: int, step: float = 0.002) -> float:
    """Return a force component from central differences of the energy."""
    energies = []
    for sign in (1, -1):
        moved = atoms.copy()
        moved.positions[atom, axis] += sign * step
        energies.append(energy_at(moved))
    return -(energies[0] - energies[1]) / (2 * step)


def finite_difference_stress(atoms: Atoms, i: int, j: int, step: float = 5e-4) -> float:
    """Return (1/V) dE/dstrain_ij for a symmetric strain, from central differences of the energy."""
    energies = []
    for sign in (1, -1):
        strain = np.zeros((3, 3))
        strain[i, j] += sign * step / 2
        strain[j, i] += sign * step / 2
        strained = atoms.copy()
        strained.set_cell(atoms.cell.array @ (np.eye(3) + strain), scale_atoms=True)
        energies.append(energy_at(strained))
    return (energies[0] - energies[1]) / (2 * step * atoms.get_volume())


def check_labels(atoms: Atoms, force_tol: float = 1e-3, stress_tol: float = 1e-5) -> float:
    """Compare forces and stress of one frame with finite differences; return the worst ratio to the tolerance."""
    frame = label(atoms.copy(), make_calculator())
    stress = frame.info["REF_stress"].reshape(3, 3)
    worst = 0.0
    for atom, axis in ((0, 0), (1, 1), (len(frame) - 1, 2)):
        engine, numeric = frame.arrays["REF_forces"][atom, axis], finite_difference_force(frame, atom, axis)
        print(f"force  atom {atom:3d} axis {axis}: engine {engine: .6f}  difference {numeric: .6f} eV/A")
        worst = max(worst, abs(engine - numeric) / force_tol)
    for i, j in ((0, 0), (1, 1), (0, 1), (1, 2)):
        numeric = finite_difference_stress(frame, i, j)
        print(f"stress {i}{j}: engine {stress[i, j]: .8f}  difference {numeric: .8f} eV/A^3")
        worst = max(worst, abs(stress[i, j] - numeric) / stress_tol)
    print(f"worst deviation is {worst:.3f} of the tolerance ({force_tol} eV/A, {stress_tol} eV/A^3)")
    return worst
