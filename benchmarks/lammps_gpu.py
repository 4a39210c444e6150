"""The LAMMPS plugin on a GPU: the same numbers as on the CPU, and milliseconds per step beside Python.

    python benchmarks/lammps_gpu.py [--model best.safetensors] [--lmp lmp] [--mpiexec mpiexec] [--output FILE]

Numbers: 96 atoms of water from the example data, 10 steps of NVE; `device cuda` on 1 and 2 ranks against `device cpu`,
energies relative 1e-9 (float64) and 1e-5 (float32), forces likewise over the largest force; the log must say that
Triton kernels run, in expandable segments of GPU memory. Without --model, random weights. Speed: the default model with
random weights, float32, rattled copper of 500 and 4,000 atoms: loading (which compiles), first evaluation and the five
steps after it apart, then LAMMPS's own loop time per step; the same evaluation from Python, neighbour list before
timing. Exits with 1 if a limit is not met.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.io import read, write

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"float64": 1e-9, "float32": 1e-5}

DECK = """
units metal
atom_style atomic
boundary p p p
read_data {data}
{masses}
plugin load {plugin}
variable begin timer
pair_style flashcart device {device} dtype {dtype}
pair_coeff * * {model} {elements}
variable loaded timer
velocity all create {temperature} 4711 mom yes rot no
fix move all nve
timestep 0.0005
thermo 1
thermo_style custom step time pe etotal
thermo_modify format float %.15g
dump forces all custom 1 {name}.forces id fx fy fz
dump_modify forces sort id format float %.17g
run 0
variable evaluated timer
print "Model loaded in $(v_loaded-v_begin) s, first evaluation in $(v_evaluated-v_loaded) s"
undump forces
{extra}
"""


class Lammps:
    """Runs decks in a folder with a chosen `lmp` and `mpiexec`."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder

    def run(self, name: str, ranks: int, values: dict[str, object]) -> str:
        """Run the deck; return LAMMPS's log."""
        from flashcart.lib import plugin_path

        deck = self.folder / f"{name}.in"
        deck.write_text(DECK.format(name=name, plugin=plugin_path(), **values))
        command = [self.options.lmp, "-in", deck.name, "-log", f"{name}.log", "-screen", "none"]
        if ranks > 1:
            command = [self.options.mpiexec, "-n", str(ranks), *command]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=400)
        log = (self.folder / f"{name}.log").read_text() if (self.folder / f"{name}.log").exists() else ""
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}\n{log}")
        return log

    def forces(self, name: str) -> np.ndarray:
        """Forces of the first evaluation, [n_atoms, 3], eV/Å."""
        lines = (self.folder / f"{name}.forces").read_text().splitlines()[9:]
        return np.array([[float(word) for word in line.split()[1:4]] for line in lines])


def table(log: str) -> list[list[float]]:
    """Rows of all thermo tables: step, time, potential and total energy."""
    rows = re.findall(r"^\s*(\d+)\s+(\S+)\s+(-?[\d.e+-]+)\s+(-?[\d.e+-]+)\s*$", log, re.MULTILINE)
    return [[float(word) for word in row] for row in rows]


def write_structure(folder: Path, atoms: Atoms, elements: list[str]) -> dict[str, object]:
    """A data file and the deck's values for it."""
    from ase.data import atomic_masses, atomic_numbers

    write(folder / "structure.data", atoms, format="lammps-data", specorder=elements, atom_style="atomic")
    masses = [f"mass {n} {atomic_masses[atomic_numbers[e]]}" for n, e in enumerate(elements, start=1)]
    return {"data": "structure.data", "masses": "\n".join(masses), "elements": " ".join(elements)}


