"""Choices by measurement: made once, kept in the cache folder, never for more than three candidates."""

from __future__ import annotations

import json
import math

import pytest

from flashcart.ops import tuning
from flashcart.ops.kernel_cache import cache_folder, write_checked

SECONDS = [3e-6, 1e-6, 2e-6]


@pytest.fixture
def timed(monkeypatch):
    """The candidates that were timed; a new process each time `timed.clear()` is called."""
    calls = []
    monkeypatch.setattr(tuning, "_chosen", {})
    return calls


def choose(name, calls, seconds=SECONDS):
    def time(candidate):
        calls.append(candidate)
        return seconds[candidate]

    return tuning.choose(name, "GPU X/1 (test)", len(seconds), time)


def record(name):
    return cache_folder() / "tuning" / "GPU_X_1_test_" / f"{name}.json"


def test_the_fastest_is_chosen_once_and_recorded(timed):
    assert [choose("a/once", timed) for _ in range(3)] == [1, 1, 1]
    assert timed == [0, 1, 2]
    text = record("a/once").read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(text) == {"chosen": 1, "microseconds": [3.0, 1.0, 2.0]}


def test_a_later_process_reads_the_record(timed, monkeypatch):
    choose("a/later", timed)
    monkeypatch.setattr(tuning, "_chosen", {})
    before = tuning.n_measured()
    assert choose("a/later", timed, [0.0, 1.0, 1.0]) == 1  # as recorded, though now another one were faster
    assert timed == [0, 1, 2]
    assert tuning.n_measured() == before


@pytest.mark.parametrize("content", ["nonsense", '{"chosen": 3}\n', '{"chosen": "1"}\n', "{}\n"])
def test_a_damaged_record_is_made_again(timed, content):
    name = f"a/damaged{abs(hash(content))}"
    if content == "nonsense":
        record(name).parent.mkdir(parents=True, exist_ok=True)
        record(name).write_text(content, encoding="utf-8")
    else:
        write_checked(record(name), content)
    assert choose(name, timed) == 1
    assert timed == [0, 1, 2]


def test_what_cannot_run_is_not_chosen(timed):
    assert choose("a/cannot", timed, [math.inf, 2e-6]) == 1


def test_more_than_three_candidates_are_refused(timed):
    with pytest.raises(ValueError, match="at most 3"):
        choose("a/many", timed, [1.0] * 4)


def test_a_folder_that_cannot_be_written_costs_a_measurement_per_process(timed, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(tuning, "write_checked", refuse)
    assert choose("a/refused", timed) == 1
    monkeypatch.setattr(tuning, "_chosen", {})
    assert choose("a/refused", timed) == 1
    assert timed == [0, 1, 2] * 2
