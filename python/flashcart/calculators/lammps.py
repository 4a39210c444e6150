"""Python side of the LAMMPS plugin: positions and candidate pairs in, energy, forces and virials out.

The plugin (lammps_plugin/python_bridge.cpp) calls `open_potential` once, `set_neighbors` after each rebuild of LAMMPS's
neighbour list and `evaluate` every step. Nothing here imports LAMMPS: all of it runs and is tested without it.

Atoms count the owned ones of this rank and its ghosts, as LAMMPS does. Nodes are what the model sees: owned atoms that
have an element, then one node per remote atom; ghosts that are images of an owned atom are folded onto its node.
"""

from __future__ import annotations

import os
import platform
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import torch

import flashcart
from flashcart import potential
from flashcart.deploy import load_model, read_metadata
from flashcart.device import resolve_device
from flashcart.environment import read_environment, set_allocator_default
from flashcart.errors import FlashCartError, UserError
from flashcart.model import announce_backend
from flashcart.model_kernels import prepare_kernels

NO_ELEMENT = "NULL"

# (rows of owned nodes in, rows of all nodes out) and back; float64 numpy arrays [rows, width], called on every rank.
ExchangeFunctions = tuple[Callable[[np.ndarray, np.ndarray], None], Callable[[np.ndarray, np.ndarray], None]]


@dataclass(frozen=True)
class Request:
    """What `pair_style flashcart` and `pair_coeff` say, and where this rank runs.

    elements: one per atom type, "NULL" where the model does not act. dtype: trained, float32, float64. tf32 and
    deterministic: model (as its configuration says), on, off. local_rank: rank among the n_local_ranks of this host.
    """

    path: str
    elements: tuple[str, ...]
    device: str = "auto"
    dtype: str = "trained"
    tf32: str = "model"
    deterministic: str = "model"
    rank: int = 0
    n_ranks: int = 1
    local_rank: int = 0
    n_local_ranks: int = 1
    python: str = "the host's"


@dataclass(frozen=True)
class Evaluation:
    """Results of one step in eV and Å.

    energy: of the owned atoms. virial: [6], xx yy zz xy xz yz, LAMMPS's sign. forces: [n_atoms, 3], ghosts included.
    site_energies: [n_owned]. atom_virials: [n_atoms, 6] or None; each edge's tensor lies on its sender.
    """

    energy: float
    virial: np.ndarray
    forces: np.ndarray
    site_energies: np.ndarray
    atom_virials: np.ndarray | None


@dataclass(frozen=True)
class _Pairs:
    """Candidate pairs (cutoff plus skin) on the device: atoms for geometry, nodes for the model. All int64."""

    receiver_atoms: torch.Tensor
    sender_atoms: torch.Tensor
    receivers: torch.Tensor
    senders: torch.Tensor
    atom_of_node: torch.Tensor
    n_owned: int


def open_potential(arguments: dict[str, Any]) -> LammpsPotential:
    """Load the model that `pair_coeff` names. Raises UserError for a wrong file, element, device or dtype."""
    return LammpsPotential(Request(**{**arguments, "elements": tuple(arguments["elements"])}))


def _describe_memory() -> str:
    """Which kind of segments torch's allocator took for the model: what its settings come to, not what they say."""
    found = any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot())
    return f"GPU memory in {'expandable' if found else 'fixed'} segments"


def describe_error(error: BaseException, trace: TracebackType | None) -> str:
    """Return a user's error as its sentence, anything else with its traceback."""
    if isinstance(error, FlashCartError):
        return str(error)
    return "error in Python\n" + "".join(traceback.format_exception(type(error), error, trace))


