"""The independent reference: products of irreducible tensors on all 3^l entries, straight from the definition."""

from __future__ import annotations

import math
import string
from itertools import permutations

import numpy as np

Array = np.ndarray


def double_factorial(n: int) -> int:
    """n!! with (-1)!! = 1."""
    return math.prod(range(n, 0, -2))


def symmetrise(t: Array) -> Array:
    """Average over all permutations of the indices."""
    orders = list(permutations(range(t.ndim)))
    return sum(np.transpose(t, order) for order in orders) / len(orders)


def detrace(t: Array) -> Array:
    """Traceless part of a symmetric tensor: sum_k a_k Sym(D^k tr^k A), a_k as in the mathematics of the project."""
    l, result, trace = t.ndim, np.zeros_like(t), t
    for k in range(l // 2 + 1):
        a = (-1) ** k * math.factorial(l) * double_factorial(2 * l - 2 * k - 1)
        a /= math.factorial(l - 2 * k) * double_factorial(2 * l - 1) * double_factorial(2 * k)
        term = trace
        for _ in range(k):
            term = np.multiply.outer(np.eye(3), term)
        result = result + a * symmetrise(term)
        if trace.ndim >= 2:
            trace = np.trace(trace, axis1=0, axis2=1)
    return result


def product(first: Array, second: Array, l_out: int) -> Array:
    """Contract k = (l1 + l2 - l3)/2 index pairs, symmetrise, remove traces."""
    k = (first.ndim + second.ndim - l_out) // 2
    left, right = string.ascii_lowercase[: first.ndim], string.ascii_uppercase[: second.ndim]
    right = left[:k] + right[k:]
    contracted = np.einsum(f"{left},{right}->{left[k:]}{right[k:]}", first, second)
    return detrace(symmetrise(np.asarray(contracted)))


def unit_vector_tensor(u: Array, l: int) -> Array:
    """T^l in the Legendre form: sum_k (-1)^k (2l-2k-1)!!/((l-2k)!(2k)!!) Sym(D^k u^(l-2k))."""
    result = np.zeros((3,) * l)
    for k in range(l // 2 + 1):
        term = np.array(1.0)
        for _ in range(k):
            term = np.multiply.outer(term, np.eye(3))
        for _ in range(l - 2 * k):
            term = np.multiply.outer(term, u)
        weight = (-1) ** k * double_factorial(2 * l - 2 * k - 1) / (math.factorial(l - 2 * k) * double_factorial(2 * k))
        result = result + weight * symmetrise(term)
    return result
