"""FLASHCART_DETERMINISTIC counts wherever a model is evaluated, sums over edges and atoms included."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from flashcart import potential
from flashcart.data.graph import atoms_to_graph
from flashcart.environment import Environment, read_environment
from flashcart.model import FlashCart, ModelConfig

CONFIG = ModelConfig(("H", "O"), 3.0, n_hidden_feats=2, l_max_hidden_feats=0, l_max_edge_attrs=1, correlation=1)


def switches_in(monkeypatch: pytest.MonkeyPatch, model: FlashCart) -> list[bool]:
    """Torch's switch while the model and while the forces are evaluated."""
    from ase.build import molecule

    seen = []

    def noting(function):
        def noted(*arguments, **keywords):
            seen.append(torch.are_deterministic_algorithms_enabled())
            return function(*arguments, **keywords)

        return noted

    for name in ("site_energies_and_gradients", "edge_forces"):
        monkeypatch.setattr(potential, name, noting(getattr(potential, name)))
    potential.predict(model, atoms_to_graph(molecule("H2O"), model.config.elements, 3.0))
    return seen


@pytest.mark.parametrize(("key", "variable"), [(False, False), (True, False), (False, True)])
def test_key_and_variable_switch_all_of_an_evaluation(key: bool, variable: bool, monkeypatch: pytest.MonkeyPatch):
    values: Environment = replace(read_environment(), deterministic=variable)
    monkeypatch.setattr(potential, "read_environment", lambda: values)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    found = switches_in(monkeypatch, FlashCart(replace(CONFIG, deterministic=key)))
    assert found == [key or variable] * 2
    assert not torch.are_deterministic_algorithms_enabled()
    assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) == (key or variable)
