"""Profile one setting: the order of events of flashcart-profile.

Takes the configuration and the loss function (training's, which this package does not import), returns the document
that the JSON file holds; logs lines and tables on the way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flashcart.config_profile import ProfileConfig
from flashcart.model import backend_for
from flashcart.model_kernels import prepare_kernels
from flashcart.ops.triton_backend import on_gpu_of
from flashcart.potential import numerics
from flashcart.profiling import memory, report
from flashcart.profiling.compilations import Counter, counting
from flashcart.profiling.operations import profile_operations
from flashcart.profiling.phases import LossFunction, Phase, make_phase
from flashcart.profiling.programs import time_programs
from flashcart.profiling.roofline import Roofline, measure_roofline
from flashcart.profiling.settings import collect
from flashcart.profiling.subject import Subject, Workload, prepare
from flashcart.profiling.timing import Measurement, Repetition, measure

_logger = logging.getLogger("flashcart")


def run_profile(config: ProfileConfig, loss: LossFunction) -> dict[str, Any]:
    """Profile the configured phases; return all results as JSON values, and write them to profile_json.

    Raises UserError for a configuration, model or data that cannot be used.
    """
    report.check_writable(config)
    with _warnings() as warned:
        subject = prepare(config)
        settings = collect(subject, config)
        for line in (*subject.notes, *report.settings_lines(subject, settings)):
            _logger.info(line)
        roofline, results = _profile_phases(subject, config, loss)
    document = report.document(subject, settings, roofline, results)
    document["notes"] += warned
    if subject.device.type == "cuda" or config.profile_launch_plan:
        for phase, found in document["phases"].items():
            lines = report.launch_table(found["launch_plan"])
            _logger.info(f"\nlaunches of each generated program of {phase} on a GPU:\n{lines}")
    report.write_json(config.profile_json, document)
    report.log_results(config.profile_json)
    return document


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what is logged as a warning."""
    texts: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    collector = Collector(logging.WARNING)
    _logger.addHandler(collector)
    try:
        yield texts
    finally:
        _logger.removeHandler(collector)


def _profile_phases(
    subject: Subject, config: ProfileConfig, loss: LossFunction
) -> tuple[Roofline, list[report.PhaseResult]]:
    """Time all phases, then look into each: the profiler's memory must not count as that of the next phase."""
    with_gpu = subject.device.type == "cuda"
    switches = numerics(config.tf32, subject.deterministic)
    with on_gpu_of(subject.device), switches, counting(with_triton=with_gpu) as counter:
        roofline = measure_roofline(subject.device, subject.dtype)
        _logger.info(
            f"roofline of this device: {roofline.bytes_per_second / 1e9:.4g} GB/s copied, "
            f"{roofline.flops_per_second / 1e9:.4g} GFLOP/s in matrix products\n"
        )
        timed = [_time(subject, load, config, loss, counter) for load in subject.workloads]
        return roofline, [_look_into(subject, config, found, roofline) for found in timed]


@dataclass(frozen=True)
class _Timed:
    """A phase that has been timed. eager: the same without torch.compile; preparation: see `report.PhaseResult`."""

    workload: Workload
    phase: Phase
    eager: Phase
    preparation: float
    measurement: Measurement


def _time(subject: Subject, workload: Workload, config: ProfileConfig, loss: LossFunction, counter: Counter) -> _Timed:
    """Compile kernels in other processes, then run a phase."""
    phase, eager = (make_phase(workload.phase, subject.model, config, loss, eager=eager) for eager in (False, True))
    start = time.perf_counter()
    prepare_kernels(subject.model, workload.phase)
    preparation = time.perf_counter() - start
    if backend_for(subject.model.config.use_triton, subject.device.type) == "triton":
        name = workload.phase
        _logger.info(f"[kernels] {name}: {preparation:.4g} s before the first use, in processes beside it")
    repetition = Repetition(config.profile_warmup, config.profile_repeat)
    measurement = measure(phase, workload.batches, repetition, subject.device, counter)
    for line in report.timer_lines(workload, measurement, memory.kind(subject.device)):
        _logger.info(line)
    return _Timed(workload, phase, eager, preparation, measurement)


def _look_into(subject: Subject, config: ProfileConfig, timed: _Timed, roofline: Roofline) -> report.PhaseResult:
    """Find operations, then generated programs, both in runs of their own."""
    batches, device = timed.workload.batches, subject.device
    timed.phase.enter()
    if config.profile_compile_predict:
        timed.eager.run(batches)  # loads what the compiled functions did without
    operations = profile_operations(timed.phase, batches, config, device)
    programs = time_programs(lambda: timed.eager.run(batches), config.profile_repeat, device, roofline)
    if device.type == "cuda" and not any(row.device for row in operations):
        _logger.warning("torch's profiler saw no work on the GPU: the tables of operations hold times of the CPU only.")
    result = report.PhaseResult(timed.workload, timed.preparation, timed.measurement, operations, programs)
    _log_tables(result, config)
    return result


def _log_tables(result: report.PhaseResult, config: ProfileConfig) -> None:
    name, limit = result.workload.phase, config.profile_row_limit
    ours = sorted((row for row in result.operations if row.is_ours), key=lambda row: (-row.device, -row.cpu))
    for title, rows in ((f"operations of {name}", result.operations), (f"phases, layers and programs of {name}", ours)):
        _logger.info(f"\n{title}, one run:\n{report.operation_table(rows, limit, config.profile_memory)}")
    compiled = ", evaluated without torch.compile" if config.profile_compile_predict else ""
    _logger.info(f"\ngenerated programs of {name}, one run{compiled}:\n{report.program_table(result.programs, limit)}")


def compiled_while_timed(document: dict[str, Any]) -> Sequence[str]:
    """Return the phases whose timed runs contained compilations: none, or the times are not those of steady state."""
    phases = document["phases"].items()
    return [name for name, phase in phases if any(phase["compilations_in_timed_runs"].values())]
