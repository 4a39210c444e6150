"""The FlashCart model: edge vectors and element numbers in, site energies out.

It never sees positions, cells or files. Between layers it calls an `exchange` hook, which is how one model runs on any
number of ranks (`calculators/lammps.py`); forces and stress are made of its edge gradients (`potential.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from flashcart.errors import UserError
from flashcart.nn.correlation import ProductLayer
from flashcart.nn.expansion import CartesianExpansion
from flashcart.nn.message import Edges, Interaction, InteractionShape
from flashcart.nn.network import Network, check_activation
from flashcart.nn.radial import MAPPINGS, RadialFunctions
from flashcart.nn.repulsion import Repulsion

_log = logging.getLogger(__name__)

Exchange = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ModelConfig:
    """The keys of a configuration that define the model; see docs/configuration.md for their meaning."""

    elements: tuple[str, ...]
    r_max: float = 5.5
    r_min: float = 0.0
    n_hidden_feats: int = 128
    l_max_hidden_feats: int = 2
    l_max_edge_attrs: int = 3
    n_radial: int = 8
    radial_mapping: str = "cosine"
    cutoff_poly_order: int = 6
    n_interactions: int = 2
    correlation: int = 3
    path_reduced_product: bool = False
    nonlinearity: bool = True
    gate_activation: str = "sigmoid"
    gate_bias: bool = True
    layer_norm: bool = True
    element_agnostic_interaction: bool = True
    n_element_interaction_features: int | None = None
    element_agnostic_product: bool = True
    hidden_radial: tuple[int, ...] = (64, 64)
    hidden_readout: tuple[int, ...] = (64, 64)
    zbl: bool = False
    use_triton: bool = True
    tf32: bool = False
    deterministic: bool = False

    def __post_init__(self) -> None:
        for key, least in _LEAST.items():
            if getattr(self, key) < least:
                raise UserError(f"{key}={getattr(self, key)}: must be at least {least}.")
        if not 0 <= self.r_min < self.r_max:
            raise UserError(f"r_min={self.r_min}: must be at least 0 and below r_max={self.r_max}.")
        if self.radial_mapping not in MAPPINGS:
            raise UserError(f"radial_mapping={self.radial_mapping!r}: expected one of {', '.join(MAPPINGS)}.")
        check_activation("gate_activation", self.gate_activation)
        if not self.element_agnostic_interaction and not self.n_element_interaction_features:
            raise UserError(
                "element_agnostic_interaction=false needs n_element_interaction_features, a positive number."
            )
        if self.l_max_hidden_feats > self.l_max_edge_attrs:
            raise UserError(
                f"l_max_hidden_feats={self.l_max_hidden_feats}: must not exceed l_max_edge_attrs="
                f"{self.l_max_edge_attrs}, the highest rank that an interaction gives."
            )
        for key in ("hidden_radial", "hidden_readout"):
            if any(width < 1 for width in getattr(self, key)):
                raise UserError(f"{key}={list(getattr(self, key))}: every width must be at least 1.")
        _check_elements(self.elements)
        for name in ("elements", "hidden_radial", "hidden_readout"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


def _check_elements(elements: Sequence[str]) -> None:
    from ase.data import atomic_numbers

    if not elements or len(set(elements)) != len(elements):
        raise UserError(f"elements={list(elements)}: expected one or more different symbols.")
    unknown = [symbol for symbol in elements if symbol not in atomic_numbers]
    if unknown:
        raise UserError(f"elements={list(elements)}: {unknown[0]!r} is no element symbol.")


_LEAST = {
    "n_hidden_feats": 1,
    "l_max_hidden_feats": 0,
    "l_max_edge_attrs": 0,
    "n_radial": 1,
    "cutoff_poly_order": 2,
    "n_interactions": 1,
    "correlation": 1,
}


class FlashCart(torch.nn.Module):
    """Equivariant message passing on irreducible Cartesian tensors.

    Args:
        config: the model's keys.
        seed: of the initial parameters.
        dtype: of the parameters; float32 or float64.

    Attributes:
        offsets: [n_elements] float64, eV: the energy of a free atom.
        scales: [n_elements] float64, eV: unit of the network's output.
        average_neighbors: scalar float64.
        free_atoms: [n_elements] float64: the network's output for lone atoms, as used in evaluation mode.
    """

    offsets: Tensor
    scales: Tensor
    average_neighbors: Tensor
    free_atoms: Tensor

    def __init__(self, config: ModelConfig, *, seed: int = 1234, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = config
        self.n_elements = len(config.elements)
        self._forced_backend: str | None = None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._build()
        self.to(dtype)
        for name in ("offsets", "free_atoms"):
            self.register_buffer(name, torch.zeros(self.n_elements, dtype=torch.float64))
        self.register_buffer("scales", torch.ones(self.n_elements, dtype=torch.float64))
        self.register_buffer("average_neighbors", torch.tensor(1.0, dtype=torch.float64))

    def _build(self) -> None:
        config = self.config
        channels, width = config.n_hidden_feats, config.n_element_interaction_features
        self.embedding = torch.nn.Parameter(torch.randn(self.n_elements, channels))
        self.expansion = CartesianExpansion(config.l_max_edge_attrs)
        self.radial = RadialFunctions(
            (config.n_radial, config.radial_mapping, config.cutoff_poly_order),
            config.r_min,
            config.r_max,
            self.n_elements,
            None if config.element_agnostic_interaction else width,
        )
        self.interactions, self.products = torch.nn.ModuleList(), torch.nn.ModuleList()
        for number in range(config.n_interactions):
            interaction, product = self._layer(number)
            self.interactions.append(interaction)
            self.products.append(product)
        self.readout = Network([config.n_interactions * channels, *config.hidden_readout, 1], bias=True)
        self.repulsion = self._repulsion() if config.zbl else None

    def _layer(self, number: int) -> tuple[Interaction, ProductLayer]:
        config = self.config
        l_in = config.l_max_hidden_feats if number else 0
        l_out = config.l_max_hidden_feats if number < config.n_interactions - 1 else 0
        l_inner = config.l_max_edge_attrs if config.correlation > 1 else l_out
        shape = InteractionShape(
            l_in,
            config.l_max_edge_attrs,
            l_inner,
            config.n_hidden_feats,
            self.radial.n_functions,
            config.hidden_radial,
        )
        gate = (config.gate_activation, config.gate_bias) if config.nonlinearity else None
        interaction = Interaction(shape, layer_norm=config.layer_norm, gate=gate)
        product = ProductLayer(
            (l_inner, l_out),
            config.n_hidden_feats,
            config.correlation,
            n_elements=None if config.element_agnostic_product else self.n_elements,
            reduced=config.path_reduced_product,
            layer_norm=config.layer_norm,
        )
        return interaction, product

    def _repulsion(self) -> Repulsion:
        from ase.data import atomic_numbers, covalent_radii

        numbers = [atomic_numbers[symbol] for symbol in self.config.elements]
        return Repulsion(numbers, [float(covalent_radii[z]) for z in numbers], self.config.r_max)

    # ------------------------------------------------------------------------------------------------------ statistics

    def set_statistics(self, *, offsets: Tensor, scales: Tensor, average_neighbors: float) -> None:
        """Set what is fitted to data before training.

        Args:
            offsets, scales: [n_elements], eV.
            average_neighbors: mean number of edges per atom; sums of messages are divided by its root, so values below
                1 (sets of nearly free atoms) count as 1.
        """
        with torch.no_grad():
            self.offsets.copy_(torch.as_tensor(offsets))
            self.scales.copy_(torch.as_tensor(scales))
            self.average_neighbors.fill_(max(float(average_neighbors), 1.0))

    def train(self, mode: bool = True) -> FlashCart:
        """Training mode evaluates lone atoms along; evaluation mode uses their present values as constants."""
        super().train(mode)
        if not mode:
            self.freeze_free_atoms()
        return self

    @torch.no_grad()
    def freeze_free_atoms(self) -> None:
        """Store the network's output for a lone atom of each element."""
        none = self.embedding.new_zeros(0, 3), *(torch.zeros(2, 0, dtype=torch.int64, device=self.embedding.device))
        species = torch.arange(self.n_elements, device=self.embedding.device)
        self.free_atoms.copy_(self.readout(self.descriptors(*none, species)).squeeze(1))

    def muon_parameters(self) -> list[torch.nn.Parameter]:
        """The matrices of linear maps and networks."""
        return [p for name, p in self.named_parameters() if p.ndim == 2 and not name.endswith(_NOT_MATRICES)]

    def other_parameters(self) -> list[torch.nn.Parameter]:
        """Embeddings, gains, biases and path weights."""
        chosen = {id(p) for p in self.muon_parameters()}
        return [p for p in self.parameters() if id(p) not in chosen]

    # ------------------------------------------------------------------------------------------------------ evaluation

    def forward(
        self,
        edge_vectors: Tensor,
        senders: Tensor,
        receivers: Tensor,
        species: Tensor,
        *,
        n_owned: int | None = None,
        exchange: Exchange | None = None,
    ) -> Tensor:
        """Site energies.

        Args:
            edge_vectors: [n_edges, 3], Å, from receiver to sender; any floating dtype.
            senders: [n_edges] int64, below n_nodes; receivers: [n_edges] int64, below n_owned. Sorted by receiver is
                fastest.
            species: [n_nodes] int64, place in `config.elements`.
            n_owned: the first n_owned nodes receive and get energies; default all.
            exchange: maps [n_owned, components, channels] to [n_nodes, components, channels] before every interaction
                but the first; called also where there are no atoms or edges.

        Returns:
            [n_owned] float64, eV, offsets included.
        """
        n_real = species.shape[0] if n_owned is None else n_owned
        if not self.training:
            outputs = self.readout(self.descriptors(edge_vectors, senders, receivers, species, n_owned, exchange))
            lone = self.free_atoms
        else:
            if exchange is not None or n_real != species.shape[0]:
                raise ValueError("several ranks are for evaluation mode: call model.eval() first")
            extended = torch.cat([species, torch.arange(self.n_elements, device=species.device)])
            outputs = self.readout(self.descriptors(edge_vectors, senders, receivers, extended))
            lone = outputs[n_real:].squeeze(1).double()
        own = species[:n_real]
        relative = outputs[:n_real].squeeze(1).double() - lone.index_select(0, own)
        energies = self.scales.index_select(0, own) * relative + self.offsets.index_select(0, own)
        if self.repulsion is not None:
            distances = edge_vectors.to(self.embedding.dtype).norm(dim=1)
            energies = energies + self.repulsion(distances, senders, receivers, species)[:n_real].double()
        return energies

    def descriptors(
        self,
        edge_vectors: Tensor,
        senders: Tensor,
        receivers: Tensor,
        species: Tensor,
        n_owned: int | None = None,
        exchange: Exchange | None = None,
    ) -> Tensor:
        """Invariant features of every node: the scalars of all layers, [n_owned, n_interactions * channels]."""
        if self._forced_backend is None:
            self._set_backend(backend_for(self.config.use_triton, edge_vectors.device.type))
        vectors = edge_vectors.to(self.embedding.dtype)
        distances = vectors.norm(dim=1)
        edges = Edges(
            senders,
            receivers,
            self.expansion(vectors),
            self.radial(distances, species.index_select(0, senders), species.index_select(0, receivers)),
            n_nodes=species.shape[0],
            n_owned=species.shape[0] if n_owned is None else n_owned,
        )
        features, scalars = self.embedding.index_select(0, species).unsqueeze(1), []
        own = species[: edges.n_owned]
        for number, (interaction, product) in enumerate(zip(self.interactions, self.products, strict=True)):
            features = interaction(features, edges, self.average_neighbors, exchange if number else None)
            features = product(features, own)
            scalars.append(features[:, 0])
        return torch.cat(scalars, dim=1)

    def use_backend(self, backend: str | None) -> None:
        """Make all expansions, products and linear maps run on one back end; None goes back to the choice by device."""
        self._forced_backend = backend
        if backend is not None:
            self._set_backend(backend)

    def _set_backend(self, backend: str) -> None:
        if self.expansion.backend != backend:
            for module in self.modules():
                if hasattr(module, "backend"):
                    module.backend = backend


_NOT_MATRICES = ("embedding", "gain")


def backend_for(use_triton: bool, device: str) -> str:
    """Triton for CUDA inputs where `use_triton` is true, else torch."""
    return "triton" if use_triton and device == "cuda" else "torch"


@lru_cache(maxsize=4)
def announce_backend(use_triton: bool, device: str) -> str:
    """The back end that a model on a kind of device gets, logged once.

    Args:
        use_triton: the model's key.
        device: cpu, cuda, ...
    """
    backend = backend_for(use_triton, device)
    reason = "use_triton is false" if not use_triton else f"device {device}"
    _log.info("back end: %s (%s)", backend, reason)
    return backend
