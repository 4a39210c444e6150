"""The generated programs that a model runs: which, how often, how long, and how near to what the device can do.

Takes runs of a phase, returns a frozen `ProgramRow` per program. The op that all programs go through is watched only
inside the blocks of this module, so that it costs nothing otherwise. FLOPs and bytes come from the contraction.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from flashcart.emit.triton_source import block_of, variant_of
from flashcart.ir.contraction import Contraction, Index
from flashcart.ir.cost import cost
from flashcart.ir.launch_plan import is_indexed, order_of, plan_launches, split_of
from flashcart.ir.linear_launch import linear_launches, tiles_of
from flashcart.ops import contract as contract_module
from flashcart.ops import triton_backend
from flashcart.ops.kernel_cache import contraction_of_key
from flashcart.ops.torch_backend import rows_of
from flashcart.profiling.roofline import Roofline
from flashcart.profiling.timing import no_collection, synchronize

Evaluate = Callable[[list[Tensor], Tensor, Tensor, int, str], list[Tensor]]
RANGE = "flashcart program: "
_HEAD_START = 4_000_000  # cycles of the GPU, about 2 ms: longer than the host needs for the launches of one program


@dataclass(frozen=True)
class Size:
    """How large one evaluation was: rows, nodes, channels, bytes per number, channels of a linear map's results."""

    n_rows: int
    n_nodes: int
    n_channels: int
    item_size: int
    n_out_channels: int


@dataclass(frozen=True)
class ProgramRow:
    """One program in one run. seconds, flops, n_bytes: sums over its calls.

    fraction: the shortest time that the roofline allows over the time it took.
    """

    backend: str
    key: str
    title: str
    calls: float
    seconds: float
    flops: float
    n_bytes: float
    fraction: float
    sizes: tuple[Size, ...]

    @property
    def degree(self) -> float:
        """Average number of edges per receiver in the first of its calls, 0 for products of rows."""
        return self.sizes[0].n_rows / max(1, self.sizes[0].n_nodes) if self.sizes else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        sizes = [vars(size) for size in self.sizes]
        return {
            "backend": self.backend,
            "key": self.key,
            "title": self.title,
            "calls": self.calls,
            "seconds": self.seconds,
            "flops": self.flops,
            "bytes": self.n_bytes,
            "roofline_fraction": self.fraction,
            "sizes": sizes,
        }


@cache
def title_of(key: str) -> str:
    """Name a program for people: what is multiplied, the ranks, which derivative, the start of its key."""
    program = contraction_of_key(key)
    highest: dict[int, int] = {}
    for operand in program.inputs + program.outputs:
        if operand.ranks:
            highest[operand.role] = max(operand.ranks)
    ending = f"{order_of(program).value} [{key[:8]}]"
    if program.mixes_channels:
        paths = next(o.components for o in program.inputs + program.outputs if o.channels == "cd")
        return f"linear map of {paths} paths, {ending}"
    if len(highest) < 2:
        return f"contraction, {ending}"
    *factors, result = [highest[role] for role in sorted(highest)]
    product = "edge product" if is_indexed(program) else "node product"
    kind = product if len(factors) > 1 else "expansion"
    return f"{kind} {' x '.join(map(str, factors))} -> {result}, {ending}"


@contextmanager
def named_programs() -> Iterator[None]:
    """Give every evaluation a range of its name in torch's profiler."""

    def wrap(evaluate: Evaluate) -> Evaluate:
        def named(operands: list[Tensor], senders: Tensor, receivers: Tensor, n_nodes: int, key: str) -> list[Tensor]:
            with torch.profiler.record_function(RANGE + title_of(key.partition(":")[2])):
                return evaluate(operands, senders, receivers, n_nodes, key)

        return named

    with _wrapped(wrap):
        yield


def time_programs(run: Callable[[], None], n_runs: int, device: torch.device, roofline: Roofline) -> list[ProgramRow]:
    """Return the programs of a run, averaged over `n_runs`, the slowest first."""
    calls: list[tuple[str, Size, Callable[[], float]]] = []

    def wrap(evaluate: Evaluate) -> Evaluate:
        def timed(operands: list[Tensor], senders: Tensor, receivers: Tensor, n_nodes: int, key: str) -> list[Tensor]:
            stop = _start_clock(device)
            results = evaluate(operands, senders, receivers, n_nodes, key)
            seconds = stop()
            calls.append((key, _size(key, operands, senders, receivers, int(n_nodes)), seconds))
            return results

        return timed

    with _wrapped(wrap):
        for _ in range(n_runs):
            with no_collection():
                run()
    synchronize(device)
    by_key: dict[str, list[tuple[Size, float]]] = defaultdict(list)
    for key, size, seconds in calls:
        by_key[key].append((size, seconds()))
    rows = [_row(key, entries, n_runs, roofline) for key, entries in by_key.items()]
    return sorted(rows, key=lambda row: -row.seconds)


