"""The phases do what training and deployed models do, compiled or not."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from flashcart.config_profile import PHASES
from flashcart.errors import FlashCartError
from flashcart.nn.network import _unit_moment_factor
from flashcart.potential import predict
from flashcart.profiling.phases import PARTS, make_phase
from flashcart.profiling.subject import prepare
from flashcart.training.loss import weighted_loss


@pytest.mark.parametrize("name", PHASES)
def test_every_part_runs_inside_its_region_for_each_batch(name, configure):
    config = configure(f"profile_phase={name}", "profile_n_batches=2")
    subject, seen = prepare(config), []

    @contextmanager
    def region(part):
        seen.append(part)
        yield

    make_phase(name, subject.model, config, weighted_loss, eager=True).enter().run(subject.workloads[0].batches, region)
    assert tuple(seen) == 2 * PARTS[name]


def test_training_leaves_the_gradient_of_the_configured_loss(configure):
    config = configure("profile_phase=training", "profile_dtype=float64", "train_loss={property: forces, reduce: sse}")
    subject = prepare(config)
    (batch,) = subject.workloads[0].batches
    make_phase("training", subject.model, config, weighted_loss, eager=True).enter().run([batch, batch])
    found = [parameter.grad for parameter in subject.model.parameters()]
    forces = predict(subject.model.train(), batch.graph, training=True).forces
    expected = torch.autograd.grad(
        (forces - batch.forces).square().sum(), list(subject.model.parameters()), allow_unused=True
    )
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:  # float64, the same operations in the same order
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12 * max(1.0, float(other.abs().max())))


def test_inference_needs_no_parameter_gradients(configure):
    config = configure()
    model = prepare(config).model
    make_phase("inference", model, config, weighted_loss, eager=True).enter()
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    make_phase("training", model, config, weighted_loss, eager=True).enter()
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_compiled_training_gives_the_gradients_of_eager_training(configure, monkeypatch):
    """aot_eager traces all of it and generates no code: the same float64 operations. Nothing has run before it."""
    compile_ = torch.compile

    def traced(function, *, mode, fullgraph, dynamic):
        assert (mode, fullgraph, dynamic) == ("reduce-overhead", True, False)
        return compile_(function, fullgraph=fullgraph, dynamic=dynamic, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", traced)
    small = ("n_interactions=1", "correlation=1", "l_max_hidden_feats=0", "profile_batch_size=1", "nonlinearity=false")
    config = configure("profile_phase=training", "profile_dtype=float64", "profile_compile_predict=true", *small)
    subject = prepare(config)
    batches = subject.workloads[0].batches
    _unit_moment_factor.cache_clear()
    gradients = []
    for eager in (False, True):
        make_phase("training", subject.model, config, weighted_loss, eager=eager).enter().run(batches)
        gradients.append([p.grad.clone() for p in subject.model.parameters() if p.grad is not None])
    torch._dynamo.reset()
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10 * max(1.0, float(one.abs().max())))


def test_what_cannot_be_compiled_is_a_sentence(configure, monkeypatch):
    config = configure("profile_compile_predict=true")
    subject = prepare(config)

    def predict_or_break(*_: object, **__: object):
        torch._dynamo.graph_break("no way through\nwith details")

    monkeypatch.setattr("flashcart.profiling.phases.predict", predict_or_break)
    phase = make_phase("inference", subject.model, config, weighted_loss, eager=False).enter()
    with pytest.raises(FlashCartError) as caught:
        phase.run(subject.workloads[0].batches)
    torch._dynamo.reset()
    assert str(caught.value).startswith("profile_compile_predict: torch.compile of torch ")
    assert "\n" not in str(caught.value)
