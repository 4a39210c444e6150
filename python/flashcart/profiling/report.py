"""What flashcart-profile says: lines and tables for people, one document for programs.

Takes results, returns texts and JSON values.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcart.deploy import write_atomic
from flashcart.errors import UserError
from flashcart.profiling import memory
from flashcart.profiling.operations import OperationRow
from flashcart.profiling.programs import ProgramRow, launch_plan
from flashcart.profiling.roofline import Roofline
from flashcart.profiling.subject import Subject, Workload
from flashcart.profiling.timing import Measurement, Times

if TYPE_CHECKING:
    from flashcart.config_profile import ProfileConfig

FORMAT = 1
_logger = logging.getLogger("flashcart")


@dataclass(frozen=True)
class PhaseResult:
    """All of one phase. preparation: s of compiling kernels in other processes before the first run."""

    workload: Workload
    preparation: float
    measurement: Measurement
    operations: list[OperationRow]
    programs: list[ProgramRow]

    @property
    def atoms_per_second(self) -> float:
        """Atoms of a run over its median time."""
        return self.workload.n_atoms / self.measurement.whole.median

    def as_json(self) -> dict[str, Any]:
        """Return counts, times and tables."""
        return {
            **self.workload.as_json(),
            "preparation": self.preparation,
            **self.measurement.as_json(),
            "atoms_per_second": self.atoms_per_second,
            "operations": [row.as_json() for row in self.operations],
            "programs": [row.as_json() for row in self.programs],
        }


def document(
    subject: Subject, settings: dict[str, Any], roofline: Roofline, results: Sequence[PhaseResult]
) -> dict[str, Any]:
    """Return everything as JSON values."""
    sizes = (subject.dtype.itemsize, subject.model.config.n_hidden_feats)
    return {
        "format": FORMAT,
        "settings": settings,
        "notes": list(subject.notes),
        "model": {"source": subject.source, "elements": list(subject.model.config.elements), **n_parameters(subject)},
        "memory_kind": memory.kind(subject.device),
        "roofline": roofline.as_json(),
        "phases": {
            result.workload.phase: result.as_json() | {"launch_plan": _plan(result.programs, *sizes)}
            for result in results
        },
    }


def _plan(programs: Sequence[ProgramRow], item_size: int, n_channels: int) -> list[dict[str, Any]]:
    """The launches of each program of a phase."""
    return [
        {"key": row.key, "title": row.title, "launches": launch_plan(row.key, row.degree, item_size, n_channels)}
        for row in programs
    ]


def n_parameters(subject: Subject) -> dict[str, int]:
    """Return the number of parameters, and of those in matrices."""
    return {
        "parameters": sum(p.numel() for p in subject.model.parameters()),
        "matrix_parameters": sum(p.numel() for p in subject.model.muon_parameters()),
    }


def settings_lines(subject: Subject, settings: dict[str, Any]) -> list[str]:
    """Return the settings, the model and the counts."""
    words = {name: ", ".join(f"{k} {v}" for k, v in settings[name].items()) for name in ("versions", "other_variables")}
    lines = [
        f"versions: {words['versions']}",
        f"device: {settings['device']} ({settings['device_name']}), {settings['threads']} threads",
        f"dtype: {settings['dtype']}, TF32 {'allowed' if settings['tf32'] else 'off'}, "
        f"deterministic {'on' if settings['deterministic'] else 'off'}",
        f"back end: {settings['backend']} ({settings['backend_reason']}), torch.compile {settings['compile']}",
        *(f"variable: {name}={value}" for name, value in settings["variables"].items()),
        *([f"other variables: {words['other_variables']}"] if settings["other_variables"] else []),
    ]
    numbers = n_parameters(subject)
    lines.append(f"model: {subject.source}")
    lines.append(f"parameters: {numbers['parameters']}, of them {numbers['matrix_parameters']} in matrices")
    for load in subject.workloads:
        lines.append(
            f"{load.phase}: {len(load.batches)} batch{'es' if len(load.batches) > 1 else ''} with {load.n_structures} "
            f"structures, {load.n_atoms} atoms, {load.n_edges} edges of {load.path}"
        )
    return lines


def timer_lines(workload: Workload, found: Measurement, memory_kind: str) -> list[str]:
    """Return first use, warm-up, [timer] and [phase-timer] lines, and the compilations during timed runs."""
    name, per_second = workload.phase, rate(workload.n_atoms / found.whole.median)
    peak = "unknown" if found.peak_memory is None else f"{found.peak_memory / 2**20:.0f} MiB {memory_kind}"
    warm = ", ".join(f"{seconds:.4g} s" for seconds in found.warm_up) or "none"
    return [
        f"[first-use] {name}: {found.first_use:.4g} s, {found.first_compilations}",
        f"[warm-up] {name}: {warm}",
        f"[timer] {name}: {_times(found.whole)}, {per_second} atoms/s, peak memory {peak}",
        *(f"[phase-timer] {name}, {part}: {_times(times)}" for part, times in found.parts.items()),
        f"[phase-timer] {name}, all parts: {_times(found.parts_total)}",
        f"compilations during timed runs of {name}: {found.compilations.total}"
        + (f" ({found.compilations})" if found.compilations.total else ""),
    ]


def _times(times: Times) -> str:
    n = len(times.runs)
    spread = f"spread {times.spread:.2g} s" if n > 1 else "spread unknown"
    return f"{times.mean:.4g} s/run (mean of {n} run{'s' if n > 1 else ''}), median {times.median:.4g} s, {spread}"


def rate(per_second: float) -> str:
    """Return a number per second with four digits at least."""
    return f"{per_second:.0f}" if per_second >= 1000 else f"{per_second:.4g}"


def operation_table(rows: Sequence[OperationRow], limit: int, with_memory: bool) -> str:
    """Return a table of operations: times in ms of one run; times on the device only where there are any."""
    columns: list[tuple[str, Callable[[OperationRow], str]]] = [
        ("operation", lambda row: row.name if len(row.name) <= 70 else f"{row.name[:67]}..."),
        ("calls", lambda row: str(row.calls)),
        ("self CPU ms", lambda row: f"{1e3 * row.self_cpu:.3f}"),
        ("CPU ms", lambda row: f"{1e3 * row.cpu:.3f}"),
    ]
    on_gpu = any(row.device for row in rows)
    if on_gpu:
        columns.append(("self GPU ms", lambda row: f"{1e3 * row.self_device:.3f}"))
        columns.append(("GPU ms", lambda row: f"{1e3 * row.device:.3f}"))
    if with_memory:
        columns.append(("CPU MiB", lambda row: f"{row.cpu_bytes / 2**20:.2f}"))
    if with_memory and on_gpu:
        columns.append(("GPU MiB", lambda row: f"{row.device_bytes / 2**20:.2f}"))
    if any(row.shapes for row in rows):
        columns.append(("shapes", lambda row: row.shapes[:60]))
    if any(row.stack for row in rows):
        columns.append(("called from", lambda row: _origin(row.stack)))
    cells = [[text(row) for _, text in columns] for row in rows[:limit]]
    return table([name for name, _ in columns], cells)


def _origin(stack: Sequence[str]) -> str:
    """Return the innermost line of this package, else the innermost one: file (line): function."""
    if not stack:
        return ""
    ours = (line for line in stack if "flashcart/" in line and "flashcart/profiling/" not in line)
    line = next(ours, stack[0])
    return line.rpartition("site-packages/")[2].rpartition("flashcart/")[2][:60]


def program_table(rows: Sequence[ProgramRow], limit: int) -> str:
    """Return the table of generated programs in one run."""
    cells = [
        [
            row.title,
            row.backend,
            f"{row.calls:g}",
            f"{1e3 * row.seconds:.3f}",
            f"{row.flops / 1e6:.4g}",
            f"{row.n_bytes / 1e6:.4g}",
            f"{100 * row.fraction:.1f} %",
        ]
        for row in rows[:limit]
    ]
    return table(["program", "back end", "calls", "ms", "MFLOP", "MB", "roofline"], cells)


def launch_table(plan: Sequence[dict[str, Any]]) -> str:
    """Return the launches of each program."""
    cells = []
    for program in plan:
        for number, launch in enumerate(program["launches"]):
            cells.append(
                [
                    program["title"] if number == 0 else "",
                    str(number + 1),
                    " ".join(map(str, launch["ranks"])),
                    "all" if launch["input_rank"] is None else str(launch["input_rank"]),
                    str(launch["components"]),
                    str(launch["terms"]),
                    launch["variant"],
                    launch["split"],
                    str(launch["slots"]),
                    launch["tiles"] or str(launch["block"]),
                ]
            )
    head = ["program", "launch", "output ranks", "input rank", "components", "terms"]
    return table([*head, "variant", "split", "slots", "block"], cells)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return lines with the first column to the left and the others to the right."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    texts = []
    for line in lines:
        first, *others = line
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)


def check_writable(config: ProfileConfig) -> None:
    """Make the folders that results go to; raise UserError where they cannot be written, before hours are spent."""
    places = {"profile_json": config.profile_json and config.profile_json.parent}
    places["profile_trace_dir"] = config.profile_trace_dir
    for name, folder in places.items():
        if folder is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{name}: {folder} cannot be made ({error.strerror}).") from None
        _try_to_write(name, folder)
    if config.profile_json is not None and config.profile_json.is_dir():
        raise UserError(f"profile_json: {config.profile_json} is a folder; give the name of a file.")


def _try_to_write(name: str, folder: Path) -> None:
    """Permissions do not tell for every file system, so make a file and remove it."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{name}: {folder} cannot be written ({error.strerror}).") from None


def write_json(path: Path | None, document: dict[str, Any]) -> None:
    """Write a document, if a file is named."""
    if path is None:
        return
    try:
        write_atomic(path, f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode())
    except OSError as error:
        raise UserError(f"profile_json: {path} cannot be written ({error.strerror}).") from None


def log_results(path: Path | None) -> None:
    """Say where the document is, if a file is named."""
    if path is not None:
        _logger.info(f"results: {path}")
