"""Generated; do not edit.

emitter: triton linear 1; output over d
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["components", "n_rows", "n_shares", "n_elements"])
def linear_d_1(
    x0, x0_row, y0, y0_row,
    out, out_row, out_share, table, scales, order, starts,
    components, n_rows, n_shares, n_elements,
    C: tl.constexpr, D: tl.constexpr, SLOTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (D + COLUMNS - 1) // COLUMNS
    STEPS: tl.constexpr = (C + INNER - 1) // INNER
    column = tl.program_id(0) % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    component = tl.program_id(0) // BLOCKS % components
    tile = (tl.program_id(0) // BLOCKS // components).to(tl.int64)
    first = tl.load(table + component * 4)
    step = tl.load(table + component * 4 + 1)
    matrix = tl.load(table + component * 4 + 2)
    matrices = tl.load(table + component * 4 + 3)
    if SLOTS == 1:
        place = tile * ROWS + tl.arange(0, ROWS)
        inside = place < n_rows
        row = place
        element = tile * 0
    else:  # rows sorted by element, tiles never across two: find the tile's
        slot = tl.arange(0, SLOTS)
        begin = tl.load(starts + slot, mask=slot < n_elements, other=0)
        end = tl.load(starts + slot + 1, mask=slot < n_elements, other=0)
        tiles = (end - begin + ROWS - 1) // ROWS
        element = tl.sum((tl.cumsum(tiles, 0) <= tile).to(tl.int64), 0)
        tile = tile - tl.sum(tl.where(slot < element, tiles, 0), 0)
        place = tl.sum(tl.where(slot == element, begin, 0), 0) + tile * ROWS + tl.arange(0, ROWS)
        inside = place < tl.sum(tl.where(slot == element, end, 0), 0)
        row = tl.load(order + place, mask=inside, other=0)
        element = tl.minimum(element, n_elements - 1)
    total = tl.zeros([ROWS, COLUMNS], dtype=out.dtype.element_ty)
    for number in range(0, matrices * STEPS):
        path = number // STEPS
        k = number % STEPS * INNER + tl.arange(0, INNER)
        left = x0 + row[:, None] * x0_row + ((first + path * step) * C + k)[None, :]
        right = y0 + element * y0_row + (matrix + path) * (C * D)
        right += k[:, None] * D + column[None, :]
        if C % INNER == 0 and D % COLUMNS == 0:
            a = tl.load(left, mask=inside[:, None], other=0.0)
            b = tl.load(right)
        else:
            a = tl.load(left, mask=inside[:, None] & (k < C)[None, :], other=0.0)
            b = tl.load(right, mask=(k < C)[:, None] & (column < D)[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=out.dtype.element_ty)
    total = total * tl.load(scales + component).to(out.dtype.element_ty)
    address = out + row[:, None] * out_row + (component * D + column)[None, :]
    tl.store(address, total, mask=inside[:, None] & (column < D)[None, :])
