"""Generated programs: names, FLOPs and bytes, sizes, launches."""

from __future__ import annotations

import math

import ase.io
import pytest
import torch
from ase.build import molecule

from flashcart.config_profile import PHASES
from flashcart.ir.contraction import Index
from flashcart.ir.cost import multiply_adds
from flashcart.ir.launch_plan import plan_launches
from flashcart.ops import triton_backend
from flashcart.ops.kernel_cache import contraction_of_key
from flashcart.profiling.phases import make_phase
from flashcart.profiling.programs import time_programs
from flashcart.profiling.roofline import Roofline, measure_roofline
from flashcart.profiling.subject import prepare


@pytest.mark.parametrize("phase", PHASES)
def test_flops_and_bytes_are_those_of_the_contraction(phase, profile_run):
    for row in profile_run.document["phases"][phase]["programs"]:
        program = contraction_of_key(row["key"])
        assert len(row["sizes"]) == row["calls"]
        flops = n_bytes = 0
        for size in row["sizes"]:
            sizes = {"c": size["n_channels"], "d": size["n_out_channels"]}
            flops += multiply_adds(program) * size["n_rows"] * sizes["c"] * sizes["d"]
            rows = {Index.ROW: size["n_rows"], Index.SHARED: 1}
            for operand in program.inputs + program.outputs:
                numbers = rows.get(operand.index, size["n_nodes"]) * operand.components
                n_bytes += numbers * math.prod(operand.channel_shape(sizes)) * size["item_size"]
        assert row["flops"] == flops
        assert row["bytes"] == n_bytes


@pytest.mark.parametrize("phase", PHASES)
def test_sizes_are_those_of_the_batches(phase, profile_run):
    """In training, a lone atom of each of the two elements is evaluated along."""
    found = profile_run.document["phases"][phase]
    extra = 2 if phase == "training" else 0
    edges = {batch["n_edges"] for batch in found["batches"]}
    nodes = {batch["n_atoms"] + extra for batch in found["batches"]}
    for row in found["programs"]:
        sizes = {size["n_rows"] for size in row["sizes"]}
        assert sizes == (nodes if row["title"].startswith(("node product", "linear map")) else edges), row["title"]
        if row["title"].startswith("edge product"):
            assert {size["n_nodes"] for size in row["sizes"]} == nodes
            assert {size["n_channels"] for size in row["sizes"]} == {4}
            assert {size["item_size"] for size in row["sizes"]} == {4}


def test_only_training_runs_second_derivatives(profile_run):
    orders = {
        phase: {row["title"].split(", ")[1].split(" ")[0] for row in profile_run.document["phases"][phase]["programs"]}
        for phase in PHASES
    }
    assert orders == {"inference": {"forward", "backward"}, "training": {"forward", "backward", "second"}}


@pytest.mark.parametrize("phase", PHASES)
def test_programs_take_part_of_the_time_of_a_run(phase, profile_run):
    """They are timed in other runs than the whole: twice the slowest of five is allowed on a busy machine."""
    found = profile_run.document["phases"][phase]
    times = [row["seconds"] for row in found["programs"]]
    assert min(times) > 0
    assert times == sorted(times, reverse=True)
    assert sum(times) < 2 * max(found["timer"]["runs"])
    for row in found["programs"]:
        assert row["roofline_fraction"] > 0


def test_layers_are_told_apart_by_their_ranks(profile_run):
    titles = [row["title"] for row in profile_run.document["phases"]["inference"]["programs"]]
    for start in ("edge product 0 x 1 -> 1, forward", "edge product 1 x 1 -> 1, forward", "expansion 1 -> 1, backward"):
        assert sum(title.startswith(start) for title in titles) == 1
    assert len(set(titles)) == len(titles)


def test_launch_plan_covers_the_terms_of_every_program(profile_run):
    for phase in PHASES:
        found = profile_run.document["phases"][phase]
        assert [entry["key"] for entry in found["launch_plan"]] == [row["key"] for row in found["programs"]]
    for entry in profile_run.document["phases"]["training"]["launch_plan"]:
        program = contraction_of_key(entry["key"])
        assert sum(launch["terms"] for launch in entry["launches"]) == len(program.terms)
        if program.mixes_channels:
            assert [launch["outputs"] for launch in entry["launches"]] == [[n] for n in range(len(program.outputs))]
        else:
            assert len(entry["launches"]) == len(plan_launches(program, triton_backend.settings()))


def test_a_run_without_programs_gives_no_rows():
    assert time_programs(lambda: None, 1, torch.device("cpu"), Roofline(1.0, 1.0)) == []


def test_roofline_is_the_slower_of_arithmetic_and_traffic():
    limits = Roofline(bytes_per_second=10.0, flops_per_second=100.0)
    assert limits.shortest(flops=1000, n_bytes=1) == 10.0
    assert limits.shortest(flops=1, n_bytes=1000) == 100.0


def test_roofline_of_this_machine_is_plausible():
    """From a slow laptop core to a large server: 0.1 GB/s to 10 TB/s, 0.1 GFLOP/s to 100 TFLOP/s."""
    limits = measure_roofline(torch.device("cpu"), torch.float64)
    assert 1e8 < limits.bytes_per_second < 1e13
    assert 1e8 < limits.flops_per_second < 1e14


def test_programs_of_triton_have_the_same_rows(triton_interpreter, configure, tmp_path):
    """Water in Triton's interpreter: sizes, FLOPs and bytes do not depend on the back end."""
    path = tmp_path / "water.xyz"
    ase.io.write(path, [molecule("H2O")], format="extxyz")
    keys = ("profile_phase=inference", "profile_pre_fit=false", "profile_batch_size=1", "correlation=1")
    config = configure(f"profile_data_path={path}", *keys)
    subject, found = prepare(config), {}
    phase = make_phase("inference", subject.model, config, loss=None, eager=True).enter()
    for backend in ("torch", "triton"):
        subject.model.use_backend(backend)
        rows = time_programs(lambda: phase.run(subject.workloads[0].batches), 1, subject.device, Roofline(1.0, 1.0))
        assert {row.backend for row in rows} == {backend}
        found[backend] = {(row.key, row.calls, row.flops, row.n_bytes, row.sizes) for row in rows}
    assert found["torch"] == found["triton"]
    assert len(found["torch"]) >= 6
