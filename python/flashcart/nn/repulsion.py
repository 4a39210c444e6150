"""Screened nuclear repulsion at short range (Ziegler, Biersack, Littmark 1985)."""

from __future__ import annotations

import torch
from torch import Tensor

from flashcart.nn.cutoff import envelope

COULOMB = 14.399645478  # e^2 / (4 pi epsilon_0), eV Å (CODATA 2018)
BOHR = 0.529177210903  # Å
SCREENING = ((0.1818, 3.2), (0.5099, 0.9423), (0.2802, 0.4028), (0.02817, 0.2016))


class Repulsion(torch.nn.Module):
    """Pair energies Z_i Z_j e^2/r phi(r/a), a = 0.8854 a_0/(Z_i^0.23 + Z_j^0.23), half to the receiver.

    Switched off by the polynomial envelope (p = 6) at the sum of the covalent radii, at most the cutoff.

    Args:
        numbers: atomic numbers by element.
        radii: covalent radii by element, Å.
        r_max: cutoff, Å.
    """

    def __init__(self, numbers: list[int], radii: list[float], r_max: float) -> None:
        super().__init__()
        self.r_max = r_max
        self.register_buffer("numbers", torch.tensor(numbers, dtype=torch.float64), persistent=False)
        self.register_buffer("radii", torch.tensor(radii, dtype=torch.float64), persistent=False)

    def forward(self, distances: Tensor, senders: Tensor, receivers: Tensor, species: Tensor) -> Tensor:
        """Energies per node, eV.

        Args:
            distances: [n_edges], Å.
            senders, receivers: [n_edges] int64.
            species: [n_nodes] int64.

        Returns:
            [n_nodes].
        """
        numbers: Tensor = self.numbers.to(distances.dtype)  # type: ignore[operator, assignment]
        radii: Tensor = self.radii.to(distances.dtype)  # type: ignore[operator, assignment]
        first, second = species.index_select(0, senders), species.index_select(0, receivers)
        z = numbers.index_select(0, first) * numbers.index_select(0, second)
        powers = numbers**0.23
        scale = (powers.index_select(0, first) + powers.index_select(0, second)) / (0.8854 * BOHR)
        x = distances * scale
        screening = sum(weight * torch.exp(-rate * x) for weight, rate in SCREENING)
        reach = (radii.index_select(0, first) + radii.index_select(0, second)).clamp(max=self.r_max)
        energies = 0.5 * COULOMB * z / distances * screening * envelope(distances / reach, 6)
        return energies.new_zeros(species.shape[0]).index_add(0, receivers, energies)