class LammpsPotential:
    """A model as LAMMPS uses it: element map, neighbour pairs, halo exchange.

    cutoff: Å. n_threads: torch's threads on this rank. device: of this rank.
    """

    def __init__(self, request: Request) -> None:
        self._allocator_note = set_allocator_default()
        self.request = request
        self.elements = tuple(read_metadata(request.path)["elements"])
        type_species = [-1, *(self._species_of(name) for name in request.elements)]
        if max(type_species) < 0:
            raise UserError(f"every atom type is NULL; the model knows {' '.join(self.elements)}")
        self.device = _device_of_rank(request)
        self.n_threads = _set_threads(request)
        dtype = None if request.dtype == "trained" else request.dtype
        self.model = load_model(request.path, device=str(self.device), dtype=dtype)
        prepare_kernels(self.model, "inference", deterministic=self._deterministic())
        self.cutoff = float(self.model.config.r_max)
        self._type_species = torch.tensor(type_species, device=self.device)
        self._pairs: _Pairs | None = None

    def _species_of(self, name: str) -> int:
        if name == NO_ELEMENT:
            return -1
        if name not in self.elements:
            raise UserError(f"element {name} is not in the model, which knows {' '.join(self.elements)} (or NULL)")
        return self.elements.index(name)

    def describe(self) -> str:
        """Return the lines that LAMMPS logs once: versions, device, dtype, back end, threads, element map."""
        request = self.request
        dtype = str(next(self.model.parameters()).dtype).removeprefix("torch.")
        backend = announce_backend(self.model.config.use_triton, self.device.type)
        rows = [
            f"FlashCart {flashcart.__version__}, torch {torch.__version__}, Python {platform.python_version()}: "
            f"{request.python}",
            f"  model {request.path}: cutoff {self.cutoff:g} Angstrom, eV and Angstrom",
            f"  device {self.device}, {dtype}, back end {backend}, TF32 {'on' if self._tf32() else 'off'}, "
            f"deterministic {'on' if self._deterministic() else 'off'}, {self.n_threads} torch threads per rank"
            + ("" if "OMP_NUM_THREADS" in os.environ else " (OMP_NUM_THREADS sets them)"),
            *([f"  {self._allocator_note}"] if self._allocator_note else []),
            *([f"  {_describe_memory()}"] if self.device.type == "cuda" else []),
            "  type  element",
            *(f"  {number:4d}  {name}" for number, name in enumerate(request.elements, start=1)),
        ]
        return "\n".join(rows) + "\n"

    def _tf32(self) -> bool:
        return self.model.config.tf32 if self.request.tf32 == "model" else self.request.tf32 == "on"

    def _deterministic(self) -> bool:
        chosen = self.request.deterministic
        asked = self.model.config.deterministic if chosen == "model" else chosen == "on"
        return asked or read_environment().deterministic

    def set_neighbors(
        self,
        receivers: np.ndarray,
        senders: np.ndarray,
        node_of_atom: np.ndarray,
        atom_of_node: np.ndarray,
        n_owned: int,
    ) -> None:
        """Take a new list of candidate pairs. All arrays are int32 and copied.

        receivers, senders: [n_pairs], atoms. node_of_atom: [n_atoms], -1 for atoms without an element.
        atom_of_node: [n_nodes], the atom that stands for a node. n_owned: how many nodes this rank owns.
        """
        receiver_atoms, sender_atoms = self._index(receivers), self._index(senders)
        nodes = self._index(node_of_atom)
        self._pairs = _Pairs(
            receiver_atoms=receiver_atoms,
            sender_atoms=sender_atoms,
            receivers=nodes[receiver_atoms],
            senders=nodes[sender_atoms],
            atom_of_node=self._index(atom_of_node),
            n_owned=n_owned,
        )

    def _index(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(self.device)

    def evaluate(
        self,
        positions: np.ndarray,
        types: np.ndarray,
        exchange: ExchangeFunctions | None,
        angstrom_per_length: float = 1.0,
        atom_virials: bool = False,
    ) -> Evaluation:
        """Evaluate one configuration. positions: [n_atoms, 3] float64, LAMMPS's length unit; types: [n_atoms], from 1.

        exchange: None where this rank owns every node. The number of calls of exchange is the same on every rank.
        """
        pairs = self._pairs
        assert pairs is not None, "set_neighbors comes first"
        place = torch.from_numpy(np.array(positions)).to(self.device)
        species = self._type_species[self._index(types)[pairs.atom_of_node]]
        # Ghosts have their own positions; only their features are those of the owner.
        vectors = place.index_select(0, pairs.sender_atoms) - place.index_select(0, pairs.receiver_atoms)
        vectors *= angstrom_per_length
        inside = (vectors.square().sum(1) < self.cutoff**2).nonzero().squeeze(1)
        vectors = vectors.index_select(0, inside)
        halo = None if exchange is None else _Halo(exchange, pairs.n_owned, len(pairs.atom_of_node))
        # Gradients stay on this thread: the exchange calls MPI, and LAMMPS's is not open to a second one.
        one_thread = torch.autograd.set_multithreading_enabled(False)
        with potential.numerics(self._tf32(), self._deterministic()), one_thread:
            site_energies, gradients = potential.site_energies_and_gradients(
                self.model,
                vectors,
                pairs.senders.index_select(0, inside),
                pairs.receivers.index_select(0, inside),
                species,
                n_owned=pairs.n_owned,
                exchange=halo,
            )
            if halo is not None:
                halo.finish()
            edges = (pairs.sender_atoms.index_select(0, inside), pairs.receiver_atoms.index_select(0, inside))
            if not bool(site_energies.detach().isfinite().all()):
                raise UserError(
                    "the energy is not a finite number: atoms stand in one place, or far from anything known"
                )
            return _collect(
                site_energies.detach(), vectors, gradients.detach().double(), edges, len(place), atom_virials
            )


def _collect(
    site_energies: torch.Tensor,
    vectors: torch.Tensor,
    gradients: torch.Tensor,
    edges: tuple[torch.Tensor, torch.Tensor],
    n_atoms: int,
    atom_virials: bool,
) -> Evaluation:
    """Turn dE/dr per edge [n_edges, 3] into forces and virials; edges: (senders, receivers), atoms."""
    outer = vectors.T @ gradients
    virial = -0.5 * (outer + outer.T)
    return Evaluation(
        energy=float(site_energies.sum()),
        virial=virial[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]].cpu().numpy(),
        forces=potential.edge_forces(gradients, *edges, n_atoms).cpu().numpy(),
        site_energies=site_energies.cpu().numpy(),
        atom_virials=potential.atom_virials(vectors, gradients, edges[0], n_atoms).cpu().numpy()
        if atom_virials
        else None,
    )


