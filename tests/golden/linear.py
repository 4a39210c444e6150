"""Generated; do not edit.

contraction a608c04ed0e96f061fa6e74da9a37618, 11 terms,
22 multiplications and additions per row and channel, term by term.
emitter: torch 3; plan: matrix products
input 0: 11 components by row, channels
input 1: 3 components by shared, channels
output 0: 9 components by row, channels
"""

TABLES = ()
INDICES = ((1.0, 0.7071067811865476, 0.7071067811865476), (0, 1, 1, 1, 1, 1))


def run(operands, rows, tables, indices):
    out0 = rows.zero_room(9, 'row', 'd')
    for part in rows.elements():
        x0 = part.take(operands[0])
        w1 = operands[1][:, part.element] * indices[0].view(-1, 1, 1)
        part.map(out0[0:1], x0[0:1], w1[0:1], True)
        part.map(out0[4:9], x0[1:11], w1[1:3], True)
    return [out0]
