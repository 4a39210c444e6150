"""Several settings on the same batches."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from flashcart.deploy import save_model
from flashcart.errors import FlashCartError, UserError
from flashcart.model import FlashCart, ModelConfig
from flashcart.profiling import sweep
from flashcart.profiling.sweep import expand, run_sweep, sweep_table

COMMAND = [sys.executable, "-m", "flashcart.cli.profile"]


def test_lists_become_combinations_in_order(configure):
    config = configure(
        "profile_sweep=[{}, {FLASHCART_TP_SCATTER_KERNEL: [csr, edge], profile_dtype: [float32, float64]}]"
    )
    assert [setting.text for setting in expand(config)] == [
        "as configured",
        "FLASHCART_TP_SCATTER_KERNEL=csr profile_dtype=float32",
        "FLASHCART_TP_SCATTER_KERNEL=csr profile_dtype=float64",
        "FLASHCART_TP_SCATTER_KERNEL=edge profile_dtype=float32",
        "FLASHCART_TP_SCATTER_KERNEL=edge profile_dtype=float64",
    ]


def test_variables_are_told_from_keys_by_their_capitals(configure):
    (setting,) = expand(configure("profile_sweep={OMP_NUM_THREADS: 1, use_triton: false, hidden_radial: [[8, 8]]}"))
    assert setting.variables == {"OMP_NUM_THREADS": "1"}
    assert setting.overrides == ("use_triton=false", "hidden_radial=[8, 8]")


def test_nested_keys_are_dotted_and_mappings_stand_in_a_list(configure):
    loss = "train_loss: [{weighted_sum: [{property: energy, reduce: sse}, {property: forces, reduce: sse}]}]"
    (setting,) = expand(configure(f"profile_sweep={{{loss}, train_loss.weighted_sum.0.weight: 2}}"))
    changed = sweep._merged(setting, configure())
    assert [term.property for term in changed.train_loss] == ["energy", "forces"]
    assert changed.train_loss[0].weight == 2


@pytest.mark.parametrize(
    ("sweep", "sentence"),
    [
        (
            "{FLASHCART_TP_SCATER_KERNEL: edge}",
            "is no variable of FlashCart, did you mean FLASHCART_TP_SCATTER_KERNEL?",
        ),
        (
            "{FLASHCART_TP_SCATTER_KERNEL: fast}",
            "FLASHCART_TP_SCATTER_KERNEL='fast' is not allowed; allowed: csr or edge.",
        ),
        ("{n_hidden_feat: 3}", "n_hidden_feat: unknown key in the override"),
        ("{profile_dtype: float16}", "allowed: float32, float64"),
        ("{profile_json: x.json}", "profile_json cannot be swept."),
        ("{r_max: [2.5, 0.5], r_min: 1.0}", "profile_sweep, r_max=0.5 r_min=1: r_min: got 1"),  # only together
        ("{train_path: nowhere.xyz}", "profile_sweep, train_path=nowhere.xyz: there is no file "),
        ("{profile_checkpoint: nowhere.safetensors}", "there is no file "),
        ("{precision: [bf16-mixed, '32']}", "precision is not applied in profiling, so it cannot be swept."),
        ("{predict_compile: true}", "predict_compile is not applied in profiling"),
        ("{device: gpu}", "finds no GPU here"),
    ],
)
def test_settings_are_checked_before_any_of_them_runs(configure, sweep, sentence):
    if "GPU" in sentence and __import__("torch").cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError) as caught:
        run_sweep(configure(f"profile_sweep={sweep}"), ["not a command"])
    assert sentence in str(caught.value)


@pytest.mark.parametrize("value", ["3", "[]", "[1]", "{1: 2}", "{a b: 2}", "{device: []}", "{device: {a: 1}}"])
def test_other_forms_of_a_sweep_are_refused(configure, value):
    with pytest.raises(UserError, match="profile_sweep: got"):
        configure(f"profile_sweep={value}")


@pytest.fixture(scope="module")
def swept(configure, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The document of three settings, and the error at the end: only the model can refuse the last one."""
    path = tmp_path_factory.mktemp("sweep") / "sweep.json"
    sweep = "[{FLASHCART_DETERMINISTIC: 1}, {profile_dtype: float64}, {l_max_hidden_feats: 3}]"
    config = configure("profile_phase=inference", f"profile_json={path}", f"profile_sweep={sweep}")
    with pytest.raises(FlashCartError) as caught:
        run_sweep(config, COMMAND)
    return json.loads(path.read_text(encoding="utf-8")), str(caught.value)


def test_settings_apply_to_the_same_batches(swept):
    first, second = (row["result"] for row in swept[0]["sweep"][:2])
    assert (first["settings"]["dtype"], second["settings"]["dtype"]) == ("float32", "float64")
    assert (first["settings"]["deterministic"], second["settings"]["deterministic"]) == (True, False)
    assert first["phases"]["inference"]["batches"] == second["phases"]["inference"]["batches"]


