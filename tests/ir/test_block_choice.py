"""Blocks of channels from a count of registers."""

from dataclasses import replace

import pytest

from flashcart.algebra.lowering import make
from flashcart.ir.block_choice import ROWS, WALK, choose_block
from flashcart.ir.differentiate import vjp
from flashcart.ir.launch_plan import LaunchSettings, plan_launches
from flashcart.ir.requests import ProductRequest, Weights

SETTINGS = LaunchSettings()


def orders(ranks, edges=True):
    forward = make(ProductRequest(*ranks, edges, not edges, Weights.ROW if edges else Weights.NONE, False))
    everything = tuple(range(len(forward.inputs)))
    backward = vjp(forward, everything, (0,))
    return [forward, backward, vjp(backward, (*everything, len(everything)), everything)]


def blocks(program, settings=SETTINGS, *, grouped=True, item_size=4):
    launches = plan_launches(program, settings)
    return [choose_block(program, launch, settings, grouped=grouped, item_size=item_size) for launch in launches]


@pytest.mark.parametrize("order", [0, 1, 2])
def test_walks_of_the_default_model_fit_into_registers(order):
    for ranks in ((0, 3, 3), (2, 3, 3), (3, 3, 3)):
        for block in blocks(orders(ranks)[order]):
            assert block.registers <= WALK
            assert block.ahead


def test_larger_launches_take_fewer_channels():
    channels = [block.channels for block in blocks(orders((3, 3, 3))[0])]  # by rank of the first tensor
    assert channels == sorted(channels, reverse=True)
    assert channels[0] == 128
    assert channels[-1] == 64


def test_float64_takes_fewer_channels():
    for program in orders((2, 3, 3)):
        for single, double in zip(blocks(program), blocks(program, item_size=8), strict=True):
            assert double.channels <= single.channels


def test_couplings_leave_the_loop_only_where_receivers_are_walked():
    forward, backward, second = orders((1, 1, 1))
    assert all(block.outputs and not block.inputs for block in blocks(forward))
    assert all(block.inputs and not block.outputs for block in blocks(backward))
    assert any(block.inputs and block.outputs for block in blocks(second))
    for program in (forward, backward, second):
        assert not any(block.inputs or block.outputs or block.ahead for block in blocks(program, grouped=False))
        uncoupled = blocks(program, replace(SETTINGS, coupled=False))
        assert not any(block.inputs or block.outputs for block in uncoupled)


def test_a_block_that_is_set_is_taken():
    assert {block.channels for block in blocks(orders((2, 3, 3))[1], replace(SETTINGS, block=32))} == {32}


def test_independent_rows_leave_room_for_other_warps_where_they_can():
    for program in orders((1, 1, 1), edges=False):
        for block in blocks(program, grouped=False):
            assert block.registers <= ROWS or block.channels == 32
