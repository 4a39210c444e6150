"""The body of one generated Triton kernel.

Lanes run over channels; in contractions without channels over rows. Rules of the body: all loads of a row first (those
of the next row, where registers allow), then the arithmetic, sums over channels together, every store and atomic
addition last. What belongs to a receiver is loaded, and multiplied with couplings, before the loop over its edges
(`flashcart.ir.coupling`).
"""

from __future__ import annotations

from dataclasses import dataclass

from flashcart.emit.expressions import Expressions, Factor
from flashcart.emit.source import Source
from flashcart.ir.block_choice import Block
from flashcart.ir.contraction import Contraction, Index, Term
from flashcart.ir.coupling import Coupled, Sum, couple, is_trilinear
from flashcart.ir.launch_plan import Launch

# Sums over channels of several numbers at once: while halves of the lanes keep different numbers, each exchange between
# lanes serves two of them, so that n sums over 32 lanes take about n exchanges instead of 5 n.
FOLD = """

@triton.jit
def narrow(x, BLOCK: tl.constexpr):
    if BLOCK > 32:
        x = tl.sum(tl.reshape(x, [32, BLOCK // 32]), axis=1)
    return x


@triton.jit
def fold(x, y, lane, bit: tl.constexpr):
    upper = (lane & bit) != 0
    return tl.where(upper, y, x) + tl.gather(tl.where(upper, x, y), lane ^ bit, 0)"""
LANES = 32


@dataclass(frozen=True)
class Written:
    """How a launch writes one output: slot, way, and the components that an earlier launch has written already."""

    slot: int
    how: str
    again: frozenset[int]


