"""Which of a few candidates is fastest on this GPU: measured once, kept in the cache folder.

A record is a file `tuning/<GPU>/<name>.json`; the name holds what the candidates are and the problem class, never an
exact size. Records stand apart from generated sources and may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable

import torch

from flashcart.ops.kernel_cache import cache_folder, read_checked, write_checked

MOST_CANDIDATES = 3
N_TIMED = 3

_chosen: dict[tuple[str, str], int] = {}
_measured: list[str] = []


def choose(name: str, gpu: str, n_candidates: int, time: Callable[[int], float]) -> int:
    """The fastest candidate: as recorded, else measured and recorded.

    Args:
        name: what is chosen between, for which class of problems: letters, digits, `-`, `_` and `/`.
        gpu: its name.
        n_candidates: at most three.
        time: seconds of a candidate; infinite where it cannot run.
    """
    if n_candidates > MOST_CANDIDATES:
        raise ValueError(f"{name}: {n_candidates} candidates, at most {MOST_CANDIDATES} are timed")
    key = (gpu, name)
    if key not in _chosen:
        path = cache_folder() / "tuning" / re.sub(r"[^\w-]+", "_", gpu) / f"{name}.json"
        recorded = _recorded(read_checked(path), n_candidates)
        if recorded is None:
            _measured.append(name)
            seconds = [time(candidate) for candidate in range(n_candidates)]
            recorded = seconds.index(min(seconds))
            text = json.dumps({"chosen": recorded, "microseconds": [round(1e6 * s, 3) for s in seconds]})
            with contextlib.suppress(OSError):  # a folder that cannot be written: the next process measures again
                write_checked(path, text + "\n")
        _chosen[key] = recorded
    return _chosen[key]


def n_measured() -> int:
    """How many choices this process has measured."""
    return len(_measured)


def _recorded(text: str | None, n_candidates: int) -> int | None:
    if text is None:
        return None
    chosen = json.loads(text).get("chosen")
    return chosen if isinstance(chosen, int) and 0 <= chosen < n_candidates else None


def seconds_on_gpu(run: Callable[[], None]) -> float:
    """Seconds of something on the current GPU, the least of a few runs; it runs once before, which may compile."""
    run()
    times = []
    for _ in range(N_TIMED):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        run()
        last.record()
        last.synchronize()
        times.append(1e-3 * first.elapsed_time(last))
    return min(times)
