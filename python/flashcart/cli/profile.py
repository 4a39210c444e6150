"""flashcart-profile: where the time of inference and training goes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from flashcart.cli.arguments import DONE, Command, run_command
from flashcart.config_profile import ProfileConfig
from flashcart.errors import FlashCartError

COMMAND = Command(
    "flashcart-profile",
    "Time inference and training of a model, new (from the configuration) or deployed (profile_checkpoint), and find "
    "its expensive operations.",
    ProfileConfig,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    with _terminated_like_interrupted():
        return run_command(COMMAND, argv, _profile)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: end with a sentence, and leave no process or folder behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _profile(config: ProfileConfig) -> int:
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler announces its start and stop otherwise
    if config.profile_sweep is not None:
        from flashcart.profiling.sweep import run_sweep

        run_sweep(config, [sys.executable, "-m", "flashcart.cli.profile"])
        return DONE
    from flashcart.profiling.run import compiled_while_timed, run_profile
    from flashcart.training.loss import weighted_loss

    late = compiled_while_timed(run_profile(config, weighted_loss))
    if late:
        raise FlashCartError(
            f"timed runs of {' and '.join(late)} contain compilations, so they are not those of steady state; "
            "raise profile_warmup."
        )
    return DONE


if __name__ == "__main__":
    sys.exit(main())