class Kernel:
    """Writes one kernel: `Kernel(...).write(name)`."""

    def __init__(
        self,
        source: Source,
        program: Contraction,
        launch: Launch,
        outputs: list[Written],
        form: tuple[str, Block],
    ) -> None:
        self.source, self.program, self.launch, self.outputs = source, program, launch, outputs
        self.variant, block = form
        self.ahead = block.ahead
        self.coupled = Coupled((), (), launch.terms, ())
        if is_trilinear(program, launch.terms):
            self.coupled = couple(program, launch.terms, block.inputs, block.outputs)
        self.slots = sorted({slot for term in launch.terms for slot, _ in term.factors})
        self.how = {w.slot: w.how for w in outputs}
        self.again = {w.slot: w.again for w in outputs}
        n = len(program.inputs)
        used = [f for term in self.coupled.terms for f in term.factors]
        used += [f for _, parts in self.coupled.products for _, factors in parts for f in factors]
        self.reads = sorted({f for f in used if f[0] < n})
        self.read_before = sorted({f for _, parts in self.coupled.before for _, (f,) in parts})
        self.writes: dict[Factor, list[Term]] = {}
        for term in self.coupled.terms:
            self.writes.setdefault(term.output, []).append(term)

    # ------------------------------------------------------------------------------------------------------ structure

    def write(self, name: str) -> None:
        """The whole function."""
        varying = ["n_rows", "rows_per_program", "n_slots", *(f"o{w.slot}_part" for w in self.outputs)]
        self.source.line(f"@triton.jit(do_not_specialize={varying})")
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
        lines = [f"i{s}, i{s}_row," for s in self.slots]
        lines += [f"o{w.slot}, o{w.slot}_row, o{w.slot}_part," for w in self.outputs]
        lines.append("senders, receivers, order, starts,")
        lines.append("n_rows, rows_per_program, n_slots,")
        lines.append("CHANNELS: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr,")
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
        if any(not self.program.outputs[w.slot].channels for w in self.outputs):
            line("lane = tl.arange(0, 32)")
        line("BLOCKS: tl.constexpr = (CHANNELS + BLOCK - 1) // BLOCK")
        line("part = tl.program_id(0) % BLOCKS  # neighbouring programs take the channels of the same rows")
        line("unit = tl.program_id(0).to(tl.int64) // BLOCKS")
        line("channel = part * BLOCK + tl.arange(0, BLOCK)")
        line("inside = channel < CHANNELS")
        line("if CHANNELS % BLOCK == 0:")
        line("    inside = tl.full([BLOCK], True, tl.int1)")
        if self.variant == "csr":
            line("node = unit // n_slots")
        self._before_loop()
        outside = [f for f in self.reads if self._index_of("i", f[0]) in self._outer_inputs()]
        self._loads(sorted({*outside, *self.read_before}))
        self._sums(self.coupled.before)
        held = self._held()
        for slot, component in held:
            line(f"a{slot}_{component} = tl.zeros([BLOCK], dtype=o{self._own(slot)}.dtype.element_ty)")
        line("for place in range(first, last, n_slots):" if self.variant == "csr" else "for row in range(first, last):")
        self.source.indent()
        self._iteration(held)
        self.source.dedent()
        self._after(held)

    def _held(self) -> list[Factor]:
        """Output components summed over the loop: of a receiver (csr), or shared by all rows."""
        kept = [k for k in self.writes if self._index_of("o", k[0]) is Index.SHARED]
        if self.variant == "csr":
            kept += [k for k in self.writes if self._index_of("o", k[0]) is Index.RECEIVER]
        return sorted(kept)

    def _outer_inputs(self) -> tuple[Index, ...]:
        return (Index.SHARED, Index.RECEIVER) if self.variant == "csr" else (Index.SHARED,)

    def _own(self, slot: int) -> int:
        """The program's output slot that a slot of the rewritten terms belongs to."""
        return slot % len(self.program.outputs)

    def _index_of(self, kind: str, slot: int) -> Index:
        return self.program.inputs[slot].index if kind == "i" else self.program.outputs[self._own(slot)].index

    def _uses(self, index: Index) -> bool:
        slots = [self._index_of("i", s) for s in self.slots] + [self._index_of("o", w.slot) for w in self.outputs]
        return index in slots

    def _before_loop(self) -> None:
        """Which rows; the number of the first one is loaded before anything else, since most waits for it."""
        line = self.source.line
        if self.variant == "csr":
            line("first = tl.load(starts + node) + unit % n_slots")
            line("last = tl.load(starts + node + 1)")
            line("row = tl.load(order + first, mask=first < last, other=0)")
            if self._uses(Index.SENDER):
                line("sender = tl.load(senders + row, mask=first < last, other=0)")
            if self.ahead:
                self._first_ahead()
        else:
            line("first = unit * rows_per_program")
            line("last = tl.minimum(first + rows_per_program, n_rows)")

    # ------------------------------------------------------------------------------------------------------ one row

    def _first_ahead(self) -> None:
        """Before the loop: operands of the first row, numbers of the second."""
        line = self.source.line
        for slot, component in self._row_reads():
            mask = "inside & (first < last)" if self.program.inputs[slot].channels else "first < last"
            line(f"n{slot}_{component} = tl.load({self._address('i', slot, component)}, mask={mask}, other=0.0)")
        line("coming = first + n_slots")
        line("next_row = tl.load(order + coming, mask=coming < last, other=0)")
        if self._uses(Index.SENDER):
            line("next_sender = tl.load(senders + next_row, mask=coming < last, other=0)")

    def _row_reads(self) -> list[Factor]:
        return [f for f in self.reads if self._index_of("i", f[0]) not in self._outer_inputs()]

    def _row_loads(self) -> None:
        """Operands of this row (or, ahead, of the next one), and the numbers of the one after."""
        line, sender = self.source.line, self._uses(Index.SENDER)
        if self.ahead:
            for slot, component in self._row_reads():
                line(f"x{slot}_{component} = n{slot}_{component}")
            for slot, component in self._row_reads():
                mask = ", mask=inside, other=0.0" if self.program.inputs[slot].channels else ""
                line(f"n{slot}_{component} = tl.load({self._address('i', slot, component, 'next_')}{mask})")
            line("coming = place + 2 * n_slots")
            line("after_row = tl.load(order + coming, mask=coming < last, other=0)")
            if sender:
                line("after_sender = tl.load(senders + after_row)")
            return
        if self.variant == "csr":
            line("coming = place + n_slots")
            line("next_row = tl.load(order + coming, mask=coming < last, other=0)")
        elif sender:
            line("sender = tl.load(senders + row)")
        if self.variant == "edge" and self._uses(Index.RECEIVER):
            line("node = tl.load(receivers + row)")
        self._loads(self._row_reads())
        if self.variant == "csr" and sender:
            line("next_sender = tl.load(senders + next_row)")

    def _iteration(self, held: list[Factor]) -> None:
        line = self.source.line
        self._row_loads()
        values = self._arithmetic()
        for key in held:
            line(f"a{key[0]}_{key[1]} += {values[key]}")
        rest = {key: value for key, value in values.items() if key not in held}
        sums: dict[int, dict[int, str]] = {}
        for (slot, component), value in rest.items():
            if not self.program.outputs[slot].channels:
                sums.setdefault(slot, {})[component] = value
        places = [place for slot, numbers in sums.items() for place in self._folded(slot, numbers)]
        for text in places:
            line(text)
        for key, value in rest.items():
            if self.program.outputs[key[0]].channels:
                self._write_row(key, value)
        if self.variant == "csr":
            for name in ("row", "sender") if self._uses(Index.SENDER) else ("row",):
                line(f"{name} = next_{name}")
                if self.ahead:
                    line(f"next_{name} = after_{name}")

    def _folded(self, slot: int, values: dict[int, str]) -> list[str]:
        """Sum numbers over channels; returns the stores: one number per row, launch and block of channels."""
        stores = []
        for start in range(0, max(values) + 1, LANES):
            numbers = {c - start: v for c, v in values.items() if start <= c < start + LANES}
            if not numbers:
                continue
            for c, value in numbers.items():
                self.source.line(f"s{slot}_{start + c} = narrow({value}, BLOCK)")
            names: list[str | None] = [
                f"s{slot}_{start + c}" if c in numbers else None for c in range(max(numbers) + 1)
            ]
            names += [None] * ((1 << (len(names) - 1).bit_length()) - len(names))
            share, bit = LANES // len(names), LANES // 2
            while bit:
                half = len(names) // 2
                pairs = [(names[0], names[0])] if half == 0 else list(zip(names[:half], names[half:], strict=True))
                names = [self._fold(f"f{slot}_{start}_{bit}_{i}", pair, bit) for i, pair in enumerate(pairs)]
                bit //= 2
            address = f"{self._address('o', slot, start)} + part.to(tl.int64) * o{slot}_part + lane // {share}"
            mask = f"(lane % {share} == 0) & (lane // {share} < {max(numbers) + 1})"
            stores.append(f"tl.store({address}, {names[0]}, mask={mask})")
        return stores

    def _fold(self, name: str, pair: tuple[str | None, str | None], bit: int) -> str | None:
        if pair == (None, None):
            return None
        first, second = ("0.0" if x is None else x for x in pair)
        self.source.line(f"{name} = fold({first}, {second}, lane, {bit})")
        return name

    def _write_row(self, key: Factor, value: str) -> None:
        slot, component = key
        address = self._address("o", slot, component)
        if self.how[slot] == "atomic":
            self.source.line(f'tl.atomic_add({address}, {value}, mask=inside, sem="relaxed")')
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

    def _address(self, kind: str, slot: int, component: int, prefix: str = "") -> str:
        operand = (self.program.inputs if kind == "i" else self.program.outputs)[slot]
        row = {Index.ROW: "row", Index.SENDER: "sender", Index.RECEIVER: "node", Index.SHARED: None}[operand.index]
        parts = [f"{kind}{slot}"]
        if row is not None:
            parts.append(f"{prefix}{row} * {kind}{slot}_row")
        if operand.channels:
            parts.append("channel")
        if component:
            parts.append(f"{component} * CHANNELS" if operand.channels else str(component))
        return " + ".join(parts)

    # ------------------------------------------------------------------------------------------------------ the rest

    def _sums(self, sums: tuple[tuple[Factor, Sum], ...]) -> None:
        """One statement per new component."""
        for (slot, component), parts in sums:
            text = " + ".join(
                " * ".join([*([repr(value)] if value != 1.0 else []), *(f"x{s}_{c}" for s, c in factors)])
                for value, factors in parts
            )
            self.source.line(f"x{slot}_{component} = {text}")

    def _arithmetic(self) -> dict[Factor, str]:
        """Statements of all outputs; returns what holds each."""
        self._sums(self.coupled.products)
        kinds = {kind: self._expressions(kind) for kind in ("t", "u")}
        values = {}
        for key, terms in sorted(self.writes.items()):
            expressions = kinds[self._kind(key[0])]
            values[key] = expressions.add([(term.coefficient, term.factors) for term in terms])
            for statement in expressions.statements:
                self.source.line(statement)
            expressions.statements.clear()
        return values

    def _expressions(self, kind: str) -> Expressions:
        return Expressions(lambda f: f"x{f[0]}_{f[1]}", lambda f: self._depth(f, kind), prefix=kind)

    def _kind(self, slot: int) -> str:
        """Outputs whose factors are nested in the same order: numbers without channels apart from the others."""
        return "t" if self.program.outputs[self._own(slot)].channels else "u"

    def _depth(self, factor: Factor, kind: str) -> tuple[int, ...]:
        """Outermost first: weights, first operand, the original output's cotangent, numbers without channels.

        Sums over channels (`u`) nest the first operand innermost: a sum of cotangents alone would not depend on the
        edge, and the compiler would keep all such sums through the loop.
        """
        n = len(self.program.inputs)
        if factor[0] >= 2 * n:
            return (2 if kind == "u" else 1, 0, *factor)
        operand = self.program.inputs[factor[0] % n]
        if operand.role == self.program.pivot_role:
            level = 1 if kind == "u" and self.variant == "csr" else 2
        elif not operand.channels and self.program.has_channels:
            level = 3
        elif operand.role < 2:
            level = 2 if kind == "u" else 1
        else:
            level = 0
        return (level, -operand.role, *factor)

    def _after(self, held: list[Factor]) -> None:
        for slot, component in held:
            if self._index_of("o", slot) is Index.SHARED:
                self._store_shared(slot, component)
        sums = {key: [f"a{key[0]}_{key[1]}"] for key in held if key[0] < len(self.program.outputs)}
        for key, parts in self.coupled.after:
            texts = [f"{value!r} * a{s}_{c}" if value != 1.0 else f"a{s}_{c}" for value, ((s, c),) in parts]
            sums[key] = [*sums.get(key, []), *texts]
        for (slot, component), texts in sorted(sums.items()):
            if self._index_of("o", slot) is not Index.SHARED:
                self._store_receiver(slot, component, " + ".join(texts))

    def _store_shared(self, slot: int, component: int) -> None:
        value, address = f"a{slot}_{component}", self._address("o", slot, component)
        shares = self.how[self._own(slot)] == "parts"
        buffer = "(unit % rows_per_program)" if shares else "unit"  # csr: rows_per_program buffers
        if self.program.outputs[slot].channels:
            address, mask = f"{address} + {buffer} * o{slot}_part", ", mask=inside"
        else:
            address, mask = f"{address} + ({buffer} * BLOCKS + part) * o{slot}_part", ""
            value = f"tl.sum({value}, axis=0)"
        if shares:
            self.source.line(f'tl.atomic_add({address}, {value}{mask}, sem="relaxed")')
        else:
            self.source.line(f"tl.store({address}, {value}{mask})")

    def _store_receiver(self, slot: int, component: int, value: str) -> None:
        line, address = self.source.line, self._address("o", slot, component)
        line(f"r{slot}_{component} = {value}")
        line("if SPLIT:")
        line(f'    tl.atomic_add({address}, r{slot}_{component}, mask=inside, sem="relaxed")')
        line("else:")
        old = f"tl.load({address}, mask=inside, other=0.0) + " if component in self.again[slot] else ""
        line(f"    tl.store({address}, {old}r{slot}_{component}, mask=inside)")
