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
from flashcart.deploy import read_metadata
from flashcart.device import resolve_device
from flashcart.environment import describe_variables, parse_environment
from flashcart.errors import ConfigError, FlashCartError, UserError
from flashcart.profiling.report import FORMAT, check_writable, log_results, rate, table, write_json
from flashcart.profiling.subject import RUN_KEYS, is_fitted

_logger = logging.getLogger("flashcart")
_FEW = 3  # runs: less show no spread
_PATIENCE = 10.0  # s that a process is given to end by itself
_FIXED = ("profile_sweep", "profile_json", "profile_trace_dir")
_UNUSED = ("devices", "n_nodes", "strategy", "precision", "checkpoint")  # and predict_compile...: not applied


@dataclass(frozen=True)
class Setting:
    """One row of the sweep: environment variables (None: not set), overrides of keys, and both as text."""

    variables: dict[str, str | None]
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
    if config.profile_repeat < _FEW:
        _logger.info(f"profile_repeat={config.profile_repeat}: too few runs to tell a difference from noise; take 5.")
    rows: list[dict[str, Any]] = []
    try:
        _run_settings(settings, config, command, rows)
    finally:  # an interrupted sweep shows the rows that it has
        document = {"format": FORMAT, "sweep": rows}
        _log(document)
    log_results(config.profile_json)
    failed = [row["setting"] for row in rows if row["result"] is None]
    if failed:
        raise FlashCartError(f"{len(failed)} of {len(settings)} settings failed: {'; '.join(failed)}.")
    return document


def _run_settings(
    settings: Sequence[Setting], config: ProfileConfig, command: Sequence[str], rows: list[dict[str, Any]]
) -> None:
    """Profile one setting after the other; add a row for each, and keep the file up to date."""
    with tempfile.TemporaryDirectory(prefix="flashcart-sweep-") as name:
        for number, setting in enumerate(settings, start=1):
            _logger.info(f"sweep, {number} of {len(settings)}: {setting.text}")
            traces = config.profile_trace_dir and config.profile_trace_dir / f"setting_{number}"
            inner = replace(
                config, profile_sweep=None, profile_json=Path(name) / "result.json", profile_trace_dir=traces
            )
            try:
                rows.append(_row(setting, _run(setting, inner, command)))
                _log_notes(rows)
            except FlashCartError as error:
                _logger.warning(f"{setting.text}: {error}")
                rows.append(_row(setting, None) | {"error": str(error)})
            write_json(config.profile_json, {"format": FORMAT, "sweep": rows})


def _log_notes(rows: Sequence[dict[str, Any]]) -> None:
    """Say what the last setting said that none before it did."""
    *before, last = [row["result"].get("notes", []) for row in rows if row["result"] is not None]
    for note in last:
        if not any(note in notes for notes in before):
            _logger.info(note)


def _log(document: dict[str, Any]) -> None:
    if not document["sweep"]:
        return
    _logger.info(f"\n{sweep_table(document)}")
    for phase in _changed_batches(document):
        _logger.warning(f"the batches of {phase} differ between settings: compare atoms/s, not times.")


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
    variables = {name: None if value is None else _word(value) for name, value in values.items() if name.isupper()}
    overrides = tuple(f"{name}={_word(value)}" for name, value in values.items() if not name.isupper())
    words = [f"{name} unset" if value is None else f"{name}={value}" for name, value in variables.items()]
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
        _check_key(override.partition("=")[0])
    try:
        parse_environment(_environment(setting))
        changed = _merged(setting, config)
    except UserError as error:
        raise ConfigError(f"profile_sweep, {setting.text}: {error}") from None
    resolve_device(changed.device)
    _check_files(setting, changed)
    _check_checkpoint(setting, changed)


def _check_key(key: str) -> None:
    """Refuse a key that sweeps cannot change, or that changes nothing."""
    if key in _FIXED:
        raise ConfigError(f"profile_sweep: {key} cannot be swept.")
    if key in _UNUSED or key.startswith("predict_compile"):
        raise ConfigError(f"profile_sweep: {key} is not applied in profiling, so it cannot be swept.")


