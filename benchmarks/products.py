"""Product kernels on a GPU: milliseconds, share of the roofline, seconds to first use, against other formulations.

    python benchmarks/products.py [--output FILE] [--nodes 4096] [--degree 64] [--channels 128] [--only 2x3-3 ...]

Edge products with one weight per edge, path and channel in memory, float32. `forward`, `backward` and `double
backward` are timed apart (medians, CUDA events) and added up. The roofline time of a program is its bytes, which come
from the IR, over the copy bandwidth measured in this run; `share` is that over the measured time. First use is a new
process with empty caches, which compiles kernel by kernel. e3nn and cuEquivariance are timed beside it where they
are installed (peers.py), inputs and weights per edge alike.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import peers
import torch

ROOT = Path(__file__).resolve().parents[1]
PEERS = {"e3nn": peers.e3nn, "cuequivariance": peers.cuequivariance}
CASES = {"0x3-3": (0, 3, 3), "1x1-1": (1, 1, 1), "2x3-2": (2, 3, 2), "2x3-3": (2, 3, 3), "3x3-3": (3, 3, 3)}


def milliseconds(call: Callable[[], object], repeats: int = 15) -> float:
    """Median time on the device of repeated calls, after three that are not counted; the host runs ahead."""
    for _ in range(3):
        call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in itertools.pairwise(marks))


def rates() -> dict[str, float]:
    """Copy bandwidth (bytes read and written per second) and FP32 matrix rate (multiply-adds per second)."""
    source = torch.empty(2**29, device="cuda")
    target = torch.empty_like(source)
    copy = 2 * source.numel() * 4 / (1e-3 * milliseconds(lambda: target.copy_(source)))
    a = torch.randn(8192, 8192, device="cuda")
    product = 8192**3 / (1e-3 * milliseconds(lambda: a @ a, 5))
    return {"copy_bytes_per_s": copy, "fp32_multiply_adds_per_s": product}


class Case:
    """Operands of one product and its calls."""

    def __init__(self, ranks: tuple[int, int, int], options: argparse.Namespace) -> None:
        from flashcart.nn import TensorProduct

        n, degree, c = options.nodes, options.degree, options.channels
        generator = torch.Generator("cuda").manual_seed(0)
        self.n_nodes, self.n_edges, self.channels = n, n * degree, c
        self.receivers = torch.arange(n, device="cuda").repeat_interleave(degree)
        # neighbours are near in memory, as they are in a sorted structure
        near = torch.randint(-200, 200, (n * degree,), device="cuda", generator=generator)
        self.senders = (self.receivers + near) % n
        self.layer = TensorProduct(*ranks, channels=c)
        sizes = [(n, (ranks[0] + 1) ** 2, c), (n * degree, (ranks[1] + 1) ** 2), (n * degree, self.layer.n_paths, c)]
        self.inputs = [torch.randn(s, device="cuda", generator=generator, requires_grad=True) for s in sizes]
        out = (n, self.layer.out_components, c)
        self.cotangent = torch.randn(out, device="cuda", generator=generator, requires_grad=True)
        self.seconds = [torch.randn(s, device="cuda", generator=generator) for s in sizes]

    def steps(self, backend: str) -> dict[str, Callable[[], object]]:
        """Forward, backward and double backward as calls on prepared graphs."""
        self.layer.backend = backend

        def forward() -> torch.Tensor:
            return self.layer(*self.inputs, senders=self.senders, receivers=self.receivers, n_nodes=self.n_nodes)

        out = forward()
        first = torch.autograd.grad(out, self.inputs, self.cotangent, create_graph=True)
        everything = [*self.inputs, self.cotangent]
        return {
            "forward": forward,
            "backward": lambda: torch.autograd.grad(out, self.inputs, self.cotangent.detach(), retain_graph=True),
            "double backward": lambda: torch.autograd.grad(first, everything, self.seconds, retain_graph=True),
        }


def measure(case: Case, backend: str) -> dict[str, float] | str:
    """Milliseconds of each step, or why there are none."""
    try:
        return measured(case.steps(backend))
    except torch.OutOfMemoryError:
        return "out of memory"
    finally:
        torch.cuda.empty_cache()


def measured(steps: peers.Steps) -> dict[str, float]:
    """Milliseconds of each step and their sum."""
    results = {name: round(milliseconds(call), 3) for name, call in steps.items()}
    results["total"] = round(sum(results.values()), 3)
    return results


def rooflines(case: Case, limits: dict[str, float]) -> dict[str, float]:
    """Milliseconds that bandwidth and arithmetic allow each step, from the IR's counts."""
    from flashcart.ir.cost import cost
    from flashcart.ir.differentiate import vjp
    from flashcart.ir.requests import ProductRequest, Weights
    from flashcart.nn.expansion import program_of

    layer = case.layer
    request = ProductRequest(layer.l_in, layer.l_edge, layer.l_out, True, False, Weights.ROW, False)
    forward = program_of(request)
    backward = vjp(forward, (0, 1, 2), (0,))
    second = vjp(backward, (0, 1, 2, 3), (0, 1, 2))
    results = {}
    for name, program in (("forward", forward), ("backward", backward), ("double backward", second)):
        need = cost(program, n_rows=case.n_edges, n_nodes=case.n_nodes, n_channels=case.channels, item_size=4)
        results[name] = round(1e3 * need.bytes / limits["copy_bytes_per_s"], 3)
    return results


