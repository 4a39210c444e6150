"""What `contract` refuses before kernels see it, and index tensors of every kind that it takes, on both back ends."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from flashcart.ir.launch_plan import LaunchSettings
from flashcart.nn import EquivariantLinear, TensorProduct
from flashcart.ops import triton_backend

pytestmark = pytest.mark.usefixtures("triton_interpreter")
BACKENDS = ("torch", "triton")
ENDS = torch.tensor([[0, 2], [1, 1], [2, 0], [0, 0], [1, 1]])
SENDERS, RECEIVERS = ENDS[:, 0].contiguous(), ENDS[:, 1].contiguous()
X, Y = torch.randn(3, 4, 2), torch.randn(5, 4)
WEIGHTS = torch.randn(5, TensorProduct(1, 1, 1, channels=2).n_paths, 2)


def product(backend: str) -> TensorProduct:
    return TensorProduct(1, 1, 1, channels=2, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", ["csr", "edge"])
def test_columns_of_one_index_array_are_read_as_they_are(backend, variant, monkeypatch):
    monkeypatch.setattr(triton_backend, "settings", lambda: LaunchSettings(edges=variant))
    expected = product("torch")(X, Y, WEIGHTS, senders=SENDERS, receivers=RECEIVERS)
    x = X.clone().requires_grad_()
    got = product(backend)(x, Y, WEIGHTS, senders=ENDS[:, 0], receivers=ENDS[:, 1])
    torch.testing.assert_close(got, expected)  # the same float32 sums in another order
    (gradient,) = torch.autograd.grad(got.sum(), x)
    x = X.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(product("torch")(x, Y, WEIGHTS, senders=SENDERS, receivers=RECEIVERS).sum(), x)
    torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"y": Y[:4]}, "operand 1: expected 5 rows, got 4"),
        ({"weights": WEIGHTS[:4]}, "operand 2: expected 5 rows, got 4"),
        ({"weights": WEIGHTS[:, :, :1]}, "operand 2: expected 2 channels, as before, got 1"),
        ({"y": Y.double()}, "operand 1: expected torch.float32 on cpu, got torch.float64 on cpu"),
        ({"weights": WEIGHTS.double()}, "operand 2: expected torch.float32 on cpu, got torch.float64 on cpu"),
        ({"senders": SENDERS[:4]}, "receivers: expected 4, as many as senders, got 5"),
        ({"receivers": RECEIVERS[:4]}, "receivers: expected 5, as many as senders, got 4"),
        ({"senders": SENDERS.int()}, r"senders: expected torch.int64 \[n_rows\] on cpu, got torch.int32 \[5\] on cpu"),
        ({"receivers": RECEIVERS.unsqueeze(1)}, r"receivers: expected torch.int64 \[n_rows\] on cpu, got"),
    ],
)
def test_operands_that_do_not_fit_are_refused(backend, changes, sentence):
    given = {"weights": WEIGHTS, "senders": SENDERS, "receivers": RECEIVERS, "y": Y} | changes
    with pytest.raises(ValueError, match=sentence):
        product(backend)(X, given.pop("y"), **given)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_a_product_of_rows_are_as_many(backend):
    with pytest.raises(ValueError, match="operand 1: expected 3 rows, got 2"):
        product(backend)(X, torch.randn(2, 4))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("x", "species", "sentence"),
    [
        (X, None, "species: needed, since each element has its own matrices"),
        (X, torch.tensor([0, 1]), "operand 0: expected 2 rows, got 3"),
        (X[:, :, :1], torch.tensor([0, 1, 1]), "operand 1: expected 1 channels, as before, got 2"),
    ],
)
def test_linear_maps_refuse_what_does_not_fit(backend, x, species, sentence):
    linear = EquivariantLinear([1, 1], 2, 3, n_elements=2, backend=backend)
    with pytest.raises(ValueError, match=sentence):
        linear(x, species)


def test_an_unknown_element_is_refused_on_the_torch_back_end():
    with pytest.raises(IndexError, match="species: expected numbers from 0 to 1, got others"):
        EquivariantLinear([1, 1], 2, 3, n_elements=2)(X, torch.tensor([0, 1, 2]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_made_in_inference_mode_are_taken(backend):
    with torch.inference_mode():
        ends = SENDERS.clone(), RECEIVERS.clone()
        got = product(backend)(X.clone(), Y.clone(), WEIGHTS.clone(), senders=ends[0], receivers=ends[1])
    expected = product("torch")(X, Y, WEIGHTS, senders=SENDERS, receivers=RECEIVERS)
    torch.testing.assert_close(got.clone(), expected)


def test_kernels_are_launched_on_the_gpu_of_their_operands(monkeypatch):
    """Triton takes the current GPU, whatever the pointers belong to."""
    entered = []

    @contextmanager
    def entering(device):
        entered.append(device)
        yield

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", entering)
    for name in ("cuda:0", "cuda:1", "cpu"):
        with triton_backend.on_gpu_of(torch.device(name)):
            pass
    assert entered == [torch.device("cuda:1")]
    assert "on_gpu_of" in triton_backend.evaluate.__code__.co_names
