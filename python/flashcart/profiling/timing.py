"""Times of a phase: first use, warm-up, whole runs, and runs taken apart.

Takes a phase and its batches, returns a frozen `Measurement`. A run is one pass over all batches. The GPU is
synchronised before and after a run, and after each part where a run is taken apart. Python's garbage collector stands
still during a run: a pause of a tenth of a second, due to what other runs left behind, would be taken for the model's.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flashcart.profiling import memory
from flashcart.profiling.compilations import Compilations, Counter
from flashcart.profiling.phases import Phase, Region, no_region

if TYPE_CHECKING:
    from flashcart.data.batching import LabelledBatch


@dataclass(frozen=True)
class Times:
    """Seconds of each of several runs."""

    runs: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Average, s."""
        return statistics.fmean(self.runs)

    @property
    def median(self) -> float:
        """Median, s."""
        return statistics.median(self.runs)

    @property
    def spread(self) -> float:
        """Slowest minus fastest, s; 0 for one run."""
        return max(self.runs) - min(self.runs)

    def as_json(self) -> dict[str, Any]:
        """Return runs, mean, median and spread, s."""
        return {"runs": list(self.runs), "mean": self.mean, "median": self.median, "spread": self.spread}


@dataclass(frozen=True)
class Measurement:
    """What was measured of a phase.

    first_use: s of the very first run, which loads and compiles, and of entering the phase before it, in which the
    model evaluates lone atoms; first_compilations: what these made. warm_up: s of each untimed run. whole: runs in one
    piece; parts, parts_total: other runs, synchronised after each part. compilations: what was made in all timed runs,
    nothing in steady state. peak_memory: bytes in whole runs, or None.
    """

    first_use: float
    first_compilations: Compilations
    warm_up: tuple[float, ...]
    whole: Times
    parts: dict[str, Times]
    parts_total: Times
    compilations: Compilations
    peak_memory: int | None

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "first_use": {"seconds": self.first_use, "compilations": self.first_compilations.as_json()},
            "warm_up": list(self.warm_up),
            "timer": self.whole.as_json(),
            "phase_timer": {name: times.as_json() for name, times in self.parts.items()},
            "phase_timer_total": self.parts_total.as_json(),
            "compilations_in_timed_runs": self.compilations.as_json(),
            "peak_memory": self.peak_memory,
        }


@dataclass(frozen=True)
class Repetition:
    """How often a phase is run: untimed after the first run, and timed."""

    warm_up: int
    timed: int


def measure(
    phase: Phase, batches: Sequence[LabelledBatch], repetition: Repetition, device: torch.device, counter: Counter
) -> Measurement:
    """Time a phase."""
    before, start = counter.now(), time.perf_counter()
    phase.enter()
    entering = time.perf_counter() - start
    first_use = entering + _seconds(phase, batches, device)
    first_compilations = counter.now() - before
    warm_up = tuple(_seconds(phase, batches, device) for _ in range(repetition.warm_up))
    before = counter.now()
    memory.reset_peak(device)
    whole = [_seconds(phase, batches, device) for _ in range(repetition.timed)]
    peak = memory.peak(device)
    clocks = [Clock(device) for _ in range(repetition.timed)]
    totals = [_seconds(phase, batches, device, clock.region) for clock in clocks]
    parts = {name: Times(tuple(clock.seconds[name] for clock in clocks)) for name in clocks[0].seconds}
    return Measurement(
        first_use,
        first_compilations,
        warm_up,
        Times(tuple(whole)),
        parts,
        Times(tuple(totals)),
        counter.now() - before,
        peak,
    )


class Clock:
    """Adds up the seconds of each part of a run, synchronised."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def region(self, part: str) -> Iterator[None]:
        """Time what is inside."""
        start = time.perf_counter()
        yield
        synchronize(self.device)
        self.seconds[part] += time.perf_counter() - start


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect Python's garbage now, and not inside; what is switched off already stays so."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def synchronize(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(phase: Phase, batches: Sequence[LabelledBatch], device: torch.device, region: Region = no_region) -> float:
    with no_collection():
        synchronize(device)
        start = time.perf_counter()
        phase.run(batches, region)
        synchronize(device)
        return time.perf_counter() - start
