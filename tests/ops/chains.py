"""Derivatives of a contraction by autograd, side by side with the contraction that the interpreter evaluates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from flashcart.ir.contraction import Contraction
from flashcart.ir.differentiate import vjp
from flashcart.ir.interpret import interpret
from flashcart.ops.contract import contract

from ..programs import Graph, random_arrays

ORDERS = {0: "value", 1: "gradient", 2: "second derivative", 3: "third derivative"}


def tensors(arrays: list[np.ndarray], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Leaves that require gradients."""
    return [torch.tensor(array, dtype=dtype).requires_grad_() for array in arrays]


def run(program: Contraction, operands: list[Tensor], graph: Graph) -> list[Tensor]:
    """The contraction on a graph."""
    senders, receivers = torch.from_numpy(graph.senders), torch.from_numpy(graph.receivers)
    return contract(program, operands, senders=senders, receivers=receivers, n_nodes=graph.n_nodes)


def oracle(program: Contraction, operands: list[Tensor], graph: Graph) -> list[np.ndarray]:
    """The interpreter on the same operands."""
    arrays = [x.detach().double().numpy() for x in operands]
    return interpret(program, arrays, graph.senders, graph.receivers, graph.n_nodes, n_rows=graph.n_edges)


def chain(
    program: Contraction, operands: list[Tensor], graph: Graph, orders: int
) -> Iterator[tuple[int, list[Tensor], list[np.ndarray]]]:
    """Yield (order, results of autograd, results of the interpreter) from order 0 on.

    At each order all outputs get random cotangents, which are inputs of the next one.
    """
    results, inputs = run(program, operands, graph), list(operands)
    for order in range(orders + 1):
        yield order, results, oracle(program, inputs, graph)
        if order == orders:
            return
        channels = next((x.shape[2] for x in inputs if x.ndim == 3), 1)
        arrays = random_arrays(program.outputs, graph, channels, seed=10 + order)
        cotangents = tensors(arrays, operands[0].dtype)
        pairs = [(out, c) for out, c in zip(results, cotangents, strict=True) if out.requires_grad]
        results = list(
            torch.autograd.grad(
                [out for out, _ in pairs],
                inputs,
                [c for _, c in pairs],
                create_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
        )
        program = vjp(program, tuple(range(len(inputs))), tuple(range(len(program.outputs))))
        inputs = inputs + cotangents


def assert_close(results: list[Tensor], expected: list[np.ndarray], tolerance: float, what: str = "") -> None:
    """Compare relative to the largest entry of each array: sums of mixed signs are judged by their terms."""
    assert len(results) == len(expected)
    for slot, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        assert tuple(result.shape) == wanted.shape, f"{what}, output {slot}"
        scale = max(1.0, np.abs(wanted).max(initial=0.0))
        difference = np.abs(result.detach().double().numpy() - wanted).max(initial=0.0)
        assert difference <= tolerance * scale, f"{what}, output {slot}: off by {difference:.2e} of {scale:.2e}"
