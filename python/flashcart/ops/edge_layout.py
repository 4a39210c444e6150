"""Edges grouped by receiver, once per neighbour list.

Receivers with similar numbers of edges are put together and padded to the largest, so that a group is a dense
`[receivers, degree]` array and sums over edges are batched matrix products.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Within a group the smallest degree is at least this share of the largest.
LEAST_FILL = 0.8

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EdgeGroup:
    """n receivers with `degree` edge places each.

    Attributes:
        receivers: [n] node rows.
        edges: [n * degree] edge of each place (0 on padding), or the slice they fill without gaps.
        real: [n * degree] bool, False on padding; None where there is none.
        places: positions of real places, None where there is no padding.
    """

    receivers: Tensor
    n_receivers: int
    degree: int
    edges: Tensor | slice
    real: Tensor | None
    places: Tensor | None
    real_edges: Tensor | None
    in_order: bool = False
    _masks: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def take(self, x: Tensor, dim: int) -> Tensor:
        """The group's edges of an edge array, along `dim`."""
        if isinstance(self.edges, slice):
            return x[self.edges] if dim == 0 else x[:, self.edges]
        return x.index_select(dim, self.edges)

    def real_as(self, dtype: torch.dtype) -> Tensor:
        """[n * degree, 1]: one, and zero on padding."""
        if dtype not in self._masks:
            assert self.real is not None
            self._masks[dtype] = self.real.to(dtype).unsqueeze(1)
        return self._masks[dtype]

    def is_every_node(self, n_nodes: int) -> bool:
        """Whether the receivers are all nodes, in order."""
        return self.in_order and self.n_receivers == n_nodes

    def put(self, out: Tensor, value: Tensor, dim: int) -> None:
        """Write real places back to an edge array, along `dim`."""
        if isinstance(self.edges, slice):
            target = out[self.edges] if dim == 0 else out[:, self.edges]
            target.copy_(value)
        elif self.places is None:
            out.index_copy_(dim, self.edges, value)
        else:
            assert self.real_edges is not None
            out.index_copy_(dim, self.real_edges, value.index_select(dim, self.places))


@dataclass
class EdgeLayout:
    """The receivers of one neighbour list, ordered by degree; `groups` cuts them into pieces of a given size."""

    nodes: Integers  # receivers that have edges, in processing order
    degrees: Integers  # their numbers of edges
    starts: Integers  # where their edges start in `order`
    order: Integers | None  # edges sorted by receiver, None where they already are
    device: torch.device
    _groups: dict[int, tuple[EdgeGroup, ...]] = field(default_factory=dict)

    def groups(self, n_edges: int) -> tuple[EdgeGroup, ...]:
        """Groups of at most about `n_edges` places (at least one receiver each)."""
        if n_edges not in self._groups:
            self._groups[n_edges] = tuple(self._cut(n_edges))
        return self._groups[n_edges]

    def fits_whole(self) -> bool:
        """Whether one group of all receivers would be at most half padding."""
        return len(self.nodes) * int(self.degrees.max(initial=0)) <= 2 * int(self.degrees.sum())

    def whole(self) -> EdgeGroup:
        """All receivers as one group."""
        if 0 not in self._groups:
            by_node = np.argsort(self.nodes)
            self._groups[0] = (self._group(by_node, int(self.degrees.max())),)
        return self._groups[0][0]

    def _cut(self, n_edges: int) -> list[EdgeGroup]:
        groups, start = [], 0
        while start < len(self.nodes):
            degree = int(self.degrees[start])
            stop = min(len(self.nodes), start + max(1, n_edges // degree))
            # degrees fall: the first one below the share of the largest ends the group
            fits = int(np.searchsorted(-self.degrees[start:stop], -LEAST_FILL * degree, side="right"))
            stop = start + max(1, fits)
            groups.append(self._group(np.arange(start, stop), degree))
            start = stop
        return groups

    def _group(self, chosen: Integers, degree: int) -> EdgeGroup:
        nodes, degrees = self.nodes[chosen], self.degrees[chosen]
        places = self.starts[chosen, None] + np.arange(degree)
        real = (np.arange(degree) < degrees[:, None]).ravel()
        edges = np.where(real, places.ravel(), 0)
        if self.order is not None:
            edges = np.where(real, self.order[edges], 0)
        in_order = bool((nodes == np.arange(len(nodes))).all())
        common = (self._tensor(nodes), len(nodes), degree)
        if self.order is None and real.all() and (np.diff(edges) == 1).all():
            whole = slice(int(edges[0]), int(edges[-1]) + 1)
            return EdgeGroup(*common, whole, None, None, None, in_order)
        if real.all():
            return EdgeGroup(*common, self._tensor(edges), None, None, None, in_order)
        positions = np.flatnonzero(real)
        mask = torch.from_numpy(real).to(self.device)
        return EdgeGroup(
            *common, self._tensor(edges), mask, self._tensor(positions), self._tensor(edges[positions]), in_order
        )

    def _tensor(self, values: Integers) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)


def _build(receivers: Tensor, n_nodes: int) -> EdgeLayout:
    rows = receivers.detach().cpu().numpy()
    counts = np.bincount(rows, minlength=n_nodes)
    order = None if bool((np.diff(rows) >= 0).all()) else np.argsort(rows, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)])
    nodes = np.flatnonzero(counts)
    if len(nodes) and counts[nodes].min() != counts[nodes].max():
        nodes = nodes[np.argsort(-counts[nodes], kind="stable")]
    return EdgeLayout(nodes, counts[nodes], starts[nodes], order, receivers.device)


