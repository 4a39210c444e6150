"""Labelled data sets: labels in every form, masks, splits, and the sentence for every mistake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator

from flashcart.config import load_config
from flashcart.data.dataset import Dataset, LabelKeys, read_dataset, require_edges, split_dataset
from flashcart.data.graph import atoms_to_graph
from flashcart.errors import DataError

from .frames_text import CUBE, FORCES, free_atom, water

VOIGT = "1 2 3 4 5 6"
TENSOR = np.array([[1.0, 6, 5], [6, 2, 4], [5, 4, 3]])


def _read(tmp_path: Path, text: str, keys: LabelKeys | None = None, **options: object) -> Dataset:
    path = tmp_path / "set.xyz"
    path.write_text(text, encoding="utf-8")
    return read_dataset(path, keys or LabelKeys(), **{"r_max": 3.0, **options})


def _message(tmp_path: Path, text: str, keys: LabelKeys | None = None, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        _read(tmp_path, text, keys, **options)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_labels_are_read_under_their_keys(tmp_path: Path) -> None:
    (sample,) = _read(tmp_path, water()).samples
    assert sample.energy == -14.5
    np.testing.assert_array_equal(sample.forces, [[float(x) for x in row.split()] for row in FORCES])
    assert sample.stress is None
    assert (sample.weight, sample.group, sample.frame) == (1.0, None, 0)


def test_keys_follow_the_configuration() -> None:
    overrides = ["energy_key=E", "virial_key=W", "stress_order=xx yy zz xy xz yz", "weight_key=w", "valid_fraction=0.1"]
    keys = LabelKeys.from_config(load_config(None, [*overrides, "split_key=g"]))
    assert keys == LabelKeys("E", "REF_forces", "REF_stress", "W", "xx yy zz xy xz yz", False, "w", "g")
    assert LabelKeys.from_config(load_config()) == LabelKeys()


def test_elements_are_those_of_the_file_by_atomic_number_or_as_given(tmp_path: Path) -> None:
    assert _read(tmp_path, water()).elements == ("H", "O")
    dataset = _read(tmp_path, water(), elements=("O", "C", "H"))
    assert dataset.elements == ("O", "C", "H")
    assert dataset.samples[0].graph(dataset.elements).species.tolist() == [0, 2, 2]


def test_the_graph_of_a_sample_is_that_of_its_structure(tmp_path: Path) -> None:
    atoms = bulk("Cu", cubic=True)
    atoms.rattle(0.1, seed=3)
    atoms.positions[0] += 3 * atoms.cell[0]
    atoms.info["REF_energy"] = 1.0
    atoms.new_array("REF_forces", np.zeros((4, 3)))
    ase.io.write(tmp_path / "cu.xyz", atoms, format="extxyz")
    dataset = read_dataset(tmp_path / "cu.xyz", LabelKeys(), r_max=5.0)
    got, expected = dataset.samples[0].graph(("Cu",)), atoms_to_graph(ase.io.read(tmp_path / "cu.xyz"), ("Cu",), 5.0)
    for name in ("edge_vectors", "senders", "receivers", "species", "volumes", "batch"):
        assert getattr(got, name).equal(getattr(expected, name)), name
    assert dataset.n_edges.tolist() == [len(expected.senders)]


def test_labels_that_ase_attaches_to_a_calculator_are_found_and_said_so(tmp_path: Path) -> None:
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, 0.74]], cell=np.diag([9, 8, 7]), pbc=True)
    atoms.calc = SinglePointCalculator(atoms, energy=-3.0, forces=np.ones((2, 3)), stress=np.arange(1.0, 7.0))
    ase.io.write(tmp_path / "plain.xyz", atoms, format="extxyz")
    dataset = read_dataset(tmp_path / "plain.xyz", LabelKeys(), r_max=3.0)
    assert dataset.samples[0].energy == -3.0
    np.testing.assert_array_equal(dataset.samples[0].forces, np.ones((2, 3)))
    np.testing.assert_array_equal(dataset.samples[0].stress, TENSOR)
    assert any("energy, forces, stress read from the plain keys" in note for note in dataset.notes)


def test_the_configured_key_comes_before_the_calculator(tmp_path: Path) -> None:
    assert _read(tmp_path, water("energy=-1 REF_energy=-2")).samples[0].energy == -2.0
    assert _read(tmp_path, water("energy=-1 REF_energy=-2"), LabelKeys(energy_key="energy")).samples[0].energy == -1.0


def test_a_file_that_mixes_configured_and_plain_keys_is_refused(tmp_path: Path) -> None:
    message = _message(tmp_path, water("REF_energy=-1 energy=-3") + water("energy=-2"))
    assert message == "set.xyz, frame 1 (line 6): the energy stands under energy, in earlier frames under REF_energy."


@pytest.mark.parametrize(
    "label",
    [
        f'REF_stress="{VOIGT}"',
        'REF_stress="1 6 5 6 2 4 5 4 3"',
        'REF_stress="_JSON [[1, 6, 5], [6, 2, 4], [5, 4, 3]]"',
        'stress="1 6 5 6 2 4 5 4 3"',
    ],
)
def test_stress_of_6_9_and_3x3_components_is_the_same_tensor(tmp_path: Path, label: str) -> None:
    (sample,) = _read(tmp_path, water(f"REF_energy=-1 {label}", cell=CUBE)).samples
    np.testing.assert_array_equal(sample.stress, TENSOR)


@pytest.mark.parametrize(
    "label", ["REF_stress='1 2 3 6 5 4'", 'REF_stress="1 6 5 6 2 4 5 4 3"', 'stress="1 6 5 6 2 4 5 4 3"']
)
def test_a_declared_order_applies_to_6_components_only(tmp_path: Path, label: str) -> None:
    keys = LabelKeys(stress_order="xx yy zz xy xz yz")
    (sample,) = _read(tmp_path, water(f"REF_energy=-1 {label}", cell=CUBE), keys).samples
    np.testing.assert_array_equal(sample.stress, TENSOR)


def test_a_virial_becomes_minus_stress_times_volume(tmp_path: Path) -> None:
    keys = LabelKeys(virial_key="W")
    (sample,) = _read(tmp_path, water(f'REF_energy=-1 W="{VOIGT}"', cell=CUBE), keys).samples
    np.testing.assert_allclose(sample.stress, -TENSOR / 1000.0, rtol=1e-15)


def test_stress_of_a_left_handed_cell_uses_the_absolute_volume(tmp_path: Path) -> None:
    cell = 'Lattice="0 10 0 10 0 0 0 0 10" pbc="T T T"'
    (sample,) = _read(tmp_path, water(f'REF_energy=-1 W="{VOIGT}"', cell=cell), LabelKeys(virial_key="W")).samples
    assert sample.volume == pytest.approx(1000.0)
    np.testing.assert_allclose(sample.stress, -TENSOR / 1000.0, rtol=1e-14)


def test_no_stress_is_read_where_its_key_is_unset(tmp_path: Path) -> None:
    keys = LabelKeys(stress_key=None)
    dataset = _read(tmp_path, water('REF_energy=-1 stress="1 6 5 6 2 4 5 4 3"'), keys)
    assert dataset.samples[0].stress is None
    assert not any("no stress" in note for note in dataset.notes)


def test_missing_stress_is_masked_and_counted(tmp_path: Path) -> None:
    dataset = _read(tmp_path, water(f'REF_energy=-1 REF_stress="{VOIGT}"', cell=CUBE) + water(cell=CUBE) * 2)
    assert [sample.stress is None for sample in dataset.samples] == [False, True, True]
    assert any("2 of 3 frames have no stress; masked." in note for note in dataset.notes)


def test_missing_forces_are_masked_and_counted_where_that_is_allowed(tmp_path: Path) -> None:
    dataset = _read(tmp_path, water() + water(forces=None), LabelKeys(allow_missing_forces=True))
    assert [sample.forces is None for sample in dataset.samples] == [False, True]
    assert any("1 of 2 frames have no forces; masked." in note for note in dataset.notes)


def test_a_single_atom_needs_no_forces(tmp_path: Path) -> None:
    dataset = _read(tmp_path, water() + free_atom("H", -13.6))
    assert dataset.samples[1].forces is None
    assert dataset.samples[1].is_free_atom


def test_a_crystal_with_one_atom_in_its_cell_is_no_free_atom(tmp_path: Path) -> None:
    text = '1\nLattice="0 1.8 1.8 1.8 0 1.8 1.8 1.8 0" Properties=species:S:1:pos:R:3 REF_energy=-3\nCu 0 0 0\n'
    assert not _read(tmp_path, text).samples[0].is_free_atom


def test_weights_are_read(tmp_path: Path) -> None:
    dataset = _read(tmp_path, water("REF_energy=-1 w=0.25") + water("REF_energy=-1 w=3"), LabelKeys(weight_key="w"))
    assert [sample.weight for sample in dataset.samples] == [0.25, 3.0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            water("E=-1 tag=a"),
            "set.xyz, frame 0 (line 1): no energy under the key REF_energy; keys present: E, REF_forces, tag.",
        ),
        (
            water() + water("tag=a"),
            "set.xyz, frame 1 (line 6): no energy under the key REF_energy; keys present: REF_forces, tag.",
        ),
        (
            water(forces="f"),
            "set.xyz, frame 0 (line 1): no forces under the key REF_forces (allow_missing_forces=true masks them); "
            "keys present: REF_energy, f.",
        ),
        (
            water("REF_energy=nan"),
            "set.xyz, frame 0 (line 2): the energy under REF_energy is not a finite number: nan.",
        ),
        (
            water("REF_energy=abc"),
            "set.xyz, frame 0 (line 2): the energy under REF_energy is not a finite number: abc.",
        ),
        (
            water() + water().replace("0.76 -0.48", "nan -0.48"),
            "set.xyz, frame 1 (line 9): the position of atom 1 is not finite: [0.0, nan, -0.48].",
        ),
        (
            water().replace("-0.1 -0.1 -0.1", "-0.1 -inf -0.1"),
            "set.xyz, frame 0 (line 5): the force on atom 2 is not finite: [-0.1, -inf, -0.1].",
        ),
        (
            water(cell='Lattice="10 0 0 0 nan 0 0 0 10"'),
            "set.xyz, frame 0 (line 2): the cell is not finite: [[10.0, 0.0, 0.0], [0.0, nan, 0.0], [0.0, 0.0, 10.0]].",
        ),
        (
            water('REF_energy=-1 REF_stress="1 2 3 4 5 inf"', cell=CUBE),
            "set.xyz, frame 0 (line 2): the stress under REF_stress is not finite: [1.0, 2.0, 3.0, 4.0, 5.0, inf].",
        ),
        (
            water('REF_energy=-1 REF_stress="1 2 3"', cell=CUBE),
            "set.xyz, frame 0 (line 2): the stress under REF_stress is not 6, 9 or 3x3 numbers: [1 2 3].",
        ),
        (
            water('REF_energy=-1 REF_stress="1 2 3 4 5 6 7 8 9"', cell=CUBE),
            "set.xyz, frame 0 (line 2): the stress under REF_stress is not symmetric: [[1.0, 2.0, 3.0], [4.0, 5.0, "
            "6.0], [7.0, 8.0, 9.0]].",
        ),
        (
            water('REF_energy=-1 REF_stress="1 2 3 4 5 6"'),
            "set.xyz, frame 0 (line 1): the stress under REF_stress belongs to a cell without volume (pbc F F F): "
            "stress is not defined there.",
        ),
        (
            water('REF_energy=-1 REF_stress="1 2 3 4 5 6"', cell='Lattice="9 0 0 0 9 0 0 0 9" pbc="T T F"'),
            "set.xyz, frame 0 (line 1): the stress under REF_stress belongs to a cell without volume (pbc T T F): "
            "stress is not defined there.",
        ),
        (
            water(cell='Lattice="9 0 0 0 9 0 0 0 0" pbc="T T T"'),
            "set.xyz, frame 0 (line 2): the cell [[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 0.0]] has no volume "
            "along its periodic directions (pbc [True, True, True]).",
        ),
        (
            water() + water().replace("0.0 0.76 -0.48", "0.0 0.0 0.05"),
            "set.xyz, frame 1 (line 8): atoms 0 and 1 are 0.05 Å apart, less than 0.1 Å.",
        ),
    ],
)
def test_bad_data_is_named_with_file_frame_and_line(tmp_path: Path, text: str, sentence: str) -> None:
    assert _message(tmp_path, text) == sentence


def test_an_element_that_is_not_listed_is_named_with_its_frame(tmp_path: Path) -> None:
    message = _message(tmp_path, water(symbols="H H H") + water(), elements=("H", "C"))
    assert message.startswith("set.xyz, frame 1 (line 6): the element O is not among the model's elements H, C")


def test_missing_weight_and_group_are_named(tmp_path: Path) -> None:
    assert "no weight under the key w" in _message(tmp_path, water(), LabelKeys(weight_key="w"))
    assert "is negative: -1" in _message(tmp_path, water("REF_energy=1 w=-1"), LabelKeys(weight_key="w"))
    assert "nothing under split_key g" in _message(tmp_path, water(), LabelKeys(split_key="g"))


def test_a_set_without_any_edge_is_refused_for_training_only(tmp_path: Path) -> None:
    dataset = _read(tmp_path, water() + free_atom("O", -1), r_max=0.5)
    with pytest.raises(DataError, match=r"no two atoms are closer than r_max = 0.5 Å in any frame"):
        require_edges(dataset)
    require_edges(_read(tmp_path, water() + free_atom("O", -1)))


def test_the_fingerprint_changes_with_each_number_and_with_nothing_else(tmp_path: Path) -> None:
    first = water(f'REF_energy=-1 REF_stress="{VOIGT}"', cell=CUBE)
    before = _read(tmp_path, first).fingerprint
    assert _read(tmp_path, first.replace("REF_energy", "E"), LabelKeys(energy_key="E")).fingerprint == before
    changes = [("-0.76", "-0.77"), ("O ", "S "), ("=-1 ", "=-2 "), ("4 5 6", "4 5 7"), ("0.1 0.0 0.2", "0.1 0.0 0.3")]
    changes += [("10 0 0 0 10", "10 0 0 0 11"), ('"T T T"', '"T T F" tag=x')]
    seen = {before, _read(tmp_path, first * 2).fingerprint}
    for old, new in changes:
        text = first.replace(old, new)
        keys = LabelKeys(stress_key=None) if "T T F" in new else LabelKeys()
        seen.add(_read(tmp_path, text, keys).fingerprint)
    assert len(seen) == len(changes) + 2


def test_a_split_takes_the_wanted_share_by_seed_and_keeps_free_atoms_in_training(tmp_path: Path) -> None:
    dataset = _read(tmp_path, water() * 9 + free_atom("H", -13.6))
    train, valid = split_dataset(dataset, 0.3, seed=1)
    frames = [sample.frame for sample in valid.samples]
    assert len(frames) == 3
    assert frames == sorted(frames)
    assert sorted(frames + [sample.frame for sample in train.samples]) == list(range(10))
    assert any(sample.is_free_atom for sample in train.samples)
    assert frames == [sample.frame for sample in split_dataset(dataset, 0.3, seed=1)[1].samples]
    others = [[sample.frame for sample in split_dataset(dataset, 0.3, seed=seed)[1].samples] for seed in range(2, 6)]
    assert any(other != frames for other in others)


def test_a_split_keeps_groups_whole(tmp_path: Path) -> None:
    text = "".join(water(f"REF_energy=-1 run={name}") for name in "abcabcabca")
    dataset = _read(tmp_path, text, LabelKeys(split_key="run"))
    for seed in range(5):
        train, valid = split_dataset(dataset, 0.3, seed)
        assert not {sample.group for sample in train.samples} & {sample.group for sample in valid.samples}
        assert 3 <= len(valid) <= 4


def test_a_split_that_leaves_a_part_empty_is_an_error(tmp_path: Path) -> None:
    dataset = _read(tmp_path, water("REF_energy=-1 run=a") * 4, LabelKeys(split_key="run"))
    with pytest.raises(DataError, match=r"1 groups cannot be split with valid_fraction=0\.5"):
        split_dataset(dataset, 0.5, 1)
    with pytest.raises(DataError, match="cannot be split"):
        split_dataset(replace(dataset, samples=dataset.samples[:1]), 0.5, 1)


def test_the_silicon_set_has_12_frames_of_214_without_stress(shared_data: Path) -> None:
    dataset = read_dataset(shared_data / "mlearn_Si" / "train.extxyz", LabelKeys(), r_max=4.0)
    assert len(dataset) == 214
    assert sum(sample.stress is None for sample in dataset.samples) == 12
    assert any("12 of 214 frames have no stress; masked." in note for note in dataset.notes)
    with_stress = next(sample for sample in dataset.samples if sample.stress is not None)
    atoms = ase.io.read(shared_data / "mlearn_Si" / "train.extxyz", index=with_stress.frame)
    np.testing.assert_allclose(with_stress.stress, atoms.info["REF_stress"], rtol=1e-12)


def test_energies_alone_are_enough_where_missing_forces_are_allowed(shared_data: Path) -> None:
    path = shared_data / "acac" / "test_dihedral.extxyz"
    dataset = read_dataset(path, LabelKeys(allow_missing_forces=True), r_max=4.0)
    assert len(dataset) == 45
    assert all(sample.forces is None for sample in dataset.samples)


def test_without_keys_no_labels_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.xyz"
    ase.io.write(path, [ase.Atoms("H2", [[0, 0, 0], [0, 0, 0.8]])], format="extxyz")
    (sample,) = read_dataset(path, None, r_max=2.0).samples
    assert (sample.energy, sample.forces, sample.stress, sample.weight, sample.n_edges) == (0.0, None, None, 1.0, 2)
