"""The walk of a small graph: all receivers in one piece, all blocks as one, as few operations as possible.

Below some thousand numbers the time goes to starting operations, not to arithmetic. So components are gathered by index
lists rather than run by run, and the blocks' matrices are joined into one over all edge components. Sums over edges are
one matrix product per receiver over all (q, channel) together: arrays that enter them are "folded", [n, D, q * C].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flashcart.emit.source import Source
from flashcart.ir.contraction import Contraction
from flashcart.ir.plan import Variant, WalkPlan

Matrix = npt.NDArray[np.float64]


class WholeWriter:
    """Writes the body of `run_whole`; names and shapes are those of the blocked walk, q running over all blocks.

    Attributes:
        tables: constant matrices that follow those of the blocks: the joined coupling, then one 0/1 matrix per rest
            role that sums over the q of each component.
        indices: per rest role the component of each q.
        n_q: number of q.
    """

    def __init__(self, source: Source, program: Contraction, plan: WalkPlan) -> None:
        self.source, self.program, self.plan = source, program, plan
        self.first_table = len(plan.blocks)
        self.n_edge = max(block.edge_components[1] for block in plan.blocks)
        self.indices = [tuple(_components(plan, place)) for place in range(len(plan.rest_roles))]
        self.n_q = len(self.indices[0])
        self.tables = [self._coupling(), *(self._sums(place) for place in range(len(plan.rest_roles)))]

    def _coupling(self) -> Matrix:
        n_pivot = self.plan.blocks[0].matrix.shape[0]
        whole, start = np.zeros((n_pivot, self.n_q, self.n_edge)), 0
        for block in self.plan.blocks:
            low, high = block.edge_components
            whole[:, start : start + block.n_q, low:high] = block.matrix.reshape(n_pivot, block.n_q, block.n_edge)
            start += block.n_q
        return whole.reshape(n_pivot, -1)

    def _sums(self, place: int) -> Matrix:
        role = self.plan.rest_roles[place]
        size = max(o.components for o in self.program.inputs + self.program.outputs if o.role == role)
        matrix = np.zeros((size, self.n_q))
        matrix[list(self.indices[place]), np.arange(self.n_q)] = 1
        return matrix

    def write(self) -> None:
        """Write the body."""
        line, variants = self.source.line, self.plan.variants
        for slot, operand in enumerate(self.program.outputs):
            line(f"out{slot} = rows.zeros({operand.components}, {operand.index.value!r}, {bool(operand.channels)})")
        line("for chunk in rows.whole():")
        self.source.indent()
        self._load()
        for pivot, edge in sorted({(v.pivot[1], v.edge[1]) for v in variants if any(k == "out" for k, _ in v.rest)}):
            line(f"v{pivot}_{edge} = chunk.unfold(torch.bmm(edge{edge}, h{pivot}), {self.n_q})")
        for slot in sorted({slot for v in variants for kind, slot in v.rest if kind == "out"}):
            self._rest_output(slot)
        for slot in sorted({v.pivot[1] for v in variants if v.pivot[0] == "out"}):
            self._pivot_output(slot)
        for slot in sorted({v.edge[1] for v in variants if v.edge[0] == "out"}):
            self._edge_output(slot)
        self.source.dedent()
        line("return [" + ", ".join(f"out{slot}" for slot in range(len(self.program.outputs))) + "]")

    def _load(self) -> None:
        line, variants = self.source.line, self.plan.variants
        for slot in sorted({v.pivot[1] for v in variants if v.pivot[0] == "in"}):
            table = f"tables[{self.first_table}]"
            line(f"node{slot} = chunk.from_receivers(operands[{slot}])")
            line(f"h{slot} = chunk.spread_folded({table}, node{slot}, {self.n_q}, {self.n_edge})")
        for slot in sorted({v.edge[1] for v in variants if v.edge[0] == "in"}):
            line(f"edge{slot} = chunk.edge_components(operands[{slot}], {self.n_edge})")
        for slot, place in sorted({(slot, n) for v in variants for n, (k, slot) in enumerate(v.rest) if k == "in"}):
            taken = f"chunk.take(operands[{slot}], {self.program.inputs[slot].index.value!r})"
            line(f"x{slot} = {taken}.index_select(0, indices[{place}])")

    def _rest_output(self, slot: int) -> None:
        """`gradient = sums @ (sum over variants of v * the other rest array)`."""
        values, place = [], 0
        for variant in self.plan.variants:
            if ("out", slot) not in variant.rest:
                continue
            place = variant.rest.index(("out", slot))
            others = [f"x{other}" for kind, other in variant.rest if kind == "in"]
            values.append(" * ".join([f"v{variant.pivot[1]}_{variant.edge[1]}", *others]))
        self.source.line(f"g = chunk.sum_q(tables[{self.first_table + 1 + place}], {' + '.join(values)})")
        self.source.line(f"chunk.store(out{slot}, {self.program.outputs[slot].index.value!r}, g)")

    def _pivot_output(self, slot: int) -> None:
        mine = [v for v in self.plan.variants if v.pivot == ("out", slot)]
        parts = []
        for edge in sorted({v.edge[1] for v in mine}):
            products = _products([v for v in mine if v.edge[1] == edge])
            parts.append(f"torch.bmm(edge{edge}.transpose(1, 2), chunk.fold({products}))")
        self.source.line(f"b = {' + '.join(parts)}")
        collected = f"chunk.collect_folded(tables[{self.first_table}], b, {self.n_q})"
        self.source.line(f"out{slot} = chunk.all_receivers(out{slot}, {collected})")

    def _edge_output(self, slot: int) -> None:
        mine = [v for v in self.plan.variants if v.edge == ("out", slot)]
        parts = []
        for pivot in sorted({v.pivot[1] for v in mine}):
            products = _products([v for v in mine if v.pivot[1] == pivot])
            parts.append(f"torch.bmm(chunk.fold({products}), h{pivot}.transpose(1, 2))")
        self.source.line(f"chunk.store_edge_components(out{slot}[:{self.n_edge}], {' + '.join(parts)})")


def _components(plan: WalkPlan, place: int) -> list[int]:
    """The component of one rest role for every q of all blocks."""
    values = []
    for block in plan.blocks:
        for run in block.runs:
            first, last = run.components[place]
            length = run.stop - run.start
            values += list(range(first, last)) if last - first == length else [first] * length
    return values


def _products(variants: list[Variant]) -> str:
    products = [" * ".join(f"x{slot}" for _, slot in variant.rest) for variant in variants]
    return products[0] if len(products) == 1 else f"({' + '.join(products)})"
