"""Bookkeeping of ranks and requests: whole numbers and names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcart.ir.ranks import components, path_offsets, product_paths, rank_slice
from flashcart.ir.requests import ExpansionRequest, Weights, request_name

from ..programs import REQUESTS, ROW_PRODUCT


@pytest.mark.parametrize("l_max", range(6))
def test_slices_of_the_ranks_fill_the_components(l_max):
    places = [place for rank in range(l_max + 1) for place in range(components(l_max))[rank_slice(rank)]]
    assert places == list(range(components(l_max)))


def test_rank_1_stands_at_1_to_3():
    assert rank_slice(1) == slice(1, 4)


def test_offsets_end_with_the_total():
    paths = product_paths(1, 1, 1)
    assert [(p.l_first, p.l_second, p.l_out) for p in paths] == [(0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 1)]
    assert path_offsets(paths) == (0, 1, 2, 5, 8)


def test_paths_conserve_parity():
    assert all((p.l_first + p.l_second + p.l_out) % 2 == 0 for p in product_paths(4, 4, 4))


def test_every_request_has_a_name_of_its_own():
    requests = [*REQUESTS.values(), ExpansionRequest(2), replace(ROW_PRODUCT, weights=Weights.SHARED, symmetric=True)]
    assert len({request_name(request) for request in requests}) == len(requests)


def test_request_names_are_file_names():
    for request in REQUESTS.values():
        assert "/" not in request_name(request)
        assert " " not in request_name(request)
