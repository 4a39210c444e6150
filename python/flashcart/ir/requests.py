"""Requests: what a contraction is asked for, before any algebra. They name cached contractions without sympy."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import Enum


class Weights(str, Enum):
    """Which path weights a product takes."""

    NONE = "none"
    SHARED = "shared"  # [1, n_paths, channels]
    ROW = "row"  # [rows, n_paths, channels]


@dataclass(frozen=True)
class ExpansionRequest:
    """Expansion of unit vectors into ranks 0..l_max."""

    l_max: int


@dataclass(frozen=True)
class ProductRequest:
    """A product of two tensors with ranks 0..l_first and 0..l_second into ranks 0..l_out.

    Attributes:
        edges: rows are edges; the first tensor is gathered by sender and the output summed at the receiver.
        second_channels: the second tensor has channels (node-local products) or one component list for all channels.
        weights: path weights.
        sum_paths: paths of one output rank are summed rather than kept.
        symmetric: the second tensor is the first.
    """

    l_first: int
    l_second: int
    l_out: int
    edges: bool
    second_channels: bool
    weights: Weights
    sum_paths: bool
    symmetric: bool = False


@dataclass(frozen=True)
class LinearRequest:
    """A linear map over (path, channel) for each rank.

    Attributes:
        paths: number of paths of each rank 0..l_max in the input.
        per_element: a set of matrices for every element.
    """

    paths: tuple[int, ...]
    per_element: bool


Request = ExpansionRequest | ProductRequest | LinearRequest


def request_name(request: Request) -> str:
    """A readable unique name: the file name of the cached contraction, without its generator hash."""

    def word(value: object) -> str:
        return ".".join(map(str, value)) if isinstance(value, tuple) else str(getattr(value, "value", value))

    values = "-".join(word(value) for value in astuple(request))
    return f"{type(request).__name__.removesuffix('Request').lower()}-{values}"