def _check_checkpoint(setting: Setting, changed: ProfileConfig) -> None:
    """Refuse a model file that is none, and a model key that the file overrides."""
    if changed.profile_checkpoint is None:
        return
    read_metadata(changed.profile_checkpoint)
    keys = {override.partition("=")[0].partition(".")[0] for override in setting.overrides}
    for key in sorted(keys & ({*changed.model_keys(), "elements", "model_seed"} - set(RUN_KEYS))):
        raise ConfigError(f"profile_sweep: {key} is a key of the model, which profile_checkpoint brings along.")


def _merged(setting: Setting, config: ProfileConfig) -> ProfileConfig:
    """Return the configuration that the process of this setting will read."""
    with tempfile.TemporaryDirectory(prefix="flashcart-sweep-") as name:
        path = Path(name) / "sweep.yaml"
        path.write_text(replace(config, profile_sweep=None).to_yaml(), encoding="utf-8")
        return load_keys(ProfileConfig, path, setting.overrides)


def _check_files(setting: Setting, config: ProfileConfig) -> None:
    paths = [config.profile_checkpoint] if config.profile_checkpoint is not None else []
    paths += [config.training_path if phase == "training" else config.inference_path for phase in config.phases]
    paths += [config.training_path] if is_fitted(config) else []
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"profile_sweep, {setting.text}: there is no file {path}.")


def _run(setting: Setting, inner: ProfileConfig, command: Sequence[str]) -> dict[str, Any]:
    """Profile one setting in another process, which ends with this one; return its document."""
    result = inner.profile_json
    assert result is not None
    result.unlink(missing_ok=True)
    path = result.with_name("sweep.yaml")
    path.write_text(inner.to_yaml(), encoding="utf-8")
    words = [*command, str(path), *setting.overrides]
    process = subprocess.Popen(
        words, env=_environment(setting), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, errors = process.communicate()
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        last = errors.strip().splitlines() or [f"exit code {process.returncode}"]
        raise FlashCartError(last[-1].removeprefix("flashcart-profile: "))
    document: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return document


def _environment(setting: Setting) -> dict[str, str]:
    """This process's variables, changed."""
    changed = {**os.environ, **setting.variables}
    return {name: value for name, value in changed.items() if value is not None}


def _end(process: subprocess.Popen[str]) -> None:
    """Ask a process to end, and make it."""
    process.terminate()
    try:
        process.wait(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _row(setting: Setting, result: dict[str, Any] | None) -> dict[str, Any]:
    keys = dict(override.split("=", 1) for override in setting.overrides)
    return {"setting": setting.text, "variables": setting.variables, "keys": keys, "result": result}


def sweep_table(document: dict[str, Any]) -> str:
    """Return one line per setting and phase; ratios are to the first setting that ran, larger is slower."""
    first: dict[str, float] = {}
    cells, failed = [], []
    for row in document["sweep"]:
        if row["result"] is None:
            failed.append([row["setting"], *["failed", *["-"] * 6]])
            continue
        for phase, found in row["result"]["phases"].items():
            timer, peak = found["timer"], found["peak_memory"]
            first.setdefault(phase, timer["median"])
            cells.append(
                [
                    row["setting"],
                    phase,
                    f"{timer['median']:.4g}",
                    f"{timer['spread']:.2g}" if len(timer["runs"]) > 1 else "-",
                    f"{timer['median'] / first[phase]:.3f}",
                    rate(found["atoms_per_second"]),
                    f"{found['first_use']['seconds']:.3g}",
                    "-" if peak is None else f"{peak / 2**20:.0f}",
                ]
            )
    head = ["setting", "phase", "s/run", "spread", "ratio", "atoms/s", "first use s", "peak MiB"]
    cells.sort(key=lambda line: line[1])  # stable: settings stay in their order within a phase
    return table(head, cells + failed)


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
