"""Peak memory: what the allocator of a GPU handed out, or what a process on a CPU held."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import torch

GPU_MEMORY, PROCESS_MEMORY = "allocated on the GPU", "held by the process"


def kind(device: torch.device) -> str:
    """Say what `peak` measures on a device."""
    return GPU_MEMORY if device.type == "cuda" else PROCESS_MEMORY


def reset_peak(device: torch.device) -> None:
    """Start a new measurement."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak is what is held now


def peak(device: torch.device) -> int | None:
    """Return the peak since `reset_peak` in bytes; on a CPU of the whole process, None where Linux does not say."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), flags=re.M)
    except OSError:
        return None
    return None if found is None else 1024 * int(found[1])
