"""Bookkeeping of ranks: where the components of each rank stand, and which product paths there are. No arithmetic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Path:
    """One product path (l_first, l_second -> l_out), ordered by output rank, then by input ranks."""

    l_out: int
    l_first: int
    l_second: int


def components(l_max: int) -> int:
    """Number of components of all ranks 0..l_max."""
    return int((l_max + 1) ** 2)


def rank_slice(rank: int) -> slice:
    """Where the components of one rank stand among ranks 0..l_max."""
    return slice(rank**2, (rank + 1) ** 2)


def product_paths(l_first: int, l_second: int, l_out: int, *, symmetric: bool = False) -> tuple[Path, ...]:
    """All even paths between ranks 0..l_first and 0..l_second with output ranks 0..l_out, in storage order.

    Args:
        symmetric: the two inputs are the same tensor, so that (l1, l2) and (l2, l1) give the same; one of them is kept.
    """
    paths = [
        Path(l3, l1, l2)
        for l3 in range(l_out + 1)
        for l1 in range(l_first + 1)
        for l2 in range(l_second + 1)
        if abs(l1 - l2) <= l3 <= l1 + l2 and (l1 + l2 - l3) % 2 == 0 and (l1 <= l2 or not symmetric)
    ]
    return tuple(sorted(paths))


def path_offsets(paths: tuple[Path, ...]) -> tuple[int, ...]:
    """First component of each path in an output that keeps the paths apart, and the total at the end."""
    offsets = [0]
    for path in paths:
        offsets.append(offsets[-1] + 2 * path.l_out + 1)
    return tuple(offsets)
