"""CPU speed: energy + forces of two systems, one product against plain formulations of it, start-up, memory.

    python benchmarks/cpu.py [--threads N] [--repeats N] [--output benchmarks/results/cpu.json]

Everything is measured in one run, interleaved where things are compared; medians. The model has random weights: 16
channels, hidden rank 2, edge rank 3, r_max 5 Å, the other keys at their defaults, float32. Neighbour lists come before
timing. The molecule is acetylacetone where ../shared/data is there, else five water molecules of the example data: 15
atoms either way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--give-back", action="store_true", help="leave the C library's handling of freed memory alone")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/cpu.json")
    return parser.parse_args()


def milliseconds(call: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median, fastest and slowest of repeated calls after three that are not counted; the first is given apart."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    call(), call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return {
        "median": round(1e3 * statistics.median(times), 2),
        "fastest": round(1e3 * min(times), 2),
        "slowest": round(1e3 * max(times), 2),
        "first": round(1e3 * first, 1),
    }


def molecule():
    """15 atoms and a name."""
    from ase.io import read

    shared = ROOT.parent / "shared/data/acac/train_300K.extxyz"
    if shared.exists():
        return "acetylacetone", read(shared, 0)
    water = read(ROOT / "examples/data/water_test.extxyz", 0)
    oxygens = [a.index for a in water if a.symbol == "O"]
    near = sorted(oxygens, key=lambda i: water.get_distance(oxygens[0], i, mic=True))[:5]
    chosen = [j for i in near for j in [i, *sorted(range(len(water)), key=lambda k: _bond(water, i, k))[:2]]]
    cluster = water[chosen]
    cluster.set_positions(water.get_distances(oxygens[0], chosen, mic=True, vector=True))
    cluster.pbc, cluster.cell = False, None
    return "five water molecules", cluster


def _bond(atoms, i: int, k: int) -> float:
    return atoms.get_distance(i, k, mic=True) if atoms[k].symbol == "H" else float("inf")


def models(repeats: int) -> dict[str, object]:
    """Energy and forces of the molecule and of 512 silicon atoms."""
    from ase.build import bulk

    from flashcart.data.graph import atoms_to_graph
    from flashcart.model import FlashCart, ModelConfig
    from flashcart.potential import predict

    silicon = bulk("Si", cubic=True) * (4, 4, 4)
    silicon.rattle(0.05, seed=1)
    results = {}
    for name, atoms in (molecule(), ("silicon", silicon)):
        elements = tuple(sorted(set(atoms.get_chemical_symbols())))
        model = FlashCart(ModelConfig(elements, r_max=5.0, n_hidden_feats=16)).requires_grad_(False).eval()
        graph = atoms_to_graph(atoms, elements, 5.0)
        timing = milliseconds(lambda m=model, g=graph: predict(m, g), repeats)
        results[name] = {"atoms": len(atoms), "edges": int(graph.senders.shape[0]), "ms": timing}
        print(f"{name}: {len(atoms)} atoms, {graph.senders.shape[0]} edges, E+F {timing} ms", flush=True)
    return results


def product(repeats: int) -> dict[str, object]:
    """2 x 3 -> 3, forward and backward: generated code against one einsum per path under autograd."""
    import torch

    from flashcart.algebra.product import normalised_coupling
    from flashcart.nn import TensorProduct

    n_nodes, degree, channels = 512, 28, 16
    receivers = torch.arange(n_nodes).repeat_interleave(degree)
    senders = torch.randint(0, n_nodes, (n_nodes * degree,))
    layer = TensorProduct(2, 3, 3, channels)
    x = torch.randn(n_nodes, 9, channels, requires_grad=True)
    y = torch.randn(len(receivers), 16, requires_grad=True)
    w = torch.randn(len(receivers), layer.n_paths, channels, requires_grad=True)
    couplings = []
    for path in layer.paths:
        c = torch.zeros(2 * path.l_first + 1, 2 * path.l_second + 1, 2 * path.l_out + 1)
        for place, value in normalised_coupling(path).items():
            c[place] = value
        couplings.append((path, c))

    def einsum() -> torch.Tensor:
        gathered, parts = x.index_select(0, senders), []
        for number, (path, c) in enumerate(couplings):
            first = gathered[:, path.l_first**2 : (path.l_first + 1) ** 2]
            second = y[:, path.l_second**2 : (path.l_second + 1) ** 2]
            parts.append(torch.einsum("eac,eb,ec,abk->ekc", first, second, w[:, number], c))
        messages = torch.cat(parts, dim=1)
        return messages.new_zeros(n_nodes, *messages.shape[1:]).index_add(0, receivers, messages)

    def generated() -> torch.Tensor:
        return layer(x, y, w, senders=senders, receivers=receivers)

    difference = float((einsum() - generated()).abs().max().detach())
    results: dict[str, object] = {"nodes": n_nodes, "edges": len(receivers), "largest_difference": difference}
    for name, function in (("einsum per path", einsum), ("generated", generated)):

        def both(f: Callable[[], torch.Tensor] = function) -> object:
            out = f()
            return torch.autograd.grad(out, [x, y, w], out.detach())

        results[name] = milliseconds(both, max(5, repeats // 3))
        print(f"product 2x3->3 forward + backward, {name}: {results[name]} ms", flush=True)
    return results


def start_up() -> dict[str, float]:
    """Seconds of a new process: import, and the commands' --help and --version; the median of five."""
    commands = {
        "import flashcart": [sys.executable, "-c", "import flashcart"],
        **{
            f"{name} {flag}": [str(Path(sys.executable).parent / name), flag]
            for name in ("flashcart-train", "flashcart-test", "flashcart-lammps")
            for flag in ("--help", "--version")
        },
    }
    results = {}
    for name, command in commands.items():
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - start)
        results[name] = round(statistics.median(times), 3)
        print(f"{name}: {results[name]} s", flush=True)
    return results


def machine(threads: int) -> dict[str, object]:
    """Hardware and versions."""
    import numpy
    import torch

    import flashcart

    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "flashcart": flashcart.__version__,
    }


def main() -> None:
    """Measure, print and store."""
    options = arguments()
    started = start_up()
    import torch

    if options.give_back:
        from flashcart.ops import torch_backend

        torch_backend.keep_freed_memory = lambda: False
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    results = {
        "machine": machine(options.threads),
        "freed_memory": "given back" if options.give_back else "kept",
        "load_before": os.getloadavg()[0],
        "start_up_s": started,
        "energy_and_forces": models(options.repeats),
        "product": product(options.repeats),
        "peak_memory_MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written: {options.output}")


if __name__ == "__main__":
    main()
