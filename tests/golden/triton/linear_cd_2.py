"""Generated; do not edit.

emitter: triton linear 1; output over cd
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["components", "n_rows", "n_shares", "n_elements"])
def linear_cd_2(
    x0, x0_row, y0, y0_row,
    x1, x1_row, y1, y1_row,
    out, out_row, out_share, table, scales, order, starts,
    components, n_rows, n_shares, n_elements,
    C: tl.constexpr, D: tl.constexpr, SLOTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (D + COLUMNS - 1) // COLUMNS
    STRIPS: tl.constexpr = (C + ROWS - 1) // ROWS
    d = tl.program_id(0) % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    c = tl.program_id(0) // BLOCKS % STRIPS * ROWS + tl.arange(0, ROWS)
    component = tl.program_id(0) // (BLOCKS * STRIPS) % components
    part = (tl.program_id(0) // (BLOCKS * STRIPS) // components).to(tl.int64)
    first_c = tl.load(table + component * 4)
    first_d = tl.load(table + component * 4 + 1)
    size = tl.load(table + component * 4 + 2)
    element = part // n_shares
    begin = part * 0
    end = begin + n_rows
    if SLOTS > 1:  # rows sorted by element
        begin += tl.load(starts + element)
        end = tl.load(starts + element + 1)
    share = (end - begin + n_shares - 1) // n_shares
    begin += part % n_shares * share
    end = tl.minimum(begin + share, end)
    steps = (tl.maximum(end - begin, 0) + INNER - 1) // INNER
    total = tl.zeros([ROWS, COLUMNS], dtype=out.dtype.element_ty)
    for number in range(0, size * steps):
        m = number // steps
        row = begin + number % steps * INNER + tl.arange(0, INNER)
        inside = row < end
        if SLOTS > 1:
            row = tl.load(order + row, mask=inside, other=0)
        left = x0 + row[None, :] * x0_row + ((first_c + m) * C + c)[:, None]
        right = y0 + row[:, None] * y0_row + ((first_d + m) * D + d)[None, :]
        if C % ROWS == 0 and D % COLUMNS == 0:
            a = tl.load(left, mask=inside[None, :], other=0.0)
            b = tl.load(right, mask=inside[:, None], other=0.0)
        else:
            a = tl.load(left, mask=inside[None, :] & (c < C)[:, None], other=0.0)
            b = tl.load(right, mask=inside[:, None] & (d < D)[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=out.dtype.element_ty)
    for number in range(0, size * steps):
        m = number // steps
        row = begin + number % steps * INNER + tl.arange(0, INNER)
        inside = row < end
        if SLOTS > 1:
            row = tl.load(order + row, mask=inside, other=0)
        left = x1 + row[None, :] * x1_row + ((first_c + m) * C + c)[:, None]
        right = y1 + row[:, None] * y1_row + ((first_d + m) * D + d)[None, :]
        if C % ROWS == 0 and D % COLUMNS == 0:
            a = tl.load(left, mask=inside[None, :], other=0.0)
            b = tl.load(right, mask=inside[:, None], other=0.0)
        else:
            a = tl.load(left, mask=inside[None, :] & (c < C)[:, None], other=0.0)
            b = tl.load(right, mask=inside[:, None] & (d < D)[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=out.dtype.element_ty)
    total = total * tl.load(scales + component).to(out.dtype.element_ty)
    address = out + part % n_shares * out_share + element * out_row + component.to(tl.int64) * (C * D)
    address = address + c[:, None] * D + d[None, :]
    tl.store(address, total, mask=(c < C)[:, None] & (d < D)[None, :])
