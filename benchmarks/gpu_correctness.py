"""Generated Triton kernels on a GPU against float64: products and linear maps of every kind, and the default model.

    python benchmarks/gpu_correctness.py [--output benchmarks/results/gpu_correctness.json]

Products, linear maps: outputs, first and second derivatives against the numpy interpreter of the IR in float64 on
random data, with every candidate tile for the maps.
Model: energies, forces and the parameter gradients of a force loss, Triton against the torch back end, default keys,
a molecule and a crystal. Limits: relative 1e-11 in float64 and 1e-5 in float32. Determinism: gradients of two runs of
one product bitwise equal with atomics off; energies, forces and parameter gradients of the default model bitwise equal
in a process with FLASHCART_DETERMINISTIC=1. Exits with 1 if a limit is not met.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from flashcart.algebra.lowering import make
from flashcart.ir.contraction import Contraction, Index
from flashcart.ir.differentiate import vjp
from flashcart.ir.interpret import interpret
from flashcart.ir.requests import ExpansionRequest, LinearRequest, ProductRequest, Request, Weights, request_name
from flashcart.ops import triton_backend, triton_linear
from flashcart.ops.compile_ahead import Task, compile_ahead, present_target
from flashcart.ops.contract import contract
from flashcart.ops.kernel_cache import key_of

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {torch.float32: 1e-5, torch.float64: 1e-11}
N_NODES, N_EDGES = 12, 150

REQUESTS = [
    ExpansionRequest(3),
    ProductRequest(0, 3, 3, True, False, Weights.ROW, False),
    ProductRequest(1, 1, 1, True, False, Weights.ROW, False),
    ProductRequest(2, 3, 3, True, False, Weights.ROW, False),
    ProductRequest(3, 3, 3, True, False, Weights.ROW, False),
    ProductRequest(2, 2, 2, True, False, Weights.SHARED, True),
    ProductRequest(2, 2, 2, True, False, Weights.NONE, False),
    ProductRequest(3, 3, 3, False, True, Weights.NONE, False),
    ProductRequest(3, 3, 0, False, True, Weights.NONE, False),
    ProductRequest(2, 2, 2, False, True, Weights.SHARED, True),
    ProductRequest(2, 2, 2, False, True, Weights.ROW, True),
    ProductRequest(2, 2, 2, False, True, Weights.ROW, True, True),
]

WIDE = (REQUESTS[1], REQUESTS[3], REQUESTS[7])

# The default model's kinds: one path per rank, several, one set of matrices per element.
MAPS = [
    LinearRequest((1, 1, 1), per_element=False),
    LinearRequest((3, 5, 6), per_element=False),
    LinearRequest((1, 1), per_element=True),
    LinearRequest((2, 3), per_element=True),
]
MAP_CHANNELS = [(128, 128), (20, 70), (1, 3)]
N_ROWS, N_ELEMENTS = 700, 4


def programs(request: Request) -> list[Contraction]:
    """A product or map, its derivative, and the derivative of that, with respect to everything."""
    forward = make(request)
    backward = vjp(forward, tuple(range(len(forward.inputs))), (0,))
    second = vjp(backward, tuple(range(len(backward.inputs))), tuple(range(len(backward.outputs))))
    return [forward, backward, second]


def worst_error(program: Contraction, channels: int, dtype: torch.dtype, rng: np.random.Generator) -> float:
    """Largest error over all outputs, relative to the output's largest value."""
    rows = {Index.ROW: N_EDGES, Index.SHARED: 1}
    arrays = [
        rng.normal(size=(rows.get(o.index, N_NODES), o.components, *([channels] if o.channels else [])))
        for o in program.inputs
    ]
    senders = rng.integers(0, N_NODES, N_EDGES)
    receivers = rng.integers(0, N_NODES - 2, N_EDGES)  # unsorted; the last two nodes have no edges
    wanted = interpret(program, arrays, senders, receivers, N_NODES)
    indexed = any(o.index in (Index.SENDER, Index.RECEIVER) for o in program.inputs + program.outputs)
    index = {"senders": torch.tensor(senders).cuda(), "receivers": torch.tensor(receivers).cuda(), "n_nodes": N_NODES}
    tensors = [torch.tensor(a, dtype=dtype).cuda() for a in arrays]
    got = contract(program, tensors, backend="triton", **(index if indexed else {}))
    return max(
        float(np.abs(w - g.double().cpu().numpy()).max() / max(1e-300, np.abs(w).max()))
        for w, g in zip(wanted, got, strict=True)
    )


