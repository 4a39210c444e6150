"""The whole model under torch.compile, against eager: energies, and parameter gradients of a loss on forces.

The recipe: one function makes the leaf, differentiates and is left alone by Dynamo (`nonstrict_trace`); everything that
it reads is an argument. `aot_eager` traces all of it and compiles nothing: the same float64 operations, 1e-12.
"""

from __future__ import annotations

import pytest
import torch

from flashcart.potential import AtomicGraph, predict

from .structures import crystal, graph_of, make_model, molecule


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Compiled functions of one test are not those of another."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def arguments(model) -> tuple[torch.Tensor, ...]:
    graph = graph_of(molecule(), crystal(), model=model)
    return graph.edge_vectors, graph.senders, graph.receivers, graph.species


@pytest.mark.parametrize("changes", [{}, {"path_reduced_product": True, "correlation": 3}], ids=["kept", "reduced"])
def test_compiled_energies_equal_eager(changes):
    model = make_model(**changes)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*arguments(model)), model(*arguments(model)), rtol=1e-12, atol=1e-12)


def force_loss(model, vectors, senders, receivers, species):
    """Energy, forces and strain derivatives of one graph in one number."""
    batch, volumes = torch.zeros_like(species), torch.ones(1, dtype=torch.float64)
    graph = AtomicGraph(vectors, senders, receivers, species, batch, 1, volumes)
    prediction = predict(model, graph, training=True)
    return 1e-3 * prediction.energy.sum() + prediction.forces.square().sum() + prediction.stress.square().sum()


def test_parameter_gradients_of_a_compiled_force_loss_equal_eager():
    model = make_model().train()
    expected = force_loss(model, *arguments(model))
    wanted = torch.autograd.grad(expected, list(model.parameters()))

    inner = torch._dynamo.nonstrict_trace(force_loss)
    compiled = torch.compile(lambda *x: inner(*x), fullgraph=True, backend="aot_eager")
    result = compiled(model, *arguments(model))
    gradients = torch.autograd.grad(result, list(model.parameters()))
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=0)
    for (name, _), gradient, other in zip(model.named_parameters(), gradients, wanted, strict=True):
        scale = float(other.abs().max())
        assert scale > 0, name
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-11 * max(scale, 1.0), msg=name)


def test_eager_works_after_compilation():
    """Nothing that was made while tracing is kept for later."""
    model = make_model()
    before = model(*arguments(model))
    torch.compile(model, fullgraph=True, backend="aot_eager")(*arguments(model))
    assert torch.equal(model(*arguments(model)), before)
