"""examples/timing.py times a model in Python, ASE and LAMMPS."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def timing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flashcart_timing", ROOT / "examples" / "timing.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sizes_double_and_stay_compact(timing: ModuleType) -> None:
    assert timing.sizes(96, 1536) == [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2), (4, 2, 2)]
    assert timing.sizes(96, 10) == [(1, 1, 1)]


def test_times_are_found_in_python_ase_and_lammps(timing: ModuleType, tmp_path: Path, monkeypatch) -> None:
    from flashcart.deploy import save_model
    from flashcart.model import FlashCart, ModelConfig

    monkeypatch.setattr(timing, "SECONDS", 0.01)
    config = ModelConfig(("H", "O"), 3.0, n_hidden_feats=2, l_max_hidden_feats=0, l_max_edge_attrs=1, correlation=1)
    save_model(tmp_path / "model.safetensors", FlashCart(config))
    arguments = ["--model", str(tmp_path / "model.safetensors"), "--largest", "96", "--output", str(tmp_path / "out")]
    assert timing.main(arguments) == 0
    rows = json.loads((tmp_path / "out" / "timing.json").read_text(encoding="utf-8"))["atoms_per_second"]
    assert [row["atoms"] for row in rows] == [96]
    for row in rows:
        assert row["python"] > 0
        assert row["ase"] > 0
        assert row["lammps"] > 0 if timing.LMP.exists() else row["lammps"] is None
