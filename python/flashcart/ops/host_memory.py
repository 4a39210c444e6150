"""How the C library keeps freed memory, which decides the speed of small graphs on a CPU.

Temporaries of a few hundred kB are allocated and freed many times per evaluation. glibc gives such memory back to the
operating system at once and faults it in again, page by page, which can take longer than the arithmetic. Told to keep
what is freed, an evaluation of 15 atoms takes about three quarters of the time (benchmarks/cpu.py, --give-back).
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

# Parameters of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 256 * 2**20  # free memory at the top of the heap that stays with the process
LARGEST_HEAP_BLOCK = 32 * 2**20  # blocks up to here come from the heap; above, from the operating system


@cache
def keep_freed_memory() -> bool:
    """Let this process keep up to 256 MiB of freed memory; True where the C library takes the request."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, LARGEST_HEAP_BLOCK))
