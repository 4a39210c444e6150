"""The two phases, batch by batch: inference (energies and forces) and training (loss and its gradient).

Takes a subject, returns functions of a batch. What stands before (neighbour lists, transfers) and after (optimizers) is
no part of them. Each part of a phase runs inside a region of the caller's choice: nothing, a clock, a profiler's range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flashcart.errors import FlashCartError, UserError
from flashcart.model import FlashCart
from flashcart.potential import AtomicGraph, Prediction, backward, predict

if TYPE_CHECKING:
    from flashcart.config_keys import LossTerm
    from flashcart.config_profile import ProfileConfig
    from flashcart.data.batching import LabelledBatch

LossFunction = Callable[[Sequence["LossTerm"], Prediction, "LabelledBatch"], Tensor]
Region = Callable[[str], AbstractContextManager[object]]
Predict = Callable[[FlashCart, AtomicGraph], Prediction]
PARTS = {"inference": ("prediction",), "training": ("prediction", "loss", "differentiation")}


def no_region(part: str) -> AbstractContextManager[None]:
    """Leave a part as it is."""
    return nullcontext()


@dataclass(frozen=True)
class Phase:
    """What is repeated for each batch.

    predict: evaluates the model. loss: the configured loss, None for inference.
    """

    name: str
    model: FlashCart
    predict: Predict
    loss: Callable[[Prediction, LabelledBatch], Tensor] | None

    def enter(self) -> Phase:
        """Set the model to the phase's mode, and return the phase.

        In inference, parameters need no gradient, as in a model that was loaded from a file.
        """
        training = self.loss is not None
        self.model.train(training).requires_grad_(training)
        return self

    def run(self, batches: Sequence[LabelledBatch], region: Region = no_region) -> None:
        """Do the phase for each batch, each part inside `region(part)`."""
        for batch in batches:
            self._run_batch(batch, region)

    def _run_batch(self, batch: LabelledBatch, region: Region) -> None:
        with region("prediction"):
            prediction = self.predict(self.model, batch.graph)
        if self.loss is None:
            return
        with region("loss"):
            loss = self.loss(prediction, batch)
        with region("differentiation"):
            self.model.zero_grad(set_to_none=True)
            backward(loss, self.model)


def make_phase(name: str, model: FlashCart, config: ProfileConfig, loss: LossFunction, *, eager: bool) -> Phase:
    """Return a phase, not yet entered; `eager` leaves torch.compile out."""
    training = name == "training"
    if config.profile_compile_predict and not eager:
        evaluate = _compiled(config, training)
    else:

        def evaluate(model: FlashCart, graph: AtomicGraph) -> Prediction:
            return predict(model, graph, training=training)

    if not training:
        return Phase(name, model, evaluate, None)
    return Phase(name, model, evaluate, lambda prediction, batch: loss(config.train_loss, prediction, batch))


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what torch.compile says of code that it cannot compile into a sentence."""
    try:
        yield
    except torch._dynamo.exc.TorchDynamoException as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise FlashCartError(
            f"profile_compile_predict: torch.compile of torch {torch.__version__} failed ({reason}); use false."
        ) from error


def _compiled(config: ProfileConfig, training: bool) -> Predict:
    """Return predictions through torch.compile, which sees one function that differentiates inside.

    Batches are not padded: the same ones return in every run, and each shape is compiled once, in the first run.
    """
    trace = getattr(torch._dynamo, "nonstrict_trace", None)
    if trace is None:
        raise UserError(f"profile_compile_predict: torch {torch.__version__} cannot do this; use torch 2.10 or newer.")
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 2 * config.profile_n_batches)

    def tensors(model: FlashCart, n_structures: int, *graph: Tensor) -> tuple[Tensor, ...]:
        vectors, senders, receivers, species, batch, volumes = graph
        whole = AtomicGraph(vectors, senders, receivers, species, batch, n_structures, volumes)
        found = predict(model, whole, training=training)
        return (
            found.energy,
            found.site_energies,
            found.forces,
            found.strain_derivatives,
            found.stress,
            found.edge_gradients,
        )

    inner = trace(tensors)
    compiled = torch.compile(
        lambda *arguments: inner(*arguments),
        mode=config.profile_compile_mode,
        fullgraph=config.profile_compile_fullgraph,
        dynamic=False,
    )

    def evaluate(model: FlashCart, graph: AtomicGraph) -> Prediction:
        torch.compiler.cudagraph_mark_step_begin()
        parts = (graph.edge_vectors, graph.senders, graph.receivers, graph.species, graph.batch, graph.volumes)
        with _refusals():
            return Prediction(*compiled(model, graph.n_structures, *parts), graph)

    return evaluate
