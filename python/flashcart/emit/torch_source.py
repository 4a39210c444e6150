"""Contractions as PyTorch source.

A generated file has `TABLES`, the constant matrices, and `run(operands, rows, tables)`. Operands come component first,
`[components, rows, channels]` (`[components, rows]` without channels), and so go the outputs: then every elementwise
operation runs over contiguous memory, whatever the number of channels. `rows` knows senders, receivers and how to cut
the rows into pieces that stay in the processor's cache (flashcart.ops.segment).
"""

from __future__ import annotations

from flashcart.emit.source import Source, write_header, write_table
from flashcart.emit.torch_linear import write_linear
from flashcart.emit.torch_whole import WholeWriter
from flashcart.ir.contraction import Contraction, Index
from flashcart.ir.linear_plan import linear_plan
from flashcart.ir.plan import Block, MonomialGroup, MonomialPlan, Variant, WalkPlan, monomial_plan, walk_plan

VERSION = "torch 3"


def emit(program: Contraction) -> str:
    """Source text of `program`: linear maps as matrix products, sums over edges as walks, the rest by monomials."""
    if program.mixes_channels:
        source = Source()
        write_header(source, program, VERSION, "matrix products")
        write_linear(source, program, linear_plan(program))
        return source.text()
    walk = walk_plan(program)
    return _emit_walk(program, walk) if walk is not None else _emit_monomials(program, monomial_plan(program))


# ---------------------------------------------------------------------------------------------------------- monomials


def _emit_monomials(program: Contraction, plan: MonomialPlan) -> str:
    source = Source()
    write_header(source, program, VERSION, "monomials times matrix")
    source.line("TABLES = (")
    source.indent()
    for group in plan.groups:
        write_table(source, group.matrix)
    source.dedent()
    source.line(")")
    source.line("INDICES = (")
    source.indent()
    for group in plan.groups:
        for components in group.components:
            source.line(f"{components},")
    source.dedent()
    source.line(")")
    source.line()
    source.line()
    source.line("def run(operands, rows, tables, indices):")
    source.indent()
    _write_monomial_body(source, program, plan)
    source.dedent()
    return source.text()


def _write_monomial_body(source: Source, program: Contraction, plan: MonomialPlan) -> None:
    for slot in range(len(program.outputs)):
        source.line(f"out{slot} = None")
    largest = max((len(group.components[0]) for group in plan.groups if group.components), default=1)
    source.line(f"for part in rows.parts({largest}):")
    source.indent()
    for slot, operand in enumerate(program.inputs):
        if any(slot in group.slots for group in plan.groups):
            source.line(f"x{slot} = part.take(operands[{slot}], {operand.index.value!r})")
    first_index = 0
    for number, group in enumerate(plan.groups):
        _write_group(source, program, number, group, first_index)
        first_index += len(group.components)
    if not plan.groups:
        source.line("pass")
    source.dedent()
    outputs = ", ".join(
        f"rows.zeros({o.components}, {o.index.value!r}, {bool(o.channels)}) if out{slot} is None else out{slot}"
        for slot, o in enumerate(program.outputs)
    )
    source.line(f"return [{outputs}]")


def _write_group(source: Source, program: Contraction, number: int, group: MonomialGroup, first_index: int) -> None:
    """`out += table @ monomials`, the sums over channels or rows that the output asks for taken before the matrix."""
    target = program.outputs[group.output]
    if group.slots:
        factors = [f"x{slot}.index_select(0, indices[{first_index + n}])" for n, slot in enumerate(group.slots)]
        source.line("m = " + " * ".join(factors))
    else:
        source.line("m = part.ones()")
    if not target.channels and program.has_channels:
        source.line("m = part.over_channels(m)")
    if target.index is Index.SHARED:
        source.line("m = part.over_rows(m)")
    out = f"out{group.output}"
    source.line(f"{out} = part.add({out}, {target.index.value!r}, {bool(target.channels)}, tables[{number}], m)")


# --------------------------------------------------------------------------------------------------------------- walks


