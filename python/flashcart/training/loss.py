"""Loss terms: what one error term is worth on a set of structures.

Takes predictions and labels, returns sums and counts that can be merged over batches (and ranks) before they are
turned into a value, so that the loss of a batch and a metric of a whole data set are the same formula. Does not
differentiate anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from flashcart.config_keys import LossTerm
    from flashcart.data.batching import LabelledBatch
    from flashcart.potential import Prediction

# sqrt has an infinite slope at 0, where the loss of a perfect batch would lie; squares below this have slope 0.
_SMALLEST_MEAN_SQUARE = 1e-30


@dataclass(frozen=True)
class Residuals:
    """Prediction minus label of one property.

    values: [n_rows, n_components] float64: eV, eV/Å, eV/Å^3 or eV (virials); 0 in rows without a label.
    labelled: [n_rows] bool, rows that have a label.
    structures: [n_rows] int64, structure of the batch each row belongs to.
    """

    values: torch.Tensor
    labelled: torch.Tensor
    structures: torch.Tensor


@dataclass(frozen=True)
class Partial:
    """What a term needs to keep of some structures: scalars, float64."""

    total: torch.Tensor
    count: torch.Tensor


def residuals(prop: str, prediction: Prediction, batch: LabelledBatch) -> Residuals:
    """Return the residuals of `prop`: energy (a row per structure), forces (per atom), stress, virials (9 components).

    Stress and virials are formed from the strain derivative, so that a structure without volume (which has no such
    label) gives zeros and not NaN.
    """
    graph = batch.graph
    rows = torch.arange(graph.n_structures, device=graph.batch.device)
    if prop == "energy":
        return _masked((prediction.energy - batch.energy)[:, None], batch.has_energy, rows)
    if prop == "forces":
        return _masked(prediction.forces.double() - batch.forces, batch.has_forces[graph.batch], graph.batch)
    volumes = torch.where(graph.volumes > 0, graph.volumes, torch.ones_like(graph.volumes))[:, None]
    strain_derivatives = prediction.strain_derivatives.double().reshape(-1, 9)
    virial_errors = volumes * batch.stress.reshape(-1, 9) - strain_derivatives
    values = virial_errors if prop == "virials" else -virial_errors / volumes
    return _masked(values, batch.has_stress, rows)


def _masked(values: torch.Tensor, labelled: torch.Tensor, structures: torch.Tensor) -> Residuals:
    return Residuals(torch.where(labelled[:, None], values, torch.zeros_like(values)), labelled, structures)


def partial(term: LossTerm, error: Residuals, n_atoms: torch.Tensor, weights: torch.Tensor | None = None) -> Partial:
    """Return the sum (for maxe: the maximum) and the number of labelled errors of a term.

    n_atoms, weights: [n_structures]. A weight multiplies what each component adds to the sum; the count is that of
    components (norm_sum, norm_mean: of rows), whatever the weights, so that all-equal weights act as one factor.
    """
    values = error.values / _normalizer(term, n_atoms)[error.structures, None]
    contributions = _contributions(term, values)
    if weights is not None:
        contributions = contributions * weights[error.structures, None]
    count = error.labelled.sum(dtype=torch.float64) * contributions.shape[1]
    if term.reduce == "maxe":
        return Partial(contributions.max() if contributions.numel() else values.sum(), count)
    return Partial(contributions.sum(), count)


def _normalizer(term: LossTerm, n_atoms: torch.Tensor) -> torch.Tensor:
    """Return [n_structures]: what residuals are divided by."""
    power = {"per_atom": 1.0, "per_sqrt_atom": 0.5, "none": 0.0}[term.normalization]
    return n_atoms.double() ** power


def _contributions(term: LossTerm, values: torch.Tensor) -> torch.Tensor:
    """Return what each component ([n_rows, n_components]) or row ([n_rows, 1]) adds to the sum of a term."""
    if term.reduce in ("sae", "mae", "maxe"):
        return values.abs()
    if term.reduce in ("sse", "mse", "rmse"):
        return values**2
    if term.reduce in ("norm_sum", "norm_mean"):
        return torch.linalg.vector_norm(values, dim=1, keepdim=True)
    return torch.nn.functional.huber_loss(values, torch.zeros_like(values), reduction="none", delta=term.delta)


def merge(term: LossTerm, first: Partial, second: Partial) -> Partial:
    """Return the partial of two disjoint sets of structures together."""
    if term.reduce == "maxe":
        return Partial(torch.maximum(first.total, second.total), first.count + second.count)
    return Partial(first.total + second.total, first.count + second.count)


def value(term: LossTerm, part: Partial) -> torch.Tensor:
    """Return the value of a term: a sum, a mean over labelled components, its square root, or a maximum.

    The term's weight is not in it. Without any label a sum or maximum is 0 and a mean is 0.
    """
    if term.reduce in ("sae", "sse", "huber_sum", "norm_sum", "maxe"):
        return part.total
    mean = part.total / part.count.clamp_min(1.0)
    return mean.clamp_min(_SMALLEST_MEAN_SQUARE).sqrt() if term.reduce == "rmse" else mean


def weighted_loss(terms: Sequence[LossTerm], prediction: Prediction, batch: LabelledBatch) -> torch.Tensor:
    """Return the sum of weight x value over the terms: a scalar, float64, differentiable."""
    loss = prediction.energy.new_zeros(())
    for term in terms:
        error = residuals(term.property, prediction, batch)
        loss = loss + term.weight * value(term, partial(term, error, batch.n_atoms, batch.weights))
    return loss
