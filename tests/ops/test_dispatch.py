"""`flashcart::contract` as a registered torch op: its registrations, and compiled against eager.

Compiled code does the same float64 operations, fused: 1e-12 relative.
"""

from __future__ import annotations

import pytest
import torch

from flashcart.errors import UserError
from flashcart.nn import CartesianExpansion, TensorProduct
from flashcart.ops.contract import contract
from flashcart.ops.kernel_cache import key_of

from ..programs import program_named, random_arrays, random_graph
from .chains import run, tensors

GRAPH = random_graph([3, 1, 4, 2])
NAMES = [
    "edges, row weights",
    "edges, shared weights",
    "rows, symmetric",
    "expansion",
    "scattered outputs",
    "linear",
    "linear, per element",
]


def op_arguments(name, *, requires_grad=True):
    program = program_named(name)
    operands = tensors(random_arrays(program.inputs, GRAPH))
    if not requires_grad:
        operands = [x.detach() for x in operands]
    senders, receivers = torch.from_numpy(GRAPH.senders), torch.from_numpy(GRAPH.receivers)
    return operands, senders, receivers, GRAPH.n_nodes, f"torch:{key_of(program)}"


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_opcheck_passes(name, requires_grad):
    torch.library.opcheck(torch.ops.flashcart.contract.default, op_arguments(name, requires_grad=requires_grad))


@pytest.mark.parametrize("name", NAMES)
def test_op_and_function_agree(name):
    operands, senders, receivers, n_nodes, key = op_arguments(name)
    outs = torch.ops.flashcart.contract(operands, senders, receivers, n_nodes, key)
    expected = run(program_named(name), operands, GRAPH)
    for out, wanted in zip(outs, expected, strict=True):
        torch.testing.assert_close(out, wanted, rtol=1e-13, atol=1e-13)
        assert out.is_contiguous()
    gradients = torch.autograd.grad(sum(out.square().sum() for out in outs), operands)
    wanted_gradients = torch.autograd.grad(sum(out.square().sum() for out in expected), operands)
    for gradient, wanted in zip(gradients, wanted_gradients, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)


class Layer(torch.nn.Module):
    """A small network around one edge product: vectors in, energy out."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        draw = {"generator": generator, "dtype": torch.float64}
        self.expansion = CartesianExpansion(1)
        self.product = TensorProduct(1, 1, 1, channels=3)
        self.features = torch.nn.Parameter(torch.randn(4, 4, 3, **draw))
        self.matrix = torch.nn.Parameter(torch.randn(4, 4 * 3, **draw))

    def forward(self, vectors: torch.Tensor, senders: torch.Tensor, receivers: torch.Tensor) -> torch.Tensor:
        edge = self.expansion(vectors)
        weights = torch.tanh(edge @ self.matrix).view(-1, 4, 3)
        out = self.product(self.features, edge, weights, senders=senders, receivers=receivers)
        return out.square().sum()


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Compiled functions of one test are not those of another."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def indices():
    return torch.from_numpy(GRAPH.senders), torch.from_numpy(GRAPH.receivers)


def test_compiled_forward_equals_eager():
    layer, vectors = Layer(), torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(vectors, *indices()), layer(vectors, *indices()), rtol=1e-12, atol=0)


def test_compiled_parameter_gradients_equal_eager():
    vectors = torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    eager, other = Layer(), Layer()
    eager(vectors, *indices()).backward()
    torch.compile(other, fullgraph=True, backend="aot_eager")(vectors, *indices()).backward()
    for wanted, parameter in zip(eager.parameters(), other.parameters(), strict=True):
        assert wanted.grad.abs().max() > 0
        torch.testing.assert_close(parameter.grad, wanted.grad, rtol=1e-12, atol=1e-12)


def force_loss(layer, vectors, senders, receivers):
    """Energy plus squared edge gradients: its parameter gradients hold second derivatives of the op."""
    leaf = vectors.detach().requires_grad_()
    energy = layer(leaf, senders, receivers)
    (gradient,) = torch.autograd.grad(energy, leaf, create_graph=True)
    return energy + gradient.square().sum()


def test_compiled_forward_and_gradient_with_parameter_gradients_equal_eager():
    vectors = torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    eager, other = Layer(), Layer()
    expected = force_loss(eager, vectors, *indices())
    expected.backward()

    inner = torch._dynamo.nonstrict_trace(force_loss)
    result = torch.compile(lambda *x: inner(*x), fullgraph=True, backend="aot_eager")(other, vectors, *indices())
    result.backward()
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=0)
    for wanted, parameter in zip(eager.parameters(), other.parameters(), strict=True):
        assert wanted.grad.abs().max() > 0
        torch.testing.assert_close(parameter.grad, wanted.grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("backend", ["cuda", "", "Torch"])
def test_unknown_backend_is_refused(backend):
    program = program_named("rows")
    with pytest.raises(UserError, match="expected one of torch, triton"):
        contract(program, tensors(random_arrays(program.inputs, GRAPH)), backend=backend)


def test_triton_that_cannot_run_is_an_error_that_says_why():
    program = program_named("rows")
    with pytest.raises(UserError, match="triton"):
        contract(program, tensors(random_arrays(program.inputs, GRAPH)), backend="triton")
