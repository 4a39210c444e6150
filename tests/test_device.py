"""Device names."""

from __future__ import annotations

import pytest
import torch

from flashcart.device import is_device_name, resolve_device
from flashcart.errors import DeviceError


def test_auto_is_the_cpu_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")


def test_gpu_cuda_and_auto_mean_the_current_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert {resolve_device(name) for name in ("auto", "gpu", "cuda")} == {torch.device("cuda", 1)}
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    with pytest.raises(DeviceError, match="cuda:2 was asked for, but the GPUs of this machine are cuda:0 to cuda:1"):
        resolve_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "cuda", "cuda:0"])
def test_gpu_on_a_machine_without_one_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match=f"{name} was asked for, but torch .* finds no GPU here"):
        resolve_device(name)


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:-1", "CPU", "", "gpu:0"])
def test_unknown_name_lists_what_is_allowed(name: str) -> None:
    assert not is_device_name(name)
    with pytest.raises(DeviceError, match="allowed: auto, cpu, gpu, cuda or cuda:N"):
        resolve_device(name)