def product_checks() -> list[tuple[Request, str, Contraction, torch.dtype, int]]:
    """Every request, order and dtype at 20 channels; edge products also at 1 and 128."""
    checks = []
    for request in REQUESTS:
        for order, program in zip(("forward", "backward", "second"), programs(request), strict=True):
            channels = (20, 1, 128) if request in WIDE else (20,)
            checks += [(request, order, program, dtype, count) for dtype in LIMITS for count in channels]
    return checks


def name_of(dtype: torch.dtype) -> str:
    """As in Task."""
    return str(dtype).removeprefix("torch.")


def compile_all() -> float:
    """Compile every kernel of the checks in worker processes; returns seconds."""
    from flashcart.model import ModelConfig
    from flashcart.model_kernels import PHASES, contractions_of_model

    start, target = time.perf_counter(), present_target()
    keys = dict.fromkeys(key for phase in PHASES for key in contractions_of_model(ModelConfig(("H",)), phase))
    tasks = [Task(key, 128, name_of(dtype), target) for dtype in LIMITS for key in keys]
    tasks += [Task(key_of(program), count, name_of(dtype), target) for _, _, program, dtype, count in product_checks()]
    maps = [key_of(program) for request in MAPS for program in programs(request)]
    tasks += [Task(key, MAP_CHANNELS[0][0], name_of(dtype), target) for dtype in LIMITS for key in maps]
    count = compile_ahead(tasks)
    seconds = time.perf_counter() - start
    print(f"{len(tasks)} contractions compiled by {count} processes in {seconds:.0f} s", flush=True)
    return seconds


def check_products() -> list[dict[str, object]]:
    """Outputs of every check against the interpreter of the IR."""
    rng, results = np.random.default_rng(0), []
    for request, order, program, dtype, channels in product_checks():
        error = worst_error(program, channels, dtype, rng)
        entry = {"request": request_name(request), "order": order, "dtype": str(dtype), "channels": channels}
        results.append({**entry, "error": error, "passed": error < LIMITS[dtype]})
        if not error < LIMITS[dtype]:
            print("FAILED", results[-1], flush=True)
    print(f"products: {len(results)} checks, {sum(not r['passed'] for r in results)} failed", flush=True)
    return results


def map_errors(program: Contraction, channels: tuple[int, int], dtype: torch.dtype, rng: np.random.Generator) -> float:
    """Largest error over all outputs and candidate tiles, relative to the output's largest value."""
    rows = {Index.ROW: N_ROWS, Index.SHARED: 1, Index.SENDER: N_ELEMENTS}
    sizes = dict(zip("cd", channels, strict=True))
    arrays = [rng.normal(size=(rows[o.index], o.components, *o.channel_shape(sizes))) for o in program.inputs]
    indexed = any(o.index is Index.SENDER for o in program.inputs)
    species = rng.choice([0, 1, 3], size=N_ROWS) if indexed else None  # one element has no rows
    wanted = interpret(program, arrays, senders=species, n_nodes=N_ELEMENTS)
    tensors = [torch.tensor(a, dtype=dtype).cuda() for a in arrays]
    ends = None if species is None else torch.tensor(species).cuda()
    call = triton_linear.prepare(program, tensors, ends, N_ELEMENTS, planned=True)
    errors = []
    for launch in triton_linear.launches_of(program):
        want = wanted[launch.output]
        for tile in call.tiles(launch):
            got = triton_linear.run(call, launch, tile)
            errors.append(float(np.abs(want - got.double().cpu().numpy()).max() / np.abs(want).max()))
    return max(errors)


