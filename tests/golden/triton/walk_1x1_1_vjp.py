"""Generated; do not edit.

contraction 4347b05aceff0874f7a220a3be6f8556, 30 terms,
120 multiplications and additions per row and channel, term by term.
emitter: triton 2; plan: 2 launches, csr, float32
input 0: 4 components by sender, channels
input 1: 4 components by row
input 2: 4 components by row, channels
input 3: 8 components by receiver, channels
output 0: 4 components by sender, channels
output 1: 4 components by row
output 2: 4 components by row, channels
"""

import triton
import triton.language as tl


@triton.jit
def narrow(x, BLOCK: tl.constexpr):
    if BLOCK > 32:
        x = tl.sum(tl.reshape(x, [32, BLOCK // 32]), axis=1)
    return x


@triton.jit
def fold(x, y, lane, bit: tl.constexpr):
    upper = (lane & bit) != 0
    return tl.where(upper, y, x) + tl.gather(tl.where(upper, x, y), lane ^ bit, 0)


@triton.jit(do_not_specialize=['n_rows', 'rows_per_program', 'n_slots', 'o0_part', 'o1_part', 'o2_part'])
def kernel_0(
    i0, i0_row,
    i1, i1_row,
    i2, i2_row,
    i3, i3_row,
    o0, o0_row, o0_part,
    o1, o1_row, o1_part,
    o2, o2_row, o2_part,
    senders, receivers, order, starts,
    n_rows, rows_per_program, n_slots,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr,
):
    lane = tl.arange(0, 32)
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
    x3_0 = tl.load(i3 + node * i3_row + channel, mask=inside, other=0.0)
    x3_2 = tl.load(i3 + node * i3_row + channel + 2 * CHANNELS, mask=inside, other=0.0)
    x3_3 = tl.load(i3 + node * i3_row + channel + 3 * CHANNELS, mask=inside, other=0.0)
    x3_4 = tl.load(i3 + node * i3_row + channel + 4 * CHANNELS, mask=inside, other=0.0)
    x7_0 = x3_0
    x7_1 = x3_2
    x7_2 = x3_3
    x7_3 = x3_4
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
        x8_0 = x0_0 * x2_0
        x8_1 = x0_0 * x2_2
        t0 = x7_0 * x1_0
        t1 = x7_1 * x1_1 + x7_2 * x1_2 + x7_3 * x1_3
        t2 = x2_0 * t0 + x2_2 * t1
        u0 = x7_0 * x8_0
        u1 = x7_1 * x8_1
        u2 = x7_2 * x8_1
        u3 = x7_3 * x8_1
        t3 = x0_0 * t0
        t4 = x0_0 * t1
        s1_0 = narrow(u0, BLOCK)
        s1_1 = narrow(u1, BLOCK)
        s1_2 = narrow(u2, BLOCK)
        s1_3 = narrow(u3, BLOCK)
        f1_0_16_0 = fold(s1_0, s1_2, lane, 16)
        f1_0_16_1 = fold(s1_1, s1_3, lane, 16)
        f1_0_8_0 = fold(f1_0_16_0, f1_0_16_1, lane, 8)
        f1_0_4_0 = fold(f1_0_8_0, f1_0_8_0, lane, 4)
        f1_0_2_0 = fold(f1_0_4_0, f1_0_4_0, lane, 2)
        f1_0_1_0 = fold(f1_0_2_0, f1_0_2_0, lane, 1)
        tl.store(o1 + row * o1_row + part.to(tl.int64) * o1_part + lane // 8, f1_0_1_0, mask=(lane % 8 == 0) & (lane // 8 < 4))
        tl.atomic_add(o0 + sender * o0_row + channel, t2, mask=inside, sem="relaxed")
        tl.store(o2 + row * o2_row + channel, t3, mask=inside)
        tl.store(o2 + row * o2_row + channel + 2 * CHANNELS, t4, mask=inside)
        row = next_row
        next_row = after_row
        sender = next_sender
        next_sender = after_sender


@triton.jit(do_not_specialize=['n_rows', 'rows_per_program', 'n_slots', 'o0_part', 'o1_part', 'o2_part'])
def kernel_1(
    i0, i0_row,
    i1, i1_row,
    i2, i2_row,
    i3, i3_row,
    o0, o0_row, o0_part,
    o1, o1_row, o1_part,
    o2, o2_row, o2_part,
    senders, receivers, order, starts,
    n_rows, rows_per_program, n_slots,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr,
):
    lane = tl.arange(0, 32)
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
    x3_1 = tl.load(i3 + node * i3_row + channel + 1 * CHANNELS, mask=inside, other=0.0)
    x3_5 = tl.load(i3 + node * i3_row + channel + 5 * CHANNELS, mask=inside, other=0.0)
    x3_6 = tl.load(i3 + node * i3_row + channel + 6 * CHANNELS, mask=inside, other=0.0)
    x3_7 = tl.load(i3 + node * i3_row + channel + 7 * CHANNELS, mask=inside, other=0.0)
    x7_0 = x3_5
    x7_1 = 0.5773502691896257 * x3_1
    x7_2 = x3_6
    x7_3 = 0.5773502691896257 * x3_1
    x7_4 = x3_7
    x7_5 = 0.5773502691896257 * x3_1
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
        x8_0 = x0_1 * x2_3
        x8_1 = x0_2 * x2_3
        x8_2 = x0_3 * x2_3
        x8_3 = x0_1 * x2_1
        x8_4 = x0_2 * x2_1
        x8_5 = x0_3 * x2_1
        t0 = x7_0 * x1_0
        t1 = x7_1 * x1_1
        t2 = x2_3 * t0 + x2_1 * t1
        t3 = x7_2 * x1_0
        t4 = x7_3 * x1_2
        t5 = x2_3 * t3 + x2_1 * t4
        t6 = x7_4 * x1_0
        t7 = x7_5 * x1_3
        t8 = x2_3 * t6 + x2_1 * t7
        u0 = x7_0 * x8_0 + x7_2 * x8_1 + x7_4 * x8_2
        u1 = x7_1 * x8_3
        u2 = x7_3 * x8_4
        u3 = x7_5 * x8_5
        t9 = x0_1 * t1 + x0_2 * t4 + x0_3 * t7
        t10 = x0_1 * t0 + x0_2 * t3 + x0_3 * t6
        s1_0 = narrow(u0, BLOCK)
        s1_1 = narrow(u1, BLOCK)
        s1_2 = narrow(u2, BLOCK)
        s1_3 = narrow(u3, BLOCK)
        f1_0_16_0 = fold(s1_0, s1_2, lane, 16)
        f1_0_16_1 = fold(s1_1, s1_3, lane, 16)
        f1_0_8_0 = fold(f1_0_16_0, f1_0_16_1, lane, 8)
        f1_0_4_0 = fold(f1_0_8_0, f1_0_8_0, lane, 4)
        f1_0_2_0 = fold(f1_0_4_0, f1_0_4_0, lane, 2)
        f1_0_1_0 = fold(f1_0_2_0, f1_0_2_0, lane, 1)
        tl.store(o1 + row * o1_row + part.to(tl.int64) * o1_part + lane // 8, f1_0_1_0, mask=(lane % 8 == 0) & (lane // 8 < 4))
        tl.atomic_add(o0 + sender * o0_row + channel + 1 * CHANNELS, t2, mask=inside, sem="relaxed")
        tl.atomic_add(o0 + sender * o0_row + channel + 2 * CHANNELS, t5, mask=inside, sem="relaxed")
        tl.atomic_add(o0 + sender * o0_row + channel + 3 * CHANNELS, t8, mask=inside, sem="relaxed")
        tl.store(o2 + row * o2_row + channel + 1 * CHANNELS, t9, mask=inside)
        tl.store(o2 + row * o2_row + channel + 3 * CHANNELS, t10, mask=inside)
        row = next_row
        next_row = after_row
        sender = next_sender
        next_sender = after_sender


VARIANT = 'csr'
COMPLETE = (True, True, True)  # outputs of which every component is written
KERNELS = (
    {"name": "kernel_0", "inputs": (0, 1, 2, 3), "outputs": ((0, 'atomic'), (1, 'partial'), (2, 'store')), "ranks": (0, 1), "input_rank": 0, "components": 4, "terms": 12, "block": 128},
    {"name": "kernel_1", "inputs": (0, 1, 2, 3), "outputs": ((0, 'atomic'), (1, 'partial'), (2, 'store')), "ranks": (0, 1), "input_rank": 1, "components": 4, "terms": 18, "block": 128},
)
