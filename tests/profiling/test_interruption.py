"""What is left of flashcart-profile when a batch system ends it: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import TINY_MODEL

COMMAND = [sys.executable, "-m", "flashcart.cli.profile"]


@pytest.mark.parametrize("extra", [(), ("profile_sweep=[{profile_dtype: [float32, float64]}]",)], ids=["run", "sweep"])
def test_sigterm_ends_it_like_an_interrupt(extra, structures: Path, tmp_path: Path):
    """Sent in the midst of many repetitions: one sentence, no process and no folder left behind."""
    keys = [f"train_path={structures}", *TINY_MODEL, "profile_batch_size=2", "profile_repeat=1000000", *extra]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*COMMAND, *keys], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    last = "sweep, 1 of 2" if extra else "roofline of this device"
    for line in process.stdout:
        if line.startswith(last):
            break
    if extra:
        started = wait_for(lambda: children_of(process.pid))
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error == "flashcart-profile: interrupted.\n"
    assert list(tmp_path.iterdir()) == []
    if extra:
        assert started
        assert not any(Path(f"/proc/{pid}").exists() for pid in started)


def children_of(pid: int) -> list[int]:
    """Process numbers, of Linux only."""
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in tasks.read_text().split()] if tasks.exists() else []


def wait_for(found: Callable[[], list[int]]) -> list[int]:
    """Ask again until there is something, for ten seconds at most."""
    end = time.monotonic() + 10
    while not found() and time.monotonic() < end:
        time.sleep(0.05)
    return found()
