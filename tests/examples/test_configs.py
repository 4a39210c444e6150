"""The configurations and the script in examples/configs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashcart.config import load_config

CONFIGS = Path(__file__).resolve().parents[2] / "examples" / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_configuration_loads_and_its_data_exist(path: Path):
    config = load_config(path)
    assert [str(name) for name in (config.train_path, config.valid_path, config.test_path) if not name.exists()] == []


def test_script_trains_then_tests(tmp_path: Path):
    """One epoch of a model of scalars on the smallest set: this is about the script."""
    small = CONFIGS.parent / "data" / "water_valid.extxyz"
    overrides = [f"{name}_path={small}" for name in ("train", "valid", "test")] + [f"output_path={tmp_path / 'run'}"]
    overrides += ["max_epochs=1", "n_hidden_feats=2", "l_max_hidden_feats=0", "l_max_edge_attrs=0", "r_max=3.0"]
    commands = Path(sys.executable).parent
    if not (commands / "flashcart-train").exists():
        pytest.skip("the commands are not installed beside this Python")
    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    script = [str(CONFIGS / "train_and_test.sh"), str(CONFIGS / "water.yaml"), *overrides]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "test_metrics.json").exists()
