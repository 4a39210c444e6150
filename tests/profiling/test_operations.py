"""Traces of torch's profiler, with our ranges in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from flashcart.config_profile import PHASES
from flashcart.errors import UserError
from flashcart.profiling.operations import _write_trace, named_layers, profile_operations
from flashcart.profiling.phases import PARTS, make_phase
from flashcart.profiling.subject import prepare


@pytest.mark.parametrize("phase", PHASES)
def test_traces_hold_phases_layers_and_programs(phase, profile_run):
    trace = json.loads((profile_run.traces / f"{phase}.json").read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    names = [event["name"] for event in events]
    for part in (phase, *PARTS[phase]):
        assert names.count(f"flashcart phase: {part}") == (1 if part == phase else 2)  # of two batches
    for layer in ("model", "expansion", "interactions.1.product", "readout"):
        assert f"flashcart layer: {layer}" in names
    for row in profile_run.document["phases"][phase]["programs"]:
        assert names.count(f"flashcart program: {row['title']}") == row["calls"]


def test_programs_lie_inside_their_phase_in_a_trace(profile_run):
    trace = json.loads((profile_run.traces / "inference.json").read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    (whole,) = [event for event in events if event["name"] == "flashcart phase: inference"]
    for event in events:
        if event["name"].startswith("flashcart program: "):
            assert whole["ts"] <= event["ts"]
            assert event["ts"] + event["dur"] <= whole["ts"] + whole["dur"]


def test_shapes_and_stacks_are_recorded_on_request(configure):
    config = configure("profile_record_shapes=true", "profile_with_stack=true")
    subject = prepare(config)
    phase = make_phase("inference", subject.model, config, loss=None, eager=True).enter()
    rows = profile_operations(phase, subject.workloads[0].batches, config, subject.device)
    assert any("192" in row.shapes for row in rows if row.name == "aten::mm")  # two frames of 96 atoms
    assert any(row.stack for row in rows)
    assert not [row.name for row in rows if re.search(r"\(\d+\): |built-in|^nn.Module", row.name)]  # no operations


def test_a_trace_that_cannot_be_written_is_a_sentence(configure, tmp_path):
    config = configure(f"profile_trace_dir={tmp_path}")
    (tmp_path / "inference.json").mkdir()
    subject = prepare(config)
    phase = make_phase("inference", subject.model, config, loss=None, eager=True).enter()
    with pytest.raises(UserError, match=r"profile_trace_dir: .*inference\.json cannot be written \(.+\)\.") as caught:
        profile_operations(phase, subject.workloads[0].batches, config, subject.device)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["inference.json"]


def test_half_a_trace_is_refused_and_removed(tmp_path):
    """torch reports nothing when the disk is full."""

    class Profiler:
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_text('{"traceEvents": [')

    with pytest.raises(UserError, match="the trace is not whole; is the disk full"):
        _write_trace(Profiler(), tmp_path / "inference.json")
    assert list(tmp_path.iterdir()) == []


def test_layers_that_fail_close_their_ranges():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(3, 3))
    with named_layers(model):
        with pytest.raises(RuntimeError, match="shapes"):
            model(torch.ones(1, 2))
        assert model[0](torch.ones(1, 2)).shape == (1, 2)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
