"""Metrics of a whole data set: exact, whatever the batches were.

Takes predictions and labels batch by batch, returns the value of every term over all of them: sums and counts are
added up first, then turned into a value (the RMSE of a set, not the mean of the RMSEs of its batches).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from flashcart.training.loss import Partial, merge, partial, residuals, value

if TYPE_CHECKING:
    from flashcart.config_keys import LossTerm
    from flashcart.data.batching import LabelledBatch
    from flashcart.potential import Prediction

_UNITS = {"energy": "eV", "forces": "eV/Å", "stress": "eV/Å^3", "virials": "eV"}
_NORMALIZED_UNITS = {"per_atom": "/atom", "per_sqrt_atom": "/√atom", "none": ""}


def unit(term: LossTerm) -> str:
    """Return the unit of a term's value, such as eV/atom or (eV/Å)²."""
    base = _UNITS[term.property] + _NORMALIZED_UNITS[term.normalization]
    if term.reduce in ("sse", "mse", "huber_sum", "huber_mean"):
        return f"({base})²" if "/" in base else f"{base}²"
    return base


def metric_name(term: LossTerm) -> str:
    """Return the name of a term with its unit, such as energy_per_atom_rmse[eV/atom]."""
    normalization = "" if term.normalization == "none" else f"_{term.normalization}"
    delta = f"_{term.delta:g}" if term.reduce.startswith("huber") else ""
    return f"{term.property}{normalization}_{term.reduce}{delta}[{unit(term)}]"


def shown(term: LossTerm, number: float) -> tuple[str, str]:
    """Return (name, value with unit) for people: energies in meV, forces in meV/Å, other units as they are."""
    milli = term.property in ("energy", "forces") and not unit(term).endswith("²")
    normalization = "" if term.normalization == "none" else f" {term.normalization}".replace("_", " ")
    value_text = f"{1000 * number:.4g} m{unit(term)}" if milli else f"{number:.4g} {unit(term)}"
    return f"{term.property}{normalization} {term.reduce}", value_text


@dataclass
class Metrics:
    """Sums and counts of some terms over the batches seen so far."""

    terms: Sequence[LossTerm]
    partials: dict[str, Partial] = field(default_factory=dict)

    def add(self, prediction: Prediction, batch: LabelledBatch) -> None:
        """Add a batch; per-structure loss weights do not count here."""
        errors = {prop: residuals(prop, prediction, batch) for prop in {term.property for term in self.terms}}
        for name, term in self._named_terms():
            part = partial(term, errors[term.property], batch.n_atoms)
            part = Partial(part.total.detach(), part.count)
            self.partials[name] = merge(term, self.partials[name], part) if name in self.partials else part

    def values(self) -> dict[str, float]:
        """Return name -> value; NaN for a term that has met no label."""
        return {
            name: float(value(term, self.partials[name])) if self._has_labels(term) else math.nan
            for name, term in self._named_terms()
        }

    def weighted_sum(self, terms: Sequence[LossTerm]) -> float:
        """Return the sum of weight x value over `terms`, all of them collected; one that has met no label counts 0."""
        values = self.values()
        weighted = [term.weight * values[metric_name(term)] for term in terms if self._has_labels(term)]
        return sum(weighted, 0.0)

    def state(self) -> dict[str, list[float]]:
        """Return what `load_state` needs, in numbers that JSON keeps exactly."""
        return {name: [float(part.total), float(part.count)] for name, part in self.partials.items()}

    def load_state(self, state: Mapping[str, list[float]], device: torch.device) -> None:
        """Continue from what `state` returned; other entries are not looked at."""
        for name, _ in self._named_terms():
            if name in state:
                total, count = (torch.tensor(number, dtype=torch.float64, device=device) for number in state[name])
                self.partials[name] = Partial(total, count)

    def _named_terms(self) -> list[tuple[str, LossTerm]]:
        """Return each term once, though it may stand in the configuration with several weights."""
        return list({metric_name(term): term for term in self.terms}.items())

    def _has_labels(self, term: LossTerm) -> bool:
        part = self.partials.get(metric_name(term))
        return part is not None and bool(part.count > 0)
