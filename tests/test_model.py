"""The model by itself: its keys, its parameters, lone atoms, ghosts and exchange."""

from __future__ import annotations

import threading
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from flashcart.errors import UserError
from flashcart.model import FlashCart, ModelConfig
from flashcart.potential import site_energies_and_gradients

from .structures import CONFIG, OFFSETS, crystal, edgeless, energy, evaluate, graph_of, make_model, molecule

SAME = 1e-10

# One other value of each key, with what it needs.
CHANGES = {
    "elements": {"elements": ("O", "H")},
    "r_max": {"r_max": 3.5},
    "r_min": {"r_min": 0.4},
    "n_hidden_feats": {"n_hidden_feats": 5},
    "l_max_hidden_feats": {"l_max_hidden_feats": 2},
    "l_max_edge_attrs": {"l_max_edge_attrs": 3},
    "n_radial": {"n_radial": 5},
    "radial_mapping": {"radial_mapping": "affine"},
    "cutoff_poly_order": {"cutoff_poly_order": 5},
    "n_interactions": {"n_interactions": 3},
    "correlation": {"correlation": 3},
    "path_reduced_product": {"path_reduced_product": True},
    "nonlinearity": {"nonlinearity": False},
    "gate_activation": {"gate_activation": "silu"},
    "gate_bias": {"gate_bias": False},
    "layer_norm": {"layer_norm": False},
    "element_agnostic_interaction": {"element_agnostic_interaction": False, "n_element_interaction_features": 3},
    "n_element_interaction_features": {"element_agnostic_interaction": False, "n_element_interaction_features": 4},
    "element_agnostic_product": {"element_agnostic_product": False},
    "hidden_radial": {"hidden_radial": (8, 8)},
    "hidden_readout": {"hidden_readout": (9,)},
    "zbl": {"zbl": True},
}
# These choose how the same numbers are computed, on accelerators.
HOW_NOT_WHAT = {"use_triton", "tf32", "deterministic"}


def test_every_key_has_its_case():
    assert set(CHANGES) | HOW_NOT_WHAT == {field.name for field in fields(ModelConfig)}


@pytest.fixture(scope="module")
def reference():
    return energy(make_model(), molecule())


@pytest.mark.parametrize("key", CHANGES)
def test_every_key_changes_the_energy(key, reference):
    base = reference
    if key == "n_element_interaction_features":
        base = energy(make_model(**CHANGES["element_agnostic_interaction"]), molecule())
    assert abs(energy(make_model(**CHANGES[key]), molecule()) - base) > 1e-6


@pytest.mark.parametrize("key", CHANGES)
def test_every_key_gives_a_model_with_right_forces(key):
    """Central differences with step 1e-4 Å, of a repulsion that ends within 0.02 Å: 1e-5."""
    model, atoms = make_model(**CHANGES[key]), molecule()
    force = float(evaluate(model, atoms).forces[1, 0])
    energies = []
    for step in (1e-4, -1e-4):
        moved = atoms.copy()
        moved.positions[1, 0] += step
        energies.append(energy(model, moved))
    assert abs(force) > 1e-4
    assert force == pytest.approx(-(energies[0] - energies[1]) / 2e-4, abs=1e-5)


@pytest.mark.parametrize("key", sorted(HOW_NOT_WHAT))
def test_keys_of_how_do_not_change_the_energy_on_a_cpu(key, reference):
    value = not getattr(CONFIG, key)
    assert energy(make_model(**{key: value}), molecule()) == pytest.approx(reference, abs=SAME)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"r_max": 0.0}, "r_min=0.0: must be at least 0 and below r_max=0.0"),
        ({"r_min": 4.0}, "below r_max"),
        ({"r_min": -1.0}, "at least 0"),
        ({"n_hidden_feats": 0}, "n_hidden_feats=0: must be at least 1"),
        ({"l_max_hidden_feats": -1}, "l_max_hidden_feats=-1"),
        ({"l_max_edge_attrs": -1}, "l_max_edge_attrs=-1"),
        ({"l_max_hidden_feats": 3}, "l_max_hidden_feats=3: must not exceed l_max_edge_attrs=2"),
        ({"n_radial": 0}, "n_radial=0"),
        ({"radial_mapping": "linear"}, "radial_mapping='linear': expected one of cosine, affine"),
        ({"cutoff_poly_order": 1}, "cutoff_poly_order=1: must be at least 2"),
        ({"n_interactions": 0}, "n_interactions=0"),
        ({"correlation": 0}, "correlation=0"),
        ({"gate_activation": "tanh"}, "gate_activation='tanh'"),
        ({"element_agnostic_interaction": False}, "needs n_element_interaction_features"),
        ({"elements": ()}, "elements=\\[\\]: expected one or more"),
        ({"elements": ("H", "H")}, "different symbols"),
        ({"hidden_radial": (0,)}, "hidden_radial=\\[0\\]: every width must be at least 1"),
        ({"hidden_readout": (8, -1)}, "hidden_readout"),
        ({"elements": ("H", "Qq")}, "'Qq' is no element symbol"),
    ],
)
def test_impossible_values_are_refused_with_a_sentence(changes, message):
    with pytest.raises(UserError, match=message):
        FlashCart(replace(CONFIG, **changes))


