"""Generated; do not edit.

contraction 09cc8cdd88e5818eeb2da7963bea8f5b, 10 terms,
40 multiplications and additions per row and channel, term by term.
emitter: triton 2; plan: 2 launches, csr, float32
input 0: 4 components by sender, channels
input 1: 4 components by row
input 2: 4 components by row, channels
output 0: 8 components by receiver, channels
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=['n_rows', 'rows_per_program', 'n_slots', 'o0_part'])
def kernel_0(
    i0, i0_row,
    i1, i1_row,
    i2, i2_row,
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
    node = unit // n_slots
    first = tl.load(starts + node) + unit % n_slots
    last = tl.load(starts + node + 1)
    row = tl.load(order + first, mask=first < last, other=0)
    sender = tl.load(senders + row, mask=first < last, other=0)
    n0_0 = tl.load(i0 + sender * i0_row + channel, mask=inside & (first < last), other=0.0)
    n1_0 = tl.load(i1 + row * i1_row, mask=first < last, other=0.0)
    n1_1 = tl.load(i1 + row * i1_row + 1, mask=first < last, other=0.0)
    n1_2 = tl.load(i1 + row * i1_row + 2, mask=first < last, other=0.0)
    n1_3 = tl.load(i1 + row * i1_row + 3, mask=first < last, other=0.0)
    n2_0 = tl.load(i2 + row * i2_row + channel, mask=inside & (first < last), other=0.0)
    n2_2 = tl.load(i2 + row * i2_row + channel + 2 * CHANNELS, mask=inside & (first < last), other=0.0)
    coming = first + n_slots
    next_row = tl.load(order + coming, mask=coming < last, other=0)
    next_sender = tl.load(senders + next_row, mask=coming < last, other=0)
    a1_0 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    a1_1 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    a1_2 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    a1_3 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    for place in range(first, last, n_slots):
        x0_0 = n0_0
        x1_0 = n1_0
        x1_1 = n1_1
        x1_2 = n1_2
        x1_3 = n1_3
        x2_0 = n2_0
        x2_2 = n2_2
        n0_0 = tl.load(i0 + next_sender * i0_row + channel, mask=inside, other=0.0)
        n1_0 = tl.load(i1 + next_row * i1_row)
        n1_1 = tl.load(i1 + next_row * i1_row + 1)
        n1_2 = tl.load(i1 + next_row * i1_row + 2)
        n1_3 = tl.load(i1 + next_row * i1_row + 3)
        n2_0 = tl.load(i2 + next_row * i2_row + channel, mask=inside, other=0.0)
        n2_2 = tl.load(i2 + next_row * i2_row + channel + 2 * CHANNELS, mask=inside, other=0.0)
        coming = place + 2 * n_slots
        after_row = tl.load(order + coming, mask=coming < last, other=0)
        after_sender = tl.load(senders + after_row)
        x6_0 = x0_0 * x2_0
        x6_1 = x0_0 * x2_2
        t0 = x6_0 * x1_0
        t1 = x6_1 * x1_1
        t2 = x6_1 * x1_2
        t3 = x6_1 * x1_3
        a1_0 += t0
        a1_1 += t1
        a1_2 += t2
        a1_3 += t3
        row = next_row
        next_row = after_row
        sender = next_sender
        next_sender = after_sender
    r0_0 = a1_0
    if SPLIT:
        tl.atomic_add(o0 + node * o0_row + channel, r0_0, mask=inside, sem="relaxed")
    else:
        tl.store(o0 + node * o0_row + channel, r0_0, mask=inside)
    r0_2 = a1_1
    if SPLIT:
        tl.atomic_add(o0 + node * o0_row + channel + 2 * CHANNELS, r0_2, mask=inside, sem="relaxed")
    else:
        tl.store(o0 + node * o0_row + channel + 2 * CHANNELS, r0_2, mask=inside)
    r0_3 = a1_2
    if SPLIT:
        tl.atomic_add(o0 + node * o0_row + channel + 3 * CHANNELS, r0_3, mask=inside, sem="relaxed")
    else:
        tl.store(o0 + node * o0_row + channel + 3 * CHANNELS, r0_3, mask=inside)
    r0_4 = a1_3
    if SPLIT:
        tl.atomic_add(o0 + node * o0_row + channel + 4 * CHANNELS, r0_4, mask=inside, sem="relaxed")
    else:
        tl.store(o0 + node * o0_row + channel + 4 * CHANNELS, r0_4, mask=inside)


@triton.jit(do_not_specialize=['n_rows', 'rows_per_program', 'n_slots', 'o0_part'])
def kernel_1(
    i0, i0_row,
    i1, i1_row,
    i2, i2_row,
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
    node = unit // n_slots
    first = tl.load(starts + node) + unit % n_slots
    last = tl.load(starts + node + 1)
    row = tl.load(order + first, mask=first < last, other=0)
    sender = tl.load(senders + row, mask=first < last, other=0)
    n0_1 = tl.load(i0 + sender * i0_row + channel + 1 * CHANNELS, mask=inside & (first < last), other=0.0)
    n0_2 = tl.load(i0 + sender * i0_row + channel + 2 * CHANNELS, mask=inside & (first < last), other=0.0)
    n0_3 = tl.load(i0 + sender * i0_row + channel + 3 * CHANNELS, mask=inside & (first < last), other=0.0)
    n1_0 = tl.load(i1 + row * i1_row, mask=first < last, other=0.0)
    n1_1 = tl.load(i1 + row * i1_row + 1, mask=first < last, other=0.0)
    n1_2 = tl.load(i1 + row * i1_row + 2, mask=first < last, other=0.0)
    n1_3 = tl.load(i1 + row * i1_row + 3, mask=first < last, other=0.0)
    n2_1 = tl.load(i2 + row * i2_row + channel + 1 * CHANNELS, mask=inside & (first < last), other=0.0)
    n2_3 = tl.load(i2 + row * i2_row + channel + 3 * CHANNELS, mask=inside & (first < last), other=0.0)
    coming = first + n_slots
    next_row = tl.load(order + coming, mask=coming < last, other=0)
    next_sender = tl.load(senders + next_row, mask=coming < last, other=0)
    a1_0 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    a1_1 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    a1_2 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    a1_3 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    a1_4 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    a1_5 = tl.zeros([BLOCK], dtype=o0.dtype.element_ty)
    for place in range(first, last, n_slots):
        x0_1 = n0_1
        x0_2 = n0_2
        x0_3 = n0_3
        x1_0 = n1_0
        x1_1 = n1_1
        x1_2 = n1_2
        x1_3 = n1_3
        x2_1 = n2_1
        x2_3 = n2_3
        n0_1 = tl.load(i0 + next_sender * i0_row + channel + 1 * CHANNELS, mask=inside, other=0.0)
        n0_2 = tl.load(i0 + next_sender * i0_row + channel + 2 * CHANNELS, mask=inside, other=0.0)
        n0_3 = tl.load(i0 + next_sender * i0_row + channel + 3 * CHANNELS, mask=inside, other=0.0)
        n1_0 = tl.load(i1 + next_row * i1_row)
        n1_1 = tl.load(i1 + next_row * i1_row + 1)
        n1_2 = tl.load(i1 + next_row * i1_row + 2)
        n1_3 = tl.load(i1 + next_row * i1_row + 3)
        n2_1 = tl.load(i2 + next_row * i2_row + channel + 1 * CHANNELS, mask=inside, other=0.0)
        n2_3 = tl.load(i2 + next_row * i2_row + channel + 3 * CHANNELS, mask=inside, other=0.0)
        coming = place + 2 * n_slots
        after_row = tl.load(order + coming, mask=coming < last, other=0)
        after_sender = tl.load(senders + after_row)
        x6_0 = x0_1 * x2_1
        x6_1 = x0_2 * x2_1
        x6_2 = x0_3 * x2_1
        x6_3 = x0_1 * x2_3
        x6_4 = x0_2 * x2_3
        x6_5 = x0_3 * x2_3
        t0 = x6_0 * x1_1
        t1 = x6_1 * x1_2
        t2 = x6_2 * x1_3
        t3 = x6_3 * x1_0
        t4 = x6_4 * x1_0
        t5 = x6_5 * x1_0
        a1_0 += t0
        a1_1 += t1
        a1_2 += t2
        a1_3 += t3
        a1_4 += t4
        a1_5 += t5
        row = next_row
        next_row = after_row
        sender = next_sender
        next_sender = after_sender
    r0_1 = 0.5773502691896257 * a1_0 + 0.5773502691896257 * a1_1 + 0.5773502691896257 * a1_2
    if SPLIT:
        tl.atomic_add(o0 + node * o0_row + channel + 1 * CHANNELS, r0_1, mask=inside, sem="relaxed")
    else:
        tl.store(o0 + node * o0_row + channel + 1 * CHANNELS, r0_1, mask=inside)
    r0_5 = a1_3
    if SPLIT:
        tl.atomic_add(o0 + node * o0_row + channel + 5 * CHANNELS, r0_5, mask=inside, sem="relaxed")
    else:
        tl.store(o0 + node * o0_row + channel + 5 * CHANNELS, r0_5, mask=inside)
    r0_6 = a1_4
    if SPLIT:
        tl.atomic_add(o0 + node * o0_row + channel + 6 * CHANNELS, r0_6, mask=inside, sem="relaxed")
    else:
        tl.store(o0 + node * o0_row + channel + 6 * CHANNELS, r0_6, mask=inside)
    r0_7 = a1_5
    if SPLIT:
        tl.atomic_add(o0 + node * o0_row + channel + 7 * CHANNELS, r0_7, mask=inside, sem="relaxed")
    else:
        tl.store(o0 + node * o0_row + channel + 7 * CHANNELS, r0_7, mask=inside)


VARIANT = 'csr'
COMPLETE = (True,)  # outputs of which every component is written
KERNELS = (
    {"name": "kernel_0", "inputs": (0, 1, 2), "outputs": ((0, 'registers'),), "ranks": (0, 1), "input_rank": 0, "components": 4, "terms": 4, "block": 128},
    {"name": "kernel_1", "inputs": (0, 1, 2), "outputs": ((0, 'registers'),), "ranks": (0, 1), "input_rank": 1, "components": 4, "terms": 6, "block": 128},
)
