"""Generated; do not edit.

contraction 4347b05aceff0874f7a220a3be6f8556, 30 terms,
120 multiplications and additions per row and channel, term by term.
emitter: torch 3; plan: walk over the edges of each receiver
input 0: 4 components by sender, channels
input 1: 4 components by row
input 2: 4 components by row, channels
input 3: 8 components by receiver, channels
output 0: 4 components by sender, channels
output 1: 4 components by row
output 2: 4 components by row, channels
"""

import torch

TABLES = (
    (8, 4, (
        (0, 0, 1.0),
        (5, 1, 1.0),
        (6, 2, 1.0),
        (7, 3, 1.0),
    )),
    (8, 12, (
        (1, 0, 0.5773502691896257),
        (1, 4, 0.5773502691896257),
        (1, 8, 0.5773502691896257),
        (2, 9, 1.0),
        (3, 10, 1.0),
        (4, 11, 1.0),
    )),
    (8, 32, (
        (0, 0, 1.0),
        (1, 17, 0.5773502691896257),
        (1, 22, 0.5773502691896257),
        (1, 27, 0.5773502691896257),
        (2, 29, 1.0),
        (3, 30, 1.0),
        (4, 31, 1.0),
        (5, 4, 1.0),
        (6, 8, 1.0),
        (7, 12, 1.0),
    )),
    (4, 8, (
        (0, 0, 1.0),
        (0, 7, 1.0),
        (1, 1, 1.0),
        (1, 4, 1.0),
        (2, 2, 1.0),
        (2, 5, 1.0),
        (3, 3, 1.0),
        (3, 6, 1.0),
    )),
    (4, 8, (
        (0, 0, 1.0),
        (1, 4, 1.0),
        (1, 5, 1.0),
        (1, 6, 1.0),
        (2, 7, 1.0),
        (3, 1, 1.0),
        (3, 2, 1.0),
        (3, 3, 1.0),
    )),
)
INDICES = (
    (0, 1, 2, 3, 1, 2, 3, 0),
    (0, 3, 3, 3, 1, 1, 1, 2),
)


def run(operands, rows, tables, indices):
    if rows.is_small(8):
        return run_whole(operands, rows, tables, indices)
    out0 = rows.zeros(4, 'sender', True)
    out1 = rows.zeros(4, 'row', False)
    out2 = rows.zeros(4, 'row', True)
    for chunk in rows.walk(4):
        node3 = chunk.from_receivers(operands[3])
        edge1 = chunk.edge_components(operands[1])
        x0 = chunk.take(operands[0], 'sender')
        x2 = chunk.take(operands[2], 'row')
        de1 = chunk.new_edge_components(4)
        g0 = chunk.new(4)
        g2 = chunk.new(4)
        # edge components 0 to 0
        h3 = chunk.spread(tables[0], node3, 4, 1)
        v3_1 = torch.matmul(edge1[:, :, 0:1], h3)
        g2[0:1].addcmul_(v3_1[0:1], x0[0:1])
        g2[3:4] += (v3_1[1:4] * x0[1:4]).sum(0, keepdim=True)
        g0[0:1].addcmul_(v3_1[0:1], x2[0:1])
        g0[1:4].addcmul_(v3_1[1:4], x2[3:4])
        p = chunk.empty(4)
        torch.mul(x0[0:1], x2[0:1], out=p[0:1])
        torch.mul(x0[1:4], x2[3:4], out=p[1:4])
        de1[:, :, 0:1] += torch.matmul(p, h3.transpose(2, 3)).sum(0)
        # edge components 1 to 3
        h3 = chunk.spread(tables[1], node3, 4, 3)
        v3_1 = torch.matmul(edge1[:, :, 1:4], h3)
        g2[1:2] += (v3_1[0:3] * x0[1:4]).sum(0, keepdim=True)
        g2[2:3].addcmul_(v3_1[3:4], x0[0:1])
        g0[1:4].addcmul_(v3_1[0:3], x2[1:2])
        g0[0:1].addcmul_(v3_1[3:4], x2[2:3])
        p = chunk.empty(4)
        torch.mul(x0[1:4], x2[1:2], out=p[0:3])
        torch.mul(x0[0:1], x2[2:3], out=p[3:4])
        de1[:, :, 1:4] += torch.matmul(p, h3.transpose(2, 3)).sum(0)
        chunk.store_edge_components(out1, de1)
        chunk.store(out0, 'sender', g0)
        chunk.store(out2, 'row', g2)
    return [out0, out1, out2]


def run_whole(operands, rows, tables, indices):
    out0 = rows.zeros(4, 'sender', True)
    out1 = rows.zeros(4, 'row', False)
    out2 = rows.zeros(4, 'row', True)
    for chunk in rows.whole():
        node3 = chunk.from_receivers(operands[3])
        h3 = chunk.spread_folded(tables[2], node3, 8, 4)
        edge1 = chunk.edge_components(operands[1], 4)
        x0 = chunk.take(operands[0], 'sender').index_select(0, indices[0])
        x2 = chunk.take(operands[2], 'row').index_select(0, indices[1])
        v3_1 = chunk.unfold(torch.bmm(edge1, h3), 8)
        g = chunk.sum_q(tables[3], v3_1 * x2)
        chunk.store(out0, 'sender', g)
        g = chunk.sum_q(tables[4], v3_1 * x0)
        chunk.store(out2, 'row', g)
        chunk.store_edge_components(out1[:4], torch.bmm(chunk.fold(x0 * x2), h3.transpose(1, 2)))
    return [out0, out1, out2]
