"""Offsets that do not drift, the energy scale, the average number of neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from flashcart.data.dataset import Dataset, LabelKeys, read_dataset
from flashcart.data.statistics import OffsetSettings, fit_statistics
from flashcart.errors import DataError

from .frames_text import FORCES, WATER, free_atom, water

FREE = {"H": -13.6, "C": -1027.0, "O": -2042.0}


def _molecule(symbols: str, energy: float) -> str:
    """Return a frame of the given atoms along a line, without forces."""
    atoms = symbols.split()
    rows = "".join(f"{symbol} {1.1 * number} 0 0\n" for number, symbol in enumerate(atoms))
    return f"{len(atoms)}\nProperties=species:S:1:pos:R:3 REF_energy={energy}\n{rows}"


def _set(tmp_path: Path, text: str, elements: tuple[str, ...] | None = None) -> Dataset:
    (tmp_path / "set.xyz").write_text(text, encoding="utf-8")
    return read_dataset(tmp_path / "set.xyz", LabelKeys(allow_missing_forces=True), r_max=3.0, elements=elements)


def _organic(noise: float, seed: int = 0) -> str:
    """Return molecules of H, C and O: free atoms, 4 eV of binding per atom, and noise per atom."""
    rng = np.random.default_rng(seed)
    frames = []
    for symbols in ("O H H", "C H H H H", "C O", "C O O", "C C H H", "C H H O H H") * 20:
        n_atoms = len(symbols.split())
        binding = n_atoms * (-4.0 + noise * rng.standard_normal())
        frames.append(_molecule(symbols, sum(FREE[symbol] for symbol in symbols.split()) + binding))
    return "".join(frames)


def _offsets(dataset: Dataset, settings: OffsetSettings | None = None) -> dict[str, float]:
    return dict(zip(dataset.elements, fit_statistics(dataset, settings).offsets.tolist(), strict=True))


def _rmse_per_atom(dataset: Dataset, offsets: dict[str, float]) -> float:
    by_number = {1: offsets.get("H"), 6: offsets.get("C"), 8: offsets.get("O")}
    errors = [(s.energy - sum(by_number[int(z)] for z in s.numbers)) / s.n_atoms for s in dataset.samples if s.n_edges]
    return float(np.sqrt(np.mean(np.square(errors))))


def test_frames_of_one_atom_give_their_elements_offset_exactly(tmp_path: Path) -> None:
    text = _organic(0.01) + "".join(free_atom(symbol, energy) for symbol, energy in FREE.items())
    assert _offsets(_set(tmp_path, text)) == FREE


def test_given_energies_come_before_frames_of_one_atom(tmp_path: Path) -> None:
    dataset = _set(tmp_path, _organic(0.01) + free_atom("H", -99.0))
    given = dict(FREE)
    assert _offsets(dataset, OffsetSettings(isolated_atom_energies=given)) == FREE


def test_one_free_atom_in_a_molecular_set_moves_the_other_offsets_by_its_binding_only(tmp_path: Path) -> None:
    with_atom = _offsets(_set(tmp_path, _organic(0.01) + free_atom("H", FREE["H"])))
    assert with_atom["H"] == FREE["H"]
    for symbol in ("C", "O"):
        # All 4 eV per atom of binding, hydrogen's too, end up in C and O: some eV, not hundreds.
        assert -25.0 < with_atom[symbol] - FREE[symbol] < 0.0


def test_one_free_atom_leaves_the_fit_within_the_spread_of_binding_energies(tmp_path: Path) -> None:
    dataset = _set(tmp_path, _organic(0.01) + free_atom("H", FREE["H"]))
    assert _rmse_per_atom(dataset, _offsets(dataset)) < 2.0


@pytest.mark.parametrize("seed", range(3))
def test_a_fit_recovers_the_energies_of_a_set_with_several_compositions(tmp_path: Path, seed: int) -> None:
    dataset = _set(tmp_path, _organic(0.01, seed))
    offsets = _offsets(dataset)
    # 120 frames with a noise of 10 meV per atom: offsets within some 20 meV, energies within the noise.
    for symbol, energy in FREE.items():
        assert offsets[symbol] == pytest.approx(energy - 4.0, abs=0.05)
    assert _rmse_per_atom(dataset, offsets) < 0.012


def test_a_single_composition_gives_the_mean_energy_per_atom(tmp_path: Path) -> None:
    dataset = _set(tmp_path, _molecule("O H H", -2080.0) * 50 + _molecule("O H H", -2080.3) * 50)
    offsets = _offsets(dataset)
    assert offsets["H"] == pytest.approx(-2080.15 / 3, abs=1e-9)
    assert offsets["O"] == pytest.approx(-2080.15 / 3, abs=1e-9)


def test_a_single_composition_with_a_prior_changes_it_as_little_as_possible(tmp_path: Path) -> None:
    dataset = _set(tmp_path, _molecule("O H H", -2080.0) * 50)
    offsets = _offsets(dataset, OffsetSettings(atomic_shifts=(FREE["H"], FREE["O"])))
    correction = np.array([offsets["H"] - FREE["H"], offsets["O"] - FREE["O"]])
    missing = -2080.0 - 2 * FREE["H"] - FREE["O"]
    np.testing.assert_allclose(correction, missing * np.array([2.0, 1.0]) / 5.0, rtol=1e-9)


def test_one_odd_composition_among_a_thousand_equal_ones_is_fitted_too(tmp_path: Path) -> None:
    text = _molecule("O H H", -2080.0) * 1000 + _molecule("O H H H", -2094.0)
    offsets = _offsets(_set(tmp_path, text))
    assert 3 * offsets["H"] + offsets["O"] == pytest.approx(-2094.0, abs=1e-6)
    assert 2 * offsets["H"] + offsets["O"] == pytest.approx(-2080.0, abs=1e-6)


def test_an_element_that_is_not_in_the_data_stays_at_the_prior(tmp_path: Path) -> None:
    dataset = _set(tmp_path, _organic(0.01), elements=("H", "C", "O", "Fe"))
    shifts = (*FREE.values(), -7.0)
    assert _offsets(dataset, OffsetSettings(atomic_shifts=shifts))["Fe"] == pytest.approx(-7.0, abs=1e-9)


def test_prior_offsets_are_kept_where_nothing_is_to_be_fitted(tmp_path: Path) -> None:
    dataset = _set(tmp_path, _organic(0.01) + free_atom("H", -13.6))
    settings = OffsetSettings(atomic_shifts=(1.0, 2.0, 3.0), fit_atomic_shifts=False)
    assert _offsets(dataset, settings) == {"H": 1.0, "C": 2.0, "O": 3.0}
    assert _offsets(dataset, OffsetSettings(fit_atomic_shifts=False)) == {"H": -13.6, "C": 0.0, "O": 0.0}


def test_a_crystal_with_one_atom_in_its_cell_is_no_free_atom(tmp_path: Path) -> None:
    crystal = '1\nLattice="0 1.8 1.8 1.8 0 1.8 1.8 1.8 0" Properties=species:S:1:pos:R:3 REF_energy={}\nCu 0 0 0\n'
    dataset = _set(tmp_path, crystal.format(-3.0) + crystal.format(-4.0) + free_atom("Cu", -0.3))
    assert _offsets(dataset) == {"Cu": -0.3}


def test_offsets_of_the_wrong_number_or_elements_are_named(tmp_path: Path) -> None:
    dataset = _set(tmp_path, _organic(0.01))
    with pytest.raises(DataError, match="atomic_shifts: got 1 numbers for the 3 elements H, C, O"):
        fit_statistics(dataset, OffsetSettings(atomic_shifts=(1.0,)))
    with pytest.raises(DataError, match="isolated_atom_energies: Fe is not among the elements H, C, O"):
        fit_statistics(dataset, OffsetSettings(isolated_atom_energies={"Fe": 1.0}))


def test_the_scale_is_the_rms_of_the_force_components_for_every_element(tmp_path: Path) -> None:
    statistics = fit_statistics(_set(tmp_path, water() * 3 + free_atom("H", -13.6)))
    forces = np.array([[float(number) for number in row.split()] for row in FORCES])
    expected = np.sqrt(np.mean(forces**2))
    torch.testing.assert_close(statistics.scales, torch.full((2,), expected, dtype=torch.float64))
    assert len(WATER) == 3


def test_without_forces_the_scale_is_the_spread_of_energies_and_never_zero(tmp_path: Path) -> None:
    spread = fit_statistics(_set(tmp_path, _molecule("O H H", -2080.0) + _molecule("O H H", -2080.6)))
    assert spread.scales.tolist() == pytest.approx([0.1, 0.1], rel=1e-6)
    assert fit_statistics(_set(tmp_path, _molecule("O H H", -2080.0))).scales.tolist() == [1.0, 1.0]


def test_average_neighbours_are_edges_per_atom_and_never_zero(tmp_path: Path) -> None:
    assert fit_statistics(_set(tmp_path, water() * 2)).average_neighbors == 2.0
    assert fit_statistics(_set(tmp_path, free_atom("H", -13.6))).average_neighbors == 1.0


def test_the_log_says_where_offsets_and_scale_come_from(tmp_path: Path) -> None:
    notes = " ".join(fit_statistics(_set(tmp_path, water() * 2 + free_atom("H", -13.6))).notes)
    assert "from frames of one atom: H -13.600000" in notes
    assert "fitted to the energies: O 12.7" in notes
    assert "RMS of the force components" in notes


def test_offsets_of_acetylacetone_are_those_of_its_free_atoms_where_given(shared_data: Path) -> None:
    free = {"H": -13.568422178253735, "C": -1026.8538996116154, "O": -2037.796869412825}
    dataset = read_dataset(shared_data / "acac" / "train_300K.extxyz", LabelKeys(), r_max=5.0)
    assert _offsets(dataset, OffsetSettings(isolated_atom_energies=free)) == free
    fitted = _offsets(dataset)
    # One composition: each frame's energy is met within the thermal spread (some 10 meV per atom).
    assert _rmse_per_atom(dataset, fitted) < 0.05
