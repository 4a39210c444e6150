"""Contractions as Triton source: one kernel per launch of the plan.

A generated file has one `@triton.jit` function per launch and `KERNELS`, which says for each what it reads and writes
and how; flashcart.ops.triton_backend makes grids and arguments of it. Lanes run over channels; in contractions
without channels over rows. Rules of the body: all loads of a row first (the next sender among them), then the
arithmetic, sums over channels together, every store and atomic addition last.

Ways to write an output (`how`): `registers` summed over a receiver's edges and stored once (atomic with several slots);
`store` / `add` one writer per element; `atomic`; `partial` one buffer per launch and program, summed afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashcart.emit.expressions import Expressions, Factor
from flashcart.emit.source import Source, write_header
from flashcart.ir.contraction import Contraction, Index, Operand, Term
from flashcart.ir.launch_plan import Launch, LaunchSettings, is_indexed, plan_launches

VERSION = "triton 1"


@dataclass(frozen=True)
class Written:
    """How a launch writes one output: slot, way, and the components that an earlier launch has written already."""

    slot: int
    how: str
    again: frozenset[int]


def emit(program: Contraction, settings: LaunchSettings) -> str:
    """Source text of all launches of a program."""
    launches = plan_launches(program, settings)
    variant = variant_of(program, settings)
    source = Source()
    write_header(source, program, VERSION, f"{len(launches)} launches, {variant}")
    source.line("import triton")
    source.line("import triton.language as tl")
    written: dict[int, set[int]] = {slot: set() for slot in range(len(program.outputs))}
    entries = []
    for number, launch in enumerate(launches):
        outputs = [
            Written(slot, how_written(program.outputs[slot], program, variant), frozenset(written[slot]))
            for slot in launch.outputs
        ]
        source.line()
        source.line()
        _Kernel(source, program, launch, outputs, variant).write(f"kernel_{number}")
        entries.append(_entry(program, launch, outputs, f"kernel_{number}"))
        for term in launch.terms:
            written[term.output[0]].add(term.output[1])
    source.line()
    source.line()
    source.line(f"VARIANT = {variant!r}")
    whole = tuple(len(written[slot]) == operand.components for slot, operand in enumerate(program.outputs))
    source.line(f"COMPLETE = {whole}  # outputs of which every component is written")
    source.line("KERNELS = (")
    source.indent()
    for entry in entries:
        source.line(entry + ",")
    source.dedent()
    source.line(")")
    return source.text()


def variant_of(program: Contraction, settings: LaunchSettings) -> str:
    """`csr` or `edge` where rows are edges, `rows` with channels, `lanes` without."""
    if not program.has_channels:
        return "lanes"
    if not is_indexed(program):
        return "rows"
    return "csr" if settings.deterministic else settings.edges


def how_written(operand: Operand, program: Contraction, variant: str) -> str:
    """The way an output is written; see the top of the file."""
    if operand.index is Index.SHARED:
        return "partial"
    if operand.index is Index.RECEIVER:
        return "registers" if variant == "csr" else "atomic"
    if operand.index is Index.SENDER:
        return "atomic"
    return "store" if operand.channels or not program.has_channels else "partial"


def _entry(program: Contraction, launch: Launch, outputs: list[Written], name: str) -> str:
    inputs = tuple(sorted({slot for term in launch.terms for slot, _ in term.factors}))
    ways = tuple((w.slot, w.how) for w in outputs)
    return (
        f'{{"name": "{name}", "inputs": {inputs}, "outputs": {ways}, "ranks": {launch.ranks}, '
        f'"input_rank": {launch.input_rank}, "components": {launch.n_components}, "terms": {len(launch.terms)}}}'
    )


class _Kernel:
    """Writes one kernel."""

    def __init__(
        self, source: Source, program: Contraction, launch: Launch, outputs: list[Written], variant: str
    ) -> None:
        self.source, self.program, self.launch, self.variant = source, program, launch, variant
        self.outputs = outputs
        self.reads = sorted({factor for term in launch.terms for factor in term.factors})
        self.slots = sorted({slot for slot, _ in self.reads})
        self.writes: dict[tuple[int, int], list[Term]] = {}
        for term in launch.terms:
            self.writes.setdefault(term.output, []).append(term)
        self.how = {w.slot: w.how for w in outputs}
        self.again = {w.slot: w.again for w in outputs}

    # ------------------------------------------------------------------------------------------------------ structure

    def write(self, name: str) -> None:
        """The whole function."""
        self.source.line("@triton.jit")
        self.source.line(f"def {name}(")
        self.source.indent()
        for line in self._arguments():
            self.source.line(line)
        self.source.dedent()
        self.source.line("):")
        self.source.indent()
        if self.variant == "lanes":
            self._lanes()
        else:
            self._channels()
        self.source.dedent()

    def _arguments(self) -> list[str]:
        lines = [f"i{s}, i{s}_row, i{s}_comp," for s in self.slots]
        lines += [f"o{w.slot}, o{w.slot}_row, o{w.slot}_comp, o{w.slot}_part," for w in self.outputs]
        lines.append("senders, receivers, order, starts,")
        lines.append("n_rows, n_channels, rows_per_program,")
        lines.append("SLOTS: tl.constexpr, BLOCK: tl.constexpr,")
        return lines

    def _lanes(self) -> None:
        line = self.source.line
        line("row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
        line("inside = row < n_rows")
        for slot, component in self.reads:
            line(f"x{slot}_{component} = tl.load({self._address('i', slot, component)}, mask=inside, other=0.0)")
        values = self._arithmetic()
        for (slot, component), value in values.items():
            line(f"tl.store({self._address('o', slot, component)}, {value}, mask=inside)")

    def _channels(self) -> None:
        line = self.source.line
        line("channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)")
        line("inside = channel < n_channels")
        held = self._held()
        if self.variant == "csr":
            line("node = tl.program_id(0).to(tl.int64)")
        self._loads([f for f in self.reads if self._index_of("i", f[0]) in self._outer_inputs()])
        for slot, component in held:
            line(f"a{slot}_{component} = tl.zeros([BLOCK], dtype=o{slot}.dtype.element_ty)")
        self._loop_head()
        self.source.indent()
        self._iteration(held)
        self.source.dedent()
        self._after(held)

    def _held(self) -> list[tuple[int, int]]:
        """Output components summed over the loop: of a receiver (csr), or shared by all rows."""
        kept = [k for k in self.writes if self._index_of("o", k[0]) is Index.SHARED]
        if self.variant == "csr":
            kept += [k for k in self.writes if self._index_of("o", k[0]) is Index.RECEIVER]
        return sorted(kept)

    def _outer_inputs(self) -> tuple[Index, ...]:
        return (Index.SHARED, Index.RECEIVER) if self.variant == "csr" else (Index.SHARED,)

    def _index_of(self, kind: str, slot: int) -> Index:
        return (self.program.inputs if kind == "i" else self.program.outputs)[slot].index

    def _uses(self, index: Index) -> bool:
        slots = [self._index_of("i", s) for s in self.slots] + [self._index_of("o", w.slot) for w in self.outputs]
        return index in slots

    def _loop_head(self) -> None:
        line = self.source.line
        if self.variant == "csr":
            line("first = tl.load(starts + node) + tl.program_id(2)")
            line("last = tl.load(starts + node + 1)")
            line("for place in range(first, last, SLOTS):")
        else:
            line("first = tl.program_id(0).to(tl.int64) * rows_per_program")
            line("last = tl.minimum(first + rows_per_program, n_rows)")
            line("for row in range(first, last):")

    # ------------------------------------------------------------------------------------------------------ one row

    def _iteration(self, held: list[tuple[int, int]]) -> None:
        line = self.source.line
        if self.variant == "csr":
            line("row = tl.load(order + place)")
        if self._uses(Index.SENDER):
            line("sender = tl.load(senders + row)")
        if self.variant == "edge" and self._uses(Index.RECEIVER):
            line("node = tl.load(receivers + row)")
        self._loads([f for f in self.reads if self._index_of("i", f[0]) not in self._outer_inputs()])
        values = self._arithmetic()
        for key in held:
            line(f"a{key[0]}_{key[1]} += {values[key]}")
        rest = {key: value for key, value in values.items() if key not in held}
        for (slot, component), value in rest.items():
            if not self.program.outputs[slot].channels:
                line(f"s{slot}_{component} = tl.sum({value}, axis=0)")
        for key, value in rest.items():
            self._write_row(key, value)

    def _write_row(self, key: tuple[int, int], value: str) -> None:
        slot, component = key
        address = self._address("o", slot, component)
        if not self.program.outputs[slot].channels:  # one number per row, launch and block of channels
            self.source.line(f"tl.store({address} + tl.program_id(1) * o{slot}_part, s{slot}_{component})")
        elif self.how[slot] == "atomic":
            self.source.line(f"tl.atomic_add({address}, {value}, mask=inside)")
        elif component in self.again[slot]:
            self.source.line(f"tl.store({address}, tl.load({address}, mask=inside, other=0.0) + {value}, mask=inside)")
        else:
            self.source.line(f"tl.store({address}, {value}, mask=inside)")

    def _loads(self, factors: list[Factor]) -> None:
        for slot, component in factors:
            address = self._address("i", slot, component)
            if self.program.inputs[slot].channels:
                self.source.line(f"x{slot}_{component} = tl.load({address}, mask=inside, other=0.0)")
            else:
                self.source.line(f"x{slot}_{component} = tl.load({address})")

    def _address(self, kind: str, slot: int, component: int) -> str:
        operand = (self.program.inputs if kind == "i" else self.program.outputs)[slot]
        row = {Index.ROW: "row", Index.SENDER: "sender", Index.RECEIVER: "node", Index.SHARED: None}[operand.index]
        parts = [f"{kind}{slot}"]
        if row is not None:
            parts.append(f"{row} * {kind}{slot}_row")
        if component:
            parts.append(f"{component} * {kind}{slot}_comp")
        if operand.channels:
            parts.append("channel")
        return " + ".join(parts)

    # ------------------------------------------------------------------------------------------------------ the rest

    def _arithmetic(self) -> dict[tuple[int, int], str]:
        """Statements of all outputs; returns what holds each."""
        expressions = Expressions(lambda f: f"x{f[0]}_{f[1]}", self._depth)
        values = {
            key: expressions.add([(term.coefficient, term.factors) for term in terms])
            for key, terms in sorted(self.writes.items())
        }
        for statement in expressions.statements:
            self.source.line(statement)
        return values

    def _depth(self, factor: Factor) -> tuple[int, ...]:
        """Outermost first: weights, first operand, the original output's cotangent, numbers without channels."""
        operand = self.program.inputs[factor[0]]
        pivot = operand.role == self.program.pivot_role
        level = (
            3 if not operand.channels and self.program.has_channels else 2 if pivot else 1 if operand.role < 2 else 0
        )
        return (level, -operand.role, *factor)

    def _after(self, held: list[tuple[int, int]]) -> None:
        line = self.source.line
        for slot, component in held:
            value, address = f"a{slot}_{component}", self._address("o", slot, component)
            if self._index_of("o", slot) is Index.SHARED:
                program = "tl.program_id(0) + tl.num_programs(0) * tl.program_id(2)"
                if self.program.outputs[slot].channels:
                    line(f"tl.store({address} + ({program}) * o{slot}_part, {value}, mask=inside)")
                else:
                    place = f"({program}) * tl.num_programs(1) + tl.program_id(1)"
                    line(f"tl.store({address} + ({place}) * o{slot}_part, tl.sum({value}, axis=0))")
                continue
            line("if SLOTS == 1:")
            old = f"tl.load({address}, mask=inside, other=0.0) + " if component in self.again[slot] else ""
            line(f"    tl.store({address}, {old}{value}, mask=inside)")
            line("else:")
            line(f"    tl.atomic_add({address}, {value}, mask=inside)")
