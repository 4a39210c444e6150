"""How a linear map and its derivatives become launches on a GPU: what each reads, and which tiles may compute it.

One launch per output, for all ranks together: a table says for every component of the output what it is made of, so
that the kernel is the same for every map. Two kinds: sums over channels, whose outputs have rows (`c`, `d`), and sums
over rows, whose outputs are matrices (`cd`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from flashcart.ir.contraction import Contraction
from flashcart.ir.linear_plan import LinearBlock, LinearPlan, linear_plan

# What keeps a GPU of a hundred multiprocessors busy; smaller tiles where larger ones would be fewer.
ENOUGH_PROGRAMS = 264
# Rows that one program sums at least, and buffers that are summed afterwards at most.
LEAST_SHARE, MOST_SHARES = 128, 16


@dataclass(frozen=True, eq=False)
class LinearLaunch:
    """One kernel launch. Equal to itself only, which makes it quick to look up.

    Attributes:
        output: slot of the output.
        axes: its channel axes.
        operands: input slots of each product: (rows, matrices) for `c` and `d`, (over `c`, over `d`) for `cd`.
        table: per component of the output four numbers. For `c` and `d`: first component of the rows, distance of those
            that follow, first matrix, number of matrices. For `cd`: first component over `c`, first over `d`, number of
            components, 0.
        scales: per component of the output the coefficient.
    """

    output: int
    axes: str
    operands: tuple[tuple[int, int], ...]
    table: tuple[tuple[int, int, int, int], ...]
    scales: tuple[float, ...]


@dataclass(frozen=True)
class Tile:
    """What one program computes: `rows` x `channels` numbers (`c` x `d` of a matrix), `inner` summed at a time."""

    rows: int
    channels: int
    inner: int
    warps: int


TILES = {
    4: (Tile(128, 128, 32, 8), Tile(64, 64, 32, 4), Tile(32, 32, 32, 4)),
    8: (Tile(64, 64, 16, 4), Tile(32, 32, 16, 4)),
}


def linear_launches(program: Contraction) -> tuple[LinearLaunch, ...]:
    """The launches of a linear map or a derivative of one."""
    plan = linear_plan(program)
    return tuple(_launch(program, plan, slot) for slot in range(len(program.outputs)))


def _launch(program: Contraction, plan: LinearPlan, slot: int) -> LinearLaunch:
    axes = program.outputs[slot].channels
    entries = {c: (numbers, block.coefficient) for block in plan.blocks for c, numbers in _entries(block, axes)}
    nothing = ((0, 0, 0, 0), 0.0)
    found = [entries.get(component, nothing) for component in range(program.outputs[slot].components)]
    operands = []
    for variant in plan.of_output(slot):
        places = {"d": (variant.c, variant.matrix), "c": (variant.d, variant.matrix), "cd": (variant.c, variant.d)}
        (_, first), (_, second) = places[axes]
        operands.append((first, second))
    return LinearLaunch(slot, axes, tuple(operands), tuple(t for t, _ in found), tuple(s for _, s in found))


def _entries(block: LinearBlock, axes: str) -> list[tuple[int, tuple[int, int, int, int]]]:
    """Output components of a block with their entries of the table."""
    inside, paths = range(block.size), range(block.paths)
    if axes == "d":
        return [(block.d + m, (block.c + m, block.size, block.matrix, block.paths)) for m in inside]
    if axes == "c":
        return [(block.c + j * block.size + m, (block.d + m, 0, block.matrix + j, 1)) for j in paths for m in inside]
    return [(block.matrix + j, (block.c + j * block.size, block.d, block.size, 0)) for j in paths]


@functools.cache
def tiles_of(axes: str, channels: tuple[int, int], item_size: int) -> tuple[Tile, ...]:
    """The tiles that may compute an output, at most three, the largest first; none wider than needed.

    Args:
        axes: of the output.
        channels: sizes of the axes `c` and `d`.
        item_size: bytes of a number.
    """
    c, d = (max(16, 1 << (n - 1).bit_length()) for n in channels)
    fitted = []
    for tile in TILES[item_size]:
        rows = min(tile.rows, c) if axes == "cd" else tile.rows
        inner = tile.inner if axes == "cd" else min(tile.inner, c if axes == "d" else d)
        fitted.append(Tile(rows, min(tile.channels, c if axes == "c" else d), inner, tile.warps))
    return tuple(dict.fromkeys(fitted))


def n_programs(launch: LinearLaunch, tile: Tile, n_rows: int, channels: tuple[int, int]) -> int:
    """Programs of a launch without shares (and with one element)."""
    c, d = channels
    rows, columns = (c, d) if launch.axes == "cd" else (n_rows, c if launch.axes == "c" else d)
    return -(-rows // tile.rows) * -(-columns // tile.channels) * len(launch.table)


def planned_tile(launch: LinearLaunch, tiles: tuple[Tile, ...], n_rows: int, channels: tuple[int, int]) -> int:
    """The largest tile of which there are enough programs, else the smallest; its place in `tiles`."""
    if launch.axes == "cd":  # shares of the rows make the programs many
        n_rows = max(n_rows, 1)
        enough = [-(-n_rows // LEAST_SHARE) * n_programs(launch, t, n_rows, channels) >= ENOUGH_PROGRAMS for t in tiles]
    else:
        enough = [n_programs(launch, tile, n_rows, channels) >= ENOUGH_PROGRAMS for tile in tiles]
    return enough.index(True) if True in enough else len(tiles) - 1


def n_shares(launch: LinearLaunch, tile: Tile, n_rows: int, n_elements: int, channels: tuple[int, int]) -> int:
    """Into how many parts the rows of an element are cut, each summed by programs of its own."""
    programs = n_programs(launch, tile, n_rows, channels) * n_elements
    useful = -(-n_rows // (LEAST_SHARE * n_elements))
    return max(1, min(2 * ENOUGH_PROGRAMS // programs, useful, MOST_SHARES))
