"""Linear maps over channels on the Triton back end: launches, choice of tiles, sums of parts.

The kernels come from flashcart.emit.triton_linear, the launches and their tables from flashcart.ir.linear_launch. Sums
over rows are cut into shares whose results are added afterwards, so nothing here uses atomic additions.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from flashcart.emit import source as source_module
from flashcart.emit import triton_linear
from flashcart.ir import linear_launch
from flashcart.ir.contraction import Contraction, Index, channel_sizes
from flashcart.ir.linear_launch import LinearLaunch, Tile, linear_launches, n_programs, n_shares, planned_tile, tiles_of
from flashcart.ops import tuning
from flashcart.ops.edge_layout import edge_order
from flashcart.ops.kernel_cache import contraction_of_key, load_module


@functools.cache
def emitter_hash() -> str:
    """Hash of what makes the kernels and numbers their tiles: sources of the emitter, version of Triton."""
    import triton

    texts = [Path(str(module.__file__)).read_bytes() for module in (triton_linear, linear_launch, source_module)]
    return hashlib.sha256(b"".join(texts) + triton.__version__.encode()).hexdigest()[:12]


@functools.cache
def load(axes: str, n_products: int) -> ModuleType:
    """The module of the kernel for a kind of output and a number of products."""
    name = f"triton/{triton_linear.kernel_name(axes, n_products)}-{emitter_hash()}.py"
    return load_module(name, lambda: triton_linear.emit_linear(axes, n_products))


def _kernel(launch: LinearLaunch) -> Any:
    form = (launch.axes, len(launch.operands))
    return getattr(load(*form), triton_linear.kernel_name(*form))


# Elements that a kernel looks through to find a tile's: all that there are, so that one kernel serves all models.
SLOTS = 128

launches_of = functools.cache(linear_launches)


@dataclass(frozen=True)
class LinearCall:
    """What the launches of one evaluation share.

    Attributes:
        operands: contiguous within each row.
        order, starts: rows sorted by element and where each begins; None with one set of matrices.
        channels: sizes of the axes `c` and `d`.
        precision: of matrix products, as `tl.dot` takes it.
        planned: take the tile of the plan, measure nothing.
    """

    program: Contraction
    operands: Sequence[Tensor]
    order: Tensor | None
    starts: Tensor | None
    n_rows: int
    n_elements: int
    channels: tuple[int, int]
    precision: str
    planned: bool

    @property
    def like(self) -> Tensor:
        """A tensor with device and dtype."""
        return self.operands[0]

    def tiles(self, launch: LinearLaunch) -> tuple[Tile, ...]:
        """Candidates."""
        return tiles_of(launch.axes, self.channels, self.like.element_size())

    def problem(self, launch: LinearLaunch) -> str:
        """Name of the class of problems that share a choice: rows within a factor of four."""
        rows = max(0, self.n_rows - 1).bit_length() // 2
        c, d = self.channels
        elements = "elements" if self.order is not None else "shared"
        size = f"{c}x{d}-{len(launch.table)}-{elements}-4e{rows}"
        return f"{len(launch.operands)}-{launch.axes}-{size}-float{8 * self.like.element_size()}-{self.precision}"


def evaluate(
    program: Contraction, operands: Sequence[Tensor], species: Tensor | None, n_elements: int, *, planned: bool
) -> list[Tensor]:
    """Outputs of a linear map or of one of its derivatives, contiguous `[rows, components, *channel axes]`.

    Args:
        program: the contraction.
        operands: one tensor per input.
        species: [n_rows] int64, where matrices differ between elements.
        n_elements: sets of matrices, where they differ.
        planned: take the tiles of the plan; else, on a GPU, the fastest of at most three, by the cache's record.
    """
    call = prepare(program, operands, species, n_elements, planned=planned)
    return [_evaluate(call, launch) for launch in launches_of(program)]


def prepare(
    program: Contraction, operands: Sequence[Tensor], species: Tensor | None, n_elements: int, *, planned: bool
) -> LinearCall:
    """What the launches of an evaluation need; arguments as in `evaluate`."""
    sizes = channel_sizes(program.inputs, operands)
    ready = [x if _is_row_wise(x) else x.contiguous() for x in operands]
    rows = [x.shape[0] for x, spec in zip(operands, program.inputs, strict=True) if spec.channels != "cd"]
    order, starts = (None, None) if species is None else edge_order(species, n_elements)
    count = 1 if species is None else n_elements
    channels = (sizes["c"], sizes["d"])
    return LinearCall(program, ready, order, starts, rows[0], count, channels, precision(ready[0]), planned)


def _is_row_wise(x: Tensor) -> bool:
    """Whether the numbers of a row lie one after the other; rows may be apart."""
    wanted = 1
    for size, stride in zip(reversed(x.shape[1:]), reversed(x.stride()[1:]), strict=True):
        if size != 1 and stride != wanted:
            return False
        wanted *= size
    return True


def precision(like: Tensor) -> str:
    """How `tl.dot` multiplies: float32 as three TF32 terms (one where torch may use TF32), else as it is."""
    if like.dtype != torch.float32 or _target() != "cuda":
        return "ieee"
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3"


def _target() -> str:
    """`cuda`, `hip`, or `none` in the interpreter."""
    from flashcart.ops.triton_backend import is_interpreted

    if is_interpreted():
        return "none"
    from triton.runtime import driver

    return str(driver.active.get_current_target().backend)


def n_pieces(key: str, n_channels: int, item_size: int) -> int:
    """Kernels that a contraction may need: one per output and candidate tile."""
    return len(_pieces(key, n_channels, item_size))


@functools.cache
def _pieces(key: str, n_channels: int, item_size: int) -> tuple[tuple[LinearLaunch, Tile], ...]:
    launches = launches_of(contraction_of_key(key))
    return tuple((x, tile) for x in launches for tile in tiles_of(x.axes, (n_channels, n_channels), item_size))


def piece_identity(key: str, n_channels: int, item_size: int, number: int) -> str:
    """What decides the compiled kernel of a piece: pieces with equal identities are compiled once."""
    launch, tile = _pieces(key, n_channels, item_size)[number]
    indexed = any(operand.index is Index.SENDER for operand in contraction_of_key(key).inputs)
    return repr((launch.axes, len(launch.operands), tile, n_channels, item_size, indexed))


def piece_kernel(key: str, n_channels: int, item_size: int, number: int) -> tuple[Any, Tile]:
    """Triton's function of a piece, and its tile."""
    launch, tile = _pieces(key, n_channels, item_size)[number]
    return _kernel(launch), tile