def _row(key: str, entries: Sequence[tuple[Size, float]], n_runs: int, roofline: Roofline) -> ProgramRow:
    backend, _, name = key.partition(":")
    program = contraction_of_key(name)
    costs = [cost(program, **vars(size)) for size, _ in entries]
    seconds = sum(seconds for _, seconds in entries)
    flops, n_bytes = sum(c.flops for c in costs), sum(c.bytes for c in costs)
    shortest = sum(roofline.shortest(c.flops, c.bytes) for c in costs)
    per_run = len(entries) // n_runs
    return ProgramRow(
        backend,
        name,
        title_of(name),
        len(entries) / n_runs,
        seconds / n_runs,
        flops / n_runs,
        n_bytes / n_runs,
        shortest / max(seconds, 1e-12),
        tuple(size for size, _ in entries[:per_run]),
    )


def _size(key: str, operands: Sequence[Tensor], senders: Tensor, receivers: Tensor, n_nodes: int) -> Size:
    program = contraction_of_key(key.partition(":")[2])
    indexed = {operand.index for operand in program.inputs + program.outputs}
    rows = rows_of(
        program,
        operands,
        senders if Index.SENDER in indexed else None,
        receivers if Index.RECEIVER in indexed else senders if Index.SENDER in indexed else None,
        n_nodes,
    )
    return Size(rows.n_rows, n_nodes, rows.n_channels, operands[0].element_size(), rows.sizes["d"])


def _start_clock(device: torch.device) -> Callable[[], Callable[[], float]]:
    """Start; the result stops, and its result gives the seconds (on a GPU once it is synchronised)."""
    if device.type != "cuda":
        begun = time.perf_counter()

        def stop() -> Callable[[], float]:
            seconds = time.perf_counter() - begun
            return lambda: seconds

        return stop
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(_HEAD_START)  # the host runs ahead, so that gaps between launches do not count
    first.record()

    def stop_event() -> Callable[[], float]:
        last.record()
        return lambda: 1e-3 * first.elapsed_time(last)

    return stop_event


@contextmanager
def _wrapped(wrap: Callable[[Evaluate], Evaluate]) -> Iterator[None]:
    """Put a function around every evaluation of a program."""
    before = contract_module._evaluate
    contract_module._evaluate = wrap(before)
    try:
        yield
    finally:
        contract_module._evaluate = before


def launch_plan(key: str, degree: float, item_size: int, n_channels: int) -> list[dict[str, Any]]:
    """Return the launches of a program on a GPU under this process's settings.

    Args:
        key: of the contraction.
        degree: average number of edges per receiver.
        item_size: bytes of a number.
        n_channels: channels, of a linear map both before and after.
    """
    program, chosen = contraction_of_key(key), triton_backend.settings()
    if program.mixes_channels:
        return _linear_launch_plan(program, item_size, n_channels)
    variant = variant_of(program, chosen)
    plan = []
    for launch in plan_launches(program, chosen):
        block = block_of(program, launch, chosen, item_size)
        plan.append(
            {
                "variant": variant,
                "split": split_of(program, chosen),
                "slots": triton_backend.slots_of(program, degree) if variant == "csr" else 1,
                "ranks": list(launch.ranks),
                "input_rank": launch.input_rank,
                "components": launch.n_components,
                "outputs": list(launch.outputs),
                "terms": len(launch.terms),
                "block": block.channels,
                "registers": block.registers,
                "tiles": "",
            }
        )
    return plan


def _linear_launch_plan(program: Contraction, item_size: int, n_channels: int) -> list[dict[str, Any]]:
    """The same of a linear map: one launch per output, in one of several tiles."""
    plan = []
    for launch in linear_launches(program):
        tiles = tiles_of(launch.axes, (n_channels, n_channels), item_size)
        spec = program.outputs[launch.output]
        plan.append(
            {
                "variant": "linear",
                "split": "full",
                "slots": 1,
                "ranks": sorted(set(spec.ranks)),
                "input_rank": None,
                "components": spec.components,
                "outputs": [launch.output],
                "terms": sum(term.output[0] == launch.output for term in program.terms),
                "block": tiles[0].channels,
                "registers": None,
                "tiles": " or ".join(dict.fromkeys(f"{tile.rows}x{tile.channels}" for tile in tiles)),
            }
        )
    return plan
