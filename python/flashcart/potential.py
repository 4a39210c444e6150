"""From site energies to energies, forces, virials and stress.

Takes edge vectors, never positions; reads no files and builds no neighbour lists (`flashcart.data` does). One
derivative g = dE/dr per edge gives everything else by sums; signs and orders are those of docs/conventions.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from flashcart.environment import read_environment, set_cublas_default
from flashcart.model import Exchange, FlashCart


@dataclass(frozen=True)
class AtomicGraph:
    """One or several structures joined into one graph.

    edge_vectors: [n_edges, 3] float64, Å, from receiver to sender.
    senders, receivers: [n_edges] int64, sorted by receiver.
    species: [n_atoms] int64, index into the model's elements.
    batch: [n_atoms] int64, index of the structure.
    n_structures: number of structures.
    volumes: [n_structures] float64, Å^3; 0 where a structure has no volume.
    """

    edge_vectors: Tensor
    senders: Tensor
    receivers: Tensor
    species: Tensor
    batch: Tensor
    n_structures: int
    volumes: Tensor

    def to(self, device: torch.device | str) -> AtomicGraph:
        """Return the same graph with every tensor on `device`."""
        names = ("edge_vectors", "senders", "receivers", "species", "batch", "volumes")
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in names}
        return replace(self, **moved)


@dataclass(frozen=True)
class Prediction:
    """What the model says of a graph.

    energy: [n_structures] float64, eV.
    site_energies: [n_atoms] float64, eV.
    forces: [n_atoms, 3], eV/Å.
    strain_derivatives: [n_structures, 3, 3], eV: dE/dstrain, symmetric.
    stress: [n_structures, 3, 3], eV/Å^3, positive = tensile; NaN where a structure has no volume.
    edge_gradients: [n_edges, 3], eV/Å: dE/dr of every edge.
    graph: what was evaluated.
    """

    energy: Tensor
    site_energies: Tensor
    forces: Tensor
    strain_derivatives: Tensor
    stress: Tensor
    edge_gradients: Tensor
    graph: AtomicGraph

    def atom_virials(self) -> Tensor:
        """[n_atoms, 6] in eV, LAMMPS order: each edge's -r (x) g, symmetrised, on its sender."""
        return atom_virials(
            self.graph.edge_vectors.to(self.edge_gradients.dtype),
            self.edge_gradients,
            self.graph.senders,
            self.graph.species.shape[0],
        )


@contextlib.contextmanager
def numerics(tf32: bool, deterministic: bool) -> Iterator[None]:
    """Set torch's switches for one evaluation and put the host's back: other code of the process may use torch too.

    Args:
        tf32: allow TF32 in matrix products on CUDA devices.
        deterministic: use deterministic algorithms only.
    """
    if deterministic:
        set_cublas_default()
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision, torch.are_deterministic_algorithms_enabled()
    matmul.fp32_precision = "tf32" if tf32 else "ieee"  # the newer switch reads beside the older one
    torch.use_deterministic_algorithms(deterministic)
    try:
        yield
    finally:
        matmul.fp32_precision = before[0]
        torch.use_deterministic_algorithms(before[1])


# Below this number of edges a second thread costs more than it gives (benchmarks/cpu.py, the molecule).
ONE_THREAD_BELOW = 1000


@contextlib.contextmanager
def threads_for(graph: AtomicGraph) -> Iterator[None]:
    """Small graphs on a CPU are evaluated by one thread; the host's number is put back."""
    before = torch.get_num_threads()
    small = graph.edge_vectors.device.type == "cpu" and graph.edge_vectors.shape[0] < ONE_THREAD_BELOW
    if not small or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def predict(model: FlashCart, graph: AtomicGraph, *, training: bool = False) -> Prediction:
    """Energies, forces and stress of a graph.

    Args:
        model: the model.
        graph: one or several structures, on the model's device.
        training: keep the autograd graph, so that a loss on any of the results can be differentiated.
    """
    with numerics(model.config.tf32, is_deterministic(model)), threads_for(graph):
        site_energies, gradients = site_energies_and_gradients(
            model, graph.edge_vectors, graph.senders, graph.receivers, graph.species, create_graph=training
        )
        return _prediction(graph, site_energies if training else site_energies.detach(), gradients)


def is_deterministic(model: FlashCart) -> bool:
    """Whether a model's key, FLASHCART_DETERMINISTIC or torch's own switch asks for reproducible results."""
    asked = model.config.deterministic or read_environment().deterministic
    return asked or torch.are_deterministic_algorithms_enabled()


