"""The differentiable op that carries every contraction: `flashcart::contract`.

One op, three callers (docs/architecture.md): in eager mode its `autograd.Function` is called directly; under
`torch.compile` and inside CUDA graphs the registered op is seen. Its backward is the same op with the key of the
vector-Jacobian product, so derivatives of every order come from the IR. torch.func transforms do not pass through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from flashcart.errors import UserError
from flashcart.ir.contraction import Contraction, Index, channel_sizes
from flashcart.ir.differentiate import depends_on, vjp
from flashcart.ops import torch_backend, triton_backend
from flashcart.ops.kernel_cache import contraction_of_key, key_of

BACKENDS = ("torch", "triton")

_library = torch.library.Library("flashcart", "DEF")
_library.define("contract(Tensor[] operands, Tensor senders, Tensor receivers, SymInt n_nodes, str key) -> Tensor[]")


def contract(
    program: Contraction,
    operands: Sequence[Tensor],
    *,
    senders: Tensor | None = None,
    receivers: Tensor | None = None,
    n_nodes: int = 0,
    backend: str = "torch",
) -> list[Tensor]:
    """Evaluate a contraction, differentiably to every order.

    Args:
        program: what to compute.
        operands: one tensor per input, `[rows, components, *channel axes]`.
        senders, receivers: [n_rows] int64, where an operand is indexed by them.
        n_nodes: rows of the operands and outputs that are indexed by sender or receiver; no index may reach it, which
            a GPU does not check.
        backend: `torch`, or `triton` for the generated GPU kernels.

    Returns:
        One tensor per output.

    Raises:
        UserError: the back end is unknown or cannot run these operands.
        ValueError: shapes, dtypes or devices do not fit.
    """
    check_backend(backend, program, operands[0])
    _check_shapes(program, operands, n_nodes)
    none = operands[0].new_empty(0, dtype=torch.int64)
    index = (none if senders is None else senders, none if receivers is None else receivers)
    if torch.compiler.is_compiling():
        return list(torch.ops.flashcart.contract(list(operands), *index, n_nodes, f"{backend}:{program.key}"))
    name = key_of(program)
    n_rows = _check_indices(operands[0], {Index.SENDER: senders, Index.RECEIVER: receivers}, _indexed(name))
    _check_operands(program, operands, n_rows)
    key = f"{backend}:{name}"
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in operands)):
        return _evaluate(list(operands), *index, n_nodes, key)
    return list(_Contract.apply(key, n_nodes, False, *index, *operands))


def check_backend(backend: str, program: Contraction, like: Tensor) -> None:
    """Refuse a back end that is unknown or cannot run a contraction here; there is no silent fallback.

    Raises:
        UserError: with the remedy.
    """
    if backend not in BACKENDS:
        raise UserError(f"backend={backend!r}: expected one of {', '.join(BACKENDS)}.")
    if backend == "triton":
        triton_backend.check(program, like.device, like.dtype)


def _check_shapes(program: Contraction, operands: Sequence[Tensor], n_nodes: int) -> None:
    if len(operands) != len(program.inputs):
        raise ValueError(f"expected {len(program.inputs)} operands, got {len(operands)}")
    for slot, (spec, operand) in enumerate(zip(program.inputs, operands, strict=True)):
        if operand.ndim != 2 + len(spec.channels) or operand.shape[1] != spec.components:
            wanted = f"[rows, {', '.join([str(spec.components), *spec.channels])}]"
            raise ValueError(f"operand {slot}: expected shape {wanted}, got {list(operand.shape)}")
        if spec.index in (Index.SENDER, Index.RECEIVER) and operand.shape[0] != n_nodes:
            raise ValueError(f"operand {slot}: expected n_nodes = {n_nodes} rows, got {operand.shape[0]}")


def _check_indices(like: Tensor, ends: dict[Index, Tensor | None], indexed: frozenset[Index]) -> int | None:
    """Refuse indices that kernels, which see addresses only, would misread; return their number, None without any."""
    n_rows = None
    for index, end in ends.items():
        if index not in indexed:
            continue
        if end is None or end.ndim != 1 or end.dtype != torch.int64 or end.device != like.device:
            got = "none" if end is None else f"{end.dtype} {list(end.shape)} on {end.device}"
            raise ValueError(f"{index.value}s: expected torch.int64 [n_rows] on {like.device}, got {got}")
        if n_rows is not None and n_rows != end.shape[0]:
            raise ValueError(f"receivers: expected {n_rows}, as many as senders, got {end.shape[0]}")
        n_rows = end.shape[0]
    return n_rows


def _check_operands(program: Contraction, operands: Sequence[Tensor], n_rows: int | None) -> None:
    """Refuse operands that do not fit to each other; n_rows: as `_check_indices` returns it."""
    sizes: dict[str, int] = {}
    dtype, device = operands[0].dtype, operands[0].device
    for slot, (spec, x) in enumerate(zip(program.inputs, operands, strict=True)):
        if x.dtype != dtype or x.device != device:
            raise ValueError(f"operand {slot}: expected {dtype} on {device}, got {x.dtype} on {x.device}")
        for axis, size in zip(spec.channels, x.shape[2:], strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ValueError(f"operand {slot}: expected {sizes[axis]} channels, as before, got {size}")
        if spec.index is Index.ROW:
            n_rows = x.shape[0] if n_rows is None else n_rows
            if x.shape[0] != n_rows:
                raise ValueError(f"operand {slot}: expected {n_rows} rows, got {x.shape[0]}")
        elif spec.index is Index.SHARED and x.shape[0] != 1:
            raise ValueError(f"operand {slot}: expected one row, got {x.shape[0]}")


_recordings: list[list[str]] = []


@contextmanager
def recorded_keys() -> Iterator[list[str]]:
    """Note the keys of all contractions that are evaluated within."""
    keys: list[str] = []
    _recordings.append(keys)
    try:
        yield keys
    finally:
        _recordings.remove(keys)


def _evaluate(operands: list[Tensor], senders: Tensor, receivers: Tensor, n_nodes: int, key: str) -> list[Tensor]:
    """Run the kernels of a key; knows nothing of autograd."""
    backend, _, name = key.partition(":")
    for keys in _recordings:
        keys.append(name)
    indexed = _indexed(name)
    evaluate = triton_backend.evaluate if backend == "triton" else torch_backend.evaluate
    return evaluate(
        name,
        operands,
        senders if Index.SENDER in indexed else None,
        receivers if Index.RECEIVER in indexed else None,
        int(n_nodes),
    )


@cache
def _indexed(name: str) -> frozenset[Index]:
    program = contraction_of_key(name)
    return frozenset(operand.index for operand in program.inputs + program.outputs)


@cache
def _gradient_key(key: str, wrt: tuple[int, ...], cotangents: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Key of the program of the wanted gradients, and which of them are not identically zero."""
    backend, _, name = key.partition(":")
    program = contraction_of_key(name)
    wanted = tuple(slot for slot in wrt if depends_on(program, slot, cotangents))
    return f"{backend}:{key_of(vjp(program, wanted, cotangents))}", wanted


