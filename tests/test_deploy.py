"""The deployable file: exact round trip, metadata, sentences for damaged files, atomic writing, nothing executed."""

from __future__ import annotations

import json
import os
import pickletools
import struct
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import flashcart
from flashcart.deploy import FORMAT_VERSION, load_model, read_metadata, save_model
from flashcart.errors import ModelFileError, UserError

from .structures import ELEMENTS, OFFSETS, crystal, evaluate, make_model, molecule


@pytest.fixture
def path(tmp_path) -> Path:
    """A saved model."""
    target = tmp_path / "model.safetensors"
    save_model(target, make_model(), training_summary={"epochs": 3})
    return target


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"path_reduced_product": True, "element_agnostic_product": False, "zbl": True},
        {"element_agnostic_interaction": False, "n_element_interaction_features": 2, "layer_norm": False},
    ],
    ids=["default", "reduced", "per element"],
)
def test_round_trip_is_bitwise(tmp_path, dtype, changes):
    model = make_model(dtype, **changes)
    save_model(tmp_path / "model.safetensors", model)
    again = load_model(tmp_path / "model.safetensors")
    assert again.config == model.config
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
        assert again.state_dict()[key].dtype is value.dtype, key
    before, after = evaluate(model, molecule(), crystal()), evaluate(again, molecule(), crystal())
    assert torch.equal(before.energy, after.energy)
    assert torch.equal(before.forces, after.forces)


def test_saving_a_model_in_training_mode_stores_its_present_free_atoms(tmp_path):
    model = make_model().train()
    for parameter in model.parameters():
        parameter.data *= 1.1
    save_model(tmp_path / "model.safetensors", model)
    assert model.training
    assert torch.equal(load_file(tmp_path / "model.safetensors")["free_atoms"], model.eval().free_atoms)
    again = load_model(tmp_path / "model.safetensors")
    assert torch.equal(evaluate(again, molecule()).energy, evaluate(model.eval(), molecule()).energy)


def test_loaded_models_are_for_evaluation(path):
    model = load_model(path)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_package_loads_models(path):
    assert flashcart.load_model(path).config.elements == ELEMENTS


def test_metadata_says_what_the_model_is(path):
    metadata = read_metadata(path)
    assert metadata["elements"] == list(ELEMENTS)
    assert metadata["units"] == {"energy": "eV", "length": "Å"}
    assert metadata["r_max"] == 4.0
    assert metadata["dtype"] == "float64"
    assert metadata["format_version"] == FORMAT_VERSION
    assert metadata["package_version"] == flashcart.__version__
    assert metadata["offsets"] == OFFSETS
    assert metadata["training"] == {"epochs": 3}
    assert metadata["config"] == json.loads(json.dumps(asdict(make_model().config)))


@pytest.mark.parametrize(("dtype", "expected"), [("float32", torch.float32), ("float64", torch.float64)])
def test_dtype_may_be_chosen_at_loading(path, dtype, expected):
    model = load_model(path, dtype=dtype)
    assert model.embedding.dtype is expected
    assert model.offsets.dtype is torch.float64
    exact = evaluate(make_model(), molecule())
    result = evaluate(model, molecule())
    assert result.forces.dtype is expected
    torch.testing.assert_close(result.forces.double(), exact.forces, rtol=0, atol=1e-4)  # float32 rounding


@pytest.mark.parametrize("dtype", [None, "trained"])
def test_dtype_of_training_is_the_default(tmp_path, dtype):
    save_model(tmp_path / "single.safetensors", make_model(torch.float32))
    assert load_model(tmp_path / "single.safetensors", dtype=dtype).embedding.dtype is torch.float32


def test_unknown_dtypes_are_refused(path):
    with pytest.raises(UserError, match="dtype='float16': expected one of trained, float32, float64"):
        load_model(path, dtype="float16")


def test_unknown_devices_are_refused(path):
    with pytest.raises(UserError, match="tpu"):
        load_model(path, device="tpu")


