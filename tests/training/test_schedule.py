"""The learning rate over a run."""

import pytest

from flashcart.training.schedule import Schedule

SCHEDULE = Schedule(max_epochs=40, warmup_epochs=10, decay_epochs=20, start_factor=0.1, end_factor=1e-3)


def test_first_step_has_start_factor():
    assert SCHEDULE.factor(0.0, 0.25) == pytest.approx(0.1)


def test_last_step_has_end_factor():
    assert SCHEDULE.factor(39.75, 40.0) == pytest.approx(1e-3)


def test_plateau_is_one():
    assert [SCHEDULE.factor(start, start + 0.5) for start in (10.0, 15.0, 19.5)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("shape", "halfway"), [("linear", 0.55), ("cosine", 0.55), ("sqrt", 0.1 + 0.9 * 0.5**0.5)])
def test_warmup_shape_halfway(shape, halfway):
    schedule = Schedule(40, 10, 20, start_factor=0.1, warmup_shape=shape)
    assert schedule.factor(5.0, 5.5) == pytest.approx(halfway)


@pytest.mark.parametrize(("shape", "quarter"), [("linear", 0.75), ("cosine", 0.853553), ("sqrt", 0.5)])
def test_decay_shape_after_a_quarter(shape, quarter):
    schedule = Schedule(40, 10, 20, end_factor=0.0, decay_shape=shape)
    assert schedule.factor(24.5, 25.0) == pytest.approx(quarter, abs=1e-6)


@pytest.mark.parametrize("shape", ["linear", "cosine", "sqrt"])
def test_factor_rises_then_falls(shape):
    schedule = Schedule(40, 10, 20, warmup_shape=shape, decay_shape=shape)
    factors = [schedule.factor(step / 4, (step + 1) / 4) for step in range(160)]
    top = factors.index(1.0)
    assert factors[:top] == sorted(factors[:top])
    assert factors[top:] == sorted(factors[top:], reverse=True)


def test_phases_that_do_not_fit_are_shortened_in_proportion():
    fitted = Schedule(max_epochs=6, warmup_epochs=10, decay_epochs=20).fitted()
    assert (fitted.warmup_epochs, fitted.decay_epochs) == (pytest.approx(2.0), pytest.approx(4.0))


def test_phases_that_fit_are_kept():
    assert SCHEDULE.fitted() is SCHEDULE


def test_without_phases_the_factor_is_one():
    schedule = Schedule(max_epochs=3, warmup_epochs=0, decay_epochs=0)
    assert {schedule.factor(i / 2, (i + 1) / 2) for i in range(6)} == {1.0}
