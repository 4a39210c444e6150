"""Counting what is compiled or loaded."""

from __future__ import annotations

import pytest
import torch

from flashcart.algebra.lowering import make
from flashcart.ir.requests import ExpansionRequest
from flashcart.ops.contract import contract
from flashcart.profiling.compilations import Compilations, counting


def test_a_program_counts_at_its_first_use_only():
    """Rank 7: no other test uses it."""
    program, vectors = make(ExpansionRequest(7)), torch.eye(3)
    with counting(with_triton=False) as counter:
        start = counter.now()
        contract(program, [vectors])
        assert counter.now() - start == Compilations(generated_files=1)
        contract(program, [vectors])
        assert (counter.now() - start).total == 1


def test_captured_graphs_count():
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with counting(with_triton=False) as counter:
        start = counter.now()
        compiled(torch.ones(2))
        compiled(torch.ones(2))
        assert (counter.now() - start).torch_graphs == 1


def test_triton_kernels_count_and_the_listener_is_put_back():
    knobs = pytest.importorskip("triton.knobs")
    heard = []
    knobs.compilation.listener = lambda **values: heard.append(values)
    mine = knobs.compilation.listener
    try:
        with counting(with_triton=True) as counter:
            knobs.compilation.listener(src="kernel")
            assert counter.now().triton_kernels == 1
        assert knobs.compilation.listener is mine
        assert heard == [{"src": "kernel"}]
    finally:
        knobs.compilation.listener = None
