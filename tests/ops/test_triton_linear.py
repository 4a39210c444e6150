"""Linear maps on the Triton back end, in Triton's interpreter, against the oracle; tiles, tuning, compilation ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from flashcart.algebra.lowering import make
from flashcart.ir import linear_launch
from flashcart.ir.contraction import Index
from flashcart.ir.differentiate import vjp
from flashcart.ir.interpret import interpret
from flashcart.ir.launch_plan import order_of
from flashcart.ir.linear_launch import Tile, linear_launches, n_shares, planned_tile, tiles_of
from flashcart.ir.requests import LinearRequest, request_name
from flashcart.nn import EquivariantLinear
from flashcart.ops import triton_backend, triton_linear
from flashcart.ops.kernel_cache import key_of

# Sums of tens to hundreds of products of numbers of order one: rounding of a few ulps.
LIMITS = {torch.float64: 1e-12, torch.float32: 3e-6}
REQUESTS = [
    LinearRequest((2, 1, 3), per_element=False),
    LinearRequest((1, 1), per_element=False),
    LinearRequest((1, 0, 2), per_element=False),
    LinearRequest((2, 1), per_element=True),
]
N_ELEMENTS = 3


def orders(request):
    """The map, its derivative, and the derivative of that, with respect to every input."""
    forward = make(request)
    backward = vjp(forward, (0, 1), (0,))
    return [forward, backward, vjp(backward, (0, 1, 2), (0, 1))]


def worst_error(program, dtype, c=5, d=18, n_rows=40):
    rng = np.random.default_rng(1)
    rows = {Index.ROW: n_rows, Index.SHARED: 1, Index.SENDER: N_ELEMENTS}
    shapes = [(rows[o.index], o.components, *o.channel_shape({"c": c, "d": d})) for o in program.inputs]
    arrays = [rng.normal(size=shape) for shape in shapes]
    indexed = any(o.index is Index.SENDER for o in program.inputs)
    species = rng.choice([0, 2], size=n_rows) if indexed else None  # one element has no rows
    wanted = interpret(program, arrays, senders=species, n_nodes=N_ELEMENTS)
    ends = (None if species is None else torch.tensor(species), None)
    got = triton_backend.evaluate(key_of(program), [torch.tensor(a, dtype=dtype) for a in arrays], *ends, N_ELEMENTS)
    assert max(np.abs(w).max() for w in wanted) > 0.1
    return max(np.abs(w - g.double().numpy()).max() / np.abs(w).max() for w, g in zip(wanted, got, strict=True))


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("request_", REQUESTS, ids=request_name)
def test_linear_maps_of_every_order_equal_the_oracle(request_, dtype):
    for program in orders(request_):
        assert worst_error(program, dtype) < LIMITS[dtype], order_of(program)


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize(("c", "d"), [(1, 1), (32, 16), (17, 70), (512, 3)])
def test_any_number_of_channels(c, d):
    for program in orders(REQUESTS[3]):
        assert worst_error(program, torch.float64, c, d) < LIMITS[torch.float64]


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize("tile", [Tile(16, 16, 16, 4), Tile(32, 64, 16, 4)], ids=str)
@pytest.mark.parametrize("request_", [REQUESTS[0], REQUESTS[3]], ids=request_name)
def test_every_tile_gives_the_same_numbers(request_, tile, monkeypatch):
    monkeypatch.setattr(triton_linear, "tiles_of", lambda *_: (tile,))
    for program in orders(request_):
        assert worst_error(program, torch.float64, n_rows=70) < LIMITS[torch.float64]


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize("n_rows", [1, 130, 300])
def test_rows_are_summed_in_shares(n_rows, monkeypatch):
    monkeypatch.setattr(linear_launch, "LEAST_SHARE", 16)
    backward = orders(LinearRequest((1, 1), per_element=False))[1]
    launch = linear_launches(backward)[1]
    assert launch.axes == "cd"
    assert n_shares(launch, Tile(32, 32, 16, 4), n_rows, 1, (5, 18)) == min(16, -(-n_rows // 16))
    assert worst_error(backward, torch.float64, n_rows=n_rows) < LIMITS[torch.float64]


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize("n_elements", [None, 2])
def test_no_rows(n_elements):
    linear = EquivariantLinear([1, 2], 3, 5, n_elements=n_elements, backend="triton")
    x, species = torch.zeros(0, 7, 3, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    out = linear(x, species)
    out.sum().backward()
    assert out.shape == (0, 4, 5)
    assert all((p.grad == 0).all() for p in linear.parameters())


@pytest.mark.usefixtures("triton_interpreter")
def test_rows_need_not_be_contiguous():
    linear = EquivariantLinear([1, 1], 3, 5, backend="triton").double()
    wide = torch.randn(6, 9, 3, dtype=torch.float64)
    turned = torch.randn(3, 4, 6, dtype=torch.float64).permute(2, 1, 0)
    for x in (wide[:, :4], turned):
        assert not x.is_contiguous()
        assert torch.equal(linear(x), linear(x.contiguous()))


@pytest.mark.usefixtures("triton_interpreter")
def test_gradients_of_gradients_equal_those_of_the_torch_back_end():
    linear = EquivariantLinear([2, 1], 3, 4, n_elements=2).double()
    start, species = torch.randn(5, 5, 3, dtype=torch.float64), torch.tensor([1, 0, 1, 1, 0])
    found = []
    for backend in ("torch", "triton"):
        linear.backend = backend
        linear.zero_grad()
        x = start.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(linear(x, species).pow(3).sum(), x, create_graph=True)
        gradient.pow(2).sum().backward()
        found.append([x.grad, *(p.grad for p in linear.parameters())])
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_at_most_three_tiles_none_wider_than_needed():
    for item_size in (4, 8):
        for axes in ("c", "d", "cd"):
            for channels in [(1, 1), (16, 64), (128, 128), (512, 20)]:
                tiles = tiles_of(axes, channels, item_size)
                assert 1 <= len(tiles) <= 3
                assert len(set(tiles)) == len(tiles)
                limits = [max(16, 2 * n) for n in channels]
                assert all(tile.channels < limits[0 if axes == "c" else 1] or tile.channels == 16 for tile in tiles)


def test_larger_problems_get_larger_tiles():
    forward = linear_launches(make(LinearRequest((3, 5, 6), per_element=False)))[0]
    tiles = tiles_of("d", (128, 128), 4)
    chosen = [planned_tile(forward, tiles, n, (128, 128)) for n in (10, 500, 4000, 100000)]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[0] == len(tiles) - 1
    assert chosen[-1] == 0


def test_maps_of_different_ranks_share_their_kernels():
    keys = [key_of(make(replace(REQUESTS[0], paths=paths))) for paths in ((1, 1), (3, 5, 6), (2, 7, 8, 6))]
    names = [[triton_linear.piece_identity(key, 128, 4, n) for n in range(3)] for key in keys]
    assert names[0] == names[1] == names[2]
    assert len(set(names[0])) == 3