def test_lists_become_tuples():
    config = replace(CONFIG, elements=["H", "O"], hidden_radial=[8])
    assert config.elements == ("H", "O")
    assert hash(config) == hash(replace(CONFIG))


@pytest.mark.parametrize("changes", [{}, CHANGES["path_reduced_product"], CHANGES["n_interactions"]])
def test_same_seed_gives_the_same_parameters_whatever_the_dtype(changes):
    config = replace(CONFIG, **changes)
    first, second = FlashCart(config, seed=5), FlashCart(config, seed=5, dtype=torch.float64)
    other = FlashCart(config, seed=6)
    for one, two in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, two.float())
    assert not torch.equal(first.embedding, other.embedding)


def test_making_a_model_leaves_the_random_state_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    FlashCart(CONFIG)
    assert torch.equal(torch.rand(1), expected)


def test_parameters_for_muon_are_matrices_and_no_embeddings():
    changes = {**CHANGES["element_agnostic_interaction"], "path_reduced_product": True}
    model = make_model(**changes)
    muon, other = model.muon_parameters(), model.other_parameters()
    assert all(parameter.ndim == 2 for parameter in muon)
    assert not any(parameter is model.embedding or parameter is model.radial.embedding for parameter in muon)
    assert len({id(p) for p in [*muon, *other]}) == len(muon) + len(other) == len(list(model.parameters()))
    assert len(muon) > len(model.interactions) * 3


def test_every_parameter_matters_to_the_energy():
    """No dead parameter: each has a gradient on a structure with all elements."""
    model = make_model(path_reduced_product=True, element_agnostic_product=False, n_interactions=3).train()
    graph = graph_of(molecule(), crystal(), model=model)
    model(graph.edge_vectors, graph.senders, graph.receivers, graph.species).square().sum().backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert dead == []


def test_statistics_scale_and_shift_the_energies():
    model, atoms = make_model(), molecule()
    first = evaluate(model, atoms).site_energies
    offsets = torch.tensor(list(OFFSETS.values()), dtype=torch.float64)
    model.set_statistics(offsets=offsets + 1.0, scales=2 * model.scales, average_neighbors=12.0)
    second = evaluate(model.eval(), atoms).site_energies
    own = torch.tensor([OFFSETS[symbol] for symbol in atoms.symbols], dtype=torch.float64)
    torch.testing.assert_close(second, own + 1.0 + 2 * (first - own), rtol=0, atol=SAME)


def test_average_neighbors_changes_the_energy_and_is_at_least_one():
    model = make_model()
    first = energy(model, molecule())
    model.set_statistics(offsets=model.offsets, scales=model.scales, average_neighbors=30.0)
    assert abs(energy(model.eval(), molecule()) - first) > 1e-6
    model.set_statistics(offsets=model.offsets, scales=model.scales, average_neighbors=0.0)
    assert float(model.average_neighbors) == 1.0


def test_lone_atom_terms_train_along():
    """In training mode the free-atom limit holds for parameters as they are, not as they were."""
    model = make_model().train()
    for parameter in model.parameters():
        parameter.data *= 1.1
    graph = graph_of(edgeless(), model=model)
    sites = model(graph.edge_vectors, graph.senders, graph.receivers, graph.species)
    assert sites.tolist() == pytest.approx([OFFSETS[s] for s in edgeless().symbols], abs=SAME)
    assert model.eval().free_atoms.abs().max() > 1e-3
    sites = model(graph.edge_vectors, graph.senders, graph.receivers, graph.species)
    assert sites.tolist() == pytest.approx([OFFSETS[s] for s in edgeless().symbols], abs=SAME)


def test_lone_atoms_have_no_gradient_in_training():
    """The energy of a free atom is the offset for all parameters: derivatives cancel."""
    model = make_model().train()
    graph = graph_of(edgeless(), model=model)
    model(graph.edge_vectors, graph.senders, graph.receivers, graph.species).sum().backward()
    assert max(float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None) < 1e-12


