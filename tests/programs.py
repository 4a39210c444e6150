"""Contractions and random operands that the tests of IR, emitters and back ends share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from flashcart.algebra.lowering import make
from flashcart.ir.contraction import Contraction, Index, Operand, Term
from flashcart.ir.requests import ExpansionRequest, LinearRequest, ProductRequest, Request, Weights
from flashcart.ir.simplify import contraction

Array = np.ndarray

EDGE_PRODUCT = ProductRequest(1, 1, 1, edges=True, second_channels=False, weights=Weights.ROW, sum_paths=False)
ROW_PRODUCT = ProductRequest(1, 1, 1, edges=False, second_channels=True, weights=Weights.NONE, sum_paths=False)

# Every kind of request, at the smallest ranks where nothing about it is trivial.
REQUESTS: dict[str, Request] = {
    "expansion": ExpansionRequest(3),
    "edges, row weights": EDGE_PRODUCT,
    "edges, row weights, rank 2": replace(EDGE_PRODUCT, l_first=2, l_second=2, l_out=2),
    "edges, scalar input": replace(EDGE_PRODUCT, l_first=0, l_second=2, l_out=2),
    "edges, shared weights": replace(EDGE_PRODUCT, weights=Weights.SHARED),
    "edges, no weights": replace(EDGE_PRODUCT, weights=Weights.NONE),
    "edges, summed paths": replace(EDGE_PRODUCT, sum_paths=True),
    "edges, second with channels": replace(EDGE_PRODUCT, second_channels=True),
    "rows": ROW_PRODUCT,
    "rows, row weights": replace(ROW_PRODUCT, weights=Weights.ROW),
    "rows, shared weights": replace(ROW_PRODUCT, weights=Weights.SHARED),
    "rows, second without channels": replace(ROW_PRODUCT, second_channels=False),
    "rows, summed paths": replace(ROW_PRODUCT, sum_paths=True, weights=Weights.ROW, l_first=2, l_second=2, l_out=2),
    "rows, symmetric": replace(ROW_PRODUCT, symmetric=True, l_first=2, l_second=2, l_out=2),
    "rows, symmetric, row weights": replace(ROW_PRODUCT, symmetric=True, weights=Weights.ROW),
    "linear": LinearRequest((2, 1, 3), per_element=False),
    "linear, one path each": LinearRequest((1, 1, 1), per_element=False),
    "linear, a rank without paths": LinearRequest((1, 0, 2), per_element=False),
    "linear, per element": LinearRequest((1, 2), per_element=True),
    "linear, per element, one path each": LinearRequest((1, 1), per_element=True),
}


def request_program(name: str) -> Contraction:
    """The contraction of one of `REQUESTS`."""
    return make(REQUESTS[name])


def _operand(components: int, index: Index, role: int, *, channels: str = "c") -> Operand:
    return Operand(components, index, channels, role)


def _terms(*rows: tuple[tuple[int, int], float, tuple[tuple[int, int], ...]]) -> list[Term]:
    return [Term(output, factors, value) for output, value, factors in rows]


# Toys: one property each, that tensor products alone do not have or not alone.
TOYS: dict[str, Contraction] = {
    "shared operand": contraction(
        [_operand(2, Index.ROW, 0), _operand(2, Index.SHARED, 1)],
        [_operand(2, Index.ROW, 2)],
        _terms(((0, 0), 1.5, ((0, 0), (1, 1))), ((0, 1), -0.5, ((0, 1), (1, 0)))),
    ),
    "squared operand": contraction(
        [_operand(2, Index.ROW, 0)],
        [_operand(2, Index.ROW, 1)],
        _terms(((0, 0), 2.0, ((0, 0), (0, 0))), ((0, 1), 3.0, ((0, 0), (0, 1), (0, 1)))),
    ),
    "gathered operand": contraction(
        [_operand(2, Index.SENDER, 0), _operand(1, Index.RECEIVER, 1)],
        [_operand(1, Index.ROW, 2)],
        _terms(((0, 0), 1.5, ((0, 0), (1, 0))), ((0, 0), 0.5, ((0, 1), (0, 1), (1, 0)))),
    ),
    "scattered outputs": contraction(
        [_operand(2, Index.ROW, 0)],
        [_operand(1, Index.SENDER, 1), _operand(1, Index.RECEIVER, 2), _operand(2, Index.SHARED, 3)],
        _terms(((0, 0), 1.0, ((0, 0), (0, 1))), ((1, 0), 2.0, ((0, 1), (0, 1))), ((2, 1), -1.0, ((0, 0),))),
    ),
    "operand without channels": contraction(
        [_operand(2, Index.ROW, 0), _operand(2, Index.ROW, 1, channels="")],
        [_operand(1, Index.ROW, 2), _operand(1, Index.ROW, 3, channels="")],
        _terms(((0, 0), 1.0, ((0, 0), (1, 1))), ((1, 0), 0.5, ((0, 1), (1, 0))), ((1, 0), 0.25, ((1, 0), (1, 1)))),
    ),
    "constant and missing outputs": contraction(
        [_operand(1, Index.ROW, 0)],
        [_operand(2, Index.ROW, 1), _operand(1, Index.ROW, 2)],
        _terms(((0, 0), 2.5, ())),
    ),
}


def program_named(name: str) -> Contraction:
    """A request's contraction or a toy."""
    return TOYS[name] if name in TOYS else request_program(name)


@dataclass(frozen=True)
class Graph:
    """Directed edges between nodes; rows of a contraction."""

    senders: Array
    receivers: Array
    n_nodes: int

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.senders)


def random_graph(degrees: list[int], seed: int = 0, *, shuffled: bool = False) -> Graph:
    """A graph with given numbers of edges per receiver, sorted by receiver unless shuffled."""
    rng = np.random.default_rng(seed)
    receivers = np.repeat(np.arange(len(degrees)), degrees)
    senders = rng.integers(0, max(1, len(degrees)), size=len(receivers))
    order = rng.permutation(len(receivers)) if shuffled else np.arange(len(receivers))
    return Graph(senders[order].astype(np.int64), receivers[order].astype(np.int64), len(degrees))


def rows_of(operand: Operand, graph: Graph) -> int:
    """Number of rows of an operand."""
    return {Index.ROW: graph.n_edges, Index.SHARED: 1}.get(operand.index, graph.n_nodes)


def random_arrays(operands: tuple[Operand, ...], graph: Graph, channels: int = 3, seed: int = 1) -> list[Array]:
    """Random numbers for inputs or cotangents; a linear map's results have one channel more."""
    rng = np.random.default_rng(seed)
    sizes = {"c": channels, "d": channels + 1}
    shapes = [(rows_of(o, graph), o.components, *o.channel_shape(sizes)) for o in operands]
    return [rng.normal(size=shape) for shape in shapes]


def numerical_gradient(function: Callable[[], float], array: Array, step: float = 1e-5) -> Array:
    """Central differences of a scalar function with respect to an array that it reads."""
    gradient = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        kept = array[place]
        array[place] = kept + step
        above = function()
        array[place] = kept - step
        below = function()
        array[place] = kept
        gradient[place] = (above - below) / (2 * step)
    return gradient