def check_numbers(lammps: Lammps, model: Path) -> list[dict[str, object]]:
    """Energies and forces on the GPU against the CPU."""
    water = read(ROOT / "examples/data/water_test.extxyz", 0)
    values = {**write_structure(lammps.folder, water, ["H", "O"]), "model": model, "temperature": 300}
    results = []
    for dtype, limit in LIMITS.items():
        shared = {**values, "dtype": dtype, "extra": "run 10"}
        reference = table(lammps.run(f"cpu_{dtype}", 1, {**shared, "device": "cpu"}))
        forces = lammps.forces(f"cpu_{dtype}")
        for ranks in (1, 2):
            name = f"cuda_{dtype}_{ranks}"
            log = lammps.run(name, ranks, {**shared, "device": "cuda"})
            energies = table(log)
            entry: dict[str, object] = {
                "dtype": dtype,
                "ranks": ranks,
                "back_end": re.search(r"back end (\w+)", log)[1],
                "memory": re.search(r"GPU memory in (\w+) segments", log)[1],
                "energy": abs(energies[0][2] - reference[0][2]) / abs(reference[0][2]),
                "energy_after_10_steps": abs(energies[-1][2] - reference[-1][2]) / abs(reference[-1][2]),
                "forces": float(np.abs(lammps.forces(name) - forces).max() / np.abs(forces).max()),
            }
            errors = [entry["energy"], entry["energy_after_10_steps"], entry["forces"]]
            entry["passed"] = max(errors) < limit and entry["back_end"] == "triton"
            entry["passed"] &= entry["memory"] == "expandable"
            results.append(entry)
            print(entry, flush=True)
    return results


def python_ms(model_path: Path, atoms: Atoms) -> dict[str, float]:
    """Energy and forces from Python on a prepared graph: first call in s, median of 20 in ms."""
    from flashcart.data.graph import atoms_to_graph
    from flashcart.deploy import load_model
    from flashcart.potential import predict

    model = load_model(model_path, device="cuda")
    graph = atoms_to_graph(atoms, model.config.elements, model.config.r_max).to("cuda")
    times = []
    for _ in range(24):
        torch.cuda.synchronize()
        start = time.perf_counter()
        float(predict(model, graph).energy)
        times.append(time.perf_counter() - start)
    return {"first_s": round(times[0], 2), "ms": round(1e3 * statistics.median(times[4:]), 2)}


def speed(lammps: Lammps) -> dict[str, object]:
    """Milliseconds per step of the default model."""
    from ase.build import bulk

    from flashcart.deploy import save_model
    from flashcart.model import FlashCart, ModelConfig

    path = lammps.folder / "copper.safetensors"
    save_model(path, FlashCart(ModelConfig(("Cu",))))
    results = {}
    for name, size in (("500", (5, 5, 5)), ("4000", (10, 10, 10))):
        atoms = bulk("Cu", cubic=True) * size
        atoms.rattle(0.05, seed=1)
        values = {**write_structure(lammps.folder, atoms, ["Cu"]), "model": path.name, "temperature": 10}
        values |= {"device": "cuda", "dtype": "trained", "extra": "run 5\nrun 50"}
        start = time.perf_counter()
        log = lammps.run(f"copper_{name}", 1, values)
        wall = time.perf_counter() - start
        loops = [float(t) for t in re.findall(r"Loop time of (\S+) on", log)]
        load, first = re.search(r"^Model loaded in (\S+) s, first evaluation in (\S+) s", log, re.MULTILINE).groups()
        results[f"{name} atoms"] = {
            "lammps_load_s": round(float(load), 2),
            "lammps_first_evaluation_s": round(float(first), 2),
            "lammps_next_5_steps_s": round(loops[-2], 2),
            "lammps_ms_per_step": round(1e3 * loops[-1] / 50, 2),
            "lammps_whole_process_s": round(wall, 1),
            "python": python_ms(path, atoms),
        }
        print(name, results[f"{name} atoms"], flush=True)
    return results


def random_model(folder: Path) -> Path:
    """The demo's kind of model with random weights."""
    from flashcart.deploy import save_model
    from flashcart.model import FlashCart, ModelConfig

    config = ModelConfig(("H", "O"), r_max=4.5, n_hidden_feats=16, l_max_hidden_feats=1, l_max_edge_attrs=2)
    save_model(folder / "random.safetensors", FlashCart(config))
    return folder / "random.safetensors"


def main() -> int:
    """Check, measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--lmp", default=shutil.which("lmp") or str(Path(sys.executable).parent / "lmp"))
    parser.add_argument("--mpiexec", default=shutil.which("mpiexec") or "mpiexec")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/lammps_gpu.json")
    options = parser.parse_args()
    import triton

    with tempfile.TemporaryDirectory() as name:
        lammps = Lammps(options, Path(name))
        model = random_model(Path(name)) if options.model is None else options.model.resolve()
        results = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "model": "random weights" if options.model is None else options.model.name,
            "numbers": check_numbers(lammps, model),
            "speed": speed(lammps),
        }
    failed = sum(not entry["passed"] for entry in results["numbers"])
    results["failed"] = failed
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{len(results['numbers'])} checks, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