def _emit_walk(program: Contraction, plan: WalkPlan) -> str:
    source = Source()
    write_header(source, program, VERSION, "walk over the edges of each receiver")
    source.line("import torch")
    source.line()
    source.line("TABLES = (")
    source.indent()
    for block in plan.blocks:
        write_table(source, block.matrix)
    whole = WholeWriter(source, program, plan)
    for table in whole.tables:
        write_table(source, table)
    source.dedent()
    source.line(")")
    source.line("INDICES = (")
    source.indent()
    for index in whole.indices:
        source.line(f"{index},")
    source.dedent()
    source.line(")")
    source.line()
    source.line()
    source.line("def run(operands, rows, tables, indices):")
    source.indent()
    source.line(f"if rows.is_small({whole.n_q}):")
    source.indent()
    source.line("return run_whole(operands, rows, tables, indices)")
    source.dedent()
    _WalkWriter(source, program, plan).write()
    source.dedent()
    source.line()
    source.line()
    source.line("def run_whole(operands, rows, tables, indices):")
    source.indent()
    whole.write()
    source.dedent()
    return source.text()


class _WalkWriter:
    """Writes the body of a walk.

    Names in the generated text: `node{slot}` pivots [k, n, C]; `edge{slot}` edge arrays [n, D, j] (zero on padding);
    `x{slot}` the other inputs [., n, D, C]; `h{slot}` pivot times matrix [q, n, j, C]; `v{slot}_{slot}` edge array
    times `h` [q, n, D, C]; `p` products of two rest arrays [q, n, D, C].
    """

    def __init__(self, source: Source, program: Contraction, plan: WalkPlan) -> None:
        self.source, self.program, self.plan = source, program, plan
        self.pivot_outputs = sorted({v.pivot[1] for v in plan.variants if v.pivot[0] == "out"})
        self.edge_outputs = sorted({v.edge[1] for v in plan.variants if v.edge[0] == "out"})
        self.rest_outputs = sorted({slot for v in plan.variants for kind, slot in v.rest if kind == "out"})

    def write(self) -> None:
        for slot, operand in enumerate(self.program.outputs):
            self.source.line(
                f"out{slot} = rows.zeros({operand.components}, {operand.index.value!r}, {bool(operand.channels)})"
            )
        n_q = max(block.n_q for block in self.plan.blocks)
        self.source.line(f"for chunk in rows.walk({n_q}):")
        self.source.indent()
        self._load()
        for number, block in enumerate(self.plan.blocks):
            self._block(number, block)
        self._store()
        self.source.dedent()
        outputs = ", ".join(f"out{slot}" for slot in range(len(self.program.outputs)))
        self.source.line(f"return [{outputs}]")

    def _load(self) -> None:
        line = self.source.line
        for slot in sorted({v.pivot[1] for v in self.plan.variants if v.pivot[0] == "in"}):
            line(f"node{slot} = chunk.from_receivers(operands[{slot}])")
        for slot in sorted({v.edge[1] for v in self.plan.variants if v.edge[0] == "in"}):
            line(f"edge{slot} = chunk.edge_components(operands[{slot}])")
        for slot in sorted({slot for v in self.plan.variants for kind, slot in v.rest if kind == "in"}):
            line(f"x{slot} = chunk.take(operands[{slot}], {self.program.inputs[slot].index.value!r})")
        for slot in self.pivot_outputs:
            line(f"sum{slot} = 0")
        for slot in self.edge_outputs:
            line(f"de{slot} = chunk.new_edge_components({self.program.outputs[slot].components})")
        for slot in self.rest_outputs:
            line(f"g{slot} = chunk.new({self.program.outputs[slot].components})")

    def _block(self, number: int, block: Block) -> None:
        low, high = block.edge_components
        self.source.line(f"# edge components {low} to {high - 1}")
        for slot in sorted({v.pivot[1] for v in self.plan.variants if v.pivot[0] == "in"}):
            self.source.line(f"h{slot} = chunk.spread(tables[{number}], node{slot}, {block.n_q}, {block.n_edge})")
        for pivot, edge in sorted({(v.pivot[1], v.edge[1]) for v in self.plan.variants if self._writes_rest(v)}):
            self.source.line(f"v{pivot}_{edge} = torch.matmul(edge{edge}[:, :, {low}:{high}], h{pivot})")
        for variant in self.plan.variants:
            if self._writes_rest(variant):
                self._rest_output(variant, block)
        for slot in self.pivot_outputs:
            self._pivot_output(slot, number, block)
        for slot in self.edge_outputs:
            self._edge_output(slot, block)

    @staticmethod
    def _writes_rest(variant: Variant) -> bool:
        return any(kind == "out" for kind, _ in variant.rest)

    def _rest_output(self, variant: Variant, block: Block) -> None:
        """`gradient[component] += sum over q of v[q] * (the other rest array)`."""
        value = f"v{variant.pivot[1]}_{variant.edge[1]}"
        place = next(n for n, (kind, _) in enumerate(variant.rest) if kind == "out")
        target = variant.rest[place][1]
        for run in block.runs:
            part = f"{value}[{run.start}:{run.stop}]"
            others = [
                f"x{slot}[{first}:{last}]"
                for n, ((_, slot), (first, last)) in enumerate(zip(variant.rest, run.components, strict=True))
                if n != place
            ]
            first, last = run.components[place]
            if last - first == run.stop - run.start and others:
                self.source.line(f"g{target}[{first}:{last}].addcmul_({part}, {others[0]})")
                continue
            product = " * ".join([part, *others])
            if last - first < run.stop - run.start:
                product = f"({product}).sum(0, keepdim=True)"
            self.source.line(f"g{target}[{first}:{last}] += {product}")

    def _products(self, variants: list[Variant], block: Block) -> None:
        """`p[q] = sum over variants of the product of the rest arrays`."""
        self.source.line(f"p = chunk.empty({block.n_q})")
        for run in block.runs:
            target = f"p[{run.start}:{run.stop}]"
            for number, variant in enumerate(variants):
                factors = [f"x{s}[{a}:{b}]" for (_, s), (a, b) in zip(variant.rest, run.components, strict=True)]
                self.source.line(_product_line(target, factors, first=number == 0))

    def _pivot_output(self, slot: int, number: int, block: Block) -> None:
        low, high = block.edge_components
        mine = [v for v in self.plan.variants if v.pivot == ("out", slot)]
        edges = sorted({v.edge[1] for v in mine})
        self.source.line("b = 0")
        for edge in edges:
            self._products([v for v in mine if v.edge[1] == edge], block)
            self.source.line(f"b = b + torch.matmul(edge{edge}[:, :, {low}:{high}].transpose(1, 2), p)")
        self.source.line(f"sum{slot} = sum{slot} + chunk.collect(tables[{number}], b)")

    def _edge_output(self, slot: int, block: Block) -> None:
        low, high = block.edge_components
        mine = [v for v in self.plan.variants if v.edge == ("out", slot)]
        for pivot in sorted({v.pivot[1] for v in mine}):
            self._products([v for v in mine if v.pivot[1] == pivot], block)
            self.source.line(f"de{slot}[:, :, {low}:{high}] += torch.matmul(p, h{pivot}.transpose(2, 3)).sum(0)")

    def _store(self) -> None:
        line = self.source.line
        for slot in self.pivot_outputs:
            line(f"chunk.store_receivers(out{slot}, sum{slot})")
        for slot in self.edge_outputs:
            line(f"chunk.store_edge_components(out{slot}, de{slot})")
        for slot in self.rest_outputs:
            line(f"chunk.store(out{slot}, {self.program.outputs[slot].index.value!r}, g{slot})")


def _product_line(target: str, factors: list[str], *, first: bool) -> str:
    if len(factors) == 1:
        return f"{target}.copy_({factors[0]})" if first else f"{target}.add_({factors[0]})"
    if first:
        return f"torch.mul({factors[0]}, {factors[1]}, out={target})"
    return f"{target}.addcmul_({factors[0]}, {factors[1]})"
