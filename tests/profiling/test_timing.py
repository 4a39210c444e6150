"""Times of runs, clocks of parts, peak memory."""

from __future__ import annotations

import gc
import time

import pytest
import torch

from flashcart.profiling import memory
from flashcart.profiling.timing import Clock, Times, no_collection

CPU = torch.device("cpu")


def test_mean_median_and_spread_of_runs():
    times = Times((3.0, 1.0, 8.0))
    assert (times.mean, times.median, times.spread) == (4.0, 3.0, 7.0)
    assert Times((2.0,)).spread == 0.0


def test_a_clock_adds_up_each_part():
    clock = Clock(CPU)
    for _ in range(2):
        with clock.region("a"):
            time.sleep(0.01)
    with clock.region("b"):
        pass
    assert clock.seconds["a"] >= 0.02
    assert 0 <= clock.seconds["b"] < clock.seconds["a"]


@pytest.mark.skipif(memory.peak(CPU) is None, reason="not Linux")
def test_peak_memory_sees_what_is_freed_again():
    """300 MiB are held for a moment; a tenth of it may have been free in the process before."""
    memory.reset_peak(CPU)
    before = memory.peak(CPU)
    held = torch.ones(300 * 2**20, dtype=torch.uint8)
    del held
    during = memory.peak(CPU)
    assert during - before >= 270 * 2**20
    memory.reset_peak(CPU)
    assert memory.peak(CPU) <= during - 270 * 2**20


def test_no_garbage_is_collected_inside_and_the_state_before_comes_back():
    with no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
