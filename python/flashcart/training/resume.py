"""Saving a run and continuing it.

Takes a `Run` and its position, writes its state; or finds a state in the run's folder and restores it, which is refused
where the state belongs to another run. Nothing is written before that check.
"""

from __future__ import annotations

from typing import Any

import yaml

from flashcart import __version__
from flashcart.errors import UserError
from flashcart.training.checkpoint import (
    State,
    differences,
    load_state,
    random_states,
    restore_random_states,
    save_state,
    with_prefix,
    without_prefix,
)
from flashcart.training.progress import Progress
from flashcart.training.run_log import logger
from flashcart.training.setup import Run


def save_run(run: Run, progress: Progress) -> None:
    """Write the state of the run into its folder."""
    tensors = {
        **with_prefix("model", run.model.state_dict()),
        **with_prefix("optimizer", dict(run.optimizers.tensors())),
        **with_prefix("random", random_states()),
    }
    if run.average is not None:
        tensors |= with_prefix("average", run.average.state_dict())
    document = {
        "package_version": __version__,
        "progress": progress.document(),
        "identity": run.identity,
        "config": _plain(run),
    }
    save_state(run.folder, State(tensors, document))


def resume_run(run: Run) -> Progress | None:
    """Restore the state that stands in the run's folder and return its position; None where there is none.

    Raises UserError, naming what changed, where the state is that of another model, other offsets or other data.
    """
    state = load_state(run.folder)
    if state is None:
        return None
    changed = differences(state.document["identity"], run.identity)
    if changed:
        raise UserError(
            f"{run.folder} holds a run that this one cannot continue: {'; '.join(changed)}. Nothing was changed there; "
            f"choose another output_path."
        )
    _restore(run, state)
    progress = Progress.from_document(state.document["progress"])
    logger.info(f"continuing the run in {run.folder} after epoch {progress.epoch}, step {progress.step}.")
    for line in differences(state.document["config"], _plain(run)):
        logger.info(f"another setting than before: {line}.")
    return progress


def _restore(run: Run, state: State) -> None:
    """Put the tensors of a state in place; raise UserError where parameters have other names or shapes."""
    try:
        run.model.load_state_dict(without_prefix("model", state.tensors))
        if run.average is not None:
            run.average.load_state_dict(without_prefix("average", state.tensors))
    except RuntimeError as error:
        raise UserError(
            f"the state in {run.folder} was written by FlashCart {state.document['package_version']} and does not fit "
            f"the model of this version, {__version__}; choose another output_path."
        ) from error
    run.optimizers.load_tensors(without_prefix("optimizer", state.tensors))
    restore_random_states(without_prefix("random", state.tensors))


def _plain(run: Run) -> dict[str, Any]:
    """Return the configuration as JSON holds it."""
    plain: dict[str, Any] = yaml.safe_load(run.config.to_yaml())
    return plain