def test_descriptors_are_the_scalars_of_all_layers():
    model = make_model(n_interactions=3)
    graph = graph_of(molecule(), model=model)
    values = model.descriptors(graph.edge_vectors, graph.senders, graph.receivers, graph.species)
    assert values.shape == (len(molecule()), 3 * 4)


class Ranks:
    """A structure split over several ranks, each in its own thread; features meet at a barrier.

    The threads build one autograd graph: ghost rows are rows of another rank's tensor.
    """

    def __init__(self, model, graph, owners):
        self.model, self.graph, self.owners = model, graph, np.asarray(owners)
        self.n_ranks = 2
        self.barrier = threading.Barrier(self.n_ranks, timeout=60)
        self.features = [None] * self.n_ranks
        self.energies, self.leaves, self.calls = {}, {}, [0] * self.n_ranks
        self.errors = []

    def atoms(self, rank):
        return np.flatnonzero(self.owners == rank)

    def run(self):
        threads = [threading.Thread(target=self._guarded, args=(rank,)) for rank in range(self.n_ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert self.errors == []

    def _guarded(self, rank):
        try:
            self._rank(rank)
        except BaseException as error:
            self.errors.append(error)
            self.barrier.abort()

    def _rank(self, rank):
        owned, ghosts = self.atoms(rank), self.atoms(1 - rank)
        place = np.empty(len(self.owners), dtype=np.int64)
        place[np.concatenate([owned, ghosts])] = np.arange(len(self.owners))
        mine = np.isin(self.graph.receivers.numpy(), owned)
        leaf = self.graph.edge_vectors[mine].clone().requires_grad_()
        senders = torch.from_numpy(place[self.graph.senders.numpy()[mine]])
        receivers = torch.from_numpy(place[self.graph.receivers.numpy()[mine]])
        species = self.graph.species[np.concatenate([owned, ghosts])]

        def exchange(features):
            assert features.shape[0] == len(owned)
            self.calls[rank] += 1
            self.features[rank] = features
            self.barrier.wait()
            joined = torch.cat([features, self.features[1 - rank]])
            self.barrier.wait()
            return joined

        sites = self.model(leaf, senders, receivers, species, n_owned=len(owned), exchange=exchange)
        self.energies[rank], self.leaves[rank] = sites, (mine, leaf)


@pytest.mark.parametrize("split", ["even", "uneven", "empty rank"])
@pytest.mark.parametrize("n_interactions", [1, 2, 3])
def test_two_ranks_give_the_energies_and_gradients_of_one(n_interactions, split):
    model = make_model(n_interactions=n_interactions)
    graph = graph_of(crystal().repeat((2, 1, 1)), model=model)
    owners = {"even": [0, 1] * 3, "uneven": [1, 0, 0, 0, 0, 0], "empty rank": [0] * 6}[split]
    ranks = Ranks(model, graph, owners)
    ranks.run()
    assert ranks.calls == [n_interactions - 1] * 2  # also with no atoms
    sites, gradients = site_energies_and_gradients(
        model, graph.edge_vectors, graph.senders, graph.receivers, graph.species
    )
    total = ranks.energies[0].sum() + ranks.energies[1].sum()
    parts = torch.autograd.grad(total, [ranks.leaves[0][1], ranks.leaves[1][1]], allow_unused=True)
    for rank in range(2):
        torch.testing.assert_close(ranks.energies[rank], sites[ranks.atoms(rank)], rtol=0, atol=SAME)
        mine, _ = ranks.leaves[rank]
        if mine.any():
            torch.testing.assert_close(parts[rank], gradients[mine], rtol=0, atol=SAME)


def test_exchange_matters():
    """The control of the test above: without the features of ghosts, energies differ."""
    model = make_model()
    graph = graph_of(crystal(), model=model)
    arguments = (graph.edge_vectors, graph.senders, graph.receivers, graph.species)
    full = model(*arguments, exchange=lambda features: features)
    blind = model(*arguments, exchange=lambda features: 0 * features)
    assert torch.equal(full, model(*arguments))
    assert (full - blind).abs().max() > 1e-6


def test_several_ranks_are_refused_in_training_mode():
    model = make_model().train()
    graph = graph_of(crystal(), model=model)
    with pytest.raises(ValueError, match=r"call model\.eval\(\) first"):
        model(graph.edge_vectors, graph.senders, graph.receivers, graph.species, exchange=lambda x: x)
