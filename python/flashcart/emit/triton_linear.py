"""Linear maps over channels as Triton source: one kernel per kind of output and number of products that it adds up.

What is particular to a map (ranks, paths, coefficients) comes as a table, one entry per component of the output
(flashcart.ir.linear_launch), so a few kernels, compiled once, serve every map of a model. Products run on the matrix
units: float32 as three TF32 terms, float64 as it is.
"""

from __future__ import annotations

from flashcart.emit.source import Source

VERSION = "triton linear 1"


def kernel_name(axes: str, n_products: int) -> str:
    """Name of a kernel."""
    return f"linear_{axes}_{n_products}"


def emit_linear(axes: str, n_products: int) -> str:
    """Source text of a kernel.

    Args:
        axes: channel axes of its output.
        n_products: products that it adds up.
    """
    source = Source()
    for text in ('"""Generated; do not edit.', "", f"emitter: {VERSION}; output over {axes}", '"""', ""):
        source.line(text)
    source.line("import triton")
    source.line("import triton.language as tl")
    source.line()
    source.line()
    source.line('@triton.jit(do_not_specialize=["components", "n_rows", "n_shares", "n_elements"])')
    source.line(f"def {kernel_name(axes, n_products)}(")
    source.indent()
    for n in range(n_products):
        source.line(f"x{n}, x{n}_row, y{n}, y{n}_row,")
    source.line("out, out_row, out_share, table, scales, order, starts,")
    source.line("components, n_rows, n_shares, n_elements,")
    source.line("C: tl.constexpr, D: tl.constexpr, SLOTS: tl.constexpr,")
    source.line("ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,")
    source.dedent()
    source.line("):")
    source.indent()
    write = _sum_over_rows if axes == "cd" else _sum_over_channels
    write(source, axes, n_products)
    source.dedent()
    return source.text()


def _lines(source: Source, text: str) -> None:
    for line in text.strip("\n").splitlines():
        source.line(line)


_ROWS_OF_TILE = """
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
"""


def _sum_over_channels(source: Source, axes: str, n_products: int) -> None:
    """out[row, component, n] = scale * sum over matrices and k of x[row, component', k] * matrix[k, n]."""
    line = source.line
    inner, outer = ("C", "D") if axes == "d" else ("D", "C")
    line(f"BLOCKS: tl.constexpr = ({outer} + COLUMNS - 1) // COLUMNS")
    line(f"STEPS: tl.constexpr = ({inner} + INNER - 1) // INNER")
    line("column = tl.program_id(0) % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)")
    line("component = tl.program_id(0) // BLOCKS % components")
    line("tile = (tl.program_id(0) // BLOCKS // components).to(tl.int64)")
    line("first = tl.load(table + component * 4)")
    line("step = tl.load(table + component * 4 + 1)")
    line("matrix = tl.load(table + component * 4 + 2)")
    line("matrices = tl.load(table + component * 4 + 3)")
    _lines(source, _ROWS_OF_TILE)
    line("total = tl.zeros([ROWS, COLUMNS], dtype=out.dtype.element_ty)")
    for n in range(n_products):
        line("for number in range(0, matrices * STEPS):")
        source.indent()
        line("path = number // STEPS")
        line("k = number % STEPS * INNER + tl.arange(0, INNER)")
        line(f"left = x{n} + row[:, None] * x{n}_row + ((first + path * step) * {inner} + k)[None, :]")
        line(f"right = y{n} + element * y{n}_row + (matrix + path) * (C * D)")
        at = "k[:, None] * D + column[None, :]" if axes == "d" else "column[None, :] * D + k[:, None]"
        line(f"right += {at}")
        line(f"if {inner} % INNER == 0 and {outer} % COLUMNS == 0:")
        line("    a = tl.load(left, mask=inside[:, None], other=0.0)")
        line("    b = tl.load(right)")
        line("else:")
        line(f"    a = tl.load(left, mask=inside[:, None] & (k < {inner})[None, :], other=0.0)")
        line(f"    b = tl.load(right, mask=(k < {inner})[:, None] & (column < {outer})[None, :], other=0.0)")
        line("total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=out.dtype.element_ty)")
        source.dedent()
    line("total = total * tl.load(scales + component).to(out.dtype.element_ty)")
    line(f"address = out + row[:, None] * out_row + (component * {outer} + column)[None, :]")
    line(f"tl.store(address, total, mask=inside[:, None] & (column < {outer})[None, :])")


def _sum_over_rows(source: Source, axes: str, n_products: int) -> None:
    """out[element, component, c, d] = scale * sum over rows and components of x[row, ., c] * y[row, ., d]."""
    line = source.line
    _lines(
        source,
        """
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
""",
    )
    for n in range(n_products):
        line("for number in range(0, size * steps):")
        source.indent()
        line("m = number // steps")
        line("row = begin + number % steps * INNER + tl.arange(0, INNER)")
        line("inside = row < end")
        line("if SLOTS > 1:")
        line("    row = tl.load(order + row, mask=inside, other=0)")
        line(f"left = x{n} + row[None, :] * x{n}_row + ((first_c + m) * C + c)[:, None]")
        line(f"right = y{n} + row[:, None] * y{n}_row + ((first_d + m) * D + d)[None, :]")
        line("if C % ROWS == 0 and D % COLUMNS == 0:")
        line("    a = tl.load(left, mask=inside[None, :], other=0.0)")
        line("    b = tl.load(right, mask=inside[:, None], other=0.0)")
        line("else:")
        line("    a = tl.load(left, mask=inside[None, :] & (c < C)[:, None], other=0.0)")
        line("    b = tl.load(right, mask=inside[:, None] & (d < D)[None, :], other=0.0)")
        line("total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=out.dtype.element_ty)")
        source.dedent()
    line("total = total * tl.load(scales + component).to(out.dtype.element_ty)")
    line("address = out + part % n_shares * out_share + element * out_row + component.to(tl.int64) * (C * D)")
    line("address = address + c[:, None] * D + d[None, :]")
    line("tl.store(address, total, mask=(c < C)[:, None] & (d < D)[None, :])")
