"""The torch back end against the interpreter: values and derivatives, every kind of program, every kind of graph.

Both sum the same float64 terms in another order: 1e-12 relative to the largest entry.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flashcart.ir.contraction import Index
from flashcart.ops.contract import contract, recorded_keys
from flashcart.ops.kernel_cache import contraction_of_key

from ..programs import REQUESTS, TOYS, Graph, program_named, random_arrays, random_graph
from .chains import ORDERS, assert_close, chain, oracle, run, tensors

ROUNDING = 1e-12
SINGLE = 1e-5  # float32 has 6e-8 per operation; sums of up to a hundred terms

GRAPHS = {
    "sorted": random_graph([3, 1, 4, 2]),
    "shuffled": random_graph([3, 1, 4, 2], shuffled=True),
    "degrees 0 to 40": random_graph([0, 40, 1, 7, 0, 13, 39, 2, 2, 25], seed=2),
    "degrees 0 to 40, shuffled": random_graph([0, 40, 1, 7, 0, 13, 39, 2, 2, 25], seed=2, shuffled=True),
    "isolated nodes": random_graph([0, 0, 2, 0]),
    "one edge": random_graph([1]),
    "one edge among many nodes": random_graph([0, 0, 0, 1, 0]),
    "no edges": random_graph([0, 0, 0]),
    "no nodes": Graph(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 0),
}
WALK = "edges, row weights"


@pytest.mark.parametrize("name", [*TOYS, *REQUESTS])
def test_value_gradient_and_second_derivative_agree_with_the_interpreter(name):
    program = program_named(name)
    graph = GRAPHS["sorted"]
    operands = tensors(random_arrays(program.inputs, graph))
    for order, results, expected in chain(program, operands, graph, 2):
        assert_close(results, expected, ROUNDING, ORDERS[order])


@pytest.mark.parametrize(
    "name",
    ["edges, row weights", "rows, symmetric, row weights", "linear, per element", "expansion", "squared operand"],
)
def test_third_derivative_agrees_with_the_interpreter(name):
    program = program_named(name)
    graph = random_graph([2, 0, 1])
    operands = tensors(random_arrays(program.inputs, graph, channels=2))
    for order, results, expected in chain(program, operands, graph, 3):
        assert_close(results, expected, ROUNDING, ORDERS[order])
    assert order == 3
    assert any(np.abs(array).max() > 0 for array in expected)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(
    "name", [WALK, "edges, second with channels", "edges, shared weights", "gathered operand", "linear, per element"]
)
def test_every_graph_agrees_with_the_interpreter(name, graph):
    program = program_named(name)
    operands = tensors(random_arrays(program.inputs, GRAPHS[graph]))
    for order, results, expected in chain(program, operands, GRAPHS[graph], 2):
        assert_close(results, expected, ROUNDING, ORDERS[order])


@pytest.mark.parametrize("name", ["edges, row weights, rank 2", "rows, summed paths", "expansion"])
def test_many_rows_agree_with_the_interpreter(name):
    """1,100 rows and 48 channels: more than is held in the processor's cache at once, so that rows come in pieces."""
    degrees = np.random.default_rng(3).integers(0, 45, size=50).tolist()
    program, graph = program_named(name), random_graph(degrees, shuffled=True)
    operands = tensors(random_arrays(program.inputs, graph, channels=48))
    for order, results, expected in chain(program, operands, graph, 1):
        assert_close(results, expected, ROUNDING, ORDERS[order])


@pytest.mark.parametrize("channels", [1, 2, 17])
@pytest.mark.parametrize("name", [WALK, "rows", "rows, shared weights"])
def test_every_number_of_channels_agrees_with_the_interpreter(name, channels):
    program, graph = program_named(name), GRAPHS["shuffled"]
    operands = tensors(random_arrays(program.inputs, graph, channels))
    for order, results, expected in chain(program, operands, graph, 2):
        assert_close(results, expected, ROUNDING, ORDERS[order])


