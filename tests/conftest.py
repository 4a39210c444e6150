"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Triton decides at its import whether kernels are compiled or interpreted, and its own functions with them. The switch
# is on for the import alone: a test that wants the interpreter asks for the fixture.
os.environ["TRITON_INTERPRET"] = "1"
try:
    import triton  # noqa: F401
except ImportError:
    pass
finally:
    del os.environ["TRITON_INTERPRET"]


@pytest.fixture
def triton_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run generated Triton kernels in Triton's interpreter."""
    pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-goldens: write tests/golden anew instead of comparing with it."""
    parser.addoption("--update-goldens", action="store_true", help="write the generated files of tests/golden anew")


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of generated files of this session: the user's own cache is left alone, subprocesses share this one."""
    folder = tmp_path_factory.mktemp("cache")
    previous = os.environ.get("FLASHCART_CACHE_DIR")
    os.environ["FLASHCART_CACHE_DIR"] = str(folder)
    yield folder
    if previous is None:
        del os.environ["FLASHCART_CACHE_DIR"]
    else:
        os.environ["FLASHCART_CACHE_DIR"] = previous


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
