"""SIGTERM and Ctrl-C as a request to stop at the next safe point.

Takes nothing, returns an object to ask. Saves nothing itself.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Says which signal has asked to stop, if any."""

    signal_name: str | None = None

    def __bool__(self) -> bool:
        """Say whether a signal has come."""
        return self.signal_name is not None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn the first SIGTERM or Ctrl-C into a request; a second one has its usual effect at once.

    Outside the main thread, where Python delivers no signals, nothing is changed.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.getsignal(number) for number in _STOPPING}

    def handle(number: int, frame: FrameType | None) -> None:
        request.signal_name = signal.Signals(number).name
        for each, handler in previous.items():
            signal.signal(each, handler)

    for number in _STOPPING:
        signal.signal(number, handle)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