@pytest.mark.parametrize("name", [WALK, "edges, row weights, rank 2", "rows", "expansion", "edges, shared weights"])
def test_float32_agrees_with_the_interpreter(name):
    program, graph = program_named(name), GRAPHS["degrees 0 to 40"]
    operands = tensors(random_arrays(program.inputs, graph), torch.float32)
    for order, results, expected in chain(program, operands, graph, 2):
        assert all(result.dtype is torch.float32 for result in results)
        assert_close(results, expected, SINGLE, ORDERS[order])


def strided(x: torch.Tensor, kind: str) -> torch.Tensor:
    """The same numbers in other memory."""
    if kind == "component first":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if kind == "every second":
        return torch.stack([x, torch.full_like(x, torch.nan)], dim=x.ndim).flatten(x.ndim - 1)[..., ::2]
    if kind == "reversed":
        return x.flip(0).contiguous().flip(0)
    shifted = torch.cat([x.new_full((1,), torch.nan), x.reshape(-1)])[1:]
    return shifted.view(x.shape)


@pytest.mark.parametrize("kind", ["component first", "every second", "reversed", "with an offset"])
@pytest.mark.parametrize("name", [WALK, "rows, row weights", "operand without channels"])
def test_strides_of_operands_do_not_matter(name, kind):
    program, graph = program_named(name), GRAPHS["sorted"]
    operands = [strided(x.detach(), kind).requires_grad_() for x in tensors(random_arrays(program.inputs, graph))]
    for order, results, expected in chain(program, operands, graph, 2):
        assert_close(results, expected, ROUNDING, ORDERS[order])


@pytest.mark.parametrize("name", [WALK, "edges, shared weights", "rows", "rows, summed paths", "expansion"])
def test_expanded_cotangents_of_a_sum_are_right(name):
    """`sum()` hands back a cotangent of strides 0."""
    program, graph = program_named(name), GRAPHS["shuffled"]
    operands = tensors(random_arrays(program.inputs, graph))
    (out,) = run(program, operands, graph)
    summed = torch.autograd.grad(out.sum(), operands, retain_graph=True)
    dense = torch.autograd.grad(out, operands, torch.ones_like(out))
    for one, other in zip(summed, dense, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["rows", "rows, summed paths"])
def test_one_tensor_as_two_operands_gets_both_gradients(name):
    program, graph = program_named(name), GRAPHS["sorted"]
    first, second, *rest = tensors(random_arrays(program.inputs, graph))
    second = first.detach().clone().requires_grad_()
    (apart,) = run(program, [first, second, *rest], graph)
    expected = sum(torch.autograd.grad(apart.square().sum(), [first, second]))
    (together,) = run(program, [first, first, *rest], graph)
    (gradient,) = torch.autograd.grad(together.square().sum(), first)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


def test_only_some_operands_may_require_gradients():
    program, graph = program_named(WALK), GRAPHS["sorted"]
    x, y, w = (t.detach() for t in tensors(random_arrays(program.inputs, graph)))
    all_three = [t.clone().requires_grad_() for t in (x, y, w)]
    (out,) = run(program, all_three, graph)
    expected = torch.autograd.grad(out.square().sum(), all_three)
    for place in range(3):
        operands = [x, y, w]
        operands[place] = operands[place].clone().requires_grad_()
        (out,) = run(program, operands, graph)
        (gradient,) = torch.autograd.grad(out.square().sum(), operands[place])
        torch.testing.assert_close(gradient, expected[place], rtol=1e-13, atol=1e-13)


def test_an_unused_output_gets_no_cotangent():
    program, graph = program_named("scattered outputs"), GRAPHS["sorted"]
    operands = tensors(random_arrays(program.inputs, graph))
    outs = run(program, operands, graph)
    (gradient,) = torch.autograd.grad(outs[1].sum(), operands)
    expected = 4 * operands[0][:, 1]
    torch.testing.assert_close(gradient[:, 1], expected)
    assert torch.all(gradient[:, 0] == 0)


