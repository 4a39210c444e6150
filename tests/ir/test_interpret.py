"""The interpreter, against loops written out for one toy each; sums of few numbers: exact to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from flashcart.ir.interpret import interpret

from ..programs import TOYS, random_arrays, random_graph

GRAPH = random_graph([2, 0, 3])


def test_gathered_rows_are_read_by_index():
    program = TOYS["gathered operand"]
    x, y = random_arrays(program.inputs, GRAPH)
    (out,) = interpret(program, [x, y], GRAPH.senders, GRAPH.receivers, GRAPH.n_nodes)
    for edge, (j, i) in enumerate(zip(GRAPH.senders, GRAPH.receivers, strict=True)):
        np.testing.assert_allclose(out[edge, 0], 1.5 * x[j, 0] * y[i, 0] + 0.5 * x[j, 1] ** 2 * y[i, 0])


def test_scattered_rows_are_added_up():
    program = TOYS["scattered outputs"]
    (x,) = random_arrays(program.inputs, GRAPH)
    sent, received, total = interpret(program, [x], GRAPH.senders, GRAPH.receivers, GRAPH.n_nodes)
    expected_sent, expected_received = np.zeros((3, 1, 3)), np.zeros((3, 1, 3))
    for edge, (j, i) in enumerate(zip(GRAPH.senders, GRAPH.receivers, strict=True)):
        expected_sent[j, 0] += x[edge, 0] * x[edge, 1]
        expected_received[i, 0] += 2 * x[edge, 1] ** 2
    np.testing.assert_allclose(sent, expected_sent)
    np.testing.assert_allclose(received, expected_received)
    np.testing.assert_allclose(total[0, 1], -x[:, 0].sum(axis=0))
    np.testing.assert_array_equal(received[1], 0.0)  # no edge arrives there


def test_outputs_without_channels_sum_over_channels():
    program = TOYS["operand without channels"]
    x, y = random_arrays(program.inputs, GRAPH)
    _, out = interpret(program, [x, y])
    # a term without any channel operand counts once per channel
    np.testing.assert_allclose(out[:, 0], 0.5 * x[:, 1].sum(axis=1) * y[:, 0] + 3 * 0.25 * y[:, 0] * y[:, 1])


def test_missing_indices_are_refused():
    program = TOYS["gathered operand"]
    arrays = random_arrays(program.inputs, GRAPH)
    with pytest.raises(ValueError, match="no receivers were given"):
        interpret(program, arrays, senders=GRAPH.senders)


def test_unknown_number_of_rows_is_refused():
    program = TOYS["gathered operand"]
    with pytest.raises(ValueError, match="number of rows"):
        interpret(program, random_arrays(program.inputs, GRAPH))


def test_indexed_output_needs_the_number_of_nodes():
    program = TOYS["scattered outputs"]
    with pytest.raises(ValueError, match="n_nodes"):
        interpret(program, random_arrays(program.inputs, GRAPH), GRAPH.senders, GRAPH.receivers)


def test_no_rows_give_zero_sums():
    program = TOYS["scattered outputs"]
    none = np.zeros(0, dtype=np.int64)
    outs = interpret(program, [np.zeros((0, 2, 3))], none, none, 4)
    assert [out.shape for out in outs] == [(4, 1, 3), (4, 1, 3), (1, 2, 3)]
    assert all(np.all(out == 0) for out in outs)
