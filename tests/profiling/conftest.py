"""A model that profiles in a second, and one whole run of the command that many tests look at."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flashcart.cli import profile as cli_profile
from flashcart.config import load_keys
from flashcart.config_profile import ProfileConfig

TINY_MODEL = (
    *("r_max=3.0", "n_hidden_feats=4", "l_max_hidden_feats=1", "l_max_edge_attrs=1", "correlation=2"),
    *("n_radial=4", "hidden_radial=[8]", "hidden_readout=[8]", "device=cpu"),
)


@dataclass(frozen=True)
class ProfileRun:
    """What one run of the command left: its JSON document, its output, the folder of its traces."""

    document: dict[str, Any]
    output: str
    traces: Path


@pytest.fixture(scope="session")
def structures(example_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six frames of the example data: water, 96 atoms each."""
    lines = (example_data / "water_valid.extxyz").read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path_factory.mktemp("structures") / "water.extxyz"
    path.write_text("".join(lines[: 6 * 98]), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def other_structures(structures: Path) -> Path:
    """The same in another file."""
    path = structures.with_name("other.extxyz")
    path.write_text(structures.read_text(encoding="utf-8"), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def configure(structures: Path) -> Callable[..., ProfileConfig]:
    """Return a function that gives the tiny model's configuration with overrides."""

    def make(*overrides: str) -> ProfileConfig:
        keys = [f"train_path={structures}", *TINY_MODEL, "profile_batch_size=2", *overrides]
        return load_keys(ProfileConfig, None, keys)

    return make


@pytest.fixture(scope="session")
def profile_run(structures: Path, tmp_path_factory: pytest.TempPathFactory) -> ProfileRun:
    """Both phases, two batches of inference, five timed runs."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("profile")
    keys = [
        *(f"train_path={structures}", *TINY_MODEL),
        *("profile_batch_size=3", "profile_train_batch_size=2", "profile_n_batches=2", "profile_repeat=5"),
        *(f"profile_trace_dir={folder / 'traces'}", f"profile_json={folder / 'profile.json'}"),
        *("profile_launch_plan=true", "profile_memory=true", "profile_row_limit=7"),
    ]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert cli_profile.main(keys) == 0
    document = json.loads((folder / "profile.json").read_text(encoding="utf-8"))
    return ProfileRun(document, output.getvalue(), folder / "traces")
