"""Coupling coefficients: exact constants, an independent reference on full tensors, Clebsch-Gordan."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import Rational

from flashcart.algebra.product import cartesian_coupling, coupling_square, normalised_coupling
from flashcart.algebra.symmetric_traceless import full_tensors
from flashcart.ir.ranks import Path, path_offsets, product_paths

from .full_tensors import product, unit_vector_tensor

# lambda^2 by (l1, l2, l3); it is symmetric in l1 and l2.
COUPLING_SQUARES = {
    "110": "3", "121": "5/3", "220": "5", "222": "7/12", "132": "7/5", "231": "7/3", "233": "2/5", "330": "7",
    "332": "14/25", "143": "9/7", "242": "9/5", "244": "55/168", "334": "11/45", "341": "3", "343": "11/35", "440": "9",
    "442": "33/56", "444": "143/980",
}  # fmt: skip
UNIT_VECTOR_CONSTANTS = {
    "112": 2 / 3, "123": 3 / 5, "220": 3 / 2, "222": 1 / 2, "231": 3 / 2, "233": 2 / 5, "330": 5 / 2, "332": 2 / 3,
}  # fmt: skip
EVEN_PATHS = product_paths(4, 4, 4)


def path(name: str) -> Path:
    first, second, out = (int(digit) for digit in name)
    return Path(out, first, second)


def dense(p: Path, coupling: dict) -> np.ndarray:
    """[2 l1 + 1, 2 l2 + 1, 2 l3 + 1]."""
    array = np.zeros((2 * p.l_first + 1, 2 * p.l_second + 1, 2 * p.l_out + 1))
    for place, value in coupling.items():
        array[place] = float(value)
    return array


@pytest.mark.parametrize(("name", "value"), COUPLING_SQUARES.items())
def test_coupling_square_is_the_exact_rational(name, value):
    assert coupling_square(path(name)) == Rational(value)


@pytest.mark.parametrize("name", COUPLING_SQUARES)
def test_coupling_square_is_symmetric_in_the_inputs(name):
    p = path(name)
    assert coupling_square(Path(p.l_out, p.l_second, p.l_first)) == coupling_square(p)


@pytest.mark.parametrize("l", range(5))
def test_coupling_square_is_one_for_products_with_scalars(l):
    assert coupling_square(Path(l, 0, l)) == coupling_square(Path(l, l, 0)) == 1


@pytest.mark.parametrize(("l1", "l2"), [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (2, 3)])
def test_coupling_square_is_one_for_stretched_paths(l1, l2):
    assert coupling_square(Path(l1 + l2, l1, l2)) == 1


def test_listed_coupling_squares_are_all_that_are_not_trivial():
    """Together with the last three tests: every even path up to rank 4 has its lambda^2 tested."""
    rest = {p for p in EVEN_PATHS if 0 not in (p.l_first, p.l_second) and p.l_first + p.l_second != p.l_out}
    listed = {path(name) for name in COUPLING_SQUARES} | {
        path(name[1] + name[0] + name[2]) for name in COUPLING_SQUARES
    }
    assert rest == listed


@pytest.mark.parametrize(
    ("ranks", "counts"), [((0, 3, 3), (1, 1, 1, 1)), ((2, 3, 3), (3, 5, 5, 4)), ((3, 3, 3), (4, 6, 7, 6))]
)
def test_path_counts_by_output_rank(ranks, counts):
    paths = product_paths(*ranks)
    assert tuple(sum(p.l_out == rank for p in paths) for rank in range(4)) == counts
    assert len(paths) == sum(counts) == {0: 4, 2: 17, 3: 23}[ranks[0]]


def test_paths_are_stored_by_output_rank_then_input_ranks():
    paths = product_paths(2, 2, 2)
    assert [(p.l_out, p.l_first, p.l_second) for p in paths] == sorted((p.l_out, p.l_first, p.l_second) for p in paths)
    sizes = np.diff(path_offsets(paths))
    assert list(sizes) == [2 * p.l_out + 1 for p in paths]


def test_symmetric_products_keep_one_of_two_mirrored_paths():
    full, half = product_paths(3, 3, 3), product_paths(3, 3, 3, symmetric=True)
    assert {(p.l_out, *sorted((p.l_first, p.l_second))) for p in full} == {
        (p.l_out, p.l_first, p.l_second) for p in half
    }
    assert len(half) < len(full)


def test_odd_paths_are_refused():
    with pytest.raises(ValueError, match="not an even path"):
        cartesian_coupling(Path(1, 1, 1))


@pytest.mark.parametrize("p", EVEN_PATHS, ids=lambda p: f"{p.l_first}{p.l_second}{p.l_out}")
def test_coupling_agrees_with_full_tensors(p):
    """Random tensors, contracted, symmetrised and detraced on all 3^l entries; sums of up to 3^8 terms: 1e-12."""
    rng = np.random.default_rng(7)
    a, b = rng.normal(size=2 * p.l_first + 1), rng.normal(size=2 * p.l_second + 1)
    bases = {l: np.array(full_tensors(l)) for l in (p.l_first, p.l_second, p.l_out)}
    full = [(c @ bases[l]).reshape((3,) * l) for c, l in ((a, p.l_first), (b, p.l_second))]
    expected = bases[p.l_out] @ product(*full, p.l_out).ravel()
    assert np.abs(expected).max() > 1e-4
    result = np.einsum("i,j,ijk->k", a, b, dense(p, cartesian_coupling(p)))
    np.testing.assert_allclose(result, expected, atol=1e-12)


@pytest.mark.parametrize(("name", "constant"), UNIT_VECTOR_CONSTANTS.items())
def test_product_of_unit_vector_tensors_is_a_constant_times_one(name, constant):
    _check_unit_vector_constant(path(name), constant)


@pytest.mark.parametrize("l", [1, 2, 3, 4])
def test_unit_vector_constant_is_one_with_scalars_and_for_vectors_that_lower_the_rank(l):
    _check_unit_vector_constant(Path(l, 0, l), 1.0)
    _check_unit_vector_constant(Path(l - 1, 1, l), 1.0)


def _check_unit_vector_constant(p: Path, constant: float) -> None:
    u = np.array([0.36, -0.48, 0.8])
    parts = {l: np.array(full_tensors(l)) @ unit_vector_tensor(u, l).ravel() for l in (p.l_first, p.l_second, p.l_out)}
    result = np.einsum("i,j,ijk->k", parts[p.l_first], parts[p.l_second], dense(p, cartesian_coupling(p)))
    np.testing.assert_allclose(result, constant * parts[p.l_out], atol=1e-13)  # rounding of numbers of order 10


@pytest.mark.parametrize("p", EVEN_PATHS, ids=lambda p: f"{p.l_first}{p.l_second}{p.l_out}")
def test_normalised_coupling_is_a_clebsch_gordan_coupling(p):
    """An equivariant coupling is unique up to a factor: orthonormal in m3 means Clebsch-Gordan up to sign."""
    c = dense(p, normalised_coupling(p))
    np.testing.assert_allclose(np.einsum("ijk,ijl->kl", c, c), np.eye(2 * p.l_out + 1), atol=1e-13)


def test_coupling_to_a_scalar_is_the_dot_product():
    for l in range(5):
        np.testing.assert_allclose(dense(Path(0, l, l), cartesian_coupling(Path(0, l, l)))[:, :, 0], np.eye(2 * l + 1))


@pytest.mark.parametrize("name", ["112", "222", "231", "233", "332", "341", "442"])
def test_normalised_coupling_equals_the_real_clebsch_gordan_coupling(name):
    from sympy.physics.wigner import clebsch_gordan

    p = path(name)
    table = np.zeros((2 * p.l_first + 1, 2 * p.l_second + 1, 2 * p.l_out + 1))
    for m1 in range(-p.l_first, p.l_first + 1):
        for m2 in range(-p.l_second, p.l_second + 1):
            if abs(m1 + m2) <= p.l_out:
                value = float(clebsch_gordan(p.l_first, p.l_second, p.l_out, m1, m2, m1 + m2))
                table[m1 + p.l_first, m2 + p.l_second, m1 + m2 + p.l_out] = value
    maps = [_real_from_complex(l) for l in (p.l_first, p.l_second, p.l_out)]
    expected = np.einsum("am,bn,ck,mnk->abc", maps[0], maps[1], maps[2].conj(), table)
    result = dense(p, normalised_coupling(p))
    assert np.abs(expected.imag).max() < 1e-14
    sign = np.sign(np.sum(expected.real * result))
    np.testing.assert_allclose(result, sign * expected.real, atol=1e-14)


def _real_from_complex(l: int) -> np.ndarray:
    """Rows: our basis; columns: |l m>, m = -l .. l, Condon-Shortley phase."""
    rows = []
    for m in [1, -1, 0] if l == 1 else range(-l, l + 1):
        row, k = np.zeros(2 * l + 1, dtype=complex), abs(m)
        if m == 0:
            row[l] = 1
        else:  # cos(k phi) or sin(k phi) from exp(+-i k phi)
            row[l + k], row[l - k] = (-1) ** k, 1 if m > 0 else -1
            row /= np.sqrt(2) * (1 if m > 0 else 1j)
        rows.append(row)
    return np.array(rows)
