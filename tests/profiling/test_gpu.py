"""flashcart-profile on a GPU, with generated Triton kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from flashcart.cli import profile as cli_profile
from flashcart.config_profile import PHASES

from .conftest import TINY_MODEL

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_kernels_are_timed_on_the_device_and_compiled_before(structures: Path, tmp_path: Path, capsys):
    keys = [f"train_path={structures}", *TINY_MODEL, "device=gpu", "profile_batch_size=2", "profile_repeat=3"]
    paths = [f"profile_json={tmp_path / 'profile.json'}", f"profile_trace_dir={tmp_path}"]
    assert cli_profile.main([*keys, *paths]) == 0
    document = json.loads((tmp_path / "profile.json").read_text(encoding="utf-8"))
    assert document["settings"]["backend"] == "triton"
    assert document["memory_kind"] == "allocated on the GPU"
    for phase in PHASES:
        found = document["phases"][phase]
        assert {row["backend"] for row in found["programs"]} == {"triton"}
        assert all(row["seconds"] > 0 for row in found["programs"])
        assert any(row["device"] > 0 for row in found["operations"] if row["ours"])
        assert set(found["compilations_in_timed_runs"].values()) == {0}
        trace = json.loads((tmp_path / f"{phase}.json").read_text(encoding="utf-8"))
        assert any(event.get("cat") == "kernel" for event in trace["traceEvents"])
    assert document["phases"]["inference"]["first_use"]["compilations"]["triton_kernels"] > 0
    assert "launches of each generated program on a GPU" in capsys.readouterr().out
