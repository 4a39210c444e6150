"""How fast is a trained model? Atoms per second against the number of atoms, in Python, ASE and LAMMPS.

    python examples/timing.py [--model build/demo/best.safetensors] [--structure examples/data/water_test.extxyz]
                              [--largest 1536] [--device cpu] [--output build/timing]

Repeats a periodic structure to 1, 2, 4, ... cells and times energies and forces:

- Python: `predict` on a graph that is ready, which is what flashcart-profile times;
- ASE: a calculator with a skin of 1 Å, atoms moving between calls;
- LAMMPS: steps of molecular dynamics in the dtype that the model was trained in (examples/lammps/timing.in).

The first calls, which load and compile, are not counted. Writes timing.json and, with matplotlib, timing.png.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.io import read, write

from flashcart.calculators.ase import FlashCartCalculator
from flashcart.cli.arguments import exit_code_of
from flashcart.data.graph import atoms_to_graph
from flashcart.device import resolve_device
from flashcart.errors import FlashCartError, UserError
from flashcart.potential import predict

ROOT = Path(__file__).resolve().parents[1]
LMP = Path(sys.executable).parent / "lmp"
SECONDS = 0.5  # each size is repeated for about this long, and three times at least
STEP = 0.005  # Å, root mean square displacement between two calls of ASE: about a step of water at 300 K


def main(arguments: list[str] | None = None) -> int:
    """Time all sizes; return the exit code."""
    options = parse(arguments)
    return exit_code_of(lambda: time_all(options), name="timing.py")


def time_all(options: argparse.Namespace) -> int:
    """Time all sizes, print and write them."""
    device = str(resolve_device(options.device))
    cell = read_cell(options.structure, options.largest)
    calculator = FlashCartCalculator(options.model, device=device, dtype="trained", skin=1.0)
    make_folder(options.output)
    rows = []
    print(f"{'atoms':>8}  {'Python':>14}  {'ASE':>14}  {'LAMMPS':>14}   atoms/s", flush=True)
    for replicas in sizes(len(cell), options.largest):
        atoms = cell.repeat(replicas)
        row: dict[str, float | None] = {"atoms": len(atoms)}
        row["python"] = len(atoms) / time_python(calculator, atoms, device)
        row["ase"] = len(atoms) / time_ase(calculator, atoms)
        row["lammps"] = len(atoms) / time_lammps(options, cell, replicas, calculator.elements) if LMP.exists() else None
        rows.append(row)
        texts = [f"{row[name]:14.0f}" if row[name] else f"{'-':>14}" for name in ("python", "ase", "lammps")]
        print(f"{len(atoms):8}  " + "  ".join(texts), flush=True)
    document = {
        "model": str(options.model),
        "device": device,
        "threads": torch.get_num_threads(),
        "atoms_per_second": rows,
    }
    (options.output / "timing.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    plot(options.output, rows)
    print(f"{options.output} holds timing.json and the plot.")
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "build/demo/best.safetensors")
    parser.add_argument("--structure", type=Path, default=ROOT / "examples/data/water_test.extxyz")
    parser.add_argument("--largest", type=int, default=1536)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, default=ROOT / "build/timing")
    return parser.parse_args(arguments)


def read_cell(path: Path, largest: int) -> Atoms:
    """The first structure of a file, in any format that ASE reads. Raises UserError for one that cannot be repeated."""
    if not path.is_file():
        raise UserError(f"--structure: there is no file {path}.")
    try:
        cell = read(path, 0)
    except Exception as error:  # ASE's readers raise what they run into
        raise UserError(f"--structure: ASE cannot read {path} ({type(error).__name__}).") from error
    if not len(cell) or cell.cell.rank < 3 or not cell.pbc.all():
        raise UserError(f"--structure: the first structure of {path} is not a periodic one with atoms.")
    if largest < len(cell):
        raise UserError(f"--largest: {largest} is less than the {len(cell)} atoms of {path}.")
    return cell


def make_folder(path: Path) -> None:
    """Make the folder for results."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output: the folder {path} cannot be made ({error.strerror}).") from None


def sizes(n_atoms: int, largest: int) -> list[tuple[int, int, int]]:
    """Numbers of cells along each vector, each time twice as many atoms as before."""
    replicas = [(1, 1, 1)]
    while 2 * n_atoms * int(np.prod(replicas[-1])) <= largest:
        longer = list(replicas[-1])
        longer[len(replicas) % 3 - 1] *= 2
        replicas.append((longer[0], longer[1], longer[2]))
    return replicas


def time_python(calculator: FlashCartCalculator, atoms: Atoms, device: str) -> float:
    """Seconds of one evaluation of a graph that is ready."""
    model = calculator.model
    graph = atoms_to_graph(atoms, calculator.elements, model.config.r_max).to(device)

    def evaluate() -> None:
        predict(model, graph)
        if device != "cpu":
            torch.cuda.synchronize(device)

    return median_time(evaluate)


def time_ase(calculator: FlashCartCalculator, atoms: Atoms) -> float:
    """Seconds of one call of the calculator after atoms have moved."""
    moving, rng = atoms.copy(), np.random.default_rng(1)
    moving.calc = calculator

    def step() -> None:
        moving.positions += STEP / 3**0.5 * rng.standard_normal(moving.positions.shape)
        moving.get_forces()

    return median_time(step)


def median_time(call: Callable[[], None]) -> float:
    """Median seconds of repeated calls after two that are not counted."""
    call(), call()
    times: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def time_lammps(
    options: argparse.Namespace, cell: Atoms, replicas: tuple[int, int, int], elements: tuple[str, ...]
) -> float:
    """Seconds of one step of molecular dynamics, as LAMMPS measures its loop."""
    write(options.output / "cell.data", cell, format="lammps-data", specorder=list(elements), masses=True)
    variables: dict[str, object] = {
        "data": "cell.data",
        "model": options.model.absolute(),
        "elements": " ".join(elements),
        "device": options.device,
        **dict(zip(("nx", "ny", "nz"), replicas, strict=True)),
    }
    command = [str(LMP), "-in", str(ROOT / "examples/lammps/timing.in"), "-log", "timing.log"]
    for name, value in variables.items():
        command += ["-var", name, str(value)]
    environment = {"OMP_NUM_THREADS": str(torch.get_num_threads()), **os.environ}
    done = subprocess.run(command, cwd=options.output, capture_output=True, text=True, env=environment, check=False)
    loops = re.findall(r"^Loop time of (\S+) on .* for (\d+) steps", done.stdout, flags=re.M)
    if done.returncode != 0 or len(loops) != 2:
        raise FlashCartError(f"LAMMPS failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return float(loops[1][0]) / int(loops[1][1])


def plot(folder: Path, rows: list[dict[str, float | None]]) -> None:
    """Draw atoms per second against atoms."""
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no plot.")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 4), layout="constrained")
    for name, label in (("python", "Python, graph ready"), ("ase", "ASE"), ("lammps", "LAMMPS")):
        points = [(row["atoms"], row[name]) for row in rows if row[name]]
        if points:
            axes.loglog(*zip(*points, strict=True), "o-", label=label)
    axes.set(xlabel="atoms", ylabel="atoms per second")
    axes.legend()
    figure.savefig(folder / "timing.png", dpi=150)


if __name__ == "__main__":
    sys.exit(main())
