"""Fixtures that every folder of tests may use."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real DFT data beside the project; the test is skipped where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the DFT data sets in ../shared/data are not here")
    return folder


@pytest.fixture(scope="session")
def example_data() -> Path:
    """Folder of the project's own example data."""
    return ROOT / "examples" / "data"