def test_table_has_ratios_to_the_first_setting(swept):
    first, second = (row["result"]["phases"]["inference"]["timer"]["median"] for row in swept[0]["sweep"][:2])
    head, *lines = sweep_table(swept[0]).splitlines()
    assert head.split()[:5] == ["setting", "phase", "s/run", "spread", "ratio"]
    ratios = {line.split()[0]: line.split()[4] for line in lines}
    assert ratios["FLASHCART_DETERMINISTIC=1"] == "1.000"
    assert float(ratios["profile_dtype=float64"]) == pytest.approx(second / first, abs=6e-4)
    assert ratios["l_max_hidden_feats=3"] == "-"


def test_a_setting_that_fails_leaves_the_others(swept):
    document, error = swept
    assert error == "1 of 3 settings failed: l_max_hidden_feats=3."
    assert "must not exceed l_max_edge_attrs" in document["sweep"][2]["error"]


def test_an_interrupted_sweep_keeps_its_rows(configure, tmp_path, monkeypatch):
    done = {"phases": {}}

    def run(setting, *_: object):
        if setting.text == "profile_dtype=float64":
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr("flashcart.profiling.sweep._run", run)
    path = tmp_path / "sweep.json"
    with pytest.raises(KeyboardInterrupt):
        run_sweep(configure(f"profile_json={path}", "profile_sweep=[{}, {profile_dtype: float64}]"), COMMAND)
    assert [row["result"] for row in json.loads(path.read_text(encoding="utf-8"))["sweep"]] == [done]


def test_traces_of_each_setting_have_a_folder(configure, tmp_path):
    sweep_key = "profile_sweep={profile_dtype: [float32, float64]}"
    run_sweep(configure("profile_phase=inference", f"profile_trace_dir={tmp_path / 'traces'}", sweep_key), COMMAND)
    found = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.json"))
    assert [str(path) for path in found] == ["traces/setting_1/inference.json", "traces/setting_2/inference.json"]


def test_rows_that_failed_stand_last():
    timer = {"median": 1.0, "spread": 0.0, "runs": [1.0]}
    phase = {"timer": timer, "peak_memory": None, "atoms_per_second": 2.0, "first_use": {"seconds": 1.0}}
    rows = [{"setting": "a", "result": None}, {"setting": "b", "result": {"phases": {"inference": phase}}}]
    lines = [line.split() for line in sweep_table({"sweep": rows}).splitlines()]
    assert [line[0] for line in lines] == ["setting", "b", "a"]
    assert lines[1][3] == "-"  # one run has no spread


def test_an_interrupted_sweep_shows_its_rows(configure, monkeypatch, caplog):
    timer = {"median": 1.0, "spread": 0.0, "runs": [1.0, 1.0]}
    phase = {"timer": timer, "peak_memory": None, "atoms_per_second": 2.0, "first_use": {"seconds": 1.0}}
    done = {"phases": {"inference": phase | {"path": "x", "batches": []}}}

    def run(setting, *_: object):
        if setting.text == "profile_dtype=float64":
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr("flashcart.profiling.sweep._run", run)
    with caplog.at_level("INFO", "flashcart"), pytest.raises(KeyboardInterrupt):
        run_sweep(configure("profile_sweep=[{}, {profile_dtype: float64}]"), COMMAND)
    assert "as configured  inference" in caplog.text


def test_keys_that_a_model_file_brings_along_cannot_be_swept(configure, tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, FlashCart(ModelConfig(("H", "O"), 3.0, n_hidden_feats=2, correlation=1, l_max_hidden_feats=0)))
    with pytest.raises(UserError, match="n_hidden_feats is a key of the model, which profile_checkpoint brings along"):
        run_sweep(configure(f"profile_checkpoint={path}", "profile_sweep={n_hidden_feats: [4, 8]}"), ["not a command"])
    path.write_bytes(b"no model")
    with pytest.raises(UserError, match="model"):
        run_sweep(configure(f"profile_checkpoint={path}", "profile_sweep={use_triton: false}"), ["not a command"])


def test_structures_for_the_fit_are_looked_for_first(configure, structures):
    keys = ("profile_phase=inference", f"profile_data_path={structures}", "train_path=nowhere.xyz")
    with pytest.raises(UserError, match=r"there is no file .*nowhere\.xyz"):
        run_sweep(configure(*keys, "profile_sweep={profile_dtype: [float32, float64]}"), ["not a command"])


def test_a_variable_can_be_taken_away(configure, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    first, second = expand(configure("profile_sweep={OMP_NUM_THREADS: [~, 1]}"))
    assert first.text == "OMP_NUM_THREADS unset"
    assert "OMP_NUM_THREADS" not in sweep._environment(first)
    assert sweep._environment(second)["OMP_NUM_THREADS"] == "1"


def test_notes_and_warnings_of_settings_are_passed_on_once(configure, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    keys = ("profile_phase=inference", "profile_n_batches=9", "profile_repeat=1")
    cache = f"profile_sweep={{FLASHCART_CACHE_DIR: [{tmp_path / 'cache'}, {tmp_path / 'file' / 'x'}]}}"
    with caplog.at_level("INFO", "flashcart"):
        run_sweep(configure(*keys, cache), COMMAND)
    assert caplog.text.count("profile_n_batches: 9 is more than the 3 of inference") == 1
    assert caplog.text.count(f"the cache folder {tmp_path / 'file' / 'x'} cannot be written") == 1
    assert "profile_repeat=1: too few runs" in caplog.text
