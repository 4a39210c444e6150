"""The edge products of products.py as public packages compute them: e3nn and cuEquivariance, where installed.

Same paths, channels, indices and weights per edge, gather and sum included; values are random, since only times are
compared. Each function returns calls named as in products.py, or raises ImportError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from products import Case

Steps = dict[str, Callable[[], object]]


def steps_of(forward: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Steps:
    """Forward, backward and double backward of a function, as calls on prepared graphs."""
    out = forward(*inputs)
    cotangent = torch.randn_like(out).requires_grad_()
    first = torch.autograd.grad(out, inputs, cotangent, create_graph=True)
    everything = [*inputs, cotangent]
    seconds = [torch.randn_like(x) for x in inputs]
    return {
        "forward": lambda: forward(*inputs),
        "backward": lambda: torch.autograd.grad(out, inputs, cotangent.detach(), retain_graph=True),
        "double backward": lambda: torch.autograd.grad(first, everything, seconds, retain_graph=True),
    }


def e3nn(case: Case) -> Steps:
    """e3nn's TensorProduct, uvu, external weights; gather and index_add around it."""
    from e3nn import o3

    layer = case.layer
    left = o3.Irreps([(case.channels, (l, (-1) ** l)) for l in range(layer.l_in + 1)])
    right = o3.Irreps([(1, (l, (-1) ** l)) for l in range(layer.l_edge + 1)])
    out = o3.Irreps([(case.channels, (p.l_out, (-1) ** p.l_out)) for p in layer.paths])
    paths = [(p.l_first, p.l_second, k, "uvu", True) for k, p in enumerate(layer.paths)]
    product = o3.TensorProduct(left, right, out, paths, shared_weights=False, internal_weights=False).cuda()
    shapes = [(case.n_nodes, left.dim), (case.n_edges, right.dim), (case.n_edges, product.weight_numel)]

    def forward(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        messages = product(x.index_select(0, case.senders), y, w)
        return messages.new_zeros(case.n_nodes, out.dim).index_add(0, case.receivers, messages)

    return steps_of(forward, [torch.randn(s, device="cuda", requires_grad=True) for s in shapes])


def cuequivariance(case: Case, method: str = "uniform_1d") -> Steps:
    """cuEquivariance's channel-wise product as one segmented polynomial, gather and sum inside its kernel."""
    import cuequivariance as cue
    import cuequivariance_torch as cuet

    layer, c = case.layer, case.channels

    def irreps(l_max: int, count: int) -> Any:
        return cue.Irreps("O3", "+".join(f"{count}x{l}{'eo'[l % 2]}" for l in range(l_max + 1)))

    kept = [cue.O3(l, (-1) ** l) for l in range(layer.l_out + 1)]
    product = cue.descriptors.channelwise_tensor_product(irreps(layer.l_in, c), irreps(layer.l_edge, 1), kept)
    polynomial = product.flatten_coefficient_modes().squeeze_modes().polynomial
    sizes = [operand.size for operand in polynomial.inputs]
    if sizes[0] != layer.n_paths * c:
        raise ValueError(f"cuEquivariance has {sizes[0] // c} paths, FlashCart {layer.n_paths}")
    device = case.senders.device
    module = cuet.SegmentedPolynomial(polynomial, method=method, math_dtype=torch.float32).to(device)
    like = torch.empty(1, device=device).expand(case.n_nodes, polynomial.outputs[0].size)

    def forward(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return module([w, x, y], {1: case.senders}, {0: like}, {0: case.receivers})[0]

    rows = (case.n_edges, case.n_nodes, case.n_edges)
    shapes = list(zip(rows, sizes, strict=True))
    return steps_of(forward, [torch.randn(s, device=device, requires_grad=True) for s in shapes])