def test_without_gradients_no_graph_is_recorded():
    program, graph = program_named(WALK), GRAPHS["sorted"]
    operands = tensors(random_arrays(program.inputs, graph))
    with torch.no_grad():
        (out,) = run(program, operands, graph)
    assert not out.requires_grad
    assert_close([out], oracle(program, operands, graph), ROUNDING)


def test_receivers_written_in_place_are_seen():
    """What is remembered per neighbour list must not outlive its numbers."""
    program, graph = program_named(WALK), GRAPHS["sorted"]
    operands = [t.detach() for t in tensors(random_arrays(program.inputs, graph))]
    senders, receivers = torch.from_numpy(graph.senders), torch.from_numpy(graph.receivers.copy())
    contract(program, operands, senders=senders, receivers=receivers, n_nodes=graph.n_nodes)
    receivers.copy_(receivers.flip(0))
    (out,) = contract(program, operands, senders=senders, receivers=receivers, n_nodes=graph.n_nodes)
    changed = Graph(graph.senders, receivers.numpy(), graph.n_nodes)
    assert_close([out], oracle(program, operands, changed), ROUNDING)


def test_equal_calls_give_equal_bits():
    program, graph = program_named(WALK), GRAPHS["degrees 0 to 40"]
    operands = [t.detach() for t in tensors(random_arrays(program.inputs, graph))]
    assert torch.equal(run(program, operands, graph)[0], run(program, operands, graph)[0])


def test_outputs_do_not_alias_operands():
    program, graph = program_named("rows"), GRAPHS["sorted"]
    operands = [t.detach() for t in tensors(random_arrays(program.inputs, graph))]
    (out,) = run(program, operands, graph)
    kept = [x.clone() for x in operands]
    out.zero_()
    assert all(torch.equal(x, y) for x, y in zip(operands, kept, strict=True))


def test_a_wrong_number_of_operands_is_refused():
    program, graph = program_named(WALK), GRAPHS["sorted"]
    with pytest.raises(ValueError, match="expected 3 operands, got 1"):
        run(program, tensors(random_arrays(program.inputs, graph))[:1], graph)


def test_a_wrong_shape_is_refused_and_named():
    program, graph = program_named(WALK), GRAPHS["sorted"]
    operands = tensors(random_arrays(program.inputs, graph))
    operands[1] = operands[1][:, :2]
    with pytest.raises(ValueError, match=r"operand 1: expected shape \[rows, 4\], got \[10, 2\]"):
        run(program, operands, graph)


def test_too_few_node_rows_are_refused():
    program, graph = program_named(WALK), GRAPHS["sorted"]
    assert program.inputs[0].index is Index.SENDER
    operands = tensors(random_arrays(program.inputs, graph))
    operands[0] = operands[0][:-1]
    with pytest.raises(ValueError, match="expected n_nodes = 4 rows, got 3"):
        run(program, operands, graph)


@pytest.mark.parametrize("name", ["linear", "rows, row weights"])
def test_a_pass_computes_only_the_gradients_that_it_is_asked_for(name):
    program = program_named(name)
    operands = tensors(random_arrays(program.inputs, GRAPHS["sorted"]))
    assert all(x.requires_grad for x in operands)
    (out,) = run(program, operands, GRAPHS["sorted"])
    with recorded_keys() as keys:
        (alone,) = torch.autograd.grad(out.sum(), operands[0], retain_graph=True)
        everything = torch.autograd.grad(out.sum(), operands)
    assert [len(contraction_of_key(key).outputs) for key in keys] == [1, len(operands)]
    assert torch.equal(alone, everything[0])


def test_a_loss_leaves_out_what_feeds_nothing_but_positions():
    program = program_named("rows, row weights")
    x, y, weights = tensors(random_arrays(program.inputs, GRAPHS["sorted"]))
    (out,) = run(program, [x * 1, y * 1, weights * 1], GRAPHS["sorted"])
    with recorded_keys() as keys:
        torch.autograd.backward(out.sum(), inputs=[weights])
    assert [len(contraction_of_key(key).outputs) for key in keys] == [1]
    assert x.grad is None
    assert weights.grad is not None
