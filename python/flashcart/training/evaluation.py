"""Errors of a model on a data set.

Takes a model and batches, returns metrics over all of them. The model is put into evaluation mode meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from flashcart.config import LossTerm
from flashcart.potential import Prediction, predict
from flashcart.training.metrics import Metrics

if TYPE_CHECKING:
    from flashcart.data.batching import LabelledBatch
    from flashcart.model import FlashCart


def evaluate(
    model: FlashCart,
    batches: Iterable[LabelledBatch],
    terms: Sequence[LossTerm],
    visit: Callable[[Prediction, LabelledBatch], object] | None = None,
) -> Metrics:
    """Return the metrics of `terms` over all batches; `visit` sees every prediction with its labels on the way."""
    was_training = model.training
    model.eval()
    metrics = Metrics(terms)
    for batch in batches:
        prediction = predict(model, batch.graph)
        metrics.add(prediction, batch)
        if visit is not None:
            visit(prediction, batch)
    model.train(was_training)
    return metrics
