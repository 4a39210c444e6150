"""The torch back end: generated source, loaded from the cache and run on any device and dtype."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flashcart.emit import source as source_module
from flashcart.emit import torch_linear, torch_source, torch_whole
from flashcart.ir.contraction import Contraction, Index, channel_sizes
from flashcart.ops.host_memory import keep_freed_memory
from flashcart.ops.kernel_cache import contraction_of_key, stored
from flashcart.ops.segment import Rows
from flashcart.ops.table import Table


@dataclass(frozen=True, eq=False)
class TorchProgram:
    """A loaded generated file.

    Attributes:
        contraction: what it computes.
        path: the file; open it to see or step through what runs.
    """

    contraction: Contraction
    path: Path
    run: Callable[..., list[Tensor]]
    tables: tuple[Any, ...]
    indices: tuple[tuple[int, ...] | tuple[float, ...], ...]

    @cache  # noqa: B019 (programs live as long as the process)
    def constants(self, dtype: torch.dtype, device: torch.device) -> tuple[list[Table], list[Tensor]]:
        """The constant matrices, and lists of components or coefficients, on a device."""
        tables = [Table.of_entries(*table, dtype=dtype, device=device) for table in self.tables]
        kinds = [dtype if index and isinstance(index[0], float) else torch.int64 for index in self.indices]
        pairs = zip(self.indices, kinds, strict=True)
        return tables, [torch.tensor(index, dtype=kind, device=device) for index, kind in pairs]


@lru_cache(maxsize=1)
def _emitter_hash() -> str:
    texts = [
        Path(str(module.__file__)).read_bytes() for module in (torch_source, torch_linear, torch_whole, source_module)
    ]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


@cache
def load(key: str) -> TorchProgram:
    """The generated program of a contraction's key."""
    keep_freed_memory()
    contraction = contraction_of_key(key)
    text, path = stored(f"torch/{key}-{_emitter_hash()}.py", lambda: torch_source.emit(contraction))
    scope: dict[str, Any] = {"__name__": f"flashcart_generated_{key}", "__file__": str(path)}
    exec(compile(text, str(path), "exec"), scope)
    return TorchProgram(contraction, path, scope["run"], scope["TABLES"], scope["INDICES"])


def evaluate(
    key: str, operands: Sequence[Tensor], senders: Tensor | None, receivers: Tensor | None, n_nodes: int
) -> list[Tensor]:
    """Outputs of a contraction, `[rows, components(, channels)]` views of component-first memory.

    Args:
        key: the contraction.
        operands: one tensor per input, `[rows, components(, channels)]`, any strides.
        senders, receivers: [n_rows] int64, where an operand is indexed.
        n_nodes: rows of indexed outputs.
    """
    program = load(key)
    rows = rows_of(program.contraction, operands, senders, receivers, n_nodes)
    tables, indices = program.constants(operands[0].dtype, operands[0].device)
    component_first = [x.transpose(0, 1) for x in operands]
    return [out.transpose(0, 1) for out in program.run(component_first, rows, tables, indices)]


def rows_of(
    program: Contraction, operands: Sequence[Tensor], senders: Tensor | None, receivers: Tensor | None, n_nodes: int
) -> Rows:
    """The iteration space: as many rows as indices, else as the row operands have, else one."""
    n_rows = None
    for spec, operand in zip(program.inputs, operands, strict=True):
        if spec.index is Index.ROW and n_rows is None:
            n_rows = operand.shape[0]
    if receivers is not None:
        n_rows = receivers.shape[0]
    sizes = channel_sizes(program.inputs, operands)
    return Rows(senders, receivers, 1 if n_rows is None else n_rows, n_nodes, sizes, operands[0])
