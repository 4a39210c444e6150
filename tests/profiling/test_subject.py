"""What is profiled: data, model, notes."""

from __future__ import annotations

from pathlib import Path

import ase.io
import pytest
import torch
from ase.build import molecule

from flashcart.deploy import save_model
from flashcart.errors import ConfigError, DataError, DeviceError, ModelFileError, UserError
from flashcart.model import FlashCart, ModelConfig
from flashcart.profiling.subject import prepare


def test_offsets_and_scales_are_fitted_first(configure):
    fitted, unfitted = prepare(configure()).model, prepare(configure("profile_pre_fit=false")).model
    assert (fitted.offsets < -1).all()
    assert float(fitted.average_neighbors) > 1
    assert (unfitted.offsets == 0).all()
    assert float(unfitted.average_neighbors) == 1


def test_paths_fall_back_as_documented(configure, structures: Path, other_structures: Path):
    subject = prepare(configure(f"profile_data_path={other_structures}"))
    assert [load.path for load in subject.workloads] == [other_structures, structures]
    subject = prepare(configure("train_path=~", f"profile_data_path={other_structures}"))
    assert [load.path for load in subject.workloads] == [other_structures, other_structures]
    subject = prepare(configure(f"profile_train_path={other_structures}", "profile_phase=training"))
    assert [load.path for load in subject.workloads] == [other_structures]


def test_inference_needs_no_labels(configure, tmp_path: Path):
    path = tmp_path / "unlabelled.xyz"
    ase.io.write(path, [molecule("H2O")], format="extxyz")
    subject = prepare(configure(f"profile_data_path={path}", "profile_phase=inference", "profile_batch_size=1"))
    assert (subject.workloads[0].n_atoms, subject.workloads[0].n_edges) == (3, 6)
    with pytest.raises(DataError, match="no energy"):
        prepare(configure(f"train_path={path}", "profile_phase=training"))


def test_training_batches_have_a_size_of_their_own(configure):
    subject = prepare(configure("profile_train_batch_size=3", "profile_n_batches=2"))
    assert [[b.graph.n_structures for b in load.batches] for load in subject.workloads] == [[2, 2], [3, 3]]


def test_batches_are_the_same_every_time(configure):
    first, second = (prepare(configure("profile_phase=inference")).workloads[0] for _ in range(2))
    assert first.as_json() == second.as_json()


def test_a_batch_larger_than_the_set_is_a_note(configure):
    subject = prepare(configure("profile_phase=inference", "profile_batch_size=64", "profile_n_batches=2"))
    assert subject.workloads[0].n_structures == 6
    text = "\n".join(subject.notes)
    assert "profile_batch_size: 64 is more than the 6 structures of" in text
    assert "profile_n_batches: 2 is more than the 1 of inference" in text


def test_a_deployed_model_keeps_its_own_keys_and_dtype(configure, tmp_path: Path):
    path = tmp_path / "model.safetensors"
    model = FlashCart(ModelConfig(("O", "H"), 2.5, n_hidden_feats=3, l_max_hidden_feats=0), dtype=torch.float64)
    save_model(path, model)
    subject = prepare(configure(f"profile_checkpoint={path}", "profile_phase=inference", "use_triton=false"))
    assert subject.dtype == torch.float64
    assert subject.model.config.elements == ("O", "H")
    assert (subject.model.config.r_max, subject.model.config.use_triton) == (2.5, False)
    lengths = subject.workloads[0].batches[0].graph.edge_vectors.norm(dim=1)
    assert lengths.max() <= 2.5
    subject = prepare(configure(f"profile_checkpoint={path}", "profile_dtype=float32"))
    assert subject.dtype == torch.float32


def test_keys_that_do_not_apply_are_named(configure):
    assert "precision" in prepare(configure("precision=64")).notes[0]
    notes = prepare(configure("checkpoint=other.safetensors")).notes
    assert any(note.startswith("checkpoint is not applied here") for note in notes)


@pytest.mark.parametrize(
    ("overrides", "error", "sentence"),
    [
        (("train_path=~",), ConfigError, "profile_train_path: no structures for training; give"),
        (
            ("train_path=~", "profile_phase=inference", "profile_pre_fit=false"),
            ConfigError,
            "profile_data_path: no structures for inference; give profile_data_path or train_path.",
        ),
        (("profile_data_path=nowhere.xyz",), DataError, "nowhere.xyz"),
        (("profile_checkpoint=nowhere.safetensors",), ModelFileError, "no such model file"),
        (("elements=[H]",), DataError, "O"),
        (("l_max_hidden_feats=2",), UserError, "l_max_hidden_feats=2: must not exceed l_max_edge_attrs=1"),
    ],
)
def test_what_cannot_be_profiled_is_a_sentence(configure, overrides, error, sentence):
    with pytest.raises(error) as caught:
        prepare(configure(*overrides))
    assert sentence in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_no_gpu_is_a_sentence(configure):
    with pytest.raises(DeviceError, match="finds no GPU here; use cpu"):
        prepare(configure("device=gpu"))


def test_an_empty_file_is_a_sentence(configure, tmp_path: Path):
    (tmp_path / "empty.xyz").write_text("")
    with pytest.raises(DataError, match=r"empty\.xyz"):
        prepare(configure(f"train_path={tmp_path / 'empty.xyz'}"))
