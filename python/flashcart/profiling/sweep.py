"""The same batches under several settings: one process each, one table.

Takes a configuration with profile_sweep, returns the document of the sweep. Names in capitals are variables,
others are keys; a list of values stands for each of them in turn, several lists for all combinations. Every setting is
checked before the first one runs.
"""

from __future__ import annotations

import difflib
import itertools
import json
import logging
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flashcart.config import load_keys
from flashcart.config_kinds import to_word
from flashcart.config_profile import ProfileConfig
from flashcart.device import resolve_device
from flashcart.environment import describe_variables, parse_environment
from flashcart.errors import ConfigError, FlashCartError, UserError
from flashcart.profiling.report import FORMAT, check_writable, log_results, table, write_json

_logger = logging.getLogger("flashcart")
_FIXED = ("profile_sweep", "profile_json", "profile_trace_dir")


@dataclass(frozen=True)
class Setting:
    """One row of the sweep: environment variables, overrides of keys, and both as text."""

    variables: dict[str, str]
    overrides: tuple[str, ...]
    text: str


def run_sweep(config: ProfileConfig, command: Sequence[str]) -> dict[str, Any]:
    """Profile every setting; return settings and documents in order.

    command: what starts flashcart-profile in another process. Raises UserError before anything runs for a setting that
    is not allowed, FlashCartError after all have run where one failed.
    """
    check_writable(config)
    settings = expand(config)
    for setting in settings:
        _check(setting, config)
    rows, failed = [], []
    with tempfile.TemporaryDirectory(prefix="flashcart-sweep-") as name:
        for number, setting in enumerate(settings):
            _logger.info(f"sweep, {number + 1} of {len(settings)}: {setting.text}")
            try:
                rows.append(_row(setting, _run(setting, config, Path(name), command)))
            except FlashCartError as error:
                _logger.warning(f"{setting.text}: {error}")
                rows.append(_row(setting, None) | {"error": str(error)})
                failed.append(setting.text)
            write_json(config.profile_json, {"format": FORMAT, "sweep": rows})  # an interrupted sweep keeps its rows
    document = {"format": FORMAT, "sweep": rows}
    _logger.info(f"\n{sweep_table(document)}")
    for phase in _changed_batches(document):
        _logger.warning(f"the batches of {phase} differ between settings: compare atoms/s, not times.")
    log_results(config.profile_json)
    if failed:
        raise FlashCartError(f"{len(failed)} of {len(settings)} settings failed: {'; '.join(failed)}.")
    return document


def expand(config: ProfileConfig) -> list[Setting]:
    """Return every combination of the values that profile_sweep lists, without repetition, in order."""
    settings: dict[str, Setting] = {}
    for mapping in config.profile_sweep or ():
        choices = [values if isinstance(values, list) else [values] for values in mapping.values()]
        for values in itertools.product(*choices):
            setting = _setting(dict(zip(mapping, values, strict=True)))
            settings[setting.text] = setting
    return list(settings.values())


def _setting(values: dict[str, Any]) -> Setting:
    variables = {name: _word(value) for name, value in values.items() if name.isupper()}
    overrides = tuple(f"{name}={_word(value)}" for name, value in values.items() if not name.isupper())
    words = [f"{name}={value}" for name, value in variables.items()]
    return Setting(variables, overrides, " ".join([*words, *overrides]) or "as configured")


def _word(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else to_word(value)


def _check(setting: Setting, config: ProfileConfig) -> None:
    """Raise UserError for what is not allowed: an unknown name, a value, a device that is not there."""
    known = [name for name, _, _ in describe_variables()]
    for name in setting.variables:
        if name.startswith("FLASHCART_") and name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {nearest[0]}?" if nearest else "."
            raise ConfigError(f"profile_sweep: {name} is no variable of FlashCart{hint}")
    for override in setting.overrides:
        if override.partition("=")[0] in _FIXED:
            raise ConfigError(f"profile_sweep: {override.partition('=')[0]} cannot be swept.")
    try:
        parse_environment({**os.environ, **setting.variables})
        changed = load_keys(ProfileConfig, None, setting.overrides)
    except UserError as error:
        raise ConfigError(f"profile_sweep: {error}") from None
    resolve_device(changed.device if any(text.startswith("device=") for text in setting.overrides) else config.device)


def _run(setting: Setting, config: ProfileConfig, folder: Path, command: Sequence[str]) -> dict[str, Any]:
    """Profile one setting in another process; return its document."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    inner = replace(config, profile_sweep=None, profile_json=result, profile_trace_dir=None)
    (folder / "sweep.yaml").write_text(inner.to_yaml(), encoding="utf-8")
    words = [*command, str(folder / "sweep.yaml"), *setting.overrides]
    done = subprocess.run(words, env={**os.environ, **setting.variables}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise FlashCartError(last[-1].removeprefix("flashcart-profile: "))
    document: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return document


def _row(setting: Setting, result: dict[str, Any] | None) -> dict[str, Any]:
    keys = dict(override.split("=", 1) for override in setting.overrides)
    return {"setting": setting.text, "variables": setting.variables, "keys": keys, "result": result}


def sweep_table(document: dict[str, Any]) -> str:
    """Return one line per setting and phase; ratios are to the first setting that ran, larger is slower."""
    first: dict[str, float] = {}
    cells = []
    for row in document["sweep"]:
        if row["result"] is None:
            cells.append([row["setting"], *["failed", *["-"] * 6]])
            continue
        for phase, found in row["result"]["phases"].items():
            timer, peak = found["timer"], found["peak_memory"]
            first.setdefault(phase, timer["median"])
            cells.append(
                [
                    row["setting"],
                    phase,
                    f"{timer['median']:.4g}",
                    f"{timer['spread']:.2g}",
                    f"{timer['median'] / first[phase]:.3f}",
                    f"{found['atoms_per_second']:.4g}",
                    f"{found['first_use']['seconds']:.3g}",
                    "-" if peak is None else f"{peak / 2**20:.0f}",
                ]
            )
    head = ["setting", "phase", "s/run", "spread", "ratio", "atoms/s", "first use s", "peak MiB"]
    cells.sort(key=lambda line: line[1])  # stable: settings stay in their order within a phase
    return table(head, cells)


def _changed_batches(document: dict[str, Any]) -> list[str]:
    """Return the phases in which two settings ran different batches."""
    seen: dict[str, Any] = {}
    changed = []
    for row in document["sweep"]:
        for phase, found in (row["result"] or {"phases": {}})["phases"].items():
            batches = [found["path"], found["batches"]]
            if seen.setdefault(phase, batches) != batches and phase not in changed:
                changed.append(phase)
    return changed
