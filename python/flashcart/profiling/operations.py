"""One run under torch's profiler: a table of operations, and a trace with our phases, layers and programs named.

Takes a phase and its batches, returns `OperationRow`s; writes the trace where one is wanted. Ranges are added for this
run only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from flashcart.errors import UserError
from flashcart.profiling.phases import Phase
from flashcart.profiling.programs import named_programs
from flashcart.profiling.timing import no_collection, synchronize

if TYPE_CHECKING:
    from flashcart.config_profile import ProfileConfig
    from flashcart.data.batching import LabelledBatch

OURS = "flashcart "
_LAYER = "flashcart layer: "
# With stacks, torch also records Python calls: "model.py(12): forward", "<built-in method ...>", "nn.Module: Linear_0".
# They are no operations, and other threads wait in some of them for the whole run.
_PYTHON_LINE = re.compile(r"\(\d+\): |^<built-in|^nn\.Module: ")


@dataclass(frozen=True)
class OperationRow:
    """One operation in one run. Times in s; self: without what it calls. Bytes: what it allocated minus what it freed.

    shapes, stack: where they were recorded. device_*: on a GPU, else 0.
    """

    name: str
    calls: int
    self_cpu: float
    cpu: float
    self_device: float
    device: float
    cpu_bytes: int
    device_bytes: int
    shapes: str
    stack: tuple[str, ...]

    @property
    def is_ours(self) -> bool:
        """Whether it is a phase, a layer or a generated program of this package."""
        return self.name.startswith(OURS)

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {**asdict(self), "ours": self.is_ours}


def profile_operations(
    phase: Phase, batches: Sequence[LabelledBatch], config: ProfileConfig, device: torch.device
) -> list[OperationRow]:
    """Run once under the profiler; return the operations, those with most time of their own first."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    whole = profile(
        activities=activities,
        record_shapes=config.profile_record_shapes,
        profile_memory=config.profile_memory,
        with_stack=config.profile_with_stack,
        experimental_config=torch._C._profiler._ExperimentalConfig(verbose=config.profile_with_stack),  # keeps stacks
    )
    synchronize(device)
    whole_phase = record_function(f"{OURS}phase: {phase.name}")
    with no_collection(), whole as profiler, named_layers(phase.model), named_programs(), whole_phase:
        phase.run(batches, lambda part: record_function(f"{OURS}phase: {part}"))
        synchronize(device)
    if config.profile_trace_dir is not None:
        _write_trace(profiler, config.profile_trace_dir / f"{phase.name}.json")
    depth = 5 if config.profile_with_stack else 0
    events = profiler.key_averages(group_by_input_shape=config.profile_record_shapes, group_by_stack_n=depth)
    rows = [_row(event) for event in events if not _PYTHON_LINE.search(event.key)]
    return sorted(rows, key=lambda row: (-row.self_device, -row.self_cpu))


def _row(event: Any) -> OperationRow:
    return OperationRow(
        name=event.key,
        calls=event.count,
        self_cpu=1e-6 * event.self_cpu_time_total,
        cpu=1e-6 * event.cpu_time_total,
        self_device=1e-6 * event.self_device_time_total,
        device=1e-6 * event.device_time_total,
        cpu_bytes=event.self_cpu_memory_usage,
        device_bytes=event.self_device_memory_usage,
        shapes=str(event.input_shapes) if event.input_shapes else "",
        stack=tuple(event.stack or ()),
    )


def _write_trace(profiler: Any, path: Path) -> None:
    """Write the trace beside its place, look whether it is whole, and move it there: torch reports no failure."""
    part = path.with_name(f".{path.name}.part.json")
    try:
        profiler.export_chrome_trace(str(part))
        json.loads(part.read_bytes())
        os.replace(part, path)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"profile_trace_dir: {path} cannot be written ({_reason(error)}).") from None
    finally:
        for left in (part, Path(f"{part}.tmp")):
            left.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "the trace is not whole; is the disk full?" if isinstance(error, ValueError) else str(error)


@contextmanager
def named_layers(model: torch.nn.Module) -> Iterator[None]:
    """Give the forward of every module a range of its name in torch's profiler."""
    open_ranges: list[record_function] = []
    handles = []

    def enter(name: str) -> Any:
        def hook(*_: Any) -> None:
            open_ranges.append(record_function(_LAYER + name))
            open_ranges[-1].__enter__()

        return hook

    def leave(*_: Any) -> None:
        open_ranges.pop().__exit__(None, None, None)

    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(enter(name or "model")))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