def compile_piece(call: LinearCall, key: str, number: int) -> None:
    """Compile one piece for operands without data."""
    launch, tile = _pieces(key, call.channels[0], call.like.element_size())[number]
    _launch(call, launch, tile, _room(call, launch, tile))


def _evaluate(call: LinearCall, launch: LinearLaunch) -> Tensor:
    tiles = call.tiles(launch)
    return run(call, launch, tiles[_choice(call, launch, tiles)])


def run(call: LinearCall, launch: LinearLaunch, tile: Tile) -> Tensor:
    """One output, computed with a tile."""
    out = _room(call, launch, tile)
    if call.n_rows:
        _launch(call, launch, tile, out)
    else:
        out.zero_()
    return out[0] if len(out) == 1 else out.sum(0)


def _room(call: LinearCall, launch: LinearLaunch, tile: Tile) -> Tensor:
    """[shares, rows, components, *channel axes]."""
    spec = call.program.outputs[launch.output]
    axes = dict(zip("cd", call.channels, strict=True))
    shares = n_shares(launch, tile, call.n_rows, call.n_elements, call.channels) if launch.axes == "cd" else 1
    rows = call.n_elements if launch.axes == "cd" else call.n_rows
    return call.like.new_empty(shares, rows, spec.components, *spec.channel_shape(axes))


def _choice(call: LinearCall, launch: LinearLaunch, tiles: tuple[Tile, ...]) -> int:
    """Place of the tile to use."""
    planned = planned_tile(launch, tiles, call.n_rows, call.channels)
    measurable = call.like.is_cuda and _target() != "none" and call.n_rows > 0
    if call.planned or len(tiles) == 1 or not measurable or torch.cuda.is_current_stream_capturing():
        return planned

    def seconds(candidate: int) -> float:
        from triton.runtime.errors import OutOfResources

        out = _room(call, launch, tiles[candidate])
        with torch.cuda.device(out.device):
            try:
                return tuning.seconds_on_gpu(lambda: _launch(call, launch, tiles[candidate], out))
            except OutOfResources:
                return math.inf

    name = f"linear-{emitter_hash()}/{call.problem(launch)}"
    return tuning.choose(name, _gpu_name(call.like.device), len(tiles), seconds)


@functools.cache
def _gpu_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device)


@functools.cache
def _constants(launch: LinearLaunch, device: torch.device) -> tuple[Tensor, Tensor]:
    """Table and scales of a launch on a device."""
    table = torch.tensor(launch.table, dtype=torch.int32, device=device)
    return table, torch.tensor(launch.scales, dtype=torch.float64, device=device)


def _launch(call: LinearCall, launch: LinearLaunch, tile: Tile, out: Tensor) -> None:
    arguments: list[Any] = []
    for slot in (slot for pair in launch.operands for slot in pair):
        arguments += [call.operands[slot], call.operands[slot].stride(0)]
    arguments += [out, out.stride(1), out.stride(0), *_constants(launch, out.device)]
    arguments += [call.like if x is None else x for x in (call.order, call.starts)]
    arguments += [len(launch.table), call.n_rows, out.shape[0], call.n_elements, *call.channels]
    slots = 1 if call.order is None else max(SLOTS, 1 << (call.n_elements - 1).bit_length())
    arguments += [slots, tile.rows, tile.channels, tile.inner, call.precision]
    programs = n_programs(launch, tile, call.n_rows, call.channels)
    if launch.axes == "cd":
        programs *= out.shape[0] * call.n_elements
    elif call.order is not None:  # every element may end with an unfilled tile
        most = -(-call.n_rows // tile.rows) + min(call.n_elements, call.n_rows) - 1
        programs = programs // -(-call.n_rows // tile.rows) * most
    options = {"num_warps": tile.warps, "num_stages": 3 if _target() == "cuda" else 2}
    if out.is_meta:  # shapes without data: compile, launch nothing (ops/compile_ahead.py)
        _kernel(launch).warmup(*arguments, grid=(programs,), **options)
    else:
        _kernel(launch)[(programs,)](*arguments, **options)
