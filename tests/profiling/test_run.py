"""One run of flashcart-profile on the example data: counts, times, tables, and what it leaves behind."""

from __future__ import annotations

import ase.io
import pytest
from ase.neighborlist import neighbor_list

from flashcart.config_profile import PHASES
from flashcart.ops import contract as contract_module
from flashcart.ops import torch_backend, triton_backend, triton_linear
from flashcart.profiling import run as run_module
from flashcart.profiling.phases import PARTS
from flashcart.profiling.programs import ProgramRow, Size
from flashcart.profiling.run import compiled_while_timed
from flashcart.training.loss import weighted_loss


@pytest.mark.parametrize("phase", PHASES)
def test_counts_are_what_ase_finds(phase, profile_run, structures):
    found = profile_run.document["phases"][phase]
    frames = ase.io.read(structures, ":")
    for batch in found["batches"]:
        chosen = [frames[number] for number in batch["frames"]]
        assert len(chosen) == {"inference": 3, "training": 2}[phase]
        assert batch["n_atoms"] == sum(len(atoms) for atoms in chosen)
        assert batch["n_edges"] == sum(len(neighbor_list("i", atoms, 3.0)) for atoms in chosen)
    assert found["n_structures"] == sum(len(batch["frames"]) for batch in found["batches"])
    for name in ("n_atoms", "n_edges"):
        assert found[name] == sum(batch[name] for batch in found["batches"])


@pytest.mark.parametrize("phase", PHASES)
def test_times_are_positive_and_as_many_as_asked_for(phase, profile_run):
    found = profile_run.document["phases"][phase]
    assert tuple(found["phase_timer"]) == PARTS[phase]
    for times in (found["timer"], found["phase_timer_total"], *found["phase_timer"].values()):
        assert len(times["runs"]) == 5
        assert min(times["runs"]) > 0
        assert min(times["runs"]) <= times["median"] <= max(times["runs"])
        assert times["mean"] == pytest.approx(sum(times["runs"]) / 5)
        assert times["spread"] == pytest.approx(max(times["runs"]) - min(times["runs"]))
    assert found["first_use"]["seconds"] > 0
    assert len(found["warm_up"]) == 1
    assert found["peak_memory"] > 0
    assert found["atoms_per_second"] == pytest.approx(found["n_atoms"] / found["timer"]["median"])


@pytest.mark.parametrize("phase", PHASES)
def test_parts_add_up_to_the_run_they_were_taken_from(phase, profile_run):
    """Between the parts stand a few Python statements only: 5 % and a millisecond of a busy machine."""
    found = profile_run.document["phases"][phase]
    parts = [sum(times) for times in zip(*(part["runs"] for part in found["phase_timer"].values()), strict=True)]
    for total, sum_of_parts in zip(found["phase_timer_total"]["runs"], parts, strict=True):
        assert sum_of_parts <= total
        assert sum_of_parts == pytest.approx(total, rel=0.05, abs=1e-3)


@pytest.mark.parametrize("phase", PHASES)
def test_parts_add_up_to_whole_runs_within_their_spread(phase, profile_run):
    """The fastest whole run and the fastest sum of parts: the same work, apart by no more than both spread."""
    found = profile_run.document["phases"][phase]
    whole, total = found["timer"], found["phase_timer_total"]
    allowed = whole["spread"] + total["spread"] + 0.2 * min(whole["runs"])
    assert abs(min(whole["runs"]) - min(total["runs"])) <= allowed


def test_timed_runs_compile_nothing_and_say_so(profile_run):
    assert compiled_while_timed(profile_run.document) == []
    for phase in PHASES:
        assert set(profile_run.document["phases"][phase]["compilations_in_timed_runs"].values()) == {0}
        assert f"compilations during timed runs of {phase}: 0\n" in profile_run.output
    first = profile_run.document["phases"]["training"]["first_use"]["compilations"]
    assert first["torch_graphs"] == 0


