"""The settings that decide about speed, as they are in this process.

Takes a subject, returns a mapping for the JSON file and for the log.
"""

from __future__ import annotations

import os
import platform
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch

import flashcart
from flashcart.environment import Environment, read_environment
from flashcart.model import backend_for
from flashcart.profiling.subject import Subject

if TYPE_CHECKING:
    from flashcart.config_profile import ProfileConfig

_PACKAGES = ("torch", "triton", "numpy", "ase", "vesin")
_FOREIGN = ("OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG")


def collect(subject: Subject, config: ProfileConfig) -> dict[str, Any]:
    """Return versions, device, numerics, back end and environment variables."""
    backend, reason = _backend(subject)
    mode = f"{config.profile_compile_mode}, fullgraph {str(config.profile_compile_fullgraph).lower()}"
    return {
        "versions": _versions(),
        "device": str(subject.device),
        "device_name": _device_name(subject.device),
        "threads": torch.get_num_threads(),
        "dtype": str(subject.dtype).removeprefix("torch."),
        "tf32": subject.model.config.tf32,
        "deterministic": subject.deterministic,
        "backend": backend,
        "backend_reason": reason,
        "compile": mode if config.profile_compile_predict else "off",
        "variables": variables(),
        "other_variables": {name: os.environ[name] for name in _FOREIGN if name in os.environ},
    }


def variables() -> dict[str, str]:
    """Return the value in use of every FLASHCART_* variable; `chosen` where it is decided case by case."""
    values = read_environment()
    texts = {}
    for entry in fields(Environment):
        value = getattr(values, entry.name)
        word = "chosen" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        texts[entry.metadata["variable"]] = word
    return texts


def _versions() -> dict[str, str]:
    found = {"flashcart": flashcart.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found | {"cuda": torch.version.cuda or "none"}


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _backend(subject: Subject) -> tuple[str, str]:
    wanted, device = subject.model.config.use_triton, subject.device.type
    backend = backend_for(wanted, device)
    if not wanted:
        return backend, "use_triton is false"
    return backend, "use_triton is true" if backend == "triton" else f"Triton kernels need CUDA inputs, not {device}"
