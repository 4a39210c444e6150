"""flashcart-profile on a GPU: the default model at 4,000 atoms, roofline table, sweep over the kernels' variables.

    python benchmarks/profile_gpu.py [--device gpu] [--atoms 4000] [--repeat 10] [--set key=value ...]
        [--skip sweep training traces] [--limit 3600] [--output benchmarks/results/profile_gpu.json]

The structure is rattled copper in its cell (54 neighbours within 5.5 Å before it is rattled), one in a batch, labels
of zero: speed does not depend on them. Two steps, each flashcart-profile as a process: both phases under the default
variables, with traces beside the output; then a sweep over scatter kernel, budgets, splits and back end, half a minute
per setting where kernels have to be compiled; what is not done after --limit seconds is left out, and said. Stored are
the settings, times, programs with their share of the roofline, the launch plan, the 40 dearest operations, and the
sweep's times and programs. --device cpu with few atoms tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
from ase import Atoms
from ase.build import bulk

ROOT = Path(__file__).resolve().parents[1]
N_OPERATIONS = 40
SWEEP: list[dict[str, Any]] = [
    {},
    {"FLASHCART_TP_SCATTER_KERNEL": "edge"},
    {"FLASHCART_TP_SPLIT_INPUT_RANK": "false"},
    {"FLASHCART_TP_CSR_GROUP_BUDGET": [16, 40]},
    {"FLASHCART_TP_BWD_GROUP_BUDGET": [16, 40]},
    {"FLASHCART_TP_DBWD_GROUP_BUDGET": [16, 100]},
    {"FLASHCART_TP_PEAK_AWARE_GROUPS": "false"},
    {"FLASHCART_TP_BWD_SPLIT": "full"},
    {"FLASHCART_TP_DBWD_SPLIT": "fused"},
    {"FLASHCART_TP_BWD_CSR_SLOTS": [1, 2, 4]},
    {"FLASHCART_DETERMINISTIC": "true"},
    {"use_triton": False},
]


def structure(n_atoms: int) -> Atoms:
    """At least n_atoms of rattled copper, periodic, with labels of zero."""
    atoms = bulk("Cu", "fcc", a=3.62, cubic=True)
    copies = max(2, int(np.ceil((n_atoms / 4) ** (1 / 3) - 1e-9)))
    atoms = atoms.repeat(copies)
    atoms.rattle(0.1, seed=1)
    atoms.info["REF_energy"] = 0.0
    atoms.arrays["REF_forces"] = np.zeros((len(atoms), 3))
    return atoms


def profile(folder: Path, words: list[str], limit: float | None = None) -> dict[str, Any]:
    """Run flashcart-profile, for `limit` seconds at most; return its document. What it prints is shown."""
    path = folder / "profile.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "flashcart.cli.profile", *words, f"profile_json={path}"]
    try:
        code: int | str = subprocess.run(command, check=False, timeout=limit).returncode
    except subprocess.TimeoutExpired:
        code = f"stopped after {limit:g} s"
    if not path.exists():
        raise SystemExit(f"flashcart-profile failed with exit code {code}")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {"exit_code": code, **document}


def shortened(document: dict[str, Any] | None) -> dict[str, Any] | None:
    """The document without paths, and with the dearest operations only."""
    if document is None:
        return None
    document["settings"]["variables"].pop("FLASHCART_CACHE_DIR", None)
    document["model"]["source"] = document["model"]["source"].partition(",")[0]
    document.pop("notes")
    for phase in document["phases"].values():
        phase.pop("path")
        phase["operations"] = phase["operations"][:N_OPERATIONS]
    return document


def times_of(row: dict[str, Any]) -> dict[str, Any]:
    """What is kept of one setting of the sweep."""
    result = row["result"]
    if result is None:
        return {"setting": row["setting"], "error": row["error"]}
    names = ("timer", "first_use", "peak_memory", "atoms_per_second", "compilations_in_timed_runs")
    phases = {phase: {name: found[name] for name in names} for phase, found in result["phases"].items()}
    programs = {
        phase: [
            {key: row[key] for key in ("title", "calls", "seconds", "roofline_fraction")} for row in found["programs"]
        ]
        for phase, found in result["phases"].items()
    }
    return {"setting": row["setting"], "phases": phases, "programs": programs}


def main() -> int:
    """Measure, print, store; 1 where a run failed or compiled while it was timed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--atoms", type=int, default=4000)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--set", nargs="*", default=[], help="keys of the configuration")
    parser.add_argument("--skip", nargs="*", default=[], choices=["sweep", "training", "traces"])
    parser.add_argument("--limit", type=float, default=3600, help="seconds for the sweep")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/profile_gpu.json")
    options = parser.parse_args()
    atoms = structure(options.atoms)
    results: dict[str, Any] = {"atoms": len(atoms)}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ase.io.write(folder / "structure.extxyz", atoms, format="extxyz")
        words = [f"train_path={folder / 'structure.extxyz'}", f"device={options.device}", "profile_batch_size=1"]
        words += ["stress_key=~", f"profile_repeat={options.repeat}", "profile_warmup=3", *options.set]
        words.append(f"profile_phase={'inference' if 'training' in options.skip else 'both'}")
        traces = [] if "traces" in options.skip else [f"profile_trace_dir={options.output.with_suffix('')}_traces"]
        results["default"] = shortened(profile(folder, [*words, *traces]))
        if "sweep" not in options.skip:
            document = profile(folder, [*words, f"profile_sweep={json.dumps(SWEEP)}"], options.limit)
            results["sweep_exit_code"] = document["exit_code"]
            results["sweep"] = [times_of(row) for row in document["sweep"]]
    options.output.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"results: {options.output}")
    return int(results["default"]["exit_code"] != 0 or results.get("sweep_exit_code", 0) != 0)


if __name__ == "__main__":
    raise SystemExit(main())
