"""Compilation of kernels before their first use, in worker processes that need no GPU.

Takes keys of contractions, a number of channels and a target; fills Triton's own cache, from which the process that
launches the kernels reads them. A kernel is compiled by evaluating its contraction on tensors without data (device
`meta`), so that everything that decides about a compiled kernel is decided by the code that launches it.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from flashcart.ir.contraction import Contraction, Index
from flashcart.ir.launch_plan import is_indexed
from flashcart.ops import triton_backend
from flashcart.ops.kernel_cache import contraction_of_key

# Rows of the tensors without data: multiples of 16, which Triton compiles for, and few enough for 32-bit strides.
N_NODES, N_EDGES = 64, 1024


@dataclass(frozen=True)
class Target:
    """What to compile for: as `triton.backends.compiler.GPUTarget`."""

    backend: str
    arch: int | str
    warp_size: int

    def of_triton(self) -> Any:
        """The same for Triton."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self.backend, self.arch, self.warp_size)


def present_target() -> Target:
    """The target of the GPU in use."""
    from triton.runtime import driver

    target = driver.active.get_current_target()
    return Target(target.backend, target.arch, target.warp_size)


@dataclass(frozen=True)
class Task:
    """One contraction to compile."""

    key: str
    channels: int
    dtype: torch.dtype
    target: Target


def compile_ahead(tasks: Sequence[Task], workers: int | None = None) -> int:
    """Compile in spawned worker processes; returns their number.

    A task that fails is left to its first use, which reports the error.

    Args:
        tasks: what to compile.
        workers: processes; default one per CPU that this process may use, at most 16.
    """
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(len(tasks), workers or min(16, available))
    if count == 0:
        return 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker) as pool:
        for future in [pool.submit(compile_task, task) for task in tasks]:
            future.exception()
    return count


def _start_worker() -> None:
    torch.set_num_threads(1)


def compile_task(task: Task) -> None:
    """Compile all launches of one contraction in this process."""
    program = contraction_of_key(task.key)
    with compiling_for(task.target):
        triton_backend.evaluate(
            task.key, empty_operands(program, task.channels, task.dtype), *_indices(program), N_NODES
        )


def empty_operands(program: Contraction, channels: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Operands without data."""
    rows = {Index.ROW: N_EDGES if is_indexed(program) else N_NODES, Index.SHARED: 1}
    return [
        torch.empty(
            rows.get(o.index, N_NODES), o.components, *([channels] if o.channels else []), dtype=dtype, device="meta"
        )
        for o in program.inputs
    ]


def _indices(program: Contraction) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    used = {o.index for o in program.inputs + program.outputs}
    index = torch.empty(N_EDGES, dtype=torch.int64, device="meta")
    return (index if Index.SENDER in used else None, index if Index.RECEIVER in used else None)


@contextmanager
def compiling_for(target: Target) -> Iterator[None]:
    """Let Triton compile for a target, whatever GPU there is."""
    from triton.runtime import driver

    before = driver._active
    driver.set_active(_Driver(target))
    try:
        yield
    finally:
        driver._active = before


class _Driver:
    """What Triton asks of a driver while it compiles and launches nothing."""

    def __init__(self, target: Target) -> None:
        self._target = target.of_triton()

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> str:
        return f"{self._target.backend}-{self._target.arch}"  # its kernels are kept apart from those of real devices

    def get_current_stream(self, device: Any) -> int:
        return 0
