"""flashcart-test: errors of a trained model on validation and test sets."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flashcart.cli.arguments import DONE, Command, run_command
from flashcart.config import Config

COMMAND = Command(
    "flashcart-test",
    "Evaluate a model (checkpoint, else the best of output_path) on the validation set and on test_path. Prints a "
    "table; writes test_metrics.json and, for each set, errors per structure, predictions and parity plots to "
    "output_path.",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    return run_command(COMMAND, argv, _test)


def _test(config: Config) -> int:
    from flashcart.training.testing import test

    test(config)
    return DONE


if __name__ == "__main__":
    sys.exit(main())
