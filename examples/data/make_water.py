"""Make the liquid-water example data: 32 molecules, periodic, GFN1-xTB energy, forces and stress.

Scheme
------
1. Each trajectory (one temperature, one density) starts from its own random packing and is
   pre-equilibrated with a cheap flexible classical water (SPC/Fw charges and Lennard-Jones, bond and
   angle terms fitted to the GFN1-xTB monomer).
2. Langevin dynamics on the GFN1-xTB surface by multiple time steps: the classical model moves the
   atoms with a 1 fs inner step, and the difference "xTB minus classical" is applied as an impulse
   every ``OUTER_STEPS`` inner steps. Hydrogen has a mass of 4 u, which keeps the impulse away from the
   resonance with the O-H stretch and does not change which configurations classical statistics visits.
3. The first ``RELAX_CALLS`` engine calls of a trajectory are dropped; then every
   ``CALLS_PER_FRAME``-th is a frame, so that neighbouring frames are 24 fs apart.
4. A last group of frames has random displacements and cell strains, for short-range repulsion and shear.

Finished trajectories are kept in ``<output-dir>/.parts`` until all are done: an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import ase.io
import numpy as np
from ase import Atoms, units
from labelling import check_labels, frame_to_text, label, make_calculator, write_atomically, write_frames
from scipy.special import erfc

SEED = 20240
N_MOLECULES = 32
MOLECULE_MASS = 18.015  # u

INNER_FS = 1.0  # step of the classical forces
OUTER_STEPS = 6  # inner steps per engine call
CALLS_PER_FRAME = 4
RELAX_CALLS = 20
FRICTION_CLASSICAL = 0.005  # 1/fs
FRICTION_XTB = 0.01  # 1/fs
CLASSICAL_STEPS = 8000  # of 1 fs; the first half at no less than HOT_START kelvin
HOT_START = 500.0
MASS_H, MASS_O = 4.0, 15.999

# Classical water. Charges and Lennard-Jones: SPC/Fw (Wu, Tepper, Voth, J. Chem. Phys. 124, 024503, 2006).
# Morse bond and harmonic angle: fitted to a scan of the GFN1-xTB monomer.
CHARGE_H = 0.41
LJ_EPS, LJ_SIGMA = 0.1554253 * units.kcal / units.mol, 3.165492
MORSE_D, MORSE_A, BOND_R0 = 4.30, 2.38, 0.9581  # eV, 1/A, A
ANGLE_K, ANGLE_0 = 3.30, np.radians(107.13)  # eV/rad^2, rad
COULOMB_ALPHA = 0.2  # 1/A, damped shifted force
COULOMB = units._e / (4 * np.pi * units._eps0) * 1e10  # eV A

RATTLE_TEMPERATURE = 450.0
RATTLE_INTERVAL = 1500  # classical steps between rattled frames
RATTLE_SIGMAS = (0.02, 0.04, 0.06, 0.08)  # A, hydrogens; oxygens get half of it
RATTLE_STRAIN = 0.02


@dataclass(frozen=True)
class Trajectory:
    """One trajectory: name, split, temperature in K, density in g/cm^3, number of frames."""

    name: str
    split: str
    temperature: float
    density: float
    frames: int
    rattled: bool = False


TRAJECTORIES = (
    Trajectory("w00", "train", 300.0, 1.00, 23),
    Trajectory("w01", "train", 600.0, 1.00, 23),
    Trajectory("w02", "valid", 300.0, 1.00, 17),
    Trajectory("w03", "test", 300.0, 1.00, 17),
    Trajectory("w04", "train", 400.0, 1.05, 23),
    Trajectory("w05", "train", 350.0, 0.90, 23),
    Trajectory("w06", "train", 900.0, 0.95, 23),
    Trajectory("w07", "train", 300.0, 1.10, 23),
    Trajectory("w08", "test", 600.0, 0.95, 17),
    Trajectory("w09", "valid", 500.0, 1.05, 17),
    Trajectory("w10", "train", RATTLE_TEMPERATURE, 1.00, 12, rattled=True),
    Trajectory("w11", "train", 500.0, 1.15, 23),
    Trajectory("w12", "train", RATTLE_TEMPERATURE, 1.10, 12, rattled=True),
    Trajectory("w13", "test", 400.0, 1.10, 17),
    Trajectory("w14", "valid", 400.0, 0.90, 17),
)


class ClassicalWater:
    """Forces of a flexible three-site water; atoms are ordered O, H, H and molecules are whole."""

    def __init__(self, n_molecules: int, length: float):
        n = 3 * n_molecules
        self.length, self.cutoff = length, length / 2
        charge = np.tile([-2 * CHARGE_H, CHARGE_H, CHARGE_H], n_molecules)
        first, second = np.triu_indices(n, 1)
        keep = first // 3 != second // 3
        self.first, self.second = first[keep], second[keep]
        self.qq = COULOMB * charge[self.first] * charge[self.second]
        self.oxygens = (self.first % 3 == 0) & (self.second % 3 == 0)
        self.coulomb_shift = self._coulomb(np.array([self.cutoff]))[0]

    @staticmethod
    def _coulomb(r: np.ndarray) -> np.ndarray:
        gauss = 2 * COULOMB_ALPHA / np.sqrt(np.pi) * np.exp(-((COULOMB_ALPHA * r) ** 2))
        return erfc(COULOMB_ALPHA * r) / r**2 + gauss / r

    def forces(self, positions: np.ndarray) -> np.ndarray:
        """Return the forces in eV/A."""
        return self._pair_forces(positions) + self._molecule_forces(positions)

    def _pair_forces(self, positions: np.ndarray) -> np.ndarray:
        delta = positions[self.first] - positions[self.second]
        delta -= self.length * np.round(delta / self.length)
        r = np.sqrt(np.einsum("ij,ij->i", delta, delta))
        near = r < self.cutoff
        delta, r = delta[near], r[near]
        radial = self.qq[near] * (self._coulomb(r) - self.coulomb_shift)
        oxygens = self.oxygens[near]
        s6 = (LJ_SIGMA / r[oxygens]) ** 6
        radial[oxygens] += 24 * LJ_EPS * (2 * s6**2 - s6) / r[oxygens]
        pair = (radial / r)[:, None] * delta
        first, second, n = self.first[near], self.second[near], len(positions)
        columns = [np.bincount(first, p, n) - np.bincount(second, p, n) for p in pair.T]
        return np.stack(columns, axis=1)

    @staticmethod
    def _molecule_forces(positions: np.ndarray) -> np.ndarray:
        molecules = positions.reshape(-1, 3, 3)
        bonds = molecules[:, 1:] - molecules[:, :1]
        r = np.linalg.norm(bonds, axis=2, keepdims=True)
        unit = bonds / r
        decay = np.exp(-MORSE_A * (r - BOND_R0))
        on_h = -2 * MORSE_D * MORSE_A * (1 - decay) * decay * unit
        cosine = np.clip(np.sum(unit[:, 0] * unit[:, 1], axis=1), -0.999999, 0.999999)[:, None, None]
        slope = ANGLE_K * (np.arccos(cosine) - ANGLE_0) / np.sqrt(1 - cosine**2)
        on_h += slope * (unit[:, ::-1] - cosine * unit) / r
        forces = np.concatenate([-on_h.sum(axis=1, keepdims=True), on_h], axis=1)
        return forces.reshape(-1, 3)


class Dynamics:
    """Positions and velocities of one trajectory with the classical and the multiple-time-step integrator."""

    def __init__(self, atoms: Atoms, temperature: float, rng: np.random.Generator):
        self.atoms, self.temperature, self.rng = atoms, temperature, rng
        self.model = ClassicalWater(len(atoms) // 3, atoms.cell[0, 0])
        self.masses = np.tile([MASS_O, MASS_H, MASS_H], len(atoms) // 3)[:, None]
        self.velocities = rng.normal(size=(len(atoms), 3)) * self._thermal(temperature)

    def _thermal(self, temperature: float) -> np.ndarray:
        return np.sqrt(units.kB * temperature / self.masses)

    def thermostat(self, temperature: float, friction: float, time_fs: float) -> None:
        """Apply the exact Ornstein-Uhlenbeck step of Langevin dynamics and remove the drift."""
        decay = np.exp(-friction * time_fs)
        noise = self.rng.normal(size=self.velocities.shape) * self._thermal(temperature)
        self.velocities = decay * self.velocities + np.sqrt(1 - decay**2) * noise
        self.velocities -= (self.masses * self.velocities).sum(axis=0) / self.masses.sum()

    def verlet(self, steps: int, forces: np.ndarray) -> np.ndarray:
        """Make velocity-Verlet steps with the classical forces and return the last ones."""
        dt = INNER_FS * units.fs
        for _ in range(steps):
            self.velocities += 0.5 * dt * forces / self.masses
            self.atoms.positions += dt * self.velocities
            forces = self.model.forces(self.atoms.positions)
            self.velocities += 0.5 * dt * forces / self.masses
        return forces

    def run_classical(self, steps: int, temperature: float, interval: int = 10) -> None:
        """Run classical Langevin dynamics."""
        forces = self.model.forces(self.atoms.positions)
        for _ in range(steps // interval):
            forces = self.verlet(interval, forces)
            self.thermostat(temperature, FRICTION_CLASSICAL, interval * INNER_FS)

    def xtb_frames(self, calls: int, **info):
        """Yield a labelled frame after each outer step of dynamics on the xTB surface."""
        calculator = make_calculator()
        outer = OUTER_STEPS * INNER_FS * units.fs
        frame = label(self.atoms, calculator)
        for _ in range(calls):
            classical = self.model.forces(self.atoms.positions)
            self.velocities += 0.5 * outer * (frame.arrays["REF_forces"] - classical) / self.masses
            self.verlet(OUTER_STEPS, classical)
            frame = label(self.atoms, calculator, **info)
            classical = self.model.forces(self.atoms.positions)
            self.velocities += 0.5 * outer * (frame.arrays["REF_forces"] - classical) / self.masses
            self.thermostat(self.temperature, FRICTION_XTB, OUTER_STEPS * INNER_FS)
            yield frame


def random_packing(density: float, rng: np.random.Generator) -> Atoms:
    """Return 32 randomly turned molecules on the sites of a face-centred cubic lattice."""
    volume = N_MOLECULES * MOLECULE_MASS * units._amu * 1e3 / density * 1e24
    length = round(volume ** (1 / 3), 6)
    corners = np.array([[i, j, k] for i in range(2) for j in range(2) for k in range(2)], dtype=float)
    basis = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    sites = (corners[:, None] + basis[None] + 0.25).reshape(-1, 3) * length / 2
    half = ANGLE_0 / 2
    molecule = BOND_R0 * np.array([[0, 0, 0], [np.sin(half), 0, np.cos(half)], [-np.sin(half), 0, np.cos(half)]])
    positions = []
    for site in sites:
        rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        positions.append(site + molecule @ rotation)
    return Atoms("OHH" * N_MOLECULES, positions=np.concatenate(positions), cell=[length] * 3, pbc=True)


def wrap_molecules(atoms: Atoms) -> None:
    """Move whole molecules so that each oxygen lies in the cell."""
    molecules = atoms.positions.reshape(-1, 3, 3)
    length = atoms.cell[0, 0]
    shift = np.floor(molecules[:, :1] / length) * length
    atoms.positions = (molecules - shift).reshape(-1, 3)


def prepared_dynamics(trajectory: Trajectory) -> Dynamics:
    """Return the dynamics of a trajectory after its classical pre-equilibration."""
    rng = np.random.default_rng([SEED, int(trajectory.name[1:])])
    dynamics = Dynamics(random_packing(trajectory.density, rng), trajectory.temperature, rng)
    dynamics.run_classical(CLASSICAL_STEPS // 2, max(HOT_START, trajectory.temperature))
    dynamics.run_classical(CLASSICAL_STEPS // 2, trajectory.temperature)
    wrap_molecules(dynamics.atoms)
    return dynamics


def dynamics_frames(trajectory: Trajectory, count: int, info: dict) -> list[Atoms]:
    """Return the frames of a trajectory on the xTB surface."""
    calls = RELAX_CALLS + count * CALLS_PER_FRAME
    labelled = prepared_dynamics(trajectory).xtb_frames(calls, **info)
    return [f for i, f in enumerate(labelled, 1) if i > RELAX_CALLS and (i - RELAX_CALLS) % CALLS_PER_FRAME == 0]


def rattled_frames(trajectory: Trajectory, count: int, info: dict) -> list[Atoms]:
    """Return classical snapshots with random displacements and strains, labelled with xTB."""
    dynamics = prepared_dynamics(trajectory)
    frames = []
    for i in range(count):
        dynamics.run_classical(RATTLE_INTERVAL, trajectory.temperature)
        atoms, rng = dynamics.atoms.copy(), dynamics.rng
        wrap_molecules(atoms)
        strain = rng.uniform(-RATTLE_STRAIN, RATTLE_STRAIN, size=(3, 3))
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + (strain + strain.T) / 2), scale_atoms=True)
        sigma = np.where(atoms.numbers == 1, 1.0, 0.5) * RATTLE_SIGMAS[i % len(RATTLE_SIGMAS)]
        atoms.positions += rng.normal(size=(len(atoms), 3)) * sigma[:, None]
        frames.append(label(atoms, make_calculator(), **info))
    return frames


def run_trajectory(trajectory: Trajectory, scale: float, parts: Path) -> list[Atoms]:
    """Compute one trajectory, or read it when an earlier run has finished it."""
    count = max(2, round(trajectory.frames * scale))
    part = parts / f"{trajectory.name}_{count}.extxyz"
    if not part.exists():
        start = time.time()
        info = {
            "trajectory": trajectory.name,
            "temperature": f"{trajectory.temperature:.1f}",
            "density": f"{trajectory.density:.2f}",
        }
        make = rattled_frames if trajectory.rattled else dynamics_frames
        frames = make(trajectory, count, info)
        write_atomically(part, "".join(frame_to_text(f) for f in frames))
        print(f"{trajectory.name}: {count} frames in {time.time() - start:.0f} s", flush=True)
    return ase.io.read(part, ":")


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
        return int(check_labels(random_packing(1.0, np.random.default_rng(SEED))) > 1)
    parts = args.output_dir / ".parts"
    frames = {"train": [], "valid": [], "test": []}
    for trajectory in TRAJECTORIES:
        frames[trajectory.split] += run_trajectory(trajectory, args.frames_scale, parts)
    for split, members in frames.items():
        write_frames(args.output_dir / f"water_{split}.extxyz", members)
    shutil.rmtree(parts)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
