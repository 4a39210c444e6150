"""Which kernels a model uses, phase by phase, and their compilation before they are used.

A two-atom graph is run through a model of the same ranks with one channel, on the torch back end, and the keys of what
it evaluates are noted. So the list is right for every configuration, derivatives included.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from flashcart.model import FlashCart, ModelConfig, backend_for
from flashcart.ops import triton_backend, triton_linear
from flashcart.ops.compile_ahead import Task, compile_ahead, present_target
from flashcart.ops.contract import recorded_keys
from flashcart.ops.triton_backend import settings
from flashcart.potential import backward, is_deterministic, numerics, site_energies_and_gradients

PHASES = ("inference", "training")
_log = logging.getLogger(__name__)


def contractions_of_model(config: ModelConfig, phase: str) -> list[str]:
    """Keys of the contractions of a phase, in the order of their first use.

    Args:
        config: the model's keys.
        phase: `inference` (energies and their derivatives with respect to edge vectors) or `training` (also the
            derivatives of a loss on forces with respect to all parameters).
    """
    if phase not in PHASES:
        raise ValueError(f"phase={phase!r}: expected one of {', '.join(PHASES)}")
    model = FlashCart(replace(config, n_hidden_feats=1, use_triton=False))
    training = phase == "training"
    model.train(training).requires_grad_(training)
    vectors = torch.tensor([[0.5, 0.6, 0.7], [-0.5, -0.6, -0.7]]) * config.r_max / 2
    ends = torch.tensor([0, 1])
    with recorded_keys() as keys:
        energies, gradients = site_energies_and_gradients(
            model, vectors, ends, 1 - ends, torch.zeros(2, dtype=torch.int64), create_graph=training
        )
        if training:
            backward(energies.sum() + gradients.square().sum(), model)
    return list(dict.fromkeys(keys))


def prepare_kernels(model: FlashCart, phase: str, *, deterministic: bool | None = None) -> None:
    """Compile the kernels that a model on a GPU will use, then let it evaluate lone atoms with them.

    Kernels are not compiled if a note in Triton's cache says that this was done, nor for the torch back end. A model in
    evaluation mode gets the energies of its lone atoms from the device that will evaluate all others, so that the same
    rounding cancels. Does nothing for a model on a CPU. Of processes that start at once on one cache of Triton,
    the ranks of an MPI run for example, the first one compiles and the others wait for it. The note lies beside the
    compiled kernels, so it goes when they go, and says nothing of another machine's.

    Args:
        model: on its device.
        phase: see `contractions_of_model`.
        deterministic: whether evaluations will be deterministic; default as the model's key says.
    """
    chosen = is_deterministic(model) if deterministic is None else deterministic
    if backend_for(model.config.use_triton, model.embedding.device.type) == "triton":
        _compile(model, phase, chosen or torch.are_deterministic_algorithms_enabled())
    if model.embedding.device.type != "cpu" and not model.training:
        with numerics(model.config.tf32, chosen):
            model.freeze_free_atoms()


def _compile(model: FlashCart, phase: str, deterministic: bool) -> None:
    """Compile what is not noted."""
    with torch.cuda.device(model.embedding.device):
        target = present_target()
    dtype = str(model.embedding.dtype).removeprefix("torch.")
    keys = contractions_of_model(model.config, phase)
    width, tf32 = model.config.n_hidden_feats, model.config.tf32
    tasks = [Task(key, width, dtype, target, deterministic, tf32) for key in keys]
    name = repr((tasks, settings(), triton_backend.emitter_hash(), triton_linear.emitter_hash()))
    note = _triton_cache() / "flashcart" / hashlib.sha256(name.encode()).hexdigest()[:32]
    with _lock(note.with_suffix(".lock")):
        if note.exists():
            return
        start = time.perf_counter()
        workers = compile_ahead(tasks)
        seconds = time.perf_counter() - start
        if workers:
            _log.info("kernels for %s compiled by %d processes in %.0f s", phase, workers, seconds)
            with contextlib.suppress(OSError):
                note.touch()
        else:
            _log.info("kernels for %s are compiled at their first use", phase)


def _triton_cache() -> Path:
    """The folder of compiled kernels."""
    from triton import knobs

    return Path(knobs.cache.dir)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time; where there are no locks (some file systems), processes do the same work side by side."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ImportError):
            import fcntl

            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context(path.open("w")), fcntl.LOCK_EX)
        yield
