"""How often code is made: files generated or loaded, kernels compiled or tuned, graphs captured by torch.compile.

Steady state is where these numbers stand still. Takes nothing, counts what happens in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from typing import Any

from flashcart.ops import torch_backend, triton_backend, triton_linear, tuning


@dataclass(frozen=True)
class Compilations:
    """Numbers of things made.

    generated_files: files of generated source loaded, made before where they were not in the cache. triton_kernels:
    kernels that Triton compiled or took from its own cache. torch_graphs: graphs that torch.compile captured. tunings:
    choices between tiles that were measured.
    """

    generated_files: int = 0
    triton_kernels: int = 0
    torch_graphs: int = 0
    tunings: int = 0

    def __sub__(self, earlier: Compilations) -> Compilations:
        return Compilations(*(a - b for a, b in zip(astuple(self), astuple(earlier), strict=True)))

    @property
    def total(self) -> int:
        """All of them; 0 in steady state."""
        return sum(astuple(self))

    def as_json(self) -> dict[str, int]:
        """Return the numbers by name."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.generated_files} generated files loaded, {self.triton_kernels} Triton kernels compiled, "
            f"{self.torch_graphs} graphs captured, {self.tunings} choices of tiles measured"
        )


class Counter:
    """Reads the counts of this process; made by `counting`."""

    def __init__(self) -> None:
        self._triton_kernels = 0

    def now(self) -> Compilations:
        """Return the counts so far."""
        loaders = (torch_backend.load, triton_backend.load, triton_linear.load)
        loads = sum(load.cache_info().misses for load in loaders)
        return Compilations(loads, self._triton_kernels, _torch_graphs(), tuning.n_measured())

    def listen(self, **_: Any) -> None:
        """Count one kernel; Triton calls this."""
        self._triton_kernels += 1


@contextmanager
def counting(with_triton: bool) -> Iterator[Counter]:
    """Count inside the block; `with_triton` says whether Triton, which takes time to import, may be in use."""
    counter = Counter()
    if not with_triton:
        yield counter
        return
    from triton import knobs

    before = knobs.compilation.listener

    def listen(**values: Any) -> None:
        counter.listen(**values)
        if before is not None:
            before(**values)

    knobs.compilation.listener = listen
    try:
        yield counter
    finally:
        knobs.compilation.listener = before


def _torch_graphs() -> int:
    if "torch._dynamo" not in sys.modules:
        return 0
    return int(sys.modules["torch._dynamo"].utils.counters["stats"]["unique_graphs"])
