"""Reverse-mode differentiation of a contraction, which gives another contraction."""

from __future__ import annotations

from flashcart.ir.contraction import Contraction, Term
from flashcart.ir.simplify import contraction


def vjp(primal: Contraction, wrt: tuple[int, ...], cotangents: tuple[int, ...]) -> Contraction:
    """The vector-Jacobian product: gradients of sum(cotangent * output) with respect to some inputs.

    Args:
        primal: the contraction to differentiate.
        wrt: input slots whose gradients are wanted; they become the outputs, in this order.
        cotangents: output slots for which a cotangent is given; they are appended to the inputs, in this order.

    Returns:
        A contraction with inputs `primal.inputs + cotangents` and one output per entry of `wrt`. A gathered input
        becomes a scattered output and the other way round, a broadcast input becomes a summed output.
    """
    given = {slot: len(primal.inputs) + position for position, slot in enumerate(cotangents)}
    wanted = {slot: position for position, slot in enumerate(wrt)}
    terms = []
    for term in primal.terms:
        if term.output[0] not in given:
            continue
        cotangent = (given[term.output[0]], term.output[1])
        for place, (slot, component) in enumerate(term.factors):
            if slot not in wanted:
                continue
            # A power x^n gives n equal terms here, one per place: the product rule.
            rest = term.factors[:place] + term.factors[place + 1 :]
            terms.append(Term((wanted[slot], component), (*rest, cotangent), term.coefficient))
    inputs = primal.inputs + tuple(primal.outputs[slot] for slot in cotangents)
    outputs = tuple(primal.inputs[slot] for slot in wrt)
    return contraction(inputs, outputs, terms)


def depends_on(primal: Contraction, wrt: int, cotangents: tuple[int, ...]) -> bool:
    """Whether the given outputs depend on input slot `wrt` at all."""
    return any(term.output[0] in cotangents and any(slot == wrt for slot, _ in term.factors) for term in primal.terms)
