"""Rows of a contraction and the pieces they are processed in.

`Rows` is what generated torch code (flashcart.emit.torch_source) asks for its senders, receivers and pieces. Arrays are
component first: `[components, rows, channels]`, or `[components, rows]` without channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from flashcart.ops.edge_layout import EdgeGroup, EdgeLayout, edge_layout
from flashcart.ops.linear_rows import LinearPart, elements
from flashcart.ops.table import Table

# Numbers in the temporaries of one piece: about 1 MB in float32, which stays in the processor's cache.
PIECE = 2**18


@dataclass(frozen=True)
class Rows:
    """The iteration space of one evaluation.

    Attributes:
        senders, receivers: [n_rows] int64, or None where nothing is indexed.
        n_rows: number of rows.
        n_nodes: rows of indexed outputs.
        sizes: of the channel axes, 1 where there are none.
        like: a tensor with the dtype and device of the operands.
    """

    senders: Tensor | None
    receivers: Tensor | None
    n_rows: int
    n_nodes: int
    sizes: Mapping[str, int]
    like: Tensor

    @property
    def n_channels(self) -> int:
        """Channels of all arrays, except of a linear map's results."""
        return self.sizes["c"]

    def room(self, components: int, index: str, axes: str) -> Tensor:
        """An output of a linear map, component first, without values."""
        n = {"row": self.n_rows, "shared": 1}.get(index, self.n_nodes)
        if axes == "cd" and self.senders is not None:  # not every element occurs
            return self.zero_room(components, index, axes)
        return self.like.new_empty(components, n, *(self.sizes[axis] for axis in axes))

    def zero_room(self, components: int, index: str, axes: str) -> Tensor:
        """The same with zeros."""
        n = {"row": self.n_rows, "shared": 1}.get(index, self.n_nodes)
        return self.like.new_zeros(components, n, *(self.sizes[axis] for axis in axes))

    def elements(self) -> Iterator[LinearPart]:
        """Rows by the matrices that they use."""
        return elements(self.senders, self.n_nodes)

    def zeros(self, components: int, index: str, channels: bool) -> Tensor:
        """A zero output, component first."""
        n = {"row": self.n_rows, "shared": 1}.get(index, self.n_nodes)
        if channels and index == "row":  # what is made per row usually goes on to a matrix product over all of it
            return self.like.new_zeros(n, components, self.n_channels).transpose(0, 1)
        if channels:
            return self.like.new_zeros(components, n, self.n_channels)
        return self.like.new_zeros(n, components).t()

    def parts(self, n_monomials: int) -> Iterator[Part]:
        """Consecutive rows whose monomials fit the cache; all rows at once on an accelerator."""
        size = max(16, PIECE // max(1, n_monomials * self.n_channels))
        if self.like.device.type != "cpu":
            size = max(1, self.n_rows)
        for start in range(0, self.n_rows, size):
            yield Part(self, start, min(self.n_rows, start + size))

    def is_small(self, n_q: int) -> bool:
        """Whether all edges in one piece are few enough that the number of operations decides the time."""
        limit = PIECE if self.like.device.type == "cpu" else 256 * PIECE
        return self.n_rows * self.n_channels * n_q <= limit and self._layout().fits_whole()

    def whole(self) -> Iterator[Chunk]:
        """All receivers that have edges as one group."""
        if self.n_rows:
            yield Chunk(self, self._layout().whole())

    def _layout(self) -> EdgeLayout:
        assert self.receivers is not None
        return edge_layout(self.receivers, self.n_nodes)

    def walk(self, n_q: int) -> Iterator[Chunk]:
        """Groups of receivers with similar numbers of edges, padded to the largest."""
        if self.n_rows == 0:
            return
        size = max(1, PIECE // max(1, n_q * self.n_channels)) if self.like.device.type == "cpu" else self.n_rows
        for group in self._layout().groups(size):
            yield Chunk(self, group)


@dataclass(frozen=True)
class Part:
    """A range of rows."""

    rows: Rows
    start: int
    stop: int

    def take(self, x: Tensor, index: str) -> Tensor:
        """The part's rows of an operand, [components, n, channels or 1]."""
        x = x if x.ndim == 3 else x.unsqueeze(2)
        if index == "shared":
            return x
        if index == "row":
            return x if self.stop - self.start == self.rows.n_rows else x[:, self.start : self.stop]
        return x.index_select(1, self._index(index))

    def ones(self) -> Tensor:
        """The empty product."""
        return self.rows.like.new_ones(1, self.stop - self.start, 1)

    def over_channels(self, m: Tensor) -> Tensor:
        """Sum over channels; an operand without channels counts once per channel."""
        times = self.rows.n_channels // m.shape[2]
        return m.sum(2, keepdim=True) * times if times != 1 else m.sum(2, keepdim=True)

    def over_rows(self, m: Tensor) -> Tensor:
        """Sum over the rows of the part; a shared operand counts once per row."""
        times = (self.stop - self.start) // m.shape[1]
        return m.sum(1, keepdim=True) * times if times != 1 else m.sum(1, keepdim=True)

    def add(self, out: Tensor | None, index: str, channels: bool, table: Table, m: Tensor) -> Tensor:
        """`out[rows of the part] += table @ m`; a missing `out` is zero. Returns `out`."""
        value = table.times(m.reshape(m.shape[0], -1)).view(-1, *m.shape[1:])
        whole = index == "row" and self.stop - self.start == self.rows.n_rows
        full = (self.rows.n_rows, self.rows.n_channels if channels else 1)
        if out is None and whole and value.shape[1:] == full:
            return value if channels else value.squeeze(2)
        if out is None:
            out = self.rows.zeros(value.shape[0], index, channels)
        target = out if channels else out.unsqueeze(2)
        if index == "shared":
            target += value
        elif index == "row":
            target[:, self.start : self.stop] += value
        else:
            value = value.expand(target.shape[0], self.stop - self.start, target.shape[2])
            _add_rows(target, self._index(index), value)
        return out

    def _index(self, index: str) -> Tensor:
        whole = self.rows.senders if index == "sender" else self.rows.receivers
        assert whole is not None
        return whole[self.start : self.stop]


@dataclass(frozen=True)
class Chunk:
    """A group of n receivers with D edges each (padding included); see `_WalkWriter` for the shapes."""

    rows: Rows
    group: EdgeGroup

    @cached_property
    def senders(self) -> Tensor:
        """[n * D] sender of each place; that of edge 0 on padding."""
        assert self.rows.senders is not None
        return self.group.take(self.rows.senders, 0)

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.group.n_receivers, self.group.degree, self.rows.n_channels

    def new(self, components: int) -> Tensor:
        """Zeros [components, n, D, C]."""
        return self.rows.like.new_zeros(components, *self._shape)

    def empty(self, components: int) -> Tensor:
        """Room for [components, n, D, C]."""
        return self.rows.like.new_empty(components, *self._shape)

    def new_edge_components(self, components: int) -> Tensor:
        """Zeros [n, D, components]."""
        return self.rows.like.new_zeros(*self._shape[:2], components)

    def take(self, x: Tensor, index: str) -> Tensor:
        """An operand at the chunk's edges, [components, n, D, C], or [components, 1, 1, C] if shared."""
        if index == "shared":
            return x.unsqueeze(2)
        if index == "sender":
            taken = x.index_select(1, self.senders)
        elif x.stride(1) > x.stride(0):  # rows outermost in memory: gather whole rows, then turn them in the cache
            taken = self.group.take(x.transpose(0, 1), 0).transpose(0, 1).contiguous()
        else:
            taken = self.group.take(x, 1)
        return taken.reshape(x.shape[0], *self._shape)

    def from_receivers(self, x: Tensor) -> Tensor:
        """A node array at the chunk's receivers, [components, n, C]."""
        return x if self.group.is_every_node(x.shape[1]) else x.index_select(1, self.group.receivers)

    def edge_components(self, x: Tensor, n_used: int | None = None) -> Tensor:
        """The first components of an array without channels at the chunk's edges, [n, D, n_used], zero on padding."""
        taken = self.group.take(x.t() if n_used in (None, x.shape[0]) else x[:n_used].t(), 0)
        if self.group.real is not None:
            taken = taken * self.group.real_as(taken.dtype)
        return taken.view(*self._shape[:2], -1)

    def fold(self, value: Tensor) -> Tensor:
        """[q, n, D, C] -> [n, D, q * C]."""
        n, degree, channels = self._shape
        return value.permute(1, 2, 0, 3).reshape(n, degree, value.shape[0] * channels)

    def unfold(self, value: Tensor, n_q: int) -> Tensor:
        """[n, D, q * C] -> [q, n, D, C]."""
        return value.view(*self._shape[:2], n_q, -1).permute(2, 0, 1, 3).contiguous()

    def spread_folded(self, table: Table, nodes: Tensor, n_q: int, n_edge: int) -> Tensor:
        """`table^T @ nodes`, as [n, edge component, q * C]."""
        k, n, channels = nodes.shape
        spread = table.transposed_times(nodes.reshape(k, n * channels))
        return spread.view(n_q, n_edge, n, channels).permute(2, 1, 0, 3).reshape(n, n_edge, n_q * channels)

    def collect_folded(self, table: Table, b: Tensor, n_q: int) -> Tensor:
        """`table @ b` for b [n, edge component, q * C], as [pivot component, n, C]."""
        n, n_edge, _ = b.shape
        flat = b.view(n, n_edge, n_q, -1).permute(2, 1, 0, 3).reshape(n_q * n_edge, -1)
        return table.times(flat).view(-1, n, self.rows.n_channels)

    def all_receivers(self, out: Tensor, value: Tensor) -> Tensor:
        """The sums of all receivers; a plain return where every node is one, in order."""
        if self.group.is_every_node(out.shape[1]):
            return value
        out.index_copy_(1, self.group.receivers, value)
        return out

    def spread(self, table: Table, nodes: Tensor, n_q: int, n_edge: int) -> Tensor:
        """`table^T @ nodes`, as [q, n, edge component, C]."""
        k, n, channels = nodes.shape
        spread = table.transposed_times(nodes.reshape(k, n * channels))
        return spread.view(n_q, n_edge, n, channels).transpose(1, 2)

    def collect(self, table: Table, b: Tensor) -> Tensor:
        """`table @ b` for b [q, n, edge component, C], as [pivot component, n, C]."""
        n_q, n, n_edge, channels = b.shape
        flat = b.transpose(1, 2).reshape(n_q * n_edge, n * channels)
        return table.times(flat).view(-1, n, channels)

    def sum_q(self, table: Table, value: Tensor) -> Tensor:
        """`table @ value` for per-edge values [q, n, D, C]."""
        return table.times(value.reshape(value.shape[0], -1)).view(-1, *value.shape[1:])

    def store_receivers(self, out: Tensor, value: Tensor) -> None:
        """Each receiver stands in one chunk: a plain copy."""
        out.index_copy_(1, self.group.receivers, value)

    def store_edge_components(self, out: Tensor, value: Tensor) -> None:
        """Each edge stands in one chunk: a plain copy, padding dropped."""
        self.group.put(out.t(), value.view(-1, value.shape[2]), 0)

    def store(self, out: Tensor, index: str, value: Tensor) -> None:
        """Per-edge values [components, n, D, C] to a row, shared or sender output."""
        if index == "shared":
            out += value.sum((1, 2)).unsqueeze(1)
            return
        flat = value.view(value.shape[0], -1, value.shape[3])
        if index == "row":
            self.group.put(out.transpose(0, 1), flat.transpose(0, 1), 0)
            return
        # Padding adds zeros to the sender of edge 0: `edge_components` vanish there, and with them every gradient.
        _add_rows(out, self.senders, flat)


def _add_rows(out: Tensor, index: Tensor, value: Tensor) -> None:
    """`out[:, index] += value` for component-first arrays, as one addition along the first dimension (the fast one)."""
    k, n, channels = out.shape
    offsets = torch.arange(0, k * n, n, device=out.device).unsqueeze(1)
    flat = (index.unsqueeze(0) + offsets).view(-1)
    out.view(k * n, channels).index_add_(0, flat, value.reshape(-1, channels))
