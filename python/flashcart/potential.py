"""Atomic structures as the model sees them: edge vectors and indices.

Takes edge vectors, never positions; reads no files and builds no neighbour lists (`flashcart.data` does).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch


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

    edge_vectors: torch.Tensor
    senders: torch.Tensor
    receivers: torch.Tensor
    species: torch.Tensor
    batch: torch.Tensor
    n_structures: int
    volumes: torch.Tensor

    def to(self, device: torch.device | str) -> AtomicGraph:
        """Return the same graph with every tensor on `device`."""
        names = ("edge_vectors", "senders", "receivers", "species", "batch", "volumes")
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in names}
        return replace(self, **moved)
