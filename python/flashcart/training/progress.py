"""Where a run stands, in numbers that a JSON file keeps exactly.

Takes and returns values; reads no files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Progress:
    """Position in a run.

    epoch: completed epochs. batch: batches done of the next epoch. step: optimizer steps in all. best_loss, best_epoch:
    best early_stopping_loss so far, and after how many epochs (0: none yet). stale_validations: validations since.
    running: sums over the batches of the unfinished epoch, by name.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    best_loss: float = math.inf
    best_epoch: int = 0
    stale_validations: int = 0
    running: Mapping[str, list[float]] = field(default_factory=dict)

    def after_validation(self, loss: float) -> Progress:
        """Return the progress with the early_stopping_loss of the epoch that has just been completed."""
        if loss < self.best_loss:
            return replace(self, best_loss=loss, best_epoch=self.epoch, stale_validations=0)
        return replace(self, stale_validations=self.stale_validations + 1)

    @property
    def has_improved(self) -> bool:
        """Say whether the last completed epoch is the best."""
        return self.epoch > 0 and self.best_epoch == self.epoch

    def finished(self, max_epochs: int, patience: int | None) -> str | None:
        """Return why there is nothing left to do, or None."""
        if self.epoch >= max_epochs:
            return f"all {max_epochs} epochs are done"
        if patience is not None and self.stale_validations >= patience:
            return f"no improvement in {self.stale_validations} validations"
        return None

    def document(self) -> dict[str, Any]:
        """Return the values for JSON (which has no infinity)."""
        return {**asdict(self), "best_loss": None if math.isinf(self.best_loss) else self.best_loss}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Progress:
        """Return the progress that `document()` described."""
        best = document["best_loss"]
        return cls(**{**document, "best_loss": math.inf if best is None else best})
