"""Generated Triton kernels in Triton's interpreter against the oracle; on a GPU: benchmarks/gpu_correctness.py."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from flashcart.algebra.lowering import make
from flashcart.errors import UserError
from flashcart.ir.contraction import Index
from flashcart.ir.differentiate import vjp
from flashcart.ir.interpret import interpret
from flashcart.ir.launch_plan import LaunchSettings, is_indexed, order_of, plan_launches
from flashcart.ir.requests import ExpansionRequest, ProductRequest, Weights, request_name
from flashcart.nn import TensorProduct
from flashcart.ops import triton_backend
from flashcart.ops.kernel_cache import key_of

# Sums of tens of products of numbers of order one: rounding of a few ulps.
LIMITS = {torch.float64: 1e-12, torch.float32: 3e-6}
N_NODES, N_EDGES, CHANNELS = 5, 9, 3
EDGES = ProductRequest(1, 2, 2, True, False, Weights.ROW, False)
REQUESTS = [
    ExpansionRequest(3),
    EDGES,
    ProductRequest(1, 1, 1, True, False, Weights.SHARED, True),
    ProductRequest(1, 1, 1, True, False, Weights.NONE, False),
    ProductRequest(0, 2, 2, True, False, Weights.ROW, False),
    ProductRequest(2, 2, 1, False, True, Weights.NONE, False),
    ProductRequest(1, 1, 1, False, True, Weights.SHARED, True),
    ProductRequest(1, 1, 1, False, True, Weights.ROW, True, True),
]
SETTINGS = {
    "csr": LaunchSettings(),
    "edge": LaunchSettings(edges="edge"),
    "deterministic": LaunchSettings(deterministic=True),
    "small budgets": LaunchSettings(forward_budget=4, backward_budget=4, second_budget=4, peak_aware=False),
    "full splits": LaunchSettings(backward_split="full", second_split="full"),
    "ranks together": LaunchSettings(split_input_rank=False),
}


def orders(request):
    """The product, its derivative, and the derivative of that, with respect to every input."""
    forward = make(request)
    backward = vjp(forward, tuple(range(len(forward.inputs))), (0,))
    return [forward, backward, vjp(backward, tuple(range(len(backward.inputs))), tuple(range(len(backward.outputs))))]


def worst_error(program, dtype, channels=CHANNELS):
    rng = np.random.default_rng(1)
    rows = {Index.ROW: N_EDGES, Index.SHARED: 1}
    arrays = [
        rng.normal(size=(rows.get(o.index, N_NODES), o.components, *([channels] if o.channels else [])))
        for o in program.inputs
    ]
    senders, receivers = rng.integers(0, N_NODES, N_EDGES), rng.integers(0, N_NODES - 1, N_EDGES)
    wanted = interpret(program, arrays, senders, receivers, N_NODES)
    index = (torch.tensor(senders), torch.tensor(receivers)) if is_indexed(program) else (None, None)
    got = triton_backend.evaluate(key_of(program), [torch.tensor(a, dtype=dtype) for a in arrays], *index, N_NODES)
    assert max(np.abs(w).max() for w in wanted) > 0.1
    return max(np.abs(w - g.double().numpy()).max() / np.abs(w).max() for w, g in zip(wanted, got, strict=True))


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("request_", REQUESTS, ids=request_name)
def test_kernels_of_every_kind_equal_the_oracle(request_, dtype):
    for program in orders(request_):
        assert worst_error(program, dtype) < LIMITS[dtype], order_of(program)


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize("name", SETTINGS)
def test_every_plan_gives_the_same_numbers(name, monkeypatch):
    monkeypatch.setattr(triton_backend, "settings", lambda: SETTINGS[name])
    for program in orders(EDGES):
        assert worst_error(program, torch.float64) < LIMITS[torch.float64], order_of(program)


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize("channels", [1, 17, 130])
def test_any_number_of_channels(channels):
    for program in orders(ProductRequest(1, 1, 1, True, False, Weights.ROW, False))[:2]:
        assert worst_error(program, torch.float64, channels) < LIMITS[torch.float64]


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize("slots", [1, 2])
def test_receivers_share_buffers_for_sums_over_all_edges(slots, monkeypatch):
    """More receivers than buffers: memory must not grow with the number of atoms."""
    monkeypatch.setattr(triton_backend, "MOST_PARTS", 2)
    monkeypatch.setattr(triton_backend, "slots_of", lambda program, degree: slots)
    for program in orders(ProductRequest(1, 1, 1, True, False, Weights.SHARED, False)):
        assert worst_error(program, torch.float64) < LIMITS[torch.float64], order_of(program)


def test_plans_hold_every_term_once():
    for program in orders(EDGES):
        for settings in SETTINGS.values():
            terms = [term for launch in plan_launches(program, settings) for term in launch.terms]
            assert sorted(terms) == sorted(program.terms)


def test_budgets_keep_whole_ranks_together():
    forward = make(ProductRequest(2, 3, 3, True, False, Weights.ROW, False))
    together = LaunchSettings(split_input_rank=False)
    assert [launch.ranks for launch in plan_launches(forward, together)] == [(0, 1, 2, 3)]  # 71 components
    small = replace(together, forward_budget=45)
    assert [launch.ranks for launch in plan_launches(forward, small)] == [(0, 1, 2), (3,)]  # 43 and 28
    tiny = replace(together, forward_budget=1, peak_aware=False)
    assert [launch.ranks for launch in plan_launches(forward, tiny)] == [(0,), (1,), (2,), (3,)]
    assert [launch.n_components for launch in plan_launches(forward, LaunchSettings())] == [16, 24, 31]


@pytest.mark.usefixtures("triton_interpreter")
def test_a_rank_above_the_limit_is_refused_naming_the_variable():
    product = TensorProduct(4, 1, 4, channels=2, backend="triton")
    with pytest.raises(UserError, match="FLASHCART_KERNEL_L_MAX=3"):
        product(torch.randn(3, 25, 2), torch.randn(3, 4))


@pytest.mark.usefixtures("triton_interpreter")
def test_half_precision_is_refused():
    product = TensorProduct(1, 1, 1, channels=2, backend="triton")
    with pytest.raises(UserError, match="float32 and float64"):
        product(torch.randn(3, 4, 2).half(), torch.randn(3, 4).half())


@pytest.mark.usefixtures("triton_interpreter")
def test_no_edges_give_zeros():
    product = TensorProduct(1, 1, 1, channels=2, backend="triton")
    none = torch.zeros(0, dtype=torch.int64)
    out = product(
        torch.randn(3, 4, 2), torch.zeros(0, 4), torch.zeros(0, product.n_paths, 2), senders=none, receivers=none
    )
    assert out.shape == (3, product.out_components, 2)
    assert (out == 0).all()


@pytest.mark.usefixtures("triton_interpreter")
def test_operands_need_not_be_contiguous():
    product = TensorProduct(1, 1, 1, channels=3, backend="triton")
    wide = torch.randn(3, product.n_paths + 2, 6, dtype=torch.float64).transpose(0, 2)  # [6, paths + 2, 3]
    x, weights = torch.randn(5, 9, 3, dtype=torch.float64)[:, :4], wide[:, 1:-1]
    y = torch.randn(4, 6, dtype=torch.float64).t()
    ends = {"senders": torch.tensor([0, 1, 2, 3, 4, 4]), "receivers": torch.tensor([4, 0, 0, 2, 2, 1])}
    assert not any(tensor.is_contiguous() for tensor in (weights, y, x))
    expected = product(x.contiguous(), y.contiguous(), weights.contiguous(), **ends)
    assert torch.equal(product(x, y, weights, **ends), expected)


@pytest.mark.usefixtures("triton_interpreter")
def test_degrees_from_none_to_many_in_one_graph():
    product = TensorProduct(0, 1, 1, channels=2)
    receivers = torch.cat([torch.zeros(200, dtype=torch.int64), torch.tensor([2])])  # 200, none and one
    x, y = torch.randn(3, 1, 2, dtype=torch.float64), torch.randn(201, 4, dtype=torch.float64)
    weights = torch.randn(201, product.n_paths, 2, dtype=torch.float64)
    ends = {"senders": torch.arange(201) % 3, "receivers": receivers}
    wanted = product(x, y, weights, **ends)
    product.backend = "triton"
    assert torch.allclose(product(x, y, weights, **ends), wanted, rtol=1e-12, atol=1e-12)


def test_tensors_on_a_cpu_are_refused_without_the_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    product = TensorProduct(1, 1, 1, channels=2, backend="triton")
    with pytest.raises(UserError, match="needs CUDA tensors, got cpu; use backend='torch'"):
        product(torch.randn(3, 4, 2), torch.randn(3, 4))
