"""examples/timing.py times a model in Python, ASE and LAMMPS."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from flashcart.deploy import save_model
from flashcart.model import FlashCart, ModelConfig

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def timing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flashcart_timing", ROOT / "examples" / "timing.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    config = ModelConfig(("H", "O"), 3.0, n_hidden_feats=2, l_max_hidden_feats=0, l_max_edge_attrs=1, correlation=1)
    save_model(path, FlashCart(config))
    return path


def test_sizes_double_and_stay_compact(timing: ModuleType) -> None:
    assert timing.sizes(96, 1536) == [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2), (4, 2, 2)]
    assert timing.sizes(96, 10) == [(1, 1, 1)]


def test_times_are_found_in_python_ase_and_lammps(timing: ModuleType, model: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(timing, "SECONDS", 0.01)
    arguments = ["--model", str(model), "--largest", "96", "--output", str(tmp_path / "out")]
    assert timing.main(arguments) == 0
    rows = json.loads((tmp_path / "out" / "timing.json").read_text(encoding="utf-8"))["atoms_per_second"]
    assert [row["atoms"] for row in rows] == [96]
    for row in rows:
        assert row["python"] > 0
        assert row["ase"] > 0
        assert row["lammps"] > 0 if timing.LMP.exists() else row["lammps"] is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "nowhere.safetensors"], "no such model file"),
        (["--model", "{junk}"], "junk.xyz"),
        (["--structure", "nowhere.xyz"], "--structure: there is no file nowhere.xyz."),
        (["--structure", "{empty}"], "--structure: "),
        (["--structure", "{junk}"], "--structure: ASE cannot read "),
        (["--structure", "{molecule}"], "is not a periodic one with atoms."),
        (["--largest", "-5"], "--largest: -5 is less than the 96 atoms of "),
        (["--device", "tpu"], "tpu"),
        (["--output", "{junk}"], "--output: the folder "),
    ],
)
def test_what_cannot_be_timed_is_a_sentence(
    timing: ModuleType, model: Path, words, sentence: str, tmp_path: Path, capsys
):
    texts = {"junk": "1\nno\nbody knows", "empty": "", "molecule": "1\nProperties=species:S:1:pos:R:3\nO 0 0 0\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.xyz").write_text(text)
    places = {name: tmp_path / f"{name}.xyz" for name in texts}
    keys = ["--model", str(model), "--output", str(tmp_path / "out"), *(word.format(**places) for word in words)]
    assert timing.main(keys) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