def assert_refused(path: Path, message: str) -> None:
    """Both readers say the same sentence, which names the file."""
    for read in (read_metadata, load_model):
        with pytest.raises(ModelFileError, match=message) as caught:
            read(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_missing_file_is_a_sentence(tmp_path):
    assert_refused(tmp_path / "none.safetensors", "no such model file")


def test_folder_is_a_sentence(tmp_path):
    assert_refused(tmp_path, "cannot be read")


@pytest.mark.parametrize("keep", [9, 100, -1, -1000])
def test_truncated_file_is_a_sentence(path, keep):
    """Cut within the header or within the weights."""
    path.write_bytes(path.read_bytes()[:keep])
    assert_refused(path, "truncated or damaged|not a FlashCart model" if keep == 9 else "truncated or damaged")


def test_file_with_something_appended_is_a_sentence(path):
    path.write_bytes(path.read_bytes() + b"more")
    assert_refused(path, "truncated or damaged")


def test_damaged_header_is_a_sentence(path):
    content = bytearray(path.read_bytes())
    content[9:12] = b"\xff\xff\xff"
    path.write_bytes(bytes(content))
    assert_refused(path, "truncated or damaged")


@pytest.mark.parametrize("content", [b"", b"x", b"PK\x03\x04" + 100 * b"\0", b"Hello world, this is a text file."])
def test_foreign_file_is_a_sentence(tmp_path, content):
    (tmp_path / "foreign").write_bytes(content)
    assert_refused(tmp_path / "foreign", "not a FlashCart model")


def test_torch_checkpoint_is_refused_and_not_unpickled(tmp_path):
    torch.save({"a": 1}, tmp_path / "foreign.pt")
    assert_refused(tmp_path / "foreign.pt", "not a FlashCart model")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_safetensors_file_of_another_kind_is_a_sentence(tmp_path, metadata):
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors", metadata=metadata)
    assert_refused(tmp_path / "other.safetensors", "a safetensors file, but not a FlashCart model")


def rewrite(path: Path, **changes: object) -> None:
    """Change values of the metadata."""
    metadata = read_metadata(path) | changes
    save_file(load_file(path), path, metadata={"flashcart": json.dumps(metadata)})


def test_file_of_a_newer_version_is_a_sentence(path):
    rewrite(path, format_version=FORMAT_VERSION + 1, package_version="9.1")
    assert_refused(path, f"FlashCart 9.1 in model format {FORMAT_VERSION + 1}; .* reads up to {FORMAT_VERSION}")


@pytest.mark.parametrize("mark", ["[]", "{}", "{", '{"format_version": 1}'])
def test_incomplete_metadata_is_a_sentence(path, mark):
    save_file(load_file(path), path, metadata={"flashcart": mark})
    assert_refused(path, "truncated or damaged")


def test_weights_of_another_configuration_are_a_sentence(path):
    rewrite(path, config={**read_metadata(path)["config"], "n_hidden_feats": 5})
    with pytest.raises(ModelFileError, match="the weights do not fit") as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


def test_unknown_model_keys_are_refused_rather_than_ignored(path):
    rewrite(path, config={**read_metadata(path)["config"], "new_key": 1})
    with pytest.raises(ModelFileError, match="knows no model key new_key; update FlashCart"):
        load_model(path)


def test_file_is_pure_safetensors(path):
    """Eight bytes of length, JSON, numbers; no pickle anywhere."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
    assert len(content) == 8 + length + max(ends)
    with pytest.raises(ValueError, match=r"."):
        list(pickletools.genops(content))


def test_failed_writing_leaves_the_old_file_and_no_other(path, monkeypatch):
    before = path.read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="No space"):
                save_model(path, make_model(n_hidden_feats=5))
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]


def test_saving_replaces_an_older_file(path):
    save_model(path, make_model(n_hidden_feats=5))
    assert load_model(path).config.n_hidden_feats == 5
    assert path.stat().st_mode & 0o777 == 0o644


def test_folder_of_the_file_is_made(tmp_path):
    save_model(tmp_path / "a" / "b" / "model.safetensors", make_model())
    assert load_model(tmp_path / "a" / "b" / "model.safetensors").config.elements == ELEMENTS


def test_loading_and_evaluating_from_a_warm_cache_needs_no_sympy(path):
    script = f"""
import sys
import flashcart, torch
model = flashcart.load_model({str(path)!r})
one = torch.tensor([0, 1])
vectors = torch.tensor([[1.0, 0.2, 0.1], [-1.0, -0.2, -0.1]], dtype=torch.float64).requires_grad_()
energies = model(vectors, one.flip(0), one, one)
torch.autograd.grad(energies.sum(), vectors)
sys.exit("sympy" in sys.modules)
"""
    codes = [subprocess.run([sys.executable, "-c", script], check=False).returncode for _ in range(2)]
    assert codes[1] == 0
