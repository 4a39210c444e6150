"""Every FLASHCART_* environment variable, read and checked in one place.

Takes the environment of the process, returns a frozen `Environment`. Imports nothing heavy. Values are read once: one
that is set later takes effect in a new process only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from flashcart.errors import EnvironmentVariableError

_TRUE_WORDS = ("1", "true", "yes", "t")

# Read by the plugin in C++ before Python starts; here only so that the documentation lists them.
PLUGIN_VARIABLES = {
    "FLASHCART_PYTHON": "Python interpreter whose environment the LAMMPS plugin uses",
    "FLASHCART_LIBPYTHON": "Python library that the LAMMPS plugin loads",
}


def _variable(name: str, default: Any, meaning: str, **limits: Any) -> Any:
    """Declare one variable; `limits`: minimum, maximum (integers), choices (words), unset (text of a default)."""
    return field(default=default, metadata={"variable": name, "meaning": meaning, **limits})


@dataclass(frozen=True)
class Environment:
    """Values of the FLASHCART_* variables; None where the default is chosen case by case."""

    kernel_l_max: int = _variable(
        "FLASHCART_KERNEL_L_MAX", 3, "highest tensor rank of generated Triton modules", minimum=0
    )
    cache_dir: Path = _variable(  # noqa: RUF009 (a Path is immutable)
        "FLASHCART_CACHE_DIR",
        Path("~/.cache/flashcart"),
        "folder of generated sources and tuning records",
        unset="$XDG_CACHE_HOME/flashcart, else ~/.cache/flashcart",
    )
    tp_scatter_kernel: str = _variable(
        "FLASHCART_TP_SCATTER_KERNEL",
        "csr",
        "csr: edges grouped by receiver; edge: edges apart, atomic additions",
        choices=("csr", "edge"),
    )
    tp_csr_group_budget: int = _variable(
        "FLASHCART_TP_CSR_GROUP_BUDGET", 100, "output components that one forward launch may hold", minimum=1
    )
    tp_bwd_group_budget: int = _variable(
        "FLASHCART_TP_BWD_GROUP_BUDGET", 100, "the same for the first derivative", minimum=1
    )
    tp_dbwd_group_budget: int = _variable(
        "FLASHCART_TP_DBWD_GROUP_BUDGET",
        50,
        "the same for fused second-derivative launches",
        minimum=1,
        unset="half the smaller of the two others, rounded down",
    )
    tp_bwd_csr_min_deg: int = _variable(
        "FLASHCART_TP_BWD_CSR_MIN_DEG",
        64,
        "average incoming edges per receiver from which the csr backward is split into groups of edges",
        minimum=0,
    )
    tp_bwd_csr_slots: int | None = _variable(
        "FLASHCART_TP_BWD_CSR_SLOTS",
        None,
        "number of those groups; 1: one group per receiver",
        minimum=1,
        maximum=1024,
        unset="chosen from the average degree",
    )
    tp_bwd_split: str | None = _variable(
        "FLASHCART_TP_BWD_SPLIT",
        None,
        "full: groups of first-derivative outputs get their own launches",
        choices=("fused", "full"),
        unset="chosen from rank and variant",
    )
    tp_dbwd_split: str | None = _variable(
        "FLASHCART_TP_DBWD_SPLIT",
        None,
        "full: groups of second-derivative outputs get their own launches",
        choices=("fused", "full"),
        unset="chosen from rank and variant",
    )
    tp_peak_aware_groups: bool = _variable(
        "FLASHCART_TP_PEAK_AWARE_GROUPS", True, "budgets may grow to the largest active tensor rank"
    )
    tp_split_input_rank: bool = _variable(
        "FLASHCART_TP_SPLIT_INPUT_RANK", True, "within a group, one launch per input rank"
    )
    deterministic: bool = _variable(
        "FLASHCART_DETERMINISTIC", False, "no atomic additions, so that runs are bitwise reproducible"
    )


@lru_cache(maxsize=1)
def read_environment() -> Environment:
    """Return the checked variables of this process, read at the first call.

    Raises EnvironmentVariableError naming variable, value and what is allowed.
    """
    return parse_environment(os.environ)


def parse_environment(variables: Mapping[str, str]) -> Environment:
    """Return the checked values of `variables`, with defaults for those that are unset."""
    values: dict[str, Any] = {}
    for entry in fields(Environment):
        text = variables.get(entry.metadata["variable"])
        if text is not None:
            values[entry.name] = _parse(text, entry.metadata, entry.default)
    values.setdefault("cache_dir", _default_cache_dir(variables))
    budgets = [values.get(name, 100) for name in ("tp_csr_group_budget", "tp_bwd_group_budget")]
    values.setdefault("tp_dbwd_group_budget", max(1, min(budgets) // 2))
    return Environment(**values)


def describe_variables() -> list[tuple[str, str, str]]:
    """Return (variable, default, meaning) of every variable, for the documentation."""
    rows = []
    for entry in fields(Environment):
        default = entry.metadata.get("unset", str(entry.default).lower())
        rows.append((entry.metadata["variable"], default, entry.metadata["meaning"]))
    return rows + [(name, "unset", meaning) for name, meaning in PLUGIN_VARIABLES.items()]


def set_allocator_default() -> str | None:
    """Let torch's CUDA allocator use expandable segments, unless the user has configured it.

    Call before torch's first use of CUDA. Returns a sentence for the log where nothing was changed because this
    process has used CUDA already, else None.
    """
    if "PYTORCH_CUDA_ALLOC_CONF" in os.environ or "PYTORCH_ALLOC_CONF" in os.environ:
        return None
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA was in use before FlashCart started, so its memory allocator keeps its settings."
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return None


def set_cublas_default() -> None:
    """Let cuBLAS use one workspace of a fixed size, unless the user has configured it: else sums may vary."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def _parse(text: str, metadata: Mapping[str, Any], default: Any) -> Any:
    """Convert the text of one variable: a word of `choices`, an integer, a folder or a boolean."""
    if isinstance(default, bool):
        return text.strip().lower() in _TRUE_WORDS
    if "choices" in metadata:
        if text.strip().lower() not in metadata["choices"]:
            raise _error(text, metadata, " or ".join(metadata["choices"]))
        return text.strip().lower()
    if "minimum" in metadata:
        try:
            number = int(text)
        except ValueError:
            number = metadata["minimum"] - 1
        minimum, maximum = metadata["minimum"], metadata.get("maximum")
        if number < minimum or (maximum is not None and number > maximum):
            allowed = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
            raise _error(text, metadata, f"an integer {allowed}")
        return number
    if not text.strip():
        raise _error(text, metadata, "the path of a folder")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:  # ~ of nobody
        raise _error(text, metadata, "the path of a folder") from None


def _error(text: str, metadata: Mapping[str, Any], allowed: str) -> EnvironmentVariableError:
    return EnvironmentVariableError(f"{metadata['variable']}={text!r} is not allowed; allowed: {allowed}.")


def _default_cache_dir(variables: Mapping[str, str]) -> Path:
    """Follow the XDG base directory specification: an empty or relative XDG_CACHE_HOME counts as unset."""
    base = variables.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "flashcart"
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home: as with HOME=/, which is seldom writable, see ops/kernel_cache.py
        home = Path("/")
    return home / ".cache" / "flashcart"
