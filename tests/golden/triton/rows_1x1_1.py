"""Generated; do not edit.

contraction 771774b84600e4133e8e81ce9a931105, 10 terms,
30 multiplications and additions per row and channel, term by term.
emitter: triton 2; plan: 1 launches, rows, float32
input 0: 4 components by row, channels
input 1: 4 components by row, channels
output 0: 8 components by row, channels
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=['n_rows', 'rows_per_program', 'n_slots', 'o0_part'])
def kernel_0(
    i0, i0_row,
    i1, i1_row,
    o0, o0_row, o0_part,
    senders, receivers, order, starts,
    n_rows, rows_per_program, n_slots,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr,
):
    BLOCKS: tl.constexpr = (CHANNELS + BLOCK - 1) // BLOCK
    part = tl.program_id(0) % BLOCKS  # neighbouring programs take the channels of the same rows
    unit = tl.program_id(0).to(tl.int64) // BLOCKS
    channel = part * BLOCK + tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    if CHANNELS % BLOCK == 0:
        inside = tl.full([BLOCK], True, tl.int1)
    first = unit * rows_per_program
    last = tl.minimum(first + rows_per_program, n_rows)
    for row in range(first, last):
        x0_0 = tl.load(i0 + row * i0_row + channel, mask=inside, other=0.0)
        x0_1 = tl.load(i0 + row * i0_row + channel + 1 * CHANNELS, mask=inside, other=0.0)
        x0_2 = tl.load(i0 + row * i0_row + channel + 2 * CHANNELS, mask=inside, other=0.0)
        x0_3 = tl.load(i0 + row * i0_row + channel + 3 * CHANNELS, mask=inside, other=0.0)
        x1_0 = tl.load(i1 + row * i1_row + channel, mask=inside, other=0.0)
        x1_1 = tl.load(i1 + row * i1_row + channel + 1 * CHANNELS, mask=inside, other=0.0)
        x1_2 = tl.load(i1 + row * i1_row + channel + 2 * CHANNELS, mask=inside, other=0.0)
        x1_3 = tl.load(i1 + row * i1_row + channel + 3 * CHANNELS, mask=inside, other=0.0)
        t0 = x1_0 * x0_0
        t1 = x0_1 * 0.5773502691896257
        t2 = x0_2 * 0.5773502691896257
        t3 = x0_3 * 0.5773502691896257
        t4 = x1_1 * t1 + x1_2 * t2 + x1_3 * t3
        t5 = x1_1 * x0_0
        t6 = x1_2 * x0_0
        t7 = x1_3 * x0_0
        t8 = x1_0 * x0_1
        t9 = x1_0 * x0_2
        t10 = x1_0 * x0_3
        tl.store(o0 + row * o0_row + channel, t0, mask=inside)
        tl.store(o0 + row * o0_row + channel + 1 * CHANNELS, t4, mask=inside)
        tl.store(o0 + row * o0_row + channel + 2 * CHANNELS, t5, mask=inside)
        tl.store(o0 + row * o0_row + channel + 3 * CHANNELS, t6, mask=inside)
        tl.store(o0 + row * o0_row + channel + 4 * CHANNELS, t7, mask=inside)
        tl.store(o0 + row * o0_row + channel + 5 * CHANNELS, t8, mask=inside)
        tl.store(o0 + row * o0_row + channel + 6 * CHANNELS, t9, mask=inside)
        tl.store(o0 + row * o0_row + channel + 7 * CHANNELS, t10, mask=inside)


VARIANT = 'rows'
COMPLETE = (True,)  # outputs of which every component is written
KERNELS = (
    {"name": "kernel_0", "inputs": (0, 1), "outputs": ((0, 'store'),), "ranks": (0, 1), "input_rank": None, "components": 8, "terms": 10, "block": 128},
)
