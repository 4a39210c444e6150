"""Make the rock-salt example data: NaCl supercells with strains, displacements and vacancies, labelled with GFN1-xTB.

Each configuration is independent of the others: a 2x2x2 cubic supercell (64 atoms), a random symmetric strain
(volume and shear), random displacements, and in every third frame a Schottky pair (one Na and one Cl removed, so that
the cell stays neutral and closed-shell). The engine samples the Gamma point only, so that all cells have the same size.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import bulk
from labelling import check_labels, label, make_calculator, write_frames

SEED = 20241
LATTICE_CONSTANT = 5.46  # A, near the GFN1-xTB minimum of the 64-atom Gamma-point supercell
REPEAT = 2
FRAMES = {"train": 40, "test": 10}
GROUPS = (("bulk", 0), ("shear", 0), ("vacancy", 1))  # label of the frame, number of Schottky pairs
SIGMAS = (0.03, 0.06, 0.10, 0.15)  # A, per component
VOLUME_STRAIN, SHEAR_STRAIN = 0.03, 0.04  # largest linear strain and largest shear component


def supercell() -> Atoms:
    """Return the perfect supercell."""
    return bulk("NaCl", "rocksalt", a=LATTICE_CONSTANT, cubic=True).repeat(REPEAT)


def random_strain(rng: np.random.Generator, sheared: bool) -> np.ndarray:
    """Return a symmetric strain: isotropic plus uniaxial parts, and off-diagonal ones where ``sheared``."""
    strain = np.diag(rng.uniform(-VOLUME_STRAIN, VOLUME_STRAIN) + rng.uniform(-0.01, 0.01, size=3))
    if sheared:
        for i, j in ((0, 1), (0, 2), (1, 2)):
            strain[i, j] = strain[j, i] = rng.uniform(-SHEAR_STRAIN, SHEAR_STRAIN)
    return strain


def remove_pairs(atoms: Atoms, pairs: int, rng: np.random.Generator) -> None:
    """Remove ``pairs`` random cations and as many anions."""
    for symbol in ("Na", "Cl"):
        sites = np.flatnonzero(atoms.symbols == symbol)
        del atoms[sorted(int(i) for i in rng.choice(sites, size=pairs, replace=False))]


def configuration(index: int, rng: np.random.Generator) -> tuple[Atoms, dict]:
    """Return the geometry of a frame and its info."""
    group, pairs = GROUPS[index % len(GROUPS)]
    sigma = SIGMAS[(index // len(GROUPS)) % len(SIGMAS)]
    atoms = supercell()
    strain = random_strain(rng, sheared=group != "bulk")
    atoms.set_cell(atoms.cell.array @ (np.eye(3) + strain), scale_atoms=True)
    if pairs:
        remove_pairs(atoms, pairs, rng)
    atoms.positions += rng.normal(scale=sigma, size=(len(atoms), 3))
    density = atoms.get_masses().sum() * 1.66053907 / atoms.get_volume()
    return atoms, {"trajectory": group, "sigma": f"{sigma:.2f}", "density": f"{density:.4f}"}


def make_frames(split: str, count: int) -> list[Atoms]:
    """Return the labelled frames of a split."""
    rng = np.random.default_rng([SEED, list(FRAMES).index(split)])
    frames = []
    for index in range(count):
        atoms, info = configuration(index, rng)
        info["trajectory"] = f"{split}_{info['trajectory']}"
        frames.append(label(atoms, make_calculator(), **info))
        print(f"{split} {index + 1}/{count}: {frames[-1].info['REF_energy']:.4f} eV", flush=True)
    return frames


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--frames-scale", type=float, default=1.0, help="multiply the number of frames (quick runs)")
    parser.add_argument("--check", action="store_true", help="only compare the labels with finite differences")
    return parser.parse_args()


def main() -> int:
    """Make the data or check the labels; return the exit status."""
    args = parse_arguments()
    if args.check:
        return int(check_labels(configuration(1, np.random.default_rng(SEED))[0]) > 1)
    for split, count in FRAMES.items():
        write_frames(
            args.output_dir / f"crystal_{split}.extxyz", make_frames(split, max(2, round(count * args.frames_scale)))
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
