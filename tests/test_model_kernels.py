"""The kernels of a model, and that they are compiled once."""

import shutil

import pytest
import torch

from flashcart import model_kernels
from flashcart.ir.contraction import Index
from flashcart.ir.launch_plan import Order, order_of
from flashcart.model import FlashCart, ModelConfig
from flashcart.ops import compile_ahead
from flashcart.ops.compile_ahead import Target
from flashcart.ops.kernel_cache import contraction_of_key

SMALL = ModelConfig(("H",), n_hidden_feats=2, l_max_hidden_feats=1, l_max_edge_attrs=1, correlation=2)


def test_inference_has_no_second_derivatives_and_none_with_respect_to_embeddings():
    programs = [contraction_of_key(key) for key in model_kernels.contractions_of_model(SMALL, "inference")]
    assert {order_of(program) for program in programs} == {Order.FORWARD, Order.BACKWARD}
    to_senders = [p for p in programs if any(o.index is Index.SENDER for o in p.outputs)]
    assert len(to_senders) == 1  # of two layers, only the second one's features depend on positions


def test_training_adds_second_derivatives():
    programs = [contraction_of_key(key) for key in model_kernels.contractions_of_model(SMALL, "training")]
    assert Order.SECOND in {order_of(program) for program in programs}


@pytest.fixture
def on_a_gpu(monkeypatch, tmp_path):
    """A model that looks as if it were on a GPU; returns the tasks that were to be compiled, run by run."""
    runs = []

    def compile_ahead_of(tasks):
        runs.append(tasks)
        return len(runs) - 1  # the first attempt fails

    monkeypatch.setattr(model_kernels, "backend_for", lambda use_triton, device: "triton")
    monkeypatch.setattr(model_kernels, "present_target", lambda: Target("cuda", 90, 32))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(model_kernels, "compile_ahead", compile_ahead_of)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    return runs


def test_kernels_are_prepared_until_that_succeeds_and_then_no_more(on_a_gpu):
    model = FlashCart(SMALL)
    for _ in range(4):
        model_kernels.prepare_kernels(model, "inference")
    assert len(on_a_gpu) == 2
    assert {task.channels for task in on_a_gpu[0]} == {2}
    model_kernels.prepare_kernels(model, "training")
    model_kernels.prepare_kernels(model.double(), "inference")
    assert [run[0].dtype for run in on_a_gpu] == ["float32", "float32", "float32", "float64"]


def test_kernels_are_prepared_again_where_there_are_none(on_a_gpu, monkeypatch, tmp_path):
    """Another machine on the same cache of sources, and a cache of Triton that was emptied."""
    model = FlashCart(SMALL)
    for _ in range(3):
        model_kernels.prepare_kernels(model, "inference")
    assert len(on_a_gpu) == 2
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "elsewhere"))
    model_kernels.prepare_kernels(model, "inference")
    assert len(on_a_gpu) == 3
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    shutil.rmtree(tmp_path / "triton")
    model_kernels.prepare_kernels(model, "inference")
    assert len(on_a_gpu) == 4


def test_a_new_emitter_of_linear_maps_is_compiled_ahead_too(on_a_gpu, monkeypatch):
    model = FlashCart(SMALL)
    for _ in range(3):
        model_kernels.prepare_kernels(model, "inference")
    monkeypatch.setattr(model_kernels.triton_linear, "emitter_hash", lambda: "another")
    model_kernels.prepare_kernels(model, "inference")
    assert len(on_a_gpu) == 3


def test_nothing_is_prepared_for_a_cpu(monkeypatch):
    monkeypatch.setattr(model_kernels, "compile_ahead", lambda tasks: pytest.fail("compiled for a CPU"))
    model_kernels.prepare_kernels(FlashCart(SMALL), "training")


def test_a_host_program_is_not_taken_for_an_interpreter(monkeypatch):
    monkeypatch.setattr(compile_ahead.sys, "executable", "/usr/bin/lmp")
    monkeypatch.setattr(compile_ahead.sys, "prefix", "/nowhere")
    monkeypatch.delenv("FLASHCART_PYTHON", raising=False)
    assert compile_ahead.interpreter() is None
