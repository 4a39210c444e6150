"""Optimizers and the moving average."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from flashcart.config import Config
from flashcart.training.optimizer import build_average, build_optimizers


class TwoKinds(torch.nn.Module):
    """One matrix for Muon, one vector for AdamW."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.matrix = torch.nn.Parameter(torch.randn(8, 4, generator=generator))
        self.vector = torch.nn.Parameter(torch.randn(3, generator=generator))

    def muon_parameters(self) -> list[torch.nn.Parameter]:
        return [self.matrix]

    def other_parameters(self) -> list[torch.nn.Parameter]:
        return [self.vector]


def step(model: TwoKinds, optimizers) -> None:
    optimizers.zero_grad()
    (model.matrix.sin().sum() + model.vector.square().sum()).backward()
    optimizers.step()


def test_muon_takes_matrices_and_adamw_the_rest(configure: Callable[..., Config]):
    members = build_optimizers(TwoKinds(), configure()).members
    assert [type(member).__name__ for member in members] == ["Muon", "AdamW"]
    assert [member.param_groups[0]["params"][0].ndim for member in members] == [2, 1]


def test_adamw_takes_everything(configure: Callable[..., Config]):
    (member,) = build_optimizers(TwoKinds(), configure("optimizer=adamw")).members
    assert len(member.param_groups[0]["params"]) == 2


@pytest.mark.parametrize("scale", [0.2, 0.5])
def test_rms_of_a_muon_update_is_lr_times_scale(configure: Callable[..., Config], scale):
    model = TwoKinds()
    before = model.matrix.detach().clone()
    step(model, build_optimizers(model, configure("lr=0.1", "weight_decay=0", f"muon_ns_rms_scale={scale}")))
    rms = float((model.matrix.detach() - before).square().mean().sqrt())
    # Newton-Schulz brings singular values to between 0.7 and 1.2, not to 1.
    assert rms == pytest.approx(0.1 * scale, rel=0.35)


def test_muon_scale_leaves_weight_decay_alone(configure: Callable[..., Config]):
    muon = build_optimizers(TwoKinds(), configure("weight_decay=0.3", "lr=0.1", "muon_ns_rms_scale=0.5")).members[0]
    group = muon.param_groups[0]
    assert group["lr"] * group["weight_decay"] == pytest.approx(0.1 * 0.3, rel=1e-12)


def test_learning_rate_factor_applies_to_all(configure: Callable[..., Config]):
    optimizers = build_optimizers(TwoKinds(), configure("lr=0.1"))
    optimizers.set_learning_rate_factor(0.5)
    assert [member.param_groups[0]["lr"] for member in optimizers.members] == [0.05, 0.05]
    assert optimizers.learning_rate == 0.05


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_restored_state_gives_the_same_steps(configure: Callable[..., Config], optimizer):
    config = configure(f"optimizer={optimizer}")
    first, second = TwoKinds(), TwoKinds()
    optimizers = build_optimizers(first, config)
    step(first, optimizers)
    second.load_state_dict(first.state_dict())
    restored = build_optimizers(second, config)
    restored.load_tensors({name: tensor.clone() for name, tensor in optimizers.tensors()})
    step(first, optimizers)
    step(second, restored)
    assert torch.equal(first.matrix, second.matrix)
    assert torch.equal(first.vector, second.vector)


def test_average_follows_the_parameters():
    model = TwoKinds()
    average = build_average(model, 0.75)
    average.update_parameters(model)  # the first one is a copy
    before = model.vector.detach().clone()
    with torch.no_grad():
        model.vector += 1.0
    average.update_parameters(model)
    assert torch.allclose(average.module.vector, before + 0.25)


def test_no_average_where_the_decay_is_unset():
    assert build_average(TwoKinds(), None) is None
