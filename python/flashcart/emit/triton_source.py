"""Contractions as Triton source: one kernel per launch of the plan.

A generated file has one `@triton.jit` function per launch and `KERNELS`, which says for each what it reads and writes
and how; flashcart.ops.triton_backend makes grids and arguments of it, flashcart.emit.triton_kernel writes the body.

Ways to write an output (`how`): `registers` summed over a receiver's edges and stored once (atomic with several slots);
`store` one writer per element; `atomic`; `partial` one buffer per launch and program, summed afterwards; `parts` a
limited number of buffers, to which programs add atomically, summed afterwards.
"""

from __future__ import annotations

from flashcart.emit.source import Source, write_header
from flashcart.emit.triton_kernel import FOLD, Kernel, Written
from flashcart.ir.block_choice import Block, choose_block
from flashcart.ir.contraction import Contraction, Index, Operand
from flashcart.ir.launch_plan import Launch, LaunchSettings, is_indexed, plan_launches

VERSION = "triton 2"


def emit(program: Contraction, settings: LaunchSettings, item_size: int = 4) -> str:
    """Source text of all launches of a program, for numbers of `item_size` bytes."""
    launches = plan_launches(program, settings)
    variant = variant_of(program, settings)
    source = Source()
    write_header(source, program, VERSION, f"{len(launches)} launches, {variant}, float{8 * item_size}")
    source.line("import triton")
    source.line("import triton.language as tl")
    ways = [how_written(operand, program, variant, settings) for operand in program.outputs]
    if variant != "lanes" and ("partial" in ways or "parts" in ways):
        for text in FOLD.splitlines():
            source.line(text)
    written: dict[int, set[int]] = {slot: set() for slot in range(len(program.outputs))}
    entries = []
    for number, launch in enumerate(launches):
        outputs = [Written(slot, ways[slot], frozenset(written[slot])) for slot in launch.outputs]
        block = block_of(program, launch, settings, item_size)
        source.line()
        source.line()
        Kernel(source, program, launch, outputs, (variant, block)).write(f"kernel_{number}")
        entries.append(_entry(launch, outputs, block, f"kernel_{number}"))
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


def block_of(program: Contraction, launch: Launch, settings: LaunchSettings, item_size: int) -> Block:
    """Channels per program and couplings outside the loop; 128 rows where there are no channels."""
    variant = variant_of(program, settings)
    if variant == "lanes":
        return Block(128, 0)
    return choose_block(program, launch, settings, grouped=variant == "csr", item_size=item_size)


def how_written(operand: Operand, program: Contraction, variant: str, settings: LaunchSettings) -> str:
    """The way an output is written; see the top of the file."""
    if operand.index is Index.SHARED:
        return "parts" if variant == "csr" and not settings.deterministic else "partial"
    if operand.index is Index.RECEIVER:
        return "registers" if variant == "csr" else "atomic"
    if operand.index is Index.SENDER:
        return "atomic"
    return "store" if operand.channels or not program.has_channels else "partial"


def _entry(launch: Launch, outputs: list[Written], block: Block, name: str) -> str:
    inputs = tuple(sorted({slot for term in launch.terms for slot, _ in term.factors}))
    ways = tuple((w.slot, w.how) for w in outputs)
    return (
        f'{{"name": "{name}", "inputs": {inputs}, "outputs": {ways}, "ranks": {launch.ranks}, '
        f'"input_rank": {launch.input_rank}, "components": {launch.n_components}, "terms": {len(launch.terms)}, '
        f'"block": {block.channels}}}'
    )
