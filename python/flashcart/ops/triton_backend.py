"""The Triton back end: generated kernels, loaded from the cache and launched on a GPU (or in Triton's interpreter)."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from flashcart.emit import expressions, triton_kernel, triton_source
from flashcart.emit import source as source_module
from flashcart.environment import Environment, read_environment
from flashcart.errors import UserError
from flashcart.ir import block_choice, coupling, launch_plan
from flashcart.ir.contraction import Contraction, Index, Operand, Term
from flashcart.ir.launch_plan import LaunchSettings, Order, highest_rank, order_of
from flashcart.ir.simplify import contraction
from flashcart.ops import triton_linear
from flashcart.ops.edge_layout import edge_order
from flashcart.ops.kernel_cache import contraction_of_key, key_of, load_module

DTYPES = (torch.float32, torch.float64)
# Without channels a program is 128 rows; with channels one warp, since sums over channels stay inside it.
EDGES_PER_SLOT = 64
WARPS = {"lanes": 4, "rows": 1, "csr": 1, "edge": 1}
# Buffers for a sum over all rows; with a receiver per program, several programs add to one.
MOST_PARTS = 1024


def is_interpreted() -> bool:
    """Whether Triton runs its kernels in Python (TRITON_INTERPRET=1), on any device."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")  # Triton's own words


def why_not(program: Contraction, device: torch.device, dtype: torch.dtype) -> str | None:
    """The sentence that says why a contraction cannot run here, or None."""
    if importlib.util.find_spec("triton") is None:
        return "backend='triton': the package triton is not installed; install it or use backend='torch'."
    if device.type != "cuda" and not is_interpreted():
        return (
            f"backend='triton' needs CUDA tensors, got {device.type}; use backend='torch' "
            "(or TRITON_INTERPRET=1 to check kernels without a GPU)."
        )
    if dtype not in DTYPES:
        return f"backend='triton' takes float32 and float64, got {dtype}; use backend='torch'."
    limit, rank = read_environment().kernel_l_max, highest_rank(program)
    if rank > limit:
        return (
            f"backend='triton': rank {rank} is above FLASHCART_KERNEL_L_MAX={limit}; raise the variable or use "
            "backend='torch'."
        )
    return None


def settings() -> LaunchSettings:
    """The launch settings of this process: environment variables, and torch's switch for deterministic algorithms."""
    return _settings(read_environment(), torch.are_deterministic_algorithms_enabled())


@lru_cache(maxsize=4)
def _settings(values: Environment, deterministic: bool) -> LaunchSettings:
    return LaunchSettings(
        edges=values.tp_scatter_kernel,
        forward_budget=values.tp_csr_group_budget,
        backward_budget=values.tp_bwd_group_budget,
        second_budget=values.tp_dbwd_group_budget,
        backward_split=values.tp_bwd_split,
        second_split=values.tp_dbwd_split,
        peak_aware=values.tp_peak_aware_groups,
        split_input_rank=values.tp_split_input_rank,
        deterministic=values.deterministic or deterministic,
    )


@lru_cache(maxsize=1)
def emitter_hash() -> str:
    """Hash of what turns contractions into kernels: sources of the emitter, version of Triton."""
    import triton

    modules = (triton_source, triton_kernel, expressions, source_module, launch_plan, block_choice, coupling)
    texts = [Path(str(module.__file__)).read_bytes() for module in modules]
    return hashlib.sha256(b"".join(texts) + triton.__version__.encode()).hexdigest()[:12]


@functools.cache
def load(key: str, chosen: LaunchSettings, item_size: int = 4) -> ModuleType:
    """The module of kernels of a contraction's key, for numbers of `item_size` bytes."""
    program = contraction_of_key(key)
    digest = hashlib.sha256(repr((sorted(asdict(chosen).items()), item_size)).encode()).hexdigest()[:8]
    name = f"triton/{key}-{digest}-{emitter_hash()}.py"
    return load_module(name, lambda: triton_source.emit(program, chosen, item_size))


