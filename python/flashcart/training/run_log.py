"""train.log: what the package logs during a run, errors included.

Takes a path, adds a handler to the package's logger for a while. Printing on the terminal is the command's concern.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flashcart.errors import FlashCartError

logger = logging.getLogger("flashcart")
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append to `path` what is logged inside, and the error that leaves the block; raise OSError if that fails."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.setLevel(logging.INFO)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level, logging.INFO) if level else logging.INFO)
    try:
        yield
    except FlashCartError as error:
        logger.error(str(error))
        raise
    except Exception:
        logger.error(traceback.format_exc())
        raise
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()