class _Halo:
    """Exchange of node features between ranks, differentiable once. One object per evaluation."""

    def __init__(self, functions: ExchangeFunctions, n_owned: int, n_nodes: int) -> None:
        self._forward, self._reverse = functions
        self._n_owned, self._n_nodes = n_owned, n_nodes
        self._open: list[int] = []  # widths of the forward calls whose reverse call is still to come

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        """features: [n_owned, components, channels] -> [n_nodes, components, channels]."""
        return _ExchangeRule.apply(features, self)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        width = features.shape[1] * features.shape[2]
        nodes = np.empty((self._n_nodes, width))
        self._forward(_rows(features, width), nodes)
        self._open.append(width)
        return torch.from_numpy(nodes).to(features).reshape(self._n_nodes, *features.shape[1:])

    def reverse(self, gradient: torch.Tensor) -> torch.Tensor:
        width = self._open.pop()
        owned = np.empty((self._n_owned, width))
        self._reverse(_rows(gradient, width), owned)
        return torch.from_numpy(owned).to(gradient).reshape(self._n_owned, *gradient.shape[1:])

    def finish(self) -> None:
        """Make the reverse calls that no gradient asked for: a rank without edges has none, but others wait for it."""
        while self._open:
            self._reverse(np.zeros((self._n_nodes, self._open[-1])), np.empty((self._n_owned, self._open[-1])))
            self._open.pop()


def _rows(features: torch.Tensor, width: int) -> np.ndarray:
    return features.detach().reshape(features.shape[0], width).to("cpu", torch.float64).contiguous().numpy()


class _ExchangeRule(torch.autograd.Function):
    """Forward: owners' rows to their copies. Backward: gradients of all copies summed at the owner."""

    @staticmethod
    def forward(ctx: Any, features: torch.Tensor, halo: _Halo) -> torch.Tensor:
        ctx.halo = halo
        return halo.forward(features)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.halo.reverse(gradient), None


def _device_of_rank(request: Request) -> torch.device:
    """Resolve the device; ranks of one host take its GPUs in turn unless one is named."""
    device = resolve_device(request.device)
    if device.type == "cuda" and ":" not in request.device:
        return torch.device("cuda", request.local_rank % torch.cuda.device_count())
    return device


def _set_threads(request: Request) -> int:
    """Ranks that share a host get one thread each, unless OMP_NUM_THREADS says otherwise."""
    if request.n_local_ranks > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    else:
        torch.set_num_threads(torch.get_num_threads())
    return torch.get_num_threads()
