"""The keys of flashcart-profile, beside those of training.

A frozen dataclass; configs/profile.yaml and `--help` are generated from it. Reads no files, imports neither torch nor
numpy.
"""

# ruff: noqa: RUF009 - key() returns a dataclass field; its defaults are immutable.

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashcart.config_keys import Config, key
from flashcart.config_kinds import Boolean, Choice, FilePath, Integer
from flashcart.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")  # of a variable, or of a key, nested ones dotted
PHASES = ("inference", "training")


@dataclass(frozen=True)
class Sweep:
    """Settings to compare: mappings of variables (in capitals) and keys to a value, or to a list of values."""

    allowed: str = (
        "a mapping, or a list of mappings, of variables (in capitals) and keys to a value or a list of values"
    )

    def convert(self, value: Any, folder: Path) -> tuple[dict[str, Any], ...]:
        """Return the mappings as written; the values are checked where they are applied."""
        settings = [value] if isinstance(value, Mapping) else value
        if not isinstance(settings, list | tuple) or not settings:
            raise ValueError
        for setting in settings:
            if not isinstance(setting, Mapping) or not all(_is_name(name) for name in setting):
                raise ValueError
            if any(isinstance(values, Mapping) or values == [] for values in setting.values()):
                raise ValueError
        return tuple(dict(setting) for setting in settings)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class ProfileConfig(Config):
    """Every key of flashcart-profile."""

    profile_phase: str = key(
        "both",
        Choice(("both", *PHASES)),
        "inference: energies and forces; training: loss and its gradient",
        "profiling",
    )
    profile_data_path: Path | None = key(None, FilePath(), "structures for inference; ~: train_path")
    profile_train_path: Path | None = key(
        None, FilePath(), "structures for training; ~: train_path, then profile_data_path"
    )
    profile_batch_size: int = key(64, Integer(1), "structures per batch of inference")
    profile_train_batch_size: int | None = key(None, Integer(1), "of training; ~: profile_batch_size")
    profile_n_batches: int = key(1, Integer(1), "batches per run, the same in all runs")
    profile_warmup: int = key(1, Integer(0), "untimed runs after the first one, which is reported apart")
    profile_repeat: int = key(1, Integer(1), "timed runs")
    profile_row_limit: int = key(40, Integer(1), "rows of the tables")
    profile_dynamic_batching: bool = key(False, Boolean(), "fill batches up to budgets, as dynamic_batching does")
    profile_pre_fit: bool = key(True, Boolean(), "first fit offsets and scales to the training structures")
    profile_memory: bool = key(False, Boolean(), "record the memory that operations allocate")
    profile_record_shapes: bool = key(False, Boolean(), "tell operations with different shapes apart")
    profile_with_stack: bool = key(False, Boolean(), "record the lines of Python that operations come from")
    profile_trace_dir: Path | None = key(None, FilePath(), "folder for Chrome traces")
    profile_compile_predict: bool = key(False, Boolean(), "torch.compile of predictions")
    profile_compile_mode: str = key(
        "reduce-overhead",
        Choice(("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")),
        "mode of torch.compile",
    )
    profile_compile_fullgraph: bool = key(True, Boolean(), "refuse graph breaks")
    profile_checkpoint: Path | None = key(None, FilePath(), "deployable file to profile; its model keys hold")
    profile_dtype: str | None = key(
        None, Choice(("float32", "float64")), "of the model; ~: that of profile_checkpoint, else float32"
    )
    profile_launch_plan: bool = key(False, Boolean(), "show the launches of the GPU kernels on a CPU, too")
    profile_json: Path | None = key(None, FilePath(), "file for all results")
    profile_sweep: tuple[dict[str, Any], ...] | None = key(
        None, Sweep(), "settings to compare, each in its own process"
    )

    @property
    def phases(self) -> tuple[str, ...]:
        """What is to be timed."""
        return PHASES if self.profile_phase == "both" else (self.profile_phase,)

    @property
    def inference_path(self) -> Path:
        """Structures for inference; raises ConfigError where there are none."""
        return _first("profile_data_path", "inference", self.profile_data_path, self.train_path)

    @property
    def training_path(self) -> Path:
        """Structures for training and for the fit; raises ConfigError where there are none."""
        return _first(
            "profile_train_path", "training", self.profile_train_path, self.train_path, self.profile_data_path
        )

    def batch_size(self, phase: str) -> int:
        """Structures per batch of a phase."""
        if phase == "training" and self.profile_train_batch_size is not None:
            return self.profile_train_batch_size
        return self.profile_batch_size


def _first(name: str, phase: str, *paths: Path | None) -> Path:
    for path in paths:
        if path is not None:
            return path
    names = f"{name} or train_path" if phase == "inference" else f"{name}, train_path or profile_data_path"
    raise ConfigError(f"{name}: no structures for {phase}; give {names}.")


def profile_yaml() -> str:
    """Return the keys of this module with their defaults and meanings, as configs/profile.yaml holds them."""
    return ProfileConfig().to_yaml(comments=True).removeprefix(Config().to_yaml(comments=True)).lstrip("\n")


if __name__ == "__main__":  # python -m flashcart.config_profile > configs/profile.yaml
    print(profile_yaml(), end="")