def check_maps() -> list[dict[str, object]]:
    """Linear maps of every order and dtype against the interpreter of the IR."""
    rng, results = np.random.default_rng(1), []
    for request in MAPS:
        for order, program in zip(("forward", "backward", "second"), programs(request), strict=True):
            for dtype, channels in itertools.product(LIMITS, MAP_CHANNELS):
                error = map_errors(program, channels, dtype, rng)
                entry = {"request": request_name(request), "order": order, "dtype": str(dtype), "channels": channels}
                results.append({**entry, "error": error, "passed": error < LIMITS[dtype]})
                if not error < LIMITS[dtype]:
                    print("FAILED", results[-1], flush=True)
    print(f"linear maps: {len(results)} checks, {sum(not r['passed'] for r in results)} failed", flush=True)
    return results


def structures() -> dict[str, object]:
    """A molecule and a small crystal."""
    from ase.build import bulk, molecule

    crystal = bulk("Cu", cubic=True) * (3, 3, 3)
    crystal.rattle(0.1, seed=1)
    return {"ethanol": molecule("CH3CH2OH"), "copper": crystal}


def evaluate(model, graph, backend: str) -> list[torch.Tensor]:
    """Energy, forces and the gradients of sum of squared forces with respect to every parameter."""
    from flashcart.potential import predict

    model.use_backend(backend)
    model.train()
    prediction = predict(model, graph, training=True)
    loss = prediction.forces.square().sum() + 0.01 * prediction.energy.square().sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [prediction.energy.detach(), prediction.forces.detach(), *(g for g in gradients if g is not None)]


def evaluate_frozen(model, graph, backend: str) -> list[torch.Tensor]:
    """Energy and forces in evaluation mode, without parameter gradients."""
    from flashcart.potential import predict

    model.use_backend(backend)
    model.eval().requires_grad_(False)
    prediction = predict(model, graph)
    model.requires_grad_(True)
    return [prediction.energy, prediction.forces]


def relative(first: torch.Tensor, second: torch.Tensor) -> float:
    """Largest difference over the largest value."""
    return float((first - second).abs().max() / second.abs().max().clamp(min=1e-12))


def check_model() -> list[dict[str, object]]:
    """The default model; parameter gradients are compared against the largest one of all parameters."""
    from flashcart.data.graph import atoms_to_graph
    from flashcart.model import FlashCart, ModelConfig

    results = []
    for name, atoms in structures().items():
        elements = tuple(sorted(set(atoms.get_chemical_symbols())))
        graph = atoms_to_graph(atoms, elements, 5.5).to("cuda")
        for dtype, limit in LIMITS.items():
            model = FlashCart(ModelConfig(elements), dtype=dtype).cuda()
            wide = FlashCart(ModelConfig(elements), dtype=torch.float64).cuda()
            wide.load_state_dict(model.state_dict())
            got, wanted = evaluate(model, graph, "triton"), evaluate(wide, graph, "torch")
            scale = max(float(g.abs().max()) for g in wanted[2:])
            gradients = max(float((a - b).abs().max()) for a, b in zip(got[2:], wanted[2:], strict=True)) / scale
            entry = {
                "structure": name,
                "dtype": str(dtype),
                "energy": relative(got[0], wanted[0]),
                "forces": relative(got[1], wanted[1]),
                "parameter_gradients": gradients,
            }
            frozen = zip(evaluate_frozen(model, graph, "triton"), evaluate_frozen(wide, graph, "torch"), strict=True)
            entry["energy_in_evaluation"], entry["forces_in_evaluation"] = (relative(a, b) for a, b in frozen)
            entry["passed"] = max(v for v in entry.values() if isinstance(v, float)) < limit
            results.append(entry)
            print(entry, flush=True)
    return results


