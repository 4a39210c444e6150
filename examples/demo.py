"""Train a small model of water, test it, run it in LAMMPS, and check the numbers. `make demo` runs this.

Writes build/demo: best.safetensors, decks, logs, demo.png, demo.json. Exit code 1 if a check fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import read, write

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
CONFIG = EXAMPLES / "configs" / "water.yaml"
BIN = Path(sys.executable).parent
ELEMENTS = ["H", "O"]

# Limits, each with its reason.
MAX_ENERGY_ERROR = 3.0  # meV/atom, RMSE on the test set; training reaches about 1
MAX_FORCE_ERROR = 60.0  # meV/Å, RMSE on the test set; training reaches about 30, the forces themselves are about 1,000
MAX_DRIFT = 0.05  # meV/atom/ps, linear fit over 0.5 ps of NVE in float64
MAX_FORCE_DIFFERENCE = 1e-8  # eV/Å, LAMMPS against ASE in float64: other order of sums, positions moved by whole cells
MAX_RANK_DIFFERENCE = 1e-10  # eV/Å and relative energy, 2 ranks against 1 in float64: other order of sums

WARM_STEPS, NVE_STEPS, LARGE_STEPS = 500, 1000, 20  # of 0.5 fs; 20 steps are enough for a time per step


@dataclass(frozen=True)
class Check:
    """One number of the summary; limit None: reported only."""

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def passed(self) -> bool:
        return self.limit is None or abs(self.value) <= self.limit

    def __str__(self) -> str:
        verdict = "" if self.limit is None else f"  (at most {self.limit:g})  {'ok' if self.passed else 'FAILED'}"
        return f"  {self.name:<52} {self.value:10.3g} {self.unit}{verdict}"


@dataclass(frozen=True)
class Run:
    """What one LAMMPS run left: thermo table [n, 6] (step, ps, K, eV, eV, bar), first forces, seconds per step."""

    thermo: np.ndarray
    first: Atoms
    seconds_per_step: float

    @property
    def forces(self) -> np.ndarray:
        return self.first.arrays["lammps_forces"]


def main() -> int:
    """Run the demonstration; return its exit code."""
    started = time.time()
    folder = ROOT / "build" / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    train(folder)
    checks = test(folder)
    runs = simulate(folder)
    checks += compare(folder, runs)
    plot(folder, runs["small_1"])

    print("\nSummary")
    for check in checks:
        print(check)
    (folder / "demo.json").write_text(json.dumps([asdict(check) for check in checks], indent=1) + "\n")
    failed = [check.name for check in checks if not check.passed]
    print(f"\n{folder.relative_to(ROOT)} holds the model, decks, logs and demo.png; {time.time() - started:.0f} s.")
    if failed:
        print("FAILED: " + "; ".join(failed))
    return 1 if failed else 0


def train(folder: Path) -> None:
    headline("Training")
    run([BIN / "flashcart-train", CONFIG, f"output_path={folder}"])


def test(folder: Path) -> list[Check]:
    """Run flashcart-test; return the errors on the test set."""
    headline("Testing")
    run([BIN / "flashcart-test", CONFIG, f"output_path={folder}"])
    metrics = json.loads((folder / "test_metrics.json").read_text())["errors"]["test"]
    energy, forces = metrics["energy_per_atom_rmse[eV/atom]"], metrics["forces_rmse[eV/Å]"]
    return [
        Check("energy RMSE, test set", 1000 * energy, "meV/atom", MAX_ENERGY_ERROR),
        Check("force RMSE, test set", 1000 * forces, "meV/Å", MAX_FORCE_ERROR),
    ]


def simulate(folder: Path) -> dict[str, Run]:
    """Run LAMMPS: 32 molecules to 300 K, then 32 and 256 molecules on 1 and 2 ranks."""
    headline("LAMMPS")
    frame = read(EXAMPLES / "data" / "water_test.extxyz", 0)
    write(folder / "water.data", frame, format="lammps-data", specorder=ELEMENTS, masses=True)
    for deck in ("equilibrate.in", "nve.in"):
        shutil.copy(EXAMPLES / "lammps" / deck, folder)
    lammps(folder, "equilibrate.in", "equilibrate", 1, data="water.data", target="warm.data", steps=WARM_STEPS)
    runs = {}
    for size, replicas, steps in (("small", 1, NVE_STEPS), ("large", 2, LARGE_STEPS)):
        for ranks in (1, 2):
            name = f"{size}_{ranks}"
            few = steps if ranks == 1 else min(steps, 200)  # the energies of one rank are enough for the drift
            lammps(folder, "nve.in", name, ranks, data="warm.data", replicas=replicas, steps=few, name=name)
            runs[name] = read_run(folder, name)
    return runs


def lammps(folder: Path, deck: str, log: str, ranks: int, **variables: object) -> None:
    """Run a deck in `folder`; its output lies in <log>.log."""
    command: list[object] = [BIN / "mpiexec", "-n", ranks, BIN / "lmp", "-in", deck, "-log", f"{log}.log"]
    for name, value in {"model": "best.safetensors", **variables}.items():
        command += ["-var", name, value]
    print(f"  {log}: {deck} on {ranks} rank{'s' if ranks > 1 else ''} ...", flush=True)
    run(command, folder=folder, output=folder / f"{log}.out")


def run(command: Sequence[object], folder: Path | None = None, output: Path | None = None) -> None:
    """Run a command; ends the demonstration where it fails."""
    words = [str(word) for word in command]
    stream = output.open("w") if output else None
    try:
        # Two ranks share two cores, and in small systems threads that wait for each other cost more than they bring.
        variables = {"OMP_NUM_THREADS": "1", **os.environ}
        code = subprocess.run(words, cwd=folder, stdout=stream, stderr=stream, env=variables, check=False).returncode
    finally:
        if stream:
            stream.close()
    if code:
        if output:
            print(output.read_text()[-2000:])
        sys.exit(f"demo: {' '.join(words)} failed with exit code {code}")


def read_run(folder: Path, name: str) -> Run:
    """Read the log and the forces of a run."""
    log = (folder / f"{name}.log").read_text()
    table = log.rpartition("   Step ")[2].partition("\nLoop time")[0].splitlines()[1:]
    seconds, steps = re.findall(r"Loop time of (\S+) on \d+ procs for (\d+) steps", log)[-1]
    thermo = np.array([[float(word) for word in line.split()] for line in table if line.strip()[:1].isdigit()])
    return Run(thermo, read_forces(folder / f"{name}.forces"), float(seconds) / int(steps))


def read_forces(path: Path) -> Atoms:
    """Read the first snapshot of a dump of id type x y z fx fy fz, sorted by id, in an orthogonal box."""
    lines = path.read_text().splitlines()
    n_atoms = int(lines[3])
    bounds = np.array([[float(word) for word in line.split()] for line in lines[5:8]])
    rows = np.array([[float(word) for word in line.split()] for line in lines[9 : 9 + n_atoms]])
    symbols = [ELEMENTS[int(kind) - 1] for kind in rows[:, 1]]
    atoms = Atoms(symbols, positions=rows[:, 2:5], cell=bounds[:, 1] - bounds[:, 0], pbc=True)
    atoms.arrays["lammps_forces"] = rows[:, 5:8]
    return atoms


def compare(folder: Path, runs: dict[str, Run]) -> list[Check]:
    """Return the drift, LAMMPS against ASE, 1 rank against 2, and the time per step."""
    from flashcart.calculators import FlashCartCalculator

    calculator = FlashCartCalculator(model=folder / "best.safetensors", device="cpu", dtype="float64")
    small = runs["small_1"]
    checks = [Check("NVE drift, 32 molecules", drift(small), "meV/atom/ps", MAX_DRIFT)]
    for size, molecules in (("small", 32), ("large", 256)):
        one, two = runs[f"{size}_1"], runs[f"{size}_2"]
        atoms = one.first.copy()
        atoms.calc = calculator
        ase = largest(one.forces - atoms.get_forces())
        energy = two.thermo[0, 3] / one.thermo[0, 3] - 1.0
        where = f"{molecules} molecules"
        checks += [
            Check(f"largest force difference, LAMMPS - ASE, {where}", ase, "eV/Å", MAX_FORCE_DIFFERENCE),
            Check(
                f"largest force difference, 1 - 2 ranks, {where}",
                largest(one.forces - two.forces),
                "eV/Å",
                MAX_RANK_DIFFERENCE,
            ),
            Check(f"energy difference, 1 - 2 ranks, {where}", energy, "relative", MAX_RANK_DIFFERENCE),
            Check(f"time per step, 1 rank, {where}", 1000 * one.seconds_per_step, "ms"),
            Check(f"time per step, 2 ranks, {where}", 1000 * two.seconds_per_step, "ms"),
        ]
    # Minimum signals: forces that are all zero would pass the differences above.
    return [*checks, Check("missing force signal, 32 molecules", max(0.0, 0.5 - largest(small.forces)), "eV/Å", 0.0)]


def drift(run_: Run) -> float:
    """Return the slope of the total energy over time, meV/atom/ps."""
    return 1000 * np.polyfit(run_.thermo[:, 1], run_.thermo[:, 4], 1)[0] / len(run_.first)


def largest(values: np.ndarray) -> float:
    return float(np.abs(values).max())


def plot(folder: Path, small: Run) -> None:
    """Draw predicted against reference forces of the test set, and the energies of the NVE run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from flashcart.calculators import FlashCartCalculator

    calculator = FlashCartCalculator(model=folder / "best.safetensors", device="cpu", dtype="float32")
    reference, predicted = [], []
    for atoms in read(EXAMPLES / "data" / "water_test.extxyz", "::4"):
        reference.append(atoms.arrays["REF_forces"])
        predicted.append(calculator.get_forces(atoms))
    figure, (parity, energy) = pyplot.subplots(1, 2, figsize=(10, 4.2), constrained_layout=True)
    parity.plot(np.concatenate(reference).ravel(), np.concatenate(predicted).ravel(), ".", markersize=2)
    parity.axline((0, 0), slope=1, color="black", linewidth=0.8)
    parity.set(xlabel="reference force, eV/Å", ylabel="FlashCart force, eV/Å", title="Test set")
    n_atoms = len(small.first)
    for column, label in ((4, "total"), (3, "potential")):
        values = 1000 * (small.thermo[:, column] - small.thermo[0, column]) / n_atoms
        energy.plot(small.thermo[:, 1], values, label=label)
    energy.set(
        xlabel="time, ps",
        ylabel="energy change, meV/atom",
        title=f"NVE, {n_atoms} atoms, {drift(small):.3g} meV/atom/ps",
    )
    energy.legend()
    figure.savefig(folder / "demo.png", dpi=150)


def headline(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