class _Contract(torch.autograd.Function):
    """`apply(key, n_nodes, through_op, senders, receivers, *operands)`."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, key: str, n_nodes: int, through_op: bool, senders: Tensor, receivers: Tensor, *operands: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.key, ctx.n_nodes, ctx.through_op = key, n_nodes, through_op
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(senders, receivers, *operands)
        if not through_op:
            return tuple(_evaluate(list(operands), senders, receivers, n_nodes, key))
        with torch._C._AutoDispatchBelowAutograd():
            return tuple(torch.ops.flashcart.contract(list(operands), senders, receivers, n_nodes, key))

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        _, _, *operands = ctx.saved_tensors
        given = tuple(slot for slot, cotangent in enumerate(cotangents) if cotangent is not None)
        wrt = tuple(slot for slot in range(len(operands)) if ctx.needs_input_grad[slot + 5] and _is_asked(ctx, slot))
        gradients: list[Tensor | None] = [None] * len(operands)
        if given and wrt:
            key, wanted = _gradient_key(ctx.key, wrt, given)
            inputs = [*operands, *(c for c in cotangents if c is not None)]
            for slot, value in zip(wanted, _gradients(ctx, key, inputs), strict=True):
                gradients[slot] = value
        return (None, None, None, None, None, *gradients)


def _is_asked(ctx: Any, slot: int) -> bool:
    """Whether this pass of the engine has a use for an operand's gradient.

    Forces need no gradients of parameters and losses none of positions; `needs_input_grad` says only that some pass
    might.
    """
    node = ctx.next_functions[slot + 2][0]  # one entry per tensor: senders, receivers, operands
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf whose gradient `torch.autograd.grad` was asked for
        return True


def _gradients(ctx: Any, key: str, inputs: list[Tensor]) -> Sequence[Tensor]:
    senders, receivers = ctx.saved_tensors[:2]
    if ctx.through_op:
        return list(torch.ops.flashcart.contract(inputs, senders, receivers, ctx.n_nodes, key))
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return list(_Contract.apply(key, ctx.n_nodes, False, senders, receivers, *inputs))
    return _evaluate(inputs, senders, receivers, ctx.n_nodes, key)


def _op(operands: list[Tensor], senders: Tensor, receivers: Tensor, n_nodes: int, key: str) -> list[Tensor]:
    """The op below autograd: outputs are contiguous and alias nothing."""
    return [x.contiguous() for x in _evaluate(operands, senders, receivers, n_nodes, key)]


def _op_autograd(operands: list[Tensor], senders: Tensor, receivers: Tensor, n_nodes: int, key: str) -> list[Tensor]:
    if torch.is_grad_enabled() and any(x.requires_grad for x in operands):
        return list(_Contract.apply(key, n_nodes, True, senders, receivers, *operands))
    with torch._C._AutoDispatchBelowAutograd():
        return list(torch.ops.flashcart.contract(operands, senders, receivers, n_nodes, key))


def _op_fake(operands: list[Tensor], senders: Tensor, receivers: Tensor, n_nodes: int, key: str) -> list[Tensor]:
    """Shapes of the outputs, for tracing."""
    program = contraction_of_key(key.partition(":")[2])
    n_rows, sizes = 1, channel_sizes(program.inputs, operands)
    for spec, operand in zip(program.inputs, operands, strict=True):
        n_rows = operand.shape[0] if spec.index is Index.ROW else n_rows
    if any(spec.index is Index.RECEIVER for spec in program.inputs + program.outputs):
        n_rows = receivers.shape[0]
    size = {Index.ROW: n_rows, Index.SHARED: 1, Index.SENDER: n_nodes, Index.RECEIVER: n_nodes}
    return [
        operands[0].new_empty((size[spec.index], spec.components, *spec.channel_shape(sizes)))
        for spec in program.outputs
    ]


for _device in ("CPU", "CUDA"):
    _library.impl("contract", _op, _device)
_library.impl("contract", _op_autograd, "Autograd")
torch.library.register_fake("flashcart::contract", _op_fake, lib=_library)