def check_determinism() -> dict[str, object]:
    """Two runs of a backward with atomics off are bitwise equal; with them they are close."""
    backward = programs(ProductRequest(2, 3, 3, True, False, Weights.ROW, False))[1]
    n_nodes, n_edges, channels = 64, 4096, 64
    senders = torch.randint(0, n_nodes, (n_edges,), device="cuda")
    receivers = torch.randint(0, n_nodes, (n_edges,), device="cuda").sort()[0]
    sizes = {Index.ROW: n_edges, Index.SHARED: 1}
    tensors = [
        torch.randn(sizes.get(o.index, n_nodes), o.components, *([channels] if o.channels else []), device="cuda")
        for o in backward.inputs
    ]

    def run() -> list[torch.Tensor]:
        return contract(backward, tensors, senders=senders, receivers=receivers, n_nodes=n_nodes, backend="triton")

    free = [run() for _ in range(2)]
    torch.use_deterministic_algorithms(True)
    fixed = [run() for _ in range(3)]
    torch.use_deterministic_algorithms(False)
    equal = all(torch.equal(a, b) for other in fixed[1:] for a, b in zip(fixed[0], other, strict=True))
    close = max(relative(a, b) for a, b in zip(free[0], fixed[0], strict=True))
    result = {"bitwise_equal": equal, "difference_with_atomics": close, "passed": equal and close < 1e-5}
    print("determinism", result, flush=True)
    return result


def check_model_determinism() -> dict[str, object]:
    """Three evaluations of the default model in a process with FLASHCART_DETERMINISTIC=1, against one without."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fixed.pt"
        subprocess.run(
            [sys.executable, __file__, "--worker", "--output", str(path)],
            env={**os.environ, "FLASHCART_DETERMINISTIC": "1"},
            check=True,
        )
        found = torch.load(path, weights_only=True)
    close = max(relative(a, b) for a, b in zip(copper(1)[0][:2], found["results"][:2], strict=True))
    result = {"bitwise_equal": found["equal"], "difference_with_atomics": close}
    result["passed"] = bool(found["equal"]) and close < 1e-5
    print("determinism of the model", result, flush=True)
    return result


def copper(n_runs: int) -> list[list[torch.Tensor]]:
    """Energy, forces and parameter gradients of the default model, run by run, on the CPU; switches as in training."""
    from flashcart.data.graph import atoms_to_graph
    from flashcart.model import FlashCart, ModelConfig
    from flashcart.potential import is_deterministic, numerics

    graph = atoms_to_graph(structures()["copper"], ("Cu",), 5.5).to("cuda")
    model = FlashCart(ModelConfig(("Cu",))).cuda()
    with numerics(tf32=False, deterministic=is_deterministic(model)):
        return [[x.cpu() for x in evaluate(model, graph, "triton")] for _ in range(n_runs)]


def work(path: Path) -> None:
    """The process of `check_model_determinism`."""
    first, *others = copper(3)
    equal = all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))
    torch.save({"equal": equal, "results": first}, path)


def main() -> int:
    """Check, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/gpu_correctness.json")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.output)
        return 0
    import triton

    if triton_backend.is_interpreted():
        raise SystemExit("TRITON_INTERPRET is set: this script is for a GPU")
    start = time.perf_counter()
    results = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cpus": os.cpu_count(),
        "compilation_s": round(compile_all(), 1),
        "determinism": [check_determinism(), check_model_determinism()],
        "model": check_model(),
        "products": check_products(),
        "linear_maps": check_maps(),
    }
    results["seconds"] = round(time.perf_counter() - start, 1)
    passed = [*results["determinism"], *results["model"], *results["products"], *results["linear_maps"]]
    results["failed"] = sum(not entry["passed"] for entry in passed)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{len(passed)} checks, {results['failed']} failed, {results['seconds']} s")
    return int(results["failed"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
