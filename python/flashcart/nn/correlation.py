"""The product layer: powers of a node's aggregated features, up to a degree."""

from __future__ import annotations

import torch
from torch import Tensor

from flashcart.nn.message import add_ranks, first_ranks
from flashcart.nn.mixing import EquivariantLinear
from flashcart.nn.norm import LayerNorm
from flashcart.nn.product import TensorProduct


class ProductLayer(torch.nn.Module):
    """Sum over degrees d of a linear map of the d-th power of the features, residual, norm.

    With paths kept, B_1 = M_1 A, B_d = M_d (B_(d-1) x A), result sum of B_d: M_d maps (path, channel) to channels. With
    paths reduced, T_1 = A, T_d = sum over paths of (1 + delta) / sqrt(paths) (T_(d-1) x A), result one linear map over
    (degree, channel).

    Args:
        ranks: (rank of the input and of intermediate powers, rank of the output).
        channels: number of channels.
        degree: highest power, 1 = none.
        n_elements: weights per element where given.
        reduced: paths summed with learnable weights.
        layer_norm: whether the result is normalised.
        backend: of the products.
    """

    def __init__(
        self,
        ranks: tuple[int, int],
        channels: int,
        degree: int,
        *,
        n_elements: int | None,
        reduced: bool,
        layer_norm: bool,
        backend: str = "torch",
    ) -> None:
        super().__init__()
        l_in, self.l_out = ranks
        inner = [l_in] * (degree - 2) + [self.l_out] * (degree > 1)
        self.products = torch.nn.ModuleList(
            TensorProduct(l_in, l_in, l_out, channels, backend, sum_paths=reduced) for l_out in inner
        )
        self.reduced, self.n_elements = reduced, n_elements
        if reduced:
            self.deltas = torch.nn.ParameterList(
                torch.nn.Parameter(torch.zeros(n_elements or 1, product.n_paths, channels)) for product in self.products
            )
            self.mix = EquivariantLinear([degree] * (self.l_out + 1), channels, channels, n_elements=n_elements)
        else:
            first = self.l_out if degree == 1 else l_in
            kept = [[1] * (first + 1)] + [list(product.paths_per_rank()) for product in self.products]
            self.maps = torch.nn.ModuleList(
                EquivariantLinear(paths, channels, channels, n_elements=n_elements) for paths in kept
            )
        self.norm = LayerNorm(self.l_out, channels) if layer_norm else None

    def forward(self, x: Tensor, species: Tensor) -> Tensor:
        """[n, (l_in + 1)^2, channels] and [n] element numbers -> [n, (l_out + 1)^2, channels]."""
        out = self._reduced(x, species) if self.reduced else self._kept(x, species)
        out = add_ranks(out, x)
        return out if self.norm is None else self.norm(out)

    def _kept(self, x: Tensor, species: Tensor) -> Tensor:
        first = x if len(self.products) else first_ranks(x, self.l_out)
        power = self.maps[0](first, species)
        total = first_ranks(power, self.l_out)
        for product, mix in zip(self.products, list(self.maps)[1:], strict=True):
            power = mix(product(power, x), species)
            total = total + first_ranks(power, self.l_out)
        return total

    def _reduced(self, x: Tensor, species: Tensor) -> Tensor:
        powers = [x]
        for product, delta in zip(self.products, self.deltas, strict=True):
            counts = torch.tensor([product.paths_per_rank()[path.l_out] for path in product.paths], device=x.device)
            weights = (1 + delta) * counts.to(x.dtype).rsqrt().unsqueeze(1)
            per_row = weights[0] if self.n_elements is None else weights.index_select(0, species)
            powers.append(product(powers[-1], x, per_row))
        return self.mix(_by_rank([first_ranks(power, self.l_out) for power in powers], self.l_out), species)


def _by_rank(tensors: list[Tensor], l_max: int) -> Tensor:
    """Several tensors as the paths of one: by rank, then tensor, then component."""
    parts = [t[:, rank**2 : (rank + 1) ** 2] for rank in range(l_max + 1) for t in tensors]
    return torch.cat(parts, dim=1)
