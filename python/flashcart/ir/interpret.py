"""The oracle: a contraction evaluated term by term with numpy in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flashcart.ir.contraction import Contraction, Index, Operand, channel_sizes

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


def interpret(
    program: Contraction,
    operands: Sequence[Array],
    senders: Rows | None = None,
    receivers: Rows | None = None,
    n_nodes: int | None = None,
    n_rows: int | None = None,
) -> list[Array]:
    """Evaluate a contraction.

    Args:
        program: the contraction.
        operands: one array per input slot, `[rows, components, *channel axes]`.
        senders, receivers: `[n_rows]` node of each row, needed where an operand is indexed by them.
        n_nodes: rows of indexed outputs.
        n_rows: size of the iteration space; taken from `receivers`, `senders` or a row operand where not given.

    Returns:
        One array per output slot.
    """
    arrays = [np.asarray(operand, dtype=np.float64) for operand in operands]
    rows = _row_count(program, arrays, senders, receivers) if n_rows is None else n_rows
    sizes = channel_sizes(program.inputs, arrays)
    index: dict[Index, Rows | None] = {Index.SENDER: senders, Index.RECEIVER: receivers, Index.ROW: np.arange(rows)}
    inputs = [_gather(array, spec, index, rows) for array, spec in zip(arrays, program.inputs, strict=True)]
    per_row: list[Array] = [np.zeros((rows, spec.components, *spec.channel_shape(sizes))) for spec in program.outputs]
    for term in program.terms:
        value: Array = np.full((rows, sizes["c"], sizes["d"]), term.coefficient)
        for slot, component in term.factors:
            value = value * inputs[slot][:, component]
        spec = program.outputs[term.output[0]]
        absent = tuple(1 + place for place, axis in enumerate("cd") if axis not in spec.channels)
        per_row[term.output[0]][:, term.output[1]] += np.sum(value, axis=absent)
    return [_scatter(value, spec, index, n_nodes) for value, spec in zip(per_row, program.outputs, strict=True)]


def _row_count(program: Contraction, arrays: Sequence[Array], senders: Rows | None, receivers: Rows | None) -> int:
    for rows in (receivers, senders):
        if rows is not None:
            return len(rows)
    for array, spec in zip(arrays, program.inputs, strict=True):
        if spec.index is Index.ROW:
            return int(array.shape[0])
    raise ValueError("the number of rows is not determined by the operands")


def _gather(array: Array, spec: Operand, index: dict[Index, Rows | None], rows: int) -> Array:
    sizes = dict(zip(spec.channels, array.shape[2:], strict=True))
    full = array.reshape(*array.shape[:2], sizes.get("c", 1), sizes.get("d", 1))
    if spec.index is Index.SHARED:
        return np.broadcast_to(full, (rows, *full.shape[1:]))
    chosen = index[spec.index]
    if chosen is None:
        raise ValueError(f"an operand is indexed by {spec.index.value}, but no {spec.index.value}s were given")
    return full[chosen]


def _scatter(value: Array, spec: Operand, index: dict[Index, Rows | None], n_nodes: int | None) -> Array:
    if spec.index is Index.ROW:
        return value
    if spec.index is Index.SHARED:
        total: Array = np.sum(value, axis=0, keepdims=True)
        return total
    rows = index[spec.index]
    if rows is None or n_nodes is None:
        raise ValueError(f"an output is indexed by {spec.index.value}: its rows and n_nodes are needed")
    out = np.zeros((n_nodes, *value.shape[1:]))
    np.add.at(out, rows, value)
    return out
