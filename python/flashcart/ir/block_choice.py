"""How many channels a warp takes, and which couplings leave the loop: a count of registers, no tuning.

A lane holds `block / 32` channels. Numbers with channels cost that many registers (twice as many in float64), numbers
without channels one; what is held through the loop, loaded and computed per row must fit into what a lane has. The
constants were set with benchmarks/kernel_compile.py, which compares this count with what the compiler allocates.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashcart.ir.contraction import Contraction, Index
from flashcart.ir.coupling import Path, PathSize, is_trilinear, path_sizes
from flashcart.ir.launch_plan import Launch, LaunchSettings

WARP = 32
BLOCKS = (128, 64, 32)
# Of the 255 registers of a lane: what a walk over edges may fill (it hides its loads by loading a row ahead), and what
# a kernel of independent rows may (it hides them by other warps: at 160 registers 12 share a multiprocessor).
WALK = 236
WIDE_WALK = 200  # float64: intermediate results, which are not counted, take twice the room as well
ROWS = 160
# Addresses, row numbers, loop counters.
OVERHEAD = 30


@dataclass(frozen=True)
class Block:
    """What was chosen for a launch.

    Attributes:
        channels: channels of one program (one warp).
        registers: estimated registers of a lane.
        inputs, outputs: paths coupled before and after the loop (`flashcart.ir.coupling`).
        ahead: whether a row's operands are loaded while the row before is computed.
    """

    channels: int
    registers: int
    inputs: frozenset[Path] = frozenset()
    outputs: frozenset[Path] = frozenset()
    ahead: bool = False


def choose_block(
    program: Contraction, launch: Launch, settings: LaunchSettings, *, grouped: bool, item_size: int = 4
) -> Block:
    """The block of a launch with channels.

    Args:
        program: the contraction.
        launch: one of its launches.
        settings: `block` and `coupled` override the choice.
        grouped: whether rows are walked receiver by receiver (`csr`), so that couplings can leave the loop.
        item_size: bytes of a number.
    """
    count = _Count(program, launch, grouped, item_size)
    blocks = BLOCKS if settings.block is None else (settings.block,)
    for block in blocks:
        if count.registers(block, grouped) <= count.limit:
            return count.greedy(block, grouped, settings.coupled)
    return count.greedy(blocks[-1], False, settings.coupled)


class _Count:
    """Registers of a launch as a function of the block and of what is coupled outside the loop."""

    def __init__(self, program: Contraction, launch: Launch, grouped: bool, item_size: int) -> None:
        self.words = item_size // 4
        self.limit = (WALK if self.words == 1 else WIDE_WALK) if grouped else ROWS
        pivot = program.pivot_role
        outer = (Index.SHARED, Index.RECEIVER) if grouped else (Index.SHARED,)
        reads = {factor for term in launch.terms for factor in term.factors}
        written = {term.output for term in launch.terms}
        self.reads_pivot = any(program.inputs[slot].role == pivot for slot, _ in reads)
        self.writes_pivot = any(program.outputs[slot].role == pivot for slot, _ in written)
        can_couple = grouped and is_trilinear(program, launch.terms)
        self.sizes: dict[Path, PathSize] = path_sizes(program, launch.terms) if can_couple else {}
        if self.sizes:  # the original output's components are counted path by path
            reads = {f for f in reads if program.inputs[f[0]].role != pivot or program.inputs[f[0]].index not in outer}
            written = {key for key in written if program.outputs[key[0]].role != pivot}
        of_row = [slot for slot, _ in reads if program.inputs[slot].index not in outer]
        self.numbers = sum(not program.inputs[slot].channels for slot, _ in reads)
        self.numbers_of_row = sum(not program.inputs[slot].channels for slot in of_row)
        self.vectors = len(reads) - self.numbers + len(written)
        self.vectors_of_row = len(of_row) - self.numbers_of_row

    def registers(
        self, block: int, ahead: bool, inputs: frozenset[Path] = frozenset(), outputs: frozenset[Path] = frozenset()
    ) -> int:
        """Estimated registers of a lane."""
        vectors, numbers = self.vectors, self.numbers
        for path, size in self.sizes.items():
            vectors += (size.pairs if path in inputs else size.components) * self.reads_pivot
            vectors += (size.pairs if path in outputs else size.components) * self.writes_pivot
        if ahead:
            vectors, numbers = vectors + self.vectors_of_row, numbers + self.numbers_of_row
        return OVERHEAD + self.words * (numbers + max(1, block // WARP) * vectors)

    def greedy(self, block: int, ahead: bool, coupled: bool) -> Block:
        """Couple paths one by one while they fit, those that cost fewest registers first."""
        inputs: frozenset[Path] = frozenset()
        outputs: frozenset[Path] = frozenset()
        order = sorted(self.sizes, key=lambda path: (self.sizes[path].pairs - self.sizes[path].components, path))
        for path in order if coupled and self.reads_pivot else ():
            if self.registers(block, ahead, inputs | {path}, outputs) <= self.limit:
                inputs |= {path}
        for path in order if coupled and self.writes_pivot else ():
            if self.registers(block, ahead, inputs, outputs | {path}) <= self.limit:
                outputs |= {path}
        return Block(block, self.registers(block, ahead, inputs, outputs), inputs, outputs, ahead)