@dataclass(frozen=True)
class Call:
    """Everything that the launches of one evaluation share."""

    program: Contraction
    module: ModuleType
    operands: Sequence[Tensor]
    senders: Tensor | None
    receivers: Tensor | None
    n_rows: int
    n_nodes: int
    n_channels: int
    slots: int
    order: tuple[Tensor, Tensor] | None

    @property
    def variant(self) -> str:
        """`csr`, `edge`, `rows` or `lanes`."""
        return str(self.module.VARIANT)

    def block(self, entry: dict[str, Any]) -> int:
        """Channels (rows without channels) of one program: as planned, but no wider than needed."""
        if self.variant == "lanes":
            return int(entry["block"])
        return int(min(entry["block"], max(32, 1 << (self.n_channels - 1).bit_length())))

    def programs(self, entry: dict[str, Any]) -> tuple[int, int, int]:
        """Programs along rows (or receivers and slots), blocks of channels, rows per program (csr: shared buffers)."""
        block = self.block(entry)
        if self.variant == "lanes":
            return -(-self.n_rows // block), 1, 1
        blocks = -(-self.n_channels // block)
        if self.variant == "csr":
            return self.n_nodes * self.slots, blocks, MOST_PARTS
        sums = any(spec.index is Index.SHARED for spec in self.program.outputs)
        per_program = max(1, -(-self.n_rows // MOST_PARTS)) if sums else 1
        return -(-self.n_rows // per_program), blocks, per_program

    def parts(self, entry: dict[str, Any], slot: int) -> int:
        """Buffers that one launch writes for an output in parts."""
        units, blocks, _ = self.programs(entry)
        spec = self.program.outputs[slot]
        if spec.index is Index.SHARED:
            buffers = min(units, MOST_PARTS) if dict(entry["outputs"])[slot] == "parts" else units
            return buffers * (1 if spec.channels else blocks)
        return blocks


def evaluate(
    key: str, operands: Sequence[Tensor], senders: Tensor | None, receivers: Tensor | None, n_nodes: int
) -> list[Tensor]:
    """Outputs of a contraction, contiguous `[rows, components, *channel axes]`.

    Arguments as in `torch_backend.evaluate`.
    """
    with on_gpu_of(operands[0].device):
        return _evaluate(key, operands, senders, receivers, n_nodes)


@contextmanager
def on_gpu_of(device: torch.device) -> Iterator[None]:
    """Make a GPU the current one: Triton launches there, wherever the pointers of operands point."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        yield
        return
    with torch.cuda.device(device):
        yield


def _evaluate(
    key: str, operands: Sequence[Tensor], senders: Tensor | None, receivers: Tensor | None, n_nodes: int
) -> list[Tensor]:
    program, chosen = contraction_of_key(key), settings()
    if program.mixes_channels:
        return triton_linear.evaluate(program, operands, senders, n_nodes, planned=chosen.deterministic)
    if chosen.deterministic and any(o.index is Index.SENDER for o in program.outputs):
        return _without_atomics(program, operands, senders, receivers, n_nodes)
    call = prepare(key, operands, senders, receivers, n_nodes)
    buffers = [_output(call, slot) for slot in range(len(program.outputs))]
    if call.n_rows or call.variant == "csr":
        written = [0] * len(buffers)
        for entry in call.module.KERNELS:
            _launch(call, entry, buffers, written)
    return [
        buffer.sum(0) if buffer.ndim > 2 + len(spec.channels) else buffer
        for buffer, spec in zip(buffers, program.outputs, strict=True)
    ]


def compile_launch(call: Call, number: int) -> None:
    """Compile one launch of an evaluation whose operands have no data."""
    buffers = [_output(call, slot) for slot in range(len(call.program.outputs))]
    _launch(call, call.module.KERNELS[number], buffers, [0] * len(buffers))


def prepare(
    key: str, operands: Sequence[Tensor], senders: Tensor | None, receivers: Tensor | None, n_nodes: int
) -> Call:
    """What the launches of an evaluation need; arguments as in `evaluate`."""
    program, module = contraction_of_key(key), load(key, settings(), operands[0].element_size())
    n_rows, n_channels = 1, 1
    for spec, operand in zip(program.inputs, operands, strict=True):
        n_rows = operand.shape[0] if spec.index is Index.ROW else n_rows
        n_channels = operand.shape[2] if spec.channels else n_channels
    indexed = senders if senders is not None else receivers
    if indexed is not None:
        n_rows = indexed.shape[0]
    ready = [x if _is_row_wise(x) else x.contiguous() for x in operands]
    slots, order = 1, None
    if module.VARIANT == "csr":
        assert receivers is not None
        slots, order = slots_of(program, n_rows / max(1, n_nodes)), edge_order(receivers, n_nodes)
    ends = [None if x is None else x.contiguous() for x in (senders, receivers)]  # read without strides
    return Call(program, module, ready, ends[0], ends[1], n_rows, n_nodes, n_channels, slots, order)


def _is_row_wise(x: Tensor) -> bool:
    """Whether the components and channels of a row lie one after the other; rows may be apart."""
    if x.ndim == 2:
        return x.stride(1) == 1 or x.shape[1] == 1
    return x.stride(2) == 1 and (x.stride(1) == x.shape[2] or x.shape[1] == 1)


def slots_of(program: Contraction, degree: float) -> int:
    """Groups of edges per receiver in a csr backward: as set, else two or more from the least degree on."""
    if order_of(program) is not Order.BACKWARD:
        return 1
    values = read_environment()
    if values.tp_bwd_csr_slots is not None:
        return values.tp_bwd_csr_slots
    return max(2, round(degree / EDGES_PER_SLOT)) if degree >= values.tp_bwd_csr_min_deg else 1


def _output(call: Call, slot: int) -> Tensor:
    """Room for an output; one that is written in parts has a leading dimension of parts."""
    spec, module, like = call.program.outputs[slot], call.module, call.operands[0]
    n = {Index.ROW: call.n_rows, Index.SHARED: 1}.get(spec.index, call.n_nodes)
    shape = [n, spec.components, *([call.n_channels] if spec.channels else [])]
    ways = [(entry, how) for entry in module.KERNELS for s, how in entry["outputs"] if s == slot]
    if any(how in ("partial", "parts") for _, how in ways):
        return like.new_zeros(sum(call.parts(entry, slot) for entry, _ in ways), *shape)
    whole = module.COMPLETE[slot] and all(how != "atomic" for _, how in ways) and call.slots == 1
    return like.new_empty(shape) if whole else like.new_zeros(shape)


def _launch(call: Call, entry: dict[str, Any], buffers: list[Tensor], written: list[int]) -> None:
    units, blocks, per_program = call.programs(entry)
    if units == 0:
        return
    arguments: list[Any] = []
    for slot in entry["inputs"]:
        arguments += [call.operands[slot], call.operands[slot].stride(0)]
    for slot, how in entry["outputs"]:
        out = buffers[slot]
        if how in ("partial", "parts"):
            out = out[written[slot] :]
            written[slot] += call.parts(entry, slot)
            arguments += [out, out.stride(1), out.stride(0)]
        else:
            arguments += [out, out.stride(0), 0]
    none = call.operands[0]
    order, starts = call.order or (none, none)
    arguments += [none if x is None else x for x in (call.senders, call.receivers)]
    sizes = [call.n_rows, per_program, call.slots]
    split = call.slots > 1 and any(how == "registers" for _, how in entry["outputs"])
    arguments += [order, starts, *sizes, call.n_channels, call.block(entry), split]
    kernel, grid = getattr(call.module, entry["name"]), (units * blocks,)
    if call.operands[0].is_meta:  # shapes without data: compile, launch nothing (ops/compile_ahead.py)
        kernel.warmup(*arguments, grid=grid, num_warps=WARPS[call.variant])
    else:
        kernel[grid](*arguments, num_warps=WARPS[call.variant])


def _without_atomics(
    program: Contraction, operands: Sequence[Tensor], senders: Tensor | None, receivers: Tensor | None, n_nodes: int
) -> list[Tensor]:
    """Sender outputs first per edge, then summed over the edges of each sender, in a fixed order."""
    per_edge = replace(
        program,
        outputs=tuple(
            replace(spec, index=Index.ROW) if spec.index is Index.SENDER else spec for spec in program.outputs
        ),
    )
    results = _evaluate(key_of(per_edge), operands, senders, receivers, n_nodes)
    for slot, spec in enumerate(program.outputs):
        if spec.index is Index.SENDER:
            summed = key_of(_segment_sum(spec.components))
            (results[slot],) = _evaluate(summed, [results[slot]], None, senders, n_nodes)
    return results


@functools.cache
def _segment_sum(components: int) -> Contraction:
    """Rows summed at their receiver, component by component."""
    rows = Operand(components, Index.ROW, channels="c", role=0)
    out = Operand(components, Index.RECEIVER, channels="c", role=1)
    return contraction([rows], [out], [Term((0, c), ((0, c),), 1.0) for c in range(components)])


def check(program: Contraction, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse what cannot run.

    Raises:
        UserError: one sentence with the remedy.
    """
    reason = why_not(program, device, dtype)
    if reason is not None:
        raise UserError(reason)
