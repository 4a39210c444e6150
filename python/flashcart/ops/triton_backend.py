"""The Triton back end: generated kernels, loaded from the cache and launched on a GPU (or in Triton's interpreter)."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from flashcart.emit import expressions, triton_source
from flashcart.emit import source as source_module
from flashcart.environment import read_environment
from flashcart.errors import UserError
from flashcart.ir import launch_plan
from flashcart.ir.contraction import Contraction, Index, Operand, Term
from flashcart.ir.launch_plan import LaunchSettings, Order, highest_rank, order_of
from flashcart.ir.simplify import contraction
from flashcart.ops.edge_layout import edge_order
from flashcart.ops.kernel_cache import contraction_of_key, key_of, stored

DTYPES = (torch.float32, torch.float64)
MOST_LANES = 128


def is_interpreted() -> bool:
    """Whether Triton runs its kernels in Python (TRITON_INTERPRET=1), on any device."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


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
    values = read_environment()
    return LaunchSettings(
        edges=values.tp_scatter_kernel,
        forward_budget=values.tp_csr_group_budget,
        backward_budget=values.tp_bwd_group_budget,
        second_budget=values.tp_dbwd_group_budget,
        backward_split=values.tp_bwd_split,
        second_split=values.tp_dbwd_split,
        peak_aware=values.tp_peak_aware_groups,
        split_input_rank=values.tp_split_input_rank,
        deterministic=values.deterministic or torch.are_deterministic_algorithms_enabled(),
    )


@lru_cache(maxsize=1)
def _emitter_hash() -> str:
    import triton

    modules = (triton_source, expressions, source_module, launch_plan)
    texts = [Path(str(module.__file__)).read_bytes() for module in modules]
    return hashlib.sha256(b"".join(texts) + triton.__version__.encode()).hexdigest()[:12]