def _prediction(graph: AtomicGraph, site_energies: Tensor, gradients: Tensor) -> Prediction:
    """Sums over atoms and edges."""
    energy = site_energies.new_zeros(graph.n_structures).index_add(0, graph.batch, site_energies)
    forces = edge_forces(gradients, graph.senders, graph.receivers, graph.species.shape[0])
    outer = graph.edge_vectors.to(gradients.dtype).unsqueeze(2) * gradients.unsqueeze(1)
    structure = graph.batch.index_select(0, graph.receivers)
    strain = gradients.new_zeros(graph.n_structures, 3, 3).index_add(0, structure, outer)
    strain = 0.5 * (strain + strain.transpose(1, 2))
    volumes = torch.where(graph.volumes > 0, graph.volumes, torch.nan).to(strain.dtype)
    return Prediction(energy, site_energies, forces, strain, strain / volumes.view(-1, 1, 1), gradients, graph)


def site_energies_and_gradients(
    model: FlashCart,
    edge_vectors: Tensor,
    senders: Tensor,
    receivers: Tensor,
    species: Tensor,
    *,
    n_owned: int | None = None,
    exchange: Exchange | None = None,
    create_graph: bool = False,
) -> tuple[Tensor, Tensor]:
    """Site energies and the derivative of their sum with respect to every edge vector.

    Args: see `FlashCart.forward`; create_graph keeps the autograd graph of the gradients.

    Returns:
        ([n_owned] float64 in eV, [n_edges, 3] in eV/Å in the model's dtype).
    """
    leaf = edge_vectors.detach().to(model.embedding.dtype).requires_grad_(True)
    with torch.enable_grad():
        energies = model(leaf, senders, receivers, species, n_owned=n_owned, exchange=exchange)
        (gradients,) = torch.autograd.grad(energies.sum(), leaf, create_graph=create_graph, allow_unused=True)
    if gradients is None:  # a structure without edges, in a model whose energy then depends on nothing
        gradients = torch.zeros_like(leaf)
    return energies, gradients


def backward(loss: Tensor, model: FlashCart) -> None:
    """Add the gradients of a loss to the model's parameters; what only feeds positions is left out."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    torch.autograd.backward(loss, inputs=parameters)


def edge_forces(gradients: Tensor, senders: Tensor, receivers: Tensor, n_atoms: int) -> Tensor:
    """[n_atoms, 3]: +g on the receiver, -g on the sender of each edge."""
    forces = gradients.new_zeros(n_atoms, 3).index_add(0, receivers, gradients)
    return forces.index_add(0, senders, -gradients)


def atom_virials(edge_vectors: Tensor, gradients: Tensor, senders: Tensor, n_atoms: int) -> Tensor:
    """[n_atoms, 6], xx yy zz xy xz yz: each edge's -r (x) g, symmetrised, on its sender."""
    x, y, z = edge_vectors.unbind(1)
    gx, gy, gz = gradients.unbind(1)
    rows = [x * gx, y * gy, z * gz, 0.5 * (x * gy + y * gx), 0.5 * (x * gz + z * gx), 0.5 * (y * gz + z * gy)]
    return gradients.new_zeros(n_atoms, 6).index_add(0, senders, -torch.stack(rows, dim=1))


def hessian(model: FlashCart, graph: AtomicGraph) -> Tensor:
    """Second derivatives of the total energy with respect to positions, one row of the backward pass per coordinate.

    Args:
        model: the model.
        graph: the structures.

    Returns:
        [3 n_atoms, 3 n_atoms], eV/Å^2, in the model's dtype; symmetric up to rounding.
    """
    n_atoms = graph.species.shape[0]
    leaf = graph.edge_vectors.detach().to(model.embedding.dtype).requires_grad_(True)
    with torch.enable_grad():
        energy = model(leaf, graph.senders, graph.receivers, graph.species).sum()
        (gradients,) = torch.autograd.grad(energy, leaf, create_graph=True, allow_unused=True)
        if gradients is None or leaf.shape[0] == 0:
            return leaf.new_zeros(3 * n_atoms, 3 * n_atoms)
        forces = edge_forces(gradients, graph.senders, graph.receivers, n_atoms).reshape(-1)
        rows = []
        for force in forces:
            (second,) = torch.autograd.grad(force, leaf, retain_graph=True)
            rows.append(edge_forces(second, graph.senders, graph.receivers, n_atoms).reshape(-1))
    return torch.stack(rows)