_LAYOUTS: dict[int, tuple[weakref.ref[Tensor], int, int, EdgeLayout]] = {}


def edge_layout(receivers: Tensor, n_nodes: int) -> EdgeLayout:
    """The layout of a neighbour list; remembered as long as the tensor lives and is not written to.

    Writing behind torch's back (a numpy array that shares the memory, `.data`) goes unnoticed; a tensor made in
    inference mode keeps no count of writes, and nothing is remembered for it.

    Args:
        receivers: [n_edges] int64.
        n_nodes: number of nodes.
    """
    if receivers.is_inference():
        return _build(receivers, n_nodes)
    name = id(receivers)
    known = _LAYOUTS.get(name)
    if known is not None and known[0]() is receivers and known[1:3] == (receivers._version, n_nodes):
        return known[3]
    layout = _build(receivers, n_nodes)
    reference = weakref.ref(receivers, lambda _: _LAYOUTS.pop(name, None))
    _LAYOUTS[name] = (reference, receivers._version, n_nodes, layout)
    return layout


_ORDERS: dict[int, tuple[weakref.ref[Tensor], int, int, tuple[Tensor, Tensor]]] = {}


def edge_order(receivers: Tensor, n_nodes: int) -> tuple[Tensor, Tensor]:
    """Edges in the order of their receivers and where each receiver's edges start; remembered like `edge_layout`.

    Everything stays on the device.

    Args:
        receivers: [n_edges] int64.
        n_nodes: number of nodes.

    Returns:
        ([n_edges] int64, [n_nodes + 1] int64).
    """
    if receivers.is_inference():
        return _sorted(receivers, n_nodes)
    name = id(receivers)
    known = _ORDERS.get(name)
    if known is not None and known[0]() is receivers and known[1:3] == (receivers._version, n_nodes):
        return known[3]
    order, starts = _sorted(receivers, n_nodes)
    reference = weakref.ref(receivers, lambda _: _ORDERS.pop(name, None))
    _ORDERS[name] = (reference, receivers._version, n_nodes, (order, starts))
    return order, starts


def _sorted(receivers: Tensor, n_nodes: int) -> tuple[Tensor, Tensor]:
    ordered, order = torch.sort(receivers, stable=True)
    return order, torch.searchsorted(ordered, torch.arange(n_nodes + 1, device=receivers.device))