@functools.cache
def load(key: str, chosen: LaunchSettings) -> ModuleType:
    """The module of kernels of a contraction's key."""
    program = contraction_of_key(key)
    digest = hashlib.sha256(repr(sorted(asdict(chosen).items())).encode()).hexdigest()[:8]
    _, path = stored(f"triton/{key}-{digest}-{_emitter_hash()}.py", lambda: triton_source.emit(program, chosen))
    spec = importlib.util.spec_from_file_location(f"flashcart_triton_{key}_{digest}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class _Call:
    """Everything that the launches of one evaluation share."""

    operands: Sequence[Tensor]
    senders: Tensor | None
    receivers: Tensor | None
    n_rows: int
    n_nodes: int
    n_channels: int
    slots: int

    @property
    def lanes(self) -> int:
        """Width of a block of channels: a power of two, at most 128 (64 in float64)."""
        most = MOST_LANES if self.operands[0].dtype == torch.float32 else MOST_LANES // 2
        return int(min(most, max(16, 1 << (self.n_channels - 1).bit_length())))


def evaluate(
    key: str, operands: Sequence[Tensor], senders: Tensor | None, receivers: Tensor | None, n_nodes: int
) -> list[Tensor]:
    """Outputs of a contraction, contiguous `[rows, components(, channels)]`.

    Arguments as in `torch_backend.evaluate`.
    """
    program, chosen = contraction_of_key(key), settings()
    if chosen.deterministic and any(o.index is Index.SENDER for o in program.outputs):
        return _without_atomics(program, operands, senders, receivers, n_nodes)
    call = _call(program, operands, senders, receivers, n_nodes, chosen)
    module = load(key, chosen)
    parts = _outputs(program, module, call, chosen)
    if call.n_rows or module.VARIANT == "csr":
        written: dict[int, int] = {}
        for entry in module.KERNELS:
            _launch(program, module, entry, call, parts, written)
    return [
        part.sum(0) if part.ndim > 2 + spec.channels else part
        for part, spec in zip(parts, program.outputs, strict=True)
    ]


def _call(
    program: Contraction,
    operands: Sequence[Tensor],
    senders: Tensor | None,
    receivers: Tensor | None,
    n_nodes: int,
    chosen: LaunchSettings,
) -> _Call:
    n_rows, n_channels = 1, 1
    for spec, operand in zip(program.inputs, operands, strict=True):
        n_rows = operand.shape[0] if spec.index is Index.ROW else n_rows
        n_channels = operand.shape[2] if spec.channels else n_channels
    indexed = senders if senders is not None else receivers
    if indexed is not None:
        n_rows = indexed.shape[0]
    ready = [
        x if not spec.channels or x.stride(2) == 1 else x.contiguous()
        for spec, x in zip(program.inputs, operands, strict=True)
    ]
    slots = _slots(program, n_rows / max(1, n_nodes), chosen) if receivers is not None else 1
    return _Call(ready, senders, receivers, n_rows, n_nodes, n_channels, slots)


def _slots(program: Contraction, degree: float, chosen: LaunchSettings) -> int:
    """Groups of edges per receiver in a csr backward: as set, else one per 32 edges from the least degree on."""
    if order_of(program) is not Order.BACKWARD or chosen.edges != "csr":
        return 1
    values = read_environment()
    if values.tp_bwd_csr_slots is not None:
        return values.tp_bwd_csr_slots
    return max(1, round(degree / 32)) if degree >= values.tp_bwd_csr_min_deg else 1


def _programs(module: ModuleType, call: _Call, sums: bool) -> tuple[int, int, int, int]:
    """Grid (first, channels, slots) and rows per program."""
    blocks = -(-call.n_channels // call.lanes)
    if module.VARIANT == "csr":
        return call.n_nodes, blocks, call.slots, 1
    if module.VARIANT == "lanes":
        return -(-call.n_rows // MOST_LANES), 1, 1, 1
    per_program = max(1, -(-call.n_rows // 1024)) if sums else 1
    return -(-call.n_rows // per_program), blocks, 1, per_program


def _outputs(program: Contraction, module: ModuleType, call: _Call, chosen: LaunchSettings) -> list[Tensor]:
    """Room for the outputs; those written in parts have a leading dimension of parts."""
    results = []
    like = call.operands[0]
    for slot, spec in enumerate(program.outputs):
        n = {Index.ROW: call.n_rows, Index.SHARED: 1}.get(spec.index, call.n_nodes)
        shape = [n, spec.components, *([call.n_channels] if spec.channels else [])]
        ways = [how for entry in module.KERNELS for s, how in entry["outputs"] if s == slot]
        if "partial" in ways:
            results.append(like.new_zeros(len(ways) * _parts(program, module, call, slot), *shape))
            continue
        whole = module.COMPLETE[slot] and "atomic" not in ways and call.slots == 1
        results.append(like.new_empty(shape) if whole else like.new_zeros(shape))
    return results


def _parts(program: Contraction, module: ModuleType, call: _Call, slot: int) -> int:
    """Buffers that one launch writes for an output in parts."""
    spec = program.outputs[slot]
    first, blocks, slots, _ = _programs(module, call, _has_shared(program))
    if spec.index is Index.SHARED:
        return first * slots * (1 if spec.channels else blocks)
    return blocks


def _has_shared(program: Contraction) -> bool:
    return any(spec.index is Index.SHARED for spec in program.outputs)


def _launch(
    program: Contraction,
    module: ModuleType,
    entry: dict[str, Any],
    call: _Call,
    parts: list[Tensor],
    written: dict[int, int],
) -> None:
    first, blocks, slots, per_program = _programs(module, call, _has_shared(program))
    if first == 0:
        return
    arguments: list[Any] = []
    for slot in entry["inputs"]:
        x = call.operands[slot]
        arguments += [x, x.stride(0), x.stride(1)]
    for slot, how in entry["outputs"]:
        out = parts[slot]
        if how == "partial":
            count = _parts(program, module, call, slot)
            out = out[written.get(slot, 0) * count :]
            written[slot] = written.get(slot, 0) + 1
            arguments += [out, out.stride(1), out.stride(2), out.stride(0)]
        else:
            arguments += [out, out.stride(0), out.stride(1), 0]
    none = parts[0]
    order, starts = (none, none)
    if module.VARIANT == "csr":
        assert call.receivers is not None
        order, starts = edge_order(call.receivers, call.n_nodes)
    senders = none if call.senders is None else call.senders
    receivers = none if call.receivers is None else call.receivers
    arguments += [senders, receivers, order, starts, call.n_rows, call.n_channels, per_program]
    block = MOST_LANES if module.VARIANT == "lanes" else call.lanes
    warps = 4 if module.VARIANT == "lanes" else 1
    kernel = getattr(module, entry["name"])
    kernel[(first, blocks, slots)](*arguments, SLOTS=slots, BLOCK=block, num_warps=warps)


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
    results = evaluate(key_of(per_edge), operands, senders, receivers, n_nodes)
    for slot, spec in enumerate(program.outputs):
        if spec.index is Index.SENDER:
            summed = key_of(_segment_sum(spec.components))
            (results[slot],) = evaluate(summed, [results[slot]], None, senders, n_nodes)
    return results


@functools.cache
def _segment_sum(components: int) -> Contraction:
    """Rows summed at their receiver, component by component."""
    rows = Operand(components, Index.ROW, channels=True, role=0)
    out = Operand(components, Index.RECEIVER, channels=True, role=1)
    return contraction([rows], [out], [Term((0, c), ((0, c),), 1.0) for c in range(components)])


def check(program: Contraction, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse what cannot run.

    Raises:
        UserError: one sentence with the remedy.
    """
    reason = why_not(program, device, dtype)
    if reason is not None:
        raise UserError(reason)
