"""Profile one setting: the order of events of flashcart-profile.

Takes the configuration and the loss function (training's, which this package does not import), returns the document
that the JSON file holds; logs lines and tables on the way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from flashcart.config_profile import ProfileConfig
from flashcart.model_kernels import prepare_kernels
from flashcart.ops.triton_backend import on_gpu_of
from flashcart.potential import numerics
from flashcart.profiling import memory, report
from flashcart.profiling.compilations import Counter, counting
from flashcart.profiling.operations import profile_operations
from flashcart.profiling.phases import LossFunction, make_phase
from flashcart.profiling.programs import time_programs
from flashcart.profiling.roofline import Roofline, measure_roofline
from flashcart.profiling.settings import collect
from flashcart.profiling.subject import Subject, Workload, prepare
from flashcart.profiling.timing import Repetition, measure

_logger = logging.getLogger("flashcart")


def run_profile(config: ProfileConfig, loss: LossFunction) -> dict[str, Any]:
    """Profile the configured phases; return all results as JSON values, and write them to profile_json.

    Raises UserError for a configuration, model or data that cannot be used.
    """
    report.check_writable(config)
    subject = prepare(config)
    settings = collect(subject, config)
    for line in (*subject.notes, *report.settings_lines(subject, settings)):
        _logger.info(line)
    counts = counting(with_triton=subject.device.type == "cuda")
    with on_gpu_of(subject.device), numerics(config.tf32, subject.deterministic), counts as counter:
        roofline = measure_roofline(subject.device, subject.dtype)
        _logger.info(
            f"roofline of this device: {roofline.bytes_per_second / 1e9:.4g} GB/s copied, "
            f"{roofline.flops_per_second / 1e9:.4g} GFLOP/s in matrix products"
        )
        results = [_profile_phase(subject, load, config, loss, (roofline, counter)) for load in subject.workloads]
    document = report.document(subject, settings, roofline, results)
    if subject.device.type == "cuda" or config.profile_launch_plan:
        _logger.info(f"\nlaunches of each generated program on a GPU:\n{report.launch_table(document['launch_plan'])}")
    report.write_json(config.profile_json, document)
    report.log_results(config.profile_json)
    return document


def _profile_phase(
    subject: Subject,
    workload: Workload,
    config: ProfileConfig,
    loss: LossFunction,
    tools: tuple[Roofline, Counter],
) -> report.PhaseResult:
    """Time a phase, then look into it: operations, then generated programs, both in runs of their own."""
    roofline, counter = tools
    batches, device = workload.batches, subject.device
    phase = make_phase(workload.phase, subject.model, config, loss, eager=False)
    start = time.perf_counter()
    prepare_kernels(subject.model, workload.phase)
    preparation = time.perf_counter() - start
    measurement = measure(phase, batches, Repetition(config.profile_warmup, config.profile_repeat), device, counter)
    eager = make_phase(workload.phase, subject.model, config, loss, eager=True)
    if config.profile_compile_predict:
        eager.run(batches)  # loads what the compiled functions did without
    operations = profile_operations(phase, batches, config, device)
    programs = time_programs(lambda: eager.run(batches), config.profile_repeat, device, roofline)
    if device.type == "cuda" and not any(row.device for row in operations):
        _logger.warning("torch's profiler saw no work on the GPU: the tables of operations hold times of the CPU only.")
    result = report.PhaseResult(workload, preparation, measurement, operations, programs)
    _log_phase(result, config, memory.kind(device))
    return result


def _log_phase(result: report.PhaseResult, config: ProfileConfig, memory_kind: str) -> None:
    name, limit = result.workload.phase, config.profile_row_limit
    _logger.info("")
    for line in report.timer_lines(result, memory_kind):
        _logger.info(line)
    ours = sorted((row for row in result.operations if row.is_ours), key=lambda row: (-row.device, -row.cpu))
    for title, rows in ((f"operations of {name}", result.operations), (f"phases, layers and programs of {name}", ours)):
        _logger.info(f"\n{title}, one run:\n{report.operation_table(rows, limit, config.profile_memory)}")
    compiled = ", evaluated without torch.compile" if config.profile_compile_predict else ""
    _logger.info(f"\ngenerated programs of {name}, one run{compiled}:\n{report.program_table(result.programs, limit)}")


def compiled_while_timed(document: dict[str, Any]) -> Sequence[str]:
    """Return the phases whose timed runs contained compilations: none, or the times are not those of steady state."""
    phases = document["phases"].items()
    return [name for name, phase in phases if any(phase["compilations_in_timed_runs"].values())]
