"""Compilation of kernels before their first use, in worker processes that need no GPU.

Takes keys of contractions, a number of channels, a dtype and a target; fills Triton's own cache, from which the process
that launches the kernels reads them. A kernel is compiled by evaluating its contraction on tensors without data (device
`meta`), so that everything that decides about a compiled kernel is decided by the code that launches it.

Workers are new Python processes that run this file as a program, never forks and never a second run of the user's own
script: each reads its tasks, and the contractions that they name, from its standard input.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import flashcart
from flashcart.ir.contraction import Contraction, Index, parse
from flashcart.ir.launch_plan import is_indexed
from flashcart.ops import triton_backend, triton_linear
from flashcart.ops.kernel_cache import contraction_of_key, remember

# Rows of the tensors without data: multiples of 16, which Triton compiles for, and few enough for 32-bit strides.
N_NODES, N_EDGES = 64, 1024
MOST_WORKERS = 16
_logger = logging.getLogger(__name__)


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
    """One contraction to compile.

    Attributes:
        key: of the contraction.
        channels: their number.
        dtype: `float32` or `float64`.
        target: the GPU.
        deterministic: whether torch's deterministic algorithms will be on.
        tf32: whether matrix products may use TF32.
    """

    key: str
    channels: int
    dtype: str
    target: Target
    deterministic: bool = False
    tf32: bool = False


def compile_ahead(tasks: Sequence[Task], workers: int | None = None) -> int:
    """Compile in worker processes.

    What a worker fails to compile is left to its first use, which reports the error.

    Args:
        tasks: what to compile.
        workers: processes; default one per CPU that this process may use, at most 16.

    Returns:
        The number of workers that compiled all they were given: 0 where there is nothing to do or no Python interpreter
        to run them with (a host program that embeds Python).
    """
    python = interpreter()
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pieces = distinct_pieces(tasks)
    pieces.sort(key=lambda piece: -len(contraction_of_key(piece[0].key).terms))
    count = min(len(pieces), workers or min(MOST_WORKERS, cpus))
    if count == 0 or python is None:
        return 0
    running = [_start(python, pieces[first::count]) for first in range(count)]
    return sum([_succeeded(process) for process in running])


def _succeeded(process: subprocess.Popen[str]) -> bool:
    """Wait for a worker; log what it died of."""
    assert process.stderr is not None
    with process.stderr:
        errors = process.stderr.read().strip()
    if process.wait() != 0:
        _logger.info("a process that compiles kernels failed: %s", errors.rpartition("\n")[2] or "no message")
    return process.returncode == 0


def interpreter() -> str | None:
    """The Python of this process, or where a host program embeds it, the one that belongs to it."""
    candidates = [os.environ.get("FLASHCART_PYTHON", ""), sys.executable or "", f"{sys.prefix}/bin/python3"]
    return next((c for c in candidates if Path(c).name.startswith("python") and os.access(c, os.X_OK)), None)


def _launches(task: Task) -> range | tuple[None]:
    """Numbers of the launches of a contraction; None, all of them, where atomic additions are replaced."""
    if contraction_of_key(task.key).mixes_channels:
        return range(_n_pieces(task))
    if task.deterministic or triton_backend.settings().deterministic:
        return (None,)
    item_size = getattr(torch, task.dtype).itemsize
    return range(len(triton_backend.load(task.key, triton_backend.settings(), item_size).KERNELS))


def _n_pieces(task: Task) -> int:
    return triton_linear.n_pieces(task.key, task.channels, getattr(torch, task.dtype).itemsize)


def distinct_pieces(tasks: Sequence[Task]) -> list[tuple[Task, int | None]]:
    """Tasks and numbers of their launches. Linear maps share kernels: of those that are the same, the first."""
    first: dict[object, tuple[Task, int | None]] = {}
    for task, number in ((each, n) for each in tasks for n in _launches(each)):
        identity: object = (task, number)
        if number is not None and contraction_of_key(task.key).mixes_channels:
            item_size = getattr(torch, task.dtype).itemsize
            kernel = triton_linear.piece_identity(task.key, task.channels, item_size, number)
            identity = (kernel, task.target, task.tf32)
        first.setdefault(identity, (task, number))
    return list(first.values())


def _start(python: str, pieces: Sequence[tuple[Task, int | None]]) -> subprocess.Popen[str]:
    # Modules of the folder that the user happens to be in are not for the worker (from Python 3.11 on, that is heeded).
    safe = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(_module_path())}
    environment = {**os.environ, **safe, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [python, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(_message(pieces)))
        process.stdin.close()
    except BrokenPipeError:
        pass  # it ended already; its kernels are compiled at their first use
    return process


def _module_path() -> list[str]:
    """The user's PYTHONPATH, and where this package is, if it is not installed among others."""
    here = Path(flashcart.__file__).resolve().parents[1]
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return given if here.name.endswith("-packages") else [*given, str(here)]


def _message(pieces: Sequence[tuple[Task, int | None]]) -> dict[str, Any]:
    """What a worker reads. Contractions go with it: their files may lie in a folder of this process only."""
    texts = {task.key: contraction_of_key(task.key).text for task, _ in pieces}
    return {"contractions": list(texts.values()), "pieces": [(asdict(task), number) for task, number in pieces]}


def main() -> int:
    """A worker: tasks from standard input; returns 1 if one of them failed."""
    torch.set_num_threads(1)
    failed = False
    message = json.load(sys.stdin)
    for text in message["contractions"]:
        remember(parse(text))
    for fields, number in message["pieces"]:
        task = Task(**{**fields, "target": Target(**fields["target"])})
        try:
            compile_task(task, number)
        except Exception as error:
            print(f"{task}: {error}", file=sys.stderr)
            failed = True
    return int(failed)


def compile_task(task: Task, number: int | None = None) -> None:
    """Compile one launch of a contraction, or all of them, in this process."""
    program = contraction_of_key(task.key)
    torch.use_deterministic_algorithms(task.deterministic)
    torch.backends.cuda.matmul.fp32_precision = "tf32" if task.tf32 else "ieee"
    operands = empty_operands(program, task.channels, getattr(torch, task.dtype))
    with compiling_for(task.target):
        if program.mixes_channels:
            linear = triton_linear.prepare(program, operands, _indices(program)[0], N_NODES, planned=True)
            for piece in range(_n_pieces(task)) if number is None else (number,):
                triton_linear.compile_piece(linear, task.key, piece)
        elif number is None:
            triton_backend.evaluate(task.key, operands, *_indices(program), N_NODES)
        else:
            call = triton_backend.prepare(task.key, operands, *_indices(program), N_NODES)
            triton_backend.compile_launch(call, number)


def empty_operands(program: Contraction, channels: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Operands without data."""
    rows = {Index.ROW: N_EDGES if is_indexed(program) else N_NODES, Index.SHARED: 1}
    sizes = {"c": channels, "d": channels}
    shapes = [(rows.get(o.index, N_NODES), o.components, *o.channel_shape(sizes)) for o in program.inputs]
    return [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]


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


if __name__ == "__main__":
    raise SystemExit(main())
