"""Generated; do not edit.

contraction 851d26ccb61d98be6516a866f8706e71, 4 terms,
7 multiplications and additions per row and channel, term by term.
emitter: triton 2; plan: 1 launches, lanes, float32
input 0: 3 components by row
output 0: 4 components by row
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=['n_rows', 'rows_per_program', 'n_slots', 'o0_part'])
def kernel_0(
    i0, i0_row,
    o0, o0_row, o0_part,
    senders, receivers, order, starts,
    n_rows, rows_per_program, n_slots,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < n_rows
    x0_0 = tl.load(i0 + row * i0_row, mask=inside, other=0.0)
    x0_1 = tl.load(i0 + row * i0_row + 1, mask=inside, other=0.0)
    x0_2 = tl.load(i0 + row * i0_row + 2, mask=inside, other=0.0)
    u0 = x0_0 * 1.7320508075688772
    u1 = x0_1 * 1.7320508075688772
    u2 = x0_2 * 1.7320508075688772
    tl.store(o0 + row * o0_row, 1.0, mask=inside)
    tl.store(o0 + row * o0_row + 1, u0, mask=inside)
    tl.store(o0 + row * o0_row + 2, u1, mask=inside)
    tl.store(o0 + row * o0_row + 3, u2, mask=inside)


VARIANT = 'lanes'
COMPLETE = (True,)  # outputs of which every component is written
KERNELS = (
    {"name": "kernel_0", "inputs": (0,), "outputs": ((0, 'store'),), "ranks": (0, 1), "input_rank": None, "components": 4, "terms": 4, "block": 128},
)
