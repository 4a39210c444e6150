"""Which contractions a model evaluates, phase by phase: what to compile before it is used.

A two-atom graph is run through a model of the same ranks with one channel, on the torch back end, and the keys of what
it evaluates are noted. So the list is right for every configuration, derivatives included.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from flashcart.model import FlashCart, ModelConfig
from flashcart.ops.contract import recorded_keys
from flashcart.potential import site_energies_and_gradients

PHASES = ("inference", "training")


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
            torch.autograd.backward(energies.sum() + gradients.square().sum())
    return list(dict.fromkeys(keys))
