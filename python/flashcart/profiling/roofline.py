"""What this device can do: bytes copied and floating-point operations per second, measured.

Takes a device and a dtype, returns a frozen `Roofline`. Memory bandwidth is that of copying a large tensor, read and
write counted; arithmetic that of a large matrix product without TF32, a multiply-add counted as two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from flashcart.potential import numerics
from flashcart.profiling.timing import synchronize

_COPIED = {"cpu": 2**27, "cuda": 2**30}  # bytes of one tensor: much more than the caches
_ORDER = {"cpu": 1024, "cuda": 8192}  # of the matrices
_REPEATS = 5


@dataclass(frozen=True)
class Roofline:
    """Limits of a device: bytes_per_second read and written, flops_per_second in one dtype."""

    bytes_per_second: float
    flops_per_second: float

    def shortest(self, flops: float, n_bytes: float) -> float:
        """Seconds that no program with this arithmetic and traffic can beat."""
        return max(flops / self.flops_per_second, n_bytes / self.bytes_per_second)

    def as_json(self) -> dict[str, float]:
        """Return the limits by name."""
        return asdict(self)


def measure_roofline(device: torch.device, dtype: torch.dtype) -> Roofline:
    """Measure for about a second; the fastest of several repetitions counts."""
    with numerics(tf32=False, deterministic=False):
        return Roofline(_bytes_per_second(device, dtype), _flops_per_second(device, dtype))


def _bytes_per_second(device: torch.device, dtype: torch.dtype) -> float:
    size = _COPIED[device.type]
    source = torch.ones(size // dtype.itemsize, dtype=dtype, device=device)
    target = torch.zeros_like(source)
    return 2 * size / _fastest(lambda: target.copy_(source), device)


def _flops_per_second(device: torch.device, dtype: torch.dtype) -> float:
    order = _ORDER[device.type]
    matrix = torch.ones(order, order, dtype=dtype, device=device)
    product = torch.empty_like(matrix)
    return 2 * order**3 / _fastest(lambda: torch.mm(matrix, matrix, out=product), device)


def _fastest(call: Callable[[], object], device: torch.device) -> float:
    call()
    times = []
    for _ in range(_REPEATS):
        synchronize(device)
        start = time.perf_counter()
        call()
        synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times)
