"""One parser for device names, used by every command, the ASE calculator and the LAMMPS plugin.

Takes a name, returns a torch device that exists on this machine. torch is imported on use, not with the module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flashcart.errors import DeviceError

if TYPE_CHECKING:
    import torch

ALLOWED_DEVICES = "auto, cpu, gpu, cuda or cuda:N"
_DEVICE_NAME = re.compile(r"auto|cpu|gpu|cuda(:\d+)?")


def is_device_name(text: object) -> bool:
    """Say whether `text` has the form of a device name; whether the device exists is not looked at."""
    return isinstance(text, str) and _DEVICE_NAME.fullmatch(text) is not None


def resolve_device(text: str) -> torch.device:
    """Return the device that `text` names: auto (a GPU if there is one), cpu, gpu, cuda or cuda:N.

    gpu and cuda mean the process's current CUDA device. Raises DeviceError for another name, and where there is no
    such device.
    """
    if not is_device_name(text):
        raise DeviceError(f"device: {text!r} is not a device; allowed: {ALLOWED_DEVICES}.")
    import torch

    if text == "cpu" or (text == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError(f"device: {text} was asked for, but torch {torch.__version__} finds no GPU here; use cpu.")
    index = int(text.partition(":")[2]) if ":" in text else torch.cuda.current_device()
    if index >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise DeviceError(f"device: {text} was asked for, but the GPUs of this machine are cuda:0 to cuda:{last}.")
    return torch.device("cuda", index)