def test_compilations_in_timed_runs_are_reported_by_phase():
    late = {"generated_files": 1, "triton_kernels": 0, "torch_graphs": 0}
    none = dict.fromkeys(late, 0)
    phases = {"inference": {"compilations_in_timed_runs": none}, "training": {"compilations_in_timed_runs": late}}
    assert compiled_while_timed({"phases": phases}) == ["training"]


def test_output_holds_settings_lines_and_tables(profile_run):
    for text in (
        "versions: flashcart ",
        "dtype: float32, TF32 off",
        "back end: torch (Triton kernels need CUDA inputs, not cpu), torch.compile off",
        "variable: FLASHCART_TP_SCATTER_KERNEL=csr",
        "devices, n_nodes, strategy, precision and predict_compile are not applied here",
        "[first-use] inference: ",
        "[warm-up] training: ",
        "[timer] training: ",
        "[phase-timer] training, differentiation: ",
        "operations of inference, one run:",
        "phases, layers and programs of training, one run:",
        "generated programs of inference, one run:",
        "launches of each generated program of training on a GPU:",
        "held by the process",
        "roofline of this device: ",
    ):
        assert text in profile_run.output


def test_tables_have_as_many_rows_as_asked_for(profile_run):
    table = profile_run.output.partition("operations of inference, one run:\n")[2].partition("\n\n")[0]
    assert len(table.splitlines()) == 1 + 7


def test_operations_have_memory_and_say_which_are_ours(profile_run):
    rows = profile_run.document["phases"]["training"]["operations"]
    ours = {row["name"] for row in rows if row["ours"]}
    assert {"flashcart phase: prediction", "flashcart phase: loss", "flashcart phase: differentiation"} <= ours
    assert {"flashcart layer: interactions.0.product", "flashcart layer: products.1"} <= ours
    assert "aten::mm" in {row["name"] for row in rows} - ours
    assert any(row["cpu_bytes"] > 0 for row in rows)


def test_settings_name_every_variable(profile_run):
    from flashcart.environment import Environment

    variables = profile_run.document["settings"]["variables"]
    assert len(variables) == len(Environment.__dataclass_fields__)
    assert variables["FLASHCART_TP_BWD_CSR_SLOTS"] == "chosen"


def test_nothing_stays_in_the_hot_path(profile_run):
    assert contract_module._evaluate.__module__ == "flashcart.ops.contract"
    assert contract_module._evaluate.__name__ == "_evaluate"


def test_phases_are_timed_before_the_profiler_leaves_anything_behind(profile_run):
    output = profile_run.output
    assert output.index("[timer] training") < output.index("operations of inference, one run")


def test_first_use_holds_all_that_is_loaded(configure, monkeypatch):
    """Also what lone atoms need, which are evaluated when the model enters the phase."""
    loaded = []
    measure = run_module.measure

    def noting(phase, batches, repetition, device, counter):
        loaded.append(counter.now().generated_files)
        return measure(phase, batches, repetition, device, counter)

    monkeypatch.setattr(run_module, "measure", noting)
    for load in (torch_backend.load, triton_backend.load, triton_linear.load):
        load.cache_clear()
    document = run_module.run_profile(configure("profile_phase=inference"), weighted_loss)
    found = document["phases"]["inference"]
    assert loaded == [0]
    assert found["first_use"]["compilations"]["generated_files"] >= len(found["programs"])


def test_slots_of_the_launch_plan_follow_the_edges_of_each_program(profile_run):
    for row in profile_run.document["phases"]["training"]["programs"]:
        size = row["sizes"][0]
        program = ProgramRow("torch", row["key"], "", 1, 1.0, 1.0, 1.0, 1.0, (Size(**size),))
        assert program.degree == size["n_rows"] / max(1, size["n_nodes"])
        assert (program.degree > 1) >= row["title"].startswith("edge product")
