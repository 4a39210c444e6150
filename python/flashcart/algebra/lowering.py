"""From algebra to contractions: expansions of vectors and products of tensors."""

from __future__ import annotations

from sympy import Rational, sqrt

from flashcart.algebra.product import normalised_coupling
from flashcart.algebra.symmetric_traceless import basis, component_norm
from flashcart.ir.contraction import Contraction, Index, Operand, Term
from flashcart.ir.ranks import Path, components, path_offsets, product_paths, rank_slice
from flashcart.ir.requests import ExpansionRequest, LinearRequest, ProductRequest, Request, Weights
from flashcart.ir.simplify import contraction


def expansion(request: ExpansionRequest) -> Contraction:
    """Components of ranks 0..l_max of a unit vector u, component normalisation (squared norm 2l + 1 per rank).

    Inputs: u `[rows, 3]`. Outputs: `[rows, (l_max + 1)^2]`. Basis tensors are traceless, so that the projection of u^l
    on them needs no trace terms: each component is the basis tensor's own polynomial.
    """
    terms = []
    for rank in range(request.l_max + 1):
        for m, tensor in enumerate(basis(rank)):
            scale = sqrt(tensor.square * component_norm(rank))
            for exponents, value in tensor.polynomial.terms():
                factors = tuple((0, axis) for axis in range(3) for _ in range(exponents[axis]))
                coefficient = float(scale * Rational(value.numerator, value.denominator))
                terms.append(Term((0, rank_slice(rank).start + m), factors, coefficient))
    vector = Operand(3, Index.ROW, channels="", role=0, ranks=(1,))
    ranks = tuple(range(request.l_max + 1))
    out = Operand(components(request.l_max), Index.ROW, channels="", role=1, ranks=ranks)
    return contraction([vector], [out], terms)


def product(request: ProductRequest) -> Contraction:
    """The tensor product that `request` describes.

    Inputs, in this order: first tensor (role 0), second tensor (role 1; absent where the product is symmetric), weights
    (role 2; absent without weights). Output role 3: by output rank, then path, then component; or, with paths summed,
    one tensor of ranks 0..l_out.
    """
    paths = product_paths(request.l_first, request.l_second, request.l_out, symmetric=request.symmetric)
    offsets = path_offsets(paths)
    second_slot = 0 if request.symmetric else 1
    weight_slot = second_slot + 1
    terms = []
    for number, path in enumerate(paths):
        start = rank_slice(path.l_out).start if request.sum_paths else offsets[number]
        weight = () if request.weights is Weights.NONE else ((weight_slot, number),)
        for (m1, m2, m3), value in normalised_coupling(path).items():
            first = (0, rank_slice(path.l_first).start + m1)
            second = (second_slot, rank_slice(path.l_second).start + m2)
            terms.append(Term((0, start + m3), (first, second, *weight), value))
    return contraction(_inputs(request, len(paths)), [_output(request, paths)], terms)


def _inputs(request: ProductRequest, n_paths: int) -> list[Operand]:
    first = Index.SENDER if request.edges else Index.ROW
    ranks = tuple(range(request.l_first + 1))
    operands = [Operand(components(request.l_first), first, channels="c", role=0, ranks=ranks)]
    if not request.symmetric:
        ranks, channels = tuple(range(request.l_second + 1)), "c" if request.second_channels else ""
        operands.append(Operand(components(request.l_second), Index.ROW, channels, role=1, ranks=ranks))
    if request.weights is not Weights.NONE:
        index = Index.SHARED if request.weights is Weights.SHARED else Index.ROW
        operands.append(Operand(n_paths, index, channels="c", role=2))
    return operands


def _output(request: ProductRequest, paths: tuple[Path, ...]) -> Operand:
    ranks = tuple(range(request.l_out + 1)) if request.sum_paths else tuple(path.l_out for path in paths)
    size = sum(2 * rank + 1 for rank in ranks)
    return Operand(size, Index.RECEIVER if request.edges else Index.ROW, channels="c", role=3, ranks=ranks)


def linear(request: LinearRequest) -> Contraction:
    """One matrix per path, shared by the components of the path's rank; a rank's sum has the factor 1/sqrt(paths).

    Inputs: tensor (role 0), over `c`, by rank, then path, then component; matrices (role 1), over both axes, one per
    path. Output role 2, over `d`: one tensor of ranks 0..l_max, zero where a rank has no paths.
    """
    terms, number, start = [], 0, 0
    for rank, paths in enumerate(request.paths):
        for _ in range(paths):
            for m in range(2 * rank + 1):
                factors = ((0, start + m), (1, number))
                terms.append(Term((0, rank_slice(rank).start + m), factors, paths**-0.5))
            number, start = number + 1, start + 2 * rank + 1
    given = tuple(rank for rank, paths in enumerate(request.paths) for _ in range(paths))
    index = Index.SENDER if request.per_element else Index.SHARED
    ranks = tuple(range(len(request.paths)))
    tensor = Operand(start, Index.ROW, channels="c", role=0, ranks=given)
    matrices = Operand(number, index, channels="cd", role=1)
    out = Operand(components(len(request.paths) - 1), Index.ROW, channels="d", role=2, ranks=ranks)
    return contraction([tensor, matrices], [out], terms)


def make(request: Request) -> Contraction:
    """The contraction of a request."""
    if isinstance(request, LinearRequest):
        return linear(request)
    return expansion(request) if isinstance(request, ExpansionRequest) else product(request)
