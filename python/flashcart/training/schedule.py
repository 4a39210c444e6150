"""The learning rate over a run: warm-up, plateau, decay.

Takes progress in epochs, returns a factor. Stateless, so that a resumed run needs nothing but its position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Factor on the learning rate over `max_epochs` epochs.

    Warm-up leads from `start_factor` to 1 over the first `warmup_epochs`, decay from 1 to `end_factor` over the last
    `decay_epochs`. Shapes with x from 0 to 1: linear x, cosine (1 - cos(pi x))/2, sqrt x^(1/2).
    """

    max_epochs: float
    warmup_epochs: float
    decay_epochs: float
    start_factor: float = 0.1
    end_factor: float = 1e-3
    warmup_shape: str = "linear"
    decay_shape: str = "sqrt"

    def fitted(self) -> Schedule:
        """Return the schedule with both phases shortened in proportion, if together they exceed `max_epochs`."""
        phases = self.warmup_epochs + self.decay_epochs
        if phases <= self.max_epochs:
            return self
        share = self.max_epochs / phases
        values = {**vars(self), "warmup_epochs": share * self.warmup_epochs, "decay_epochs": share * self.decay_epochs}
        return Schedule(**values)

    def factor(self, start: float, end: float) -> float:
        """Return the factor for an optimizer step that leads from `start` to `end` (in epochs since the beginning).

        The first step of a run has exactly `start_factor`, the last one exactly `end_factor`.
        """
        warmup = decay = 1.0
        if start < self.warmup_epochs:
            warmup += (self.start_factor - 1.0) * (1.0 - _shape(self.warmup_shape, start / self.warmup_epochs))
        decay_start = self.max_epochs - self.decay_epochs
        if end > decay_start and self.decay_epochs > 0:
            decay += (self.end_factor - 1.0) * _shape(self.decay_shape, (end - decay_start) / self.decay_epochs)
        return min(warmup, decay)


def _shape(name: str, x: float) -> float:
    """Return a monotonic curve from 0 at x = 0 to 1 at x = 1."""
    x = min(max(x, 0.0), 1.0)
    if name == "cosine":
        return (1.0 - math.cos(math.pi * x)) / 2.0
    return math.sqrt(x) if name == "sqrt" else x
