"""flashcart-train: train a model, or continue a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flashcart.cli.arguments import DONE, FAILED, Command, run_command
from flashcart.config import Config

COMMAND = Command(
    "flashcart-train",
    "Train a model on extended XYZ data. A run in output_path is continued; SIGTERM and Ctrl-C save it and end.",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    return run_command(COMMAND, argv, _train)


def _train(config: Config) -> int:
    from flashcart.training.loop import train

    return FAILED if train(config).complete is None else DONE


if __name__ == "__main__":
    sys.exit(main())