def peer(case: Case, steps: Callable[[Case], peers.Steps]) -> dict[str, float] | str:
    """Milliseconds of each step of a public package, or why there are none."""
    try:
        return measured(steps(case))
    except ImportError:
        return "not installed"
    except torch.OutOfMemoryError:
        return "out of memory"
    finally:
        torch.cuda.empty_cache()


FIRST_USE = """
import sys, time, json, argparse
sys.path.insert(0, {root!r})
start = time.perf_counter()
import torch
torch.zeros(1, device="cuda")
ready = time.perf_counter()
import products
case = products.Case(products.CASES[{name!r}], argparse.Namespace(nodes=64, degree=16, channels={channels}))
steps = case.steps("triton")
times = {{}}
for name, call in steps.items():
    call(); torch.cuda.synchronize()
    times[name] = time.perf_counter() - ready
print("RESULT" + json.dumps(times))
"""


def first_use(name: str, channels: int) -> dict[str, float]:
    """Seconds from a ready torch to the last first result in a new process: empty caches, then filled ones."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FLASHCART_CACHE_DIR": f"{folder}/cache", "TRITON_CACHE_DIR": f"{folder}/triton"}
        code = FIRST_USE.format(root=str(ROOT / "benchmarks"), name=name, channels=channels)
        for label in ("cold", "warm"):
            run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
            line = next((line for line in run.stdout.splitlines() if line.startswith("RESULT")), None)
            if line is None:
                raise SystemExit(run.stderr)
            results[label] = round(max(json.loads(line[6:]).values()), 2)
    return results


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/products.json")
    parser.add_argument("--nodes", type=int, default=4096)
    parser.add_argument("--degree", type=int, default=64)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--skip", nargs="*", default=[], choices=["torch", *PEERS])
    parser.add_argument("--first-use", nargs="*", default=["2x3-3", "3x3-3"], help="products whose start-up is timed")
    options = parser.parse_args()
    import triton

    limits = rates()
    results: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "nodes": options.nodes,
        "degree": options.degree,
        "channels": options.channels,
        "variables": {name: value for name, value in os.environ.items() if name.startswith("FLASHCART_TP_")},
        "rates": limits,
    }
    for name in options.only:
        begin = time.perf_counter()
        entry: dict[str, object] = {}
        if name in options.first_use:
            entry["first_use_s"] = first_use(name, options.channels)
        case = Case(CASES[name], options)
        entry["roofline_ms"] = rooflines(case, limits)
        entry["triton"] = measure(case, "triton")
        entry["share"] = {step: round(ms / entry["triton"][step], 2) for step, ms in entry["roofline_ms"].items()}
        if "torch" not in options.skip:
            entry["torch"] = measure(case, "torch")
        for package, steps in PEERS.items():
            if package not in options.skip:
                entry[package] = peer(case, steps)
        results[name] = entry
        print(name, json.dumps(entry), f"({time.perf_counter() - begin:.0f} s)", flush=True)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
