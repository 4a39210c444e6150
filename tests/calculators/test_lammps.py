"""The Python side of the LAMMPS plugin, without LAMMPS: ghosts folded and not, the exchange, messages."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms

from flashcart.calculators import lammps
from flashcart.data.neighbors import neighbor_list
from flashcart.deploy import save_model
from flashcart.errors import UserError
from flashcart.model import FlashCart, ModelConfig

SKIN = 0.7


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = ModelConfig(
        elements=("H", "O"),
        r_max=3.5,
        n_hidden_feats=4,
        l_max_hidden_feats=1,
        l_max_edge_attrs=2,
        n_interactions=3,
        correlation=2,
        hidden_radial=(8,),
        hidden_readout=(8,),
    )
    model = FlashCart(config, dtype=torch.float64)
    offsets = torch.tensor([-13.0, -400.0], dtype=torch.float64)
    model.set_statistics(offsets=offsets, scales=torch.ones(2, dtype=torch.float64), average_neighbors=10.0)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    save_model(path, model)
    return path


@pytest.fixture
def crystal() -> Atoms:
    """Four atoms in a sheared cell that is shorter than the cutoff."""
    atoms = Atoms("OHHO", pbc=True, cell=[[3.0, 0, 0], [0.8, 3.1, 0], [-0.5, 0.9, 3.4]])
    atoms.set_scaled_positions([[0.1, 0.1, 0.0], [0.4, 0.3, 0.2], [0.8, 0.3, 0.7], [0.6, 0.7, 0.5]])
    return atoms


class Periodic:
    """Atoms and the ghosts that LAMMPS would make: positions, types, owners, candidate pairs."""

    def __init__(self, atoms: Atoms, cutoff: float) -> None:
        found = neighbor_list(atoms.positions, atoms.cell, atoms.pbc, cutoff)
        shifts = np.array(list(itertools.product(range(-3, 4), repeat=3)))
        shifts = shifts[np.argsort(np.abs(shifts).sum(1), kind="stable")]
        n = len(atoms)
        self.n_owned = n
        self.owners = np.tile(np.arange(n), len(shifts)).astype(np.int32)
        self.positions = (atoms.positions[None] + (shifts @ atoms.cell.array)[:, None]).reshape(-1, 3)
        self.types = np.array([1 + (symbol == "O") for symbol in atoms.symbols], dtype=np.int32)[self.owners]
        place = {tuple(shift): k for k, shift in enumerate(shifts)}
        images = np.array([place[tuple(shift)] for shift in found.shifts])
        self.receivers = found.receivers.astype(np.int32)
        self.senders = (images * n + found.senders).astype(np.int32)


def _open(path: Path, **changes: object) -> lammps.LammpsPotential:
    return lammps.open_potential({"path": str(path), "elements": ["H", "O"], "device": "cpu", **changes})


def _evaluate(potential: lammps.LammpsPotential, box: Periodic, *, folded: bool, copy_features: bool = True):
    n_atoms = len(box.positions)
    nodes = box.owners if folded else np.arange(n_atoms, dtype=np.int32)
    atoms_of_nodes = np.arange(box.n_owned if folded else n_atoms, dtype=np.int32)
    potential.set_neighbors(box.receivers, box.senders, nodes, atoms_of_nodes, box.n_owned)
    calls: list[str] = []

    def forward(owned: np.ndarray, target: np.ndarray) -> None:
        calls.append("forward")
        target[:] = owned[box.owners] if copy_features else np.concatenate([owned, np.zeros_like(target[len(owned) :])])

    def reverse(rows: np.ndarray, owned: np.ndarray) -> None:
        calls.append("reverse")
        owned[:] = 0.0
        np.add.at(owned, box.owners, rows)

    exchange = None if folded else (forward, reverse)
    return potential.evaluate(box.positions, box.types, exchange, atom_virials=True), calls


def test_folded_and_unfolded_ghosts_agree(model_path: Path, crystal: Atoms) -> None:
    potential, box = _open(model_path), Periodic(crystal, 3.5 + SKIN)
    folded, _ = _evaluate(potential, box, folded=True)
    unfolded, calls = _evaluate(potential, box, folded=False)
    assert calls == ["forward", "forward", "reverse", "reverse"]
    # The same numbers added in another order.
    assert unfolded.energy == pytest.approx(folded.energy, rel=1e-13)
    for name in ("virial", "forces", "site_energies", "atom_virials"):
        np.testing.assert_allclose(getattr(unfolded, name), getattr(folded, name), atol=1e-12, rtol=1e-12)
    assert np.abs(folded.forces).max() > 0.01


def test_features_of_ghosts_matter(model_path: Path, crystal: Atoms) -> None:
    potential, box = _open(model_path), Periodic(crystal, 3.5 + SKIN)
    right, _ = _evaluate(potential, box, folded=False)
    wrong, _ = _evaluate(potential, box, folded=False, copy_features=False)
    assert abs(wrong.energy - right.energy) > 1e-6


def test_pairs_beyond_the_cutoff_change_nothing(model_path: Path, crystal: Atoms) -> None:
    potential = _open(model_path)
    near, _ = _evaluate(potential, Periodic(crystal, 3.5), folded=True)
    far, _ = _evaluate(potential, Periodic(crystal, 3.5 + SKIN), folded=True)
    assert far.energy == near.energy


def test_virial_is_the_sum_over_atoms(model_path: Path, crystal: Atoms) -> None:
    found, _ = _evaluate(_open(model_path), Periodic(crystal, 3.5 + SKIN), folded=True)
    np.testing.assert_allclose(found.atom_virials.sum(0), found.virial, atol=1e-12)
    assert np.abs(found.virial).max() > 0.01


@pytest.mark.parametrize("n_owned", [0, 1])
def test_a_rank_without_edges_makes_every_call_of_the_exchange(model_path: Path, n_owned: int) -> None:
    potential = _open(model_path)
    nothing = np.zeros(0, dtype=np.int32)
    atoms = np.arange(n_owned, dtype=np.int32)
    potential.set_neighbors(nothing, nothing, atoms, atoms, n_owned)
    calls: list[str] = []

    def forward(owned: np.ndarray, target: np.ndarray) -> None:
        calls.append("forward")
        target[:] = owned

    def reverse(rows: np.ndarray, owned: np.ndarray) -> None:
        calls.append("reverse")
        owned[:] = rows

    types = np.full(n_owned, 2, dtype=np.int32)
    found = potential.evaluate(np.zeros((n_owned, 3)), types, (forward, reverse))
    assert calls == ["forward", "forward", "reverse", "reverse"]
    assert found.energy == -400.0 * n_owned
    assert found.forces.shape == (n_owned, 3)


def test_the_exchange_is_differentiable_once_only() -> None:
    def copy(source: np.ndarray, target: np.ndarray) -> None:
        target[:] = source

    halo = lammps._Halo((copy, copy), 2, 2)
    features = torch.ones(2, 1, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad((halo(features) ** 2).sum(), features, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_types_without_element_are_not_looked_up(model_path: Path) -> None:
    potential = _open(model_path, elements=["NULL", "O", "H"])
    assert potential._type_species.tolist() == [-1, -1, 1, 0]


@pytest.mark.parametrize(("tf32", "precision"), [("model", "ieee"), ("off", "ieee"), ("on", "tf32")])
def test_tf32_follows_the_request_whatever_the_host_has_set(
    model_path: Path, crystal: Atoms, monkeypatch: pytest.MonkeyPatch, tf32: str, precision: str
) -> None:
    seen = []
    evaluate = lammps.potential.site_energies_and_gradients

    def look(*args: object, **options: object) -> object:
        seen.append(torch.backends.cuda.matmul.fp32_precision)
        return evaluate(*args, **options)

    monkeypatch.setattr(lammps.potential, "site_energies_and_gradients", look)
    host = "ieee" if precision == "tf32" else "tf32"
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = host
    try:
        _evaluate(_open(model_path, tf32=tf32), Periodic(crystal, 3.5), folded=True)
        assert seen == [precision]
        assert torch.backends.cuda.matmul.fp32_precision == host
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_ranks_that_share_a_host_get_one_thread(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    try:
        assert _open(model_path, n_ranks=2, n_local_ranks=2).n_threads == 1
    finally:
        torch.set_num_threads(before)


def test_an_error_of_the_user_has_no_traceback() -> None:
    assert lammps.describe_error(UserError("one sentence."), None) == "one sentence."
    try:
        raise ValueError("inside")
    except ValueError as error:
        text = lammps.describe_error(error, error.__traceback__)
    assert "Traceback" in text
    assert text.endswith("ValueError: inside\n")
