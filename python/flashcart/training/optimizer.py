"""Optimizers and the moving average of the parameters.

Takes a model and the optimizer keys of the configuration, returns torch's own optimizers with one learning-rate knob.
Knows nothing of losses, epochs or files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

if TYPE_CHECKING:
    from flashcart.config_keys import Config
    from flashcart.model import FlashCart

# The RMS that torch's Muon gives an update per unit of learning rate with adjust_lr_fn="match_rms_adamw".
_TORCH_MUON_RMS = 0.2


@dataclass(frozen=True)
class Optimizers:
    """One or two torch optimizers that step together; every parameter belongs to exactly one."""

    members: tuple[torch.optim.Optimizer, ...]

    def set_learning_rate_factor(self, factor: float) -> None:
        """Set the learning rate of every group to `factor` times its configured value."""
        for optimizer in self.members:
            for group in optimizer.param_groups:
                group["lr"] = factor * group["initial_lr"]

    @property
    def learning_rate(self) -> float:
        """Return the learning rate of the last step, as AdamW sees it."""
        return float(self.members[-1].param_groups[0]["lr"])

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for optimizer in self.members:
            optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Apply the gradients."""
        for optimizer in self.members:
            optimizer.step()

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (name, tensor) of the whole state: momenta, second moments, step counts."""
        for i, optimizer in enumerate(self.members):
            for parameter, state in optimizer.state_dict()["state"].items():
                for name, tensor in state.items():
                    yield f"{i}.{parameter}.{name}", tensor

    def load_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the state that `tensors()` gave; learning rates are those of this configuration."""
        for i, optimizer in enumerate(self.members):
            state: dict[int, dict[str, torch.Tensor]] = {}
            for key, tensor in tensors.items():
                member, parameter, name = key.split(".", 2)
                if int(member) == i:
                    state.setdefault(int(parameter), {})[name] = tensor
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def build_optimizers(model: FlashCart, config: Config) -> Optimizers:
    """Return Muon for the model's matrices with AdamW for the rest, or AdamW for everything."""
    matrices = model.muon_parameters() if config.optimizer == "muon" else []
    others = model.other_parameters() if config.optimizer == "muon" else list(model.parameters())
    members: list[torch.optim.Optimizer] = []
    if matrices:
        members.append(_muon(matrices, config))
    if others:
        members.append(torch.optim.AdamW(others, lr=config.lr, weight_decay=config.weight_decay))
    for optimizer in members:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return Optimizers(tuple(members))


def _muon(parameters: list[torch.nn.Parameter], config: Config) -> torch.optim.Optimizer:
    """Return torch's Muon, scaled so that an update has the RMS lr x muon_ns_rms_scale.

    torch fixes that scale at 0.2: the learning rate makes up for another one, and the weight decay, which torch
    multiplies by the learning rate, is divided by the same factor.
    """
    scale = config.muon_ns_rms_scale / _TORCH_MUON_RMS
    return torch.optim.Muon(
        parameters,
        lr=config.lr * scale,
        weight_decay=config.weight_decay / scale,
        ns_steps=config.muon_ns_steps,
        adjust_lr_fn="match_rms_adamw",
    )


def build_average(model: FlashCart, decay: float | None) -> AveragedModel | None:
    """Return the exponential moving average of the model's parameters, or None where `decay` is None."""
    if decay is None:
        return None
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
