"""The default model's linear maps on a GPU: generated kernels against matrix products of the torch back end, float32.

    python benchmarks/linear_maps.py [--atoms 108 500 4000] [--output benchmarks/results/linear_maps.json]

Every map of the default model: forward, gradient of the tensor, gradient of the matrices. Microseconds on the device
(calls recorded as a CUDA graph, so the host does not count) of each candidate tile and of the torch back end; the tile
that the plan takes; largest errors against float64, relative to the largest value; microseconds that the host needs to
submit a call on either back end. TF32 is off: generated kernels multiply with three TF32 terms, torch in FP32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flashcart.algebra.lowering import make
from flashcart.ir.contraction import Contraction, Index
from flashcart.ir.differentiate import vjp
from flashcart.ir.linear_launch import planned_tile
from flashcart.ir.requests import LinearRequest, request_name
from flashcart.model import FlashCart, ModelConfig
from flashcart.nn import EquivariantLinear
from flashcart.ops import triton_linear
from flashcart.ops.contract import contract

ROOT = Path(__file__).resolve().parents[1]
CALLS = 10


def microseconds(call: Callable[[], object], repeats: int = 15) -> float:
    """Median time of a call on the device; `CALLS` of them are recorded and played back."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times = []
    for _ in range(repeats):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        times.append(1e3 * first.elapsed_time(last) / CALLS)
    return round(statistics.median(times), 2)


def host_microseconds(call: Callable[[], object]) -> float:
    """Median time of the host until a call returns, the device idle before it."""
    times = []
    for _ in range(30):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - start))
    return round(statistics.median(times[10:]), 1)


def maps_of_model(config: ModelConfig) -> dict[tuple[LinearRequest, int, int], int]:
    """How often the model has each map: request, channels in, channels out."""
    found: dict[tuple[LinearRequest, int, int], int] = {}
    for module in FlashCart(config).modules():
        if isinstance(module, EquivariantLinear) and module.n_elements is None:
            request = LinearRequest(module.paths, per_element=False)
            key = (request, module.in_channels, module.out_channels)
            found[key] = found.get(key, 0) + 1
    return found


def operands(program: Contraction, n_rows: int, channels: tuple[int, int]) -> list[Tensor]:
    """Random operands in float64."""
    rows = {Index.ROW: n_rows, Index.SHARED: 1}
    sizes = dict(zip("cd", channels, strict=True))
    how: Any = {
        "generator": torch.Generator("cuda").manual_seed(0),
        "dtype": torch.float64,
        "device": "cuda",
    }
    return [torch.randn(rows[o.index], o.components, *o.channel_shape(sizes), **how) for o in program.inputs]


def measure(program: Contraction, n_rows: int, channels: tuple[int, int]) -> dict[str, Any]:
    """One program at one size."""
    wide = operands(program, n_rows, channels)
    tensors = [x.float() for x in wide]
    (wanted,) = contract(program, wide, backend="torch")

    def error(got: Tensor) -> float:
        return float((got.double() - wanted).abs().max() / wanted.abs().max())

    call = triton_linear.prepare(program, tensors, None, 1, planned=True)
    (launch,) = triton_linear.launches_of(program)
    tiles = call.tiles(launch)
    planned = planned_tile(launch, tiles, n_rows, channels)
    result: dict[str, Any] = {"planned": f"{tiles[planned].rows}x{tiles[planned].channels}"}
    for tile in tiles:
        name = f"{tile.rows}x{tile.channels}"
        result[f"triton_{name}_us"] = microseconds(lambda tile=tile: triton_linear.run(call, launch, tile))
    result["torch_us"] = microseconds(lambda: contract(program, tensors, backend="torch"))
    result["triton_error"] = error(triton_linear.run(call, launch, tiles[planned]))
    result["torch_error"] = error(contract(program, tensors, backend="torch")[0])
    for backend in ("triton", "torch"):
        result[f"{backend}_host_us"] = host_microseconds(
            lambda backend=backend: contract(program, tensors, backend=backend)
        )
    return result


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/linear_maps.json")
    parser.add_argument("--atoms", type=int, nargs="*", default=[108, 500, 4000])
    options = parser.parse_args()
    import triton

    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "maps": [],
    }
    for (request, c, d), count in maps_of_model(ModelConfig(("Cu",))).items():
        forward = make(request)
        programs = {"forward": forward, "tensor": vjp(forward, (0,), (0,)), "matrices": vjp(forward, (1,), (0,))}
        for step, program in programs.items():
            for n_atoms in options.atoms:
                entry = {"map": request_name(request), "channels": [c, d], "count": count, "step": step}
                entry |= {"atoms": n_atoms, **measure(program, n_atoms, (c, d))}
                results["maps"].append(entry)
                print(json.dumps(entry), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
