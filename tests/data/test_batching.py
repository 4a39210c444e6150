"""Batches: every structure once, a plan that depends on seed and epoch alone, tensors that match the samples."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from flashcart.data.batching import BatchSettings, batches, make_batch, plan_batches
from flashcart.data.dataset import Dataset, LabelKeys, read_dataset
from flashcart.errors import DataError

from .frames_text import CUBE, free_atom, water

STRESS = 'REF_energy=-2 REF_stress="1 2 3 4 5 6"'


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("batches") / "set.xyz"
    path.write_text(water() * 6 + free_atom("H", -13.6) * 5 + water(STRESS, cell=CUBE) * 6, encoding="utf-8")
    return read_dataset(path, LabelKeys(), r_max=3.0)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("batch_size", [1, 4, 17, 100])
def test_an_epoch_holds_every_structure_once(dataset: Dataset, dynamic: bool, batch_size: int) -> None:
    plan = plan_batches(dataset, BatchSettings(batch_size, dynamic=dynamic), epoch=3)
    assert all(len(indices) > 0 for indices in plan)
    assert sorted(np.concatenate(plan).tolist()) == list(range(17))


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_plan_depends_on_seed_and_epoch_alone(dataset: Dataset, dynamic: bool) -> None:
    def plan(seed: int, epoch: int) -> list[list[int]]:
        settings = BatchSettings(4, seed=seed, dynamic=dynamic)
        return [indices.tolist() for indices in plan_batches(dataset, settings, epoch)]

    first = plan(1, 5)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 (the global state must not matter)
    assert plan(1, 5) == first
    assert plan(1, 6) != first
    assert plan(2, 5) != first


def test_without_shuffling_the_order_is_that_of_the_file(dataset: Dataset) -> None:
    plan = plan_batches(dataset, BatchSettings(5, dynamic=False, shuffle=False), epoch=7)
    assert np.concatenate(plan).tolist() == list(range(17))


def test_fixed_batches_have_the_size_asked_for_but_the_last(dataset: Dataset) -> None:
    settings = BatchSettings(5, dynamic=False)
    assert [len(indices) for indices in plan_batches(dataset, settings, 0)] == [5, 5, 5, 2]
    dropping = BatchSettings(5, dynamic=False, drop_last=True)
    assert [len(indices) for indices in plan_batches(dataset, dropping, 0)] == [5, 5, 5]
    with pytest.raises(DataError, match="17 frames make no batch of 18 with drop_last=true"):
        plan_batches(dataset, BatchSettings(18, dynamic=False, drop_last=True), 0)


def test_dynamic_batches_keep_to_the_budgets_and_are_as_full_as_the_order_allows(dataset: Dataset) -> None:
    plan = plan_batches(dataset, BatchSettings(4), epoch=0)
    for sizes in (dataset.n_atoms, dataset.n_edges):
        budget = 4 * sizes.mean()
        assert all(sizes[indices].sum() <= budget for indices in plan)
    for indices, following in itertools.pairwise(plan):
        longer = [*indices, following[0]]
        assert any(sizes[longer].sum() > 4 * sizes.mean() for sizes in (dataset.n_atoms, dataset.n_edges))


def test_a_structure_above_the_budget_stands_alone(dataset: Dataset) -> None:
    plan = plan_batches(dataset, BatchSettings(1), epoch=0)
    assert all(len(indices) == 1 for indices in plan if dataset.n_atoms[indices[0]] == 3)


def test_equal_structures_fill_dynamic_batches_to_the_batch_size(tmp_path: Path) -> None:
    (tmp_path / "w.xyz").write_text(water() * 21)
    dataset = read_dataset(tmp_path / "w.xyz", LabelKeys(), r_max=3.0)
    for size in (3, 7, 10):
        assert [len(indices) for indices in plan_batches(dataset, BatchSettings(size), 0)][:2] == [size, size]


def test_an_epoch_can_be_entered_in_the_middle(dataset: Dataset) -> None:
    settings = BatchSettings(4)
    whole = [batch.frames.tolist() for batch in batches(dataset, settings, 2)]
    assert [batch.frames.tolist() for batch in batches(dataset, settings, 2, start=2)] == whole[2:]


def test_a_batch_holds_the_labels_of_its_structures_in_order(dataset: Dataset) -> None:
    batch = make_batch(dataset, [16, 6, 0])
    assert batch.frames.tolist() == [16, 6, 0]
    assert batch.energy.tolist() == [-2.0, -13.6, -14.5]
    assert batch.n_atoms.tolist() == [3, 1, 3]
    assert batch.graph.batch.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert batch.has_energy.tolist() == [True, True, True]
    assert batch.has_forces.tolist() == [True, False, True]
    assert batch.has_stress.tolist() == [True, False, False]
    assert batch.weights.tolist() == [1.0, 1.0, 1.0]
    assert torch.equal(batch.forces[4:], torch.from_numpy(dataset.samples[0].forces))
    assert torch.equal(batch.stress[0], torch.from_numpy(dataset.samples[16].stress))


def test_what_has_no_label_is_zero_and_everything_is_float64(dataset: Dataset) -> None:
    batch = make_batch(dataset, [16, 6, 0])
    assert batch.forces[3].tolist() == [0.0, 0.0, 0.0]
    assert batch.stress[1:].abs().max() == 0.0
    for tensor in (batch.energy, batch.forces, batch.stress, batch.weights, batch.graph.edge_vectors):
        assert tensor.dtype == torch.float64


def test_a_batch_of_free_atoms_has_no_edges(dataset: Dataset) -> None:
    batch = make_batch(dataset, [7, 8])
    assert batch.graph.edge_vectors.shape == (0, 3)
    assert batch.graph.n_structures == 2
    assert batch.graph.volumes.tolist() == [0.0, 0.0]


def test_a_batch_moves_between_devices_whole(dataset: Dataset) -> None:
    batch = make_batch(dataset, [0]).to("meta")
    assert {batch.energy.device.type, batch.frames.device.type, batch.graph.senders.device.type} == {"meta"}
