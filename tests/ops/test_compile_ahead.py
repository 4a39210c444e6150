"""Kernels compiled without a GPU, in other processes: in this one Triton interprets (see tests/conftest.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashcart.ops import compile_ahead

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("triton", reason="Triton is not installed")


def run(arguments: list[str], folder: Path, timeout: float = 280) -> str:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=timeout, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def compiled(folder: Path, *options: str, timeout: float = 280) -> dict[str, dict]:
    """The table of benchmarks/kernel_compile.py by target."""
    output = folder / "table.json"
    run(["benchmarks/kernel_compile.py", *options, "--output", str(output)], folder, timeout)
    return json.loads(output.read_text())


def test_walks_of_the_default_model_compile_for_sm_90_without_spills(tmp_path):
    table = compiled(tmp_path, "--targets", "sm_90", "--only", "1x16x4", "1x16x4x16", "9x16x17")["sm_90"]
    assert len(table["kernels"]) == 6  # forward of both layers, backward of the first in both phases
    for kernel in table["kernels"]:
        assert kernel["stack"] == 0, kernel
        assert kernel["registers"] <= 255, kernel
        # The count that chose the block holds: what it leaves out are intermediate results.
        assert kernel["registers"] <= kernel["planned"] + 40, kernel


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_kernels_of_the_default_model_compile(tmp_path):
    tables = compiled(tmp_path, "--targets", "sm_80", "sm_90", "gfx942", timeout=880)
    assert all(kernel["stack"] == 0 for kernel in tables["sm_90"]["kernels"])
    for name in ("sm_80", "sm_90", "gfx942"):
        assert tables[name]["seconds"] < 120


def test_workers_see_this_package_and_no_modules_of_the_folder_in_use(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}")
    path = compile_ahead._module_path()
    assert path[0] == str(tmp_path)
    assert "" not in path
    package = Path(compile_ahead.flashcart.__file__).resolve().parents[1]
    assert package.name.endswith("-packages") or str(package) in path


PROGRAM = """
from flashcart.algebra.lowering import make
from flashcart.ir.requests import ProductRequest, Weights
from flashcart.ops.compile_ahead import Target, Task, compile_ahead
from flashcart.ops.kernel_cache import key_of

key = key_of(make(ProductRequest(1, 1, 1, True, False, Weights.ROW, False)))
task = Task(key, 16, "float32", Target("cuda", 90, 32))
print(compile_ahead([task], workers=2), compile_ahead([]))
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot leave the current folder out")
def test_workers_get_contractions_that_lie_in_no_shared_folder(tmp_path, monkeypatch):
    """The cache folder cannot be made, so this process has its own; a file of the user is named like a module."""
    (tmp_path / "file").write_text("")
    (tmp_path / "typing_extensions.py").write_text("raise RuntimeError('of the user')")
    script = tmp_path / "main.py"
    script.write_text(PROGRAM)
    monkeypatch.setenv("FLASHCART_CACHE_DIR", str(tmp_path / "file" / "cache"))
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-I", str(script)], env=environment, capture_output=True, text=True, timeout=280, cwd=tmp_path
    )
    assert done.stdout.split() == ["2", "0"], done.stderr[-2000:]


def test_workers_fill_the_cache_of_triton_also_from_a_script_without_a_main_guard(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(PROGRAM)
    assert run([str(script)], tmp_path).split() == ["2", "0"]
    assert list((tmp_path / "triton").glob("*/kernel_0.cubin"))
    assert list((tmp_path / "triton").glob("*/kernel_1.cubin"))
