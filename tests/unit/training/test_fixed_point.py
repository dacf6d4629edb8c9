"""Sweeps until q stands still: Anderson's mixing, and what happens where it does harm."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from cavity.inference import EP, GFITC, VI
from cavity.numerics.linalg import FactorizationError
from cavity.training.fixed_point import Anderson, fixed_point, relative_change
from tests.problems import converge, objective, random_problem, update


class State(NamedTuple):
    x: Tensor
    idle: Tensor


IDLE = torch.tensor([5.0], dtype=torch.float64)


def state(*values):
    return State(torch.tensor(values, dtype=torch.float64), IDLE)


def change(old, new):
    return float((new.x - old.x).abs().max())


def find(sweep, start, mixes=True, max_sweeps=500, tol=1e-10):
    """The fixed point, and the change of every sweep that counted."""
    seen = []
    found = fixed_point(
        sweep, change, start, max_sweeps, tol, mixes, lambda: False, lambda _, moved: seen.append(moved)
    )
    return found, seen


RATES = torch.tensor([0.99, 0.9, 0.5, -0.7], dtype=torch.float64)
TARGET = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)


def linear(s):
    return s._replace(x=TARGET + RATES * (s.x - TARGET))


def test_a_linear_map_takes_as_many_sweeps_as_it_has_rates():
    found, seen = find(linear, state(0.0, 0.0, 0.0, 0.0))
    torch.testing.assert_close(found.x, TARGET, rtol=0, atol=1e-8)  # a change of 1e-10 over 1 − 0.99
    assert len(seen) <= 10
    assert found.idle is IDLE


def test_without_mixing_every_sweep_is_plain():
    start, seen = state(0.0, 0.0, 0.0, 0.0), []
    found, seen = find(linear, start, mixes=False, max_sweeps=7)
    for _ in range(7):
        start = linear(start)
    torch.testing.assert_close(found.x, start.x, rtol=0, atol=0)
    assert len(seen) == 7


def test_a_jump_onto_forbidden_ground_is_taken_back():
    """A map that cannot be evaluated right of its fixed point, where jumps overshoot to."""

    def fenced(s):
        if (s.x > 1.0 + 1e-6).any():
            raise FactorizationError("out of bounds")
        return s._replace(x=s.x + 0.3 * (1.0 - s.x) ** 2)

    found, seen = find(fenced, state(-0.5), max_sweeps=400, tol=1e-6)
    assert seen[-1] < 1e-6
    assert abs(float(found.x) - 1.0) < 2e-3


def test_a_failure_of_a_plain_sweep_is_not_hidden():
    def broken(s):
        raise FactorizationError("no")

    with pytest.raises(FactorizationError, match="no"):
        find(broken, state(0.0))


def test_plain_sweeps_take_over_where_jumps_lead_nowhere(monkeypatch):
    """Mixing made useless: every mix lands somewhere else at random, near enough not to be taken back."""
    random = torch.Generator().manual_seed(0)

    def astray(self, x, gx, scale):
        return gx + 0.02 * torch.randn(gx.shape, generator=random, dtype=gx.dtype)

    monkeypatch.setattr(Anderson, "mix", astray)
    _, seen = find(linear, state(0.0, 0.0, 0.0, 0.0), max_sweeps=3000, tol=1e-6)
    assert seen[-1] < 1e-6


def test_the_clock_stops_it():
    calls = []
    fixed_point(lambda s: calls.append(1) or linear(s), change, state(0.0, 0.0, 0.0, 0.0), 50, 0.0, True, lambda: True)
    assert len(calls) == 1


@pytest.mark.parametrize("method", [EP, GFITC, VI])
def test_the_fixed_point_of_a_method_is_that_of_plain_sweeps(method):
    """Found in a fifth of the sweeps or fewer."""
    method, problem = method(), random_problem(seed=17, n_rows=30)
    prior, data = problem.prior(), problem.data()
    rows, sweeps = prior.conditional(data.X), {"plain": 0, "mixed": 0}

    def sweep(kind):
        def counted(state):
            sweeps[kind] += 1
            return update(method, prior, rows, state, data.full, 0.5)

        return counted

    start = method.init(prior, data.own_weight, len(data))
    expected, found = (
        fixed_point(
            sweep(kind),
            relative_change,
            start,
            5000,
            1e-10,
            kind == "mixed",
            lambda: False,
        )
        for kind in ("plain", "mixed")
    )
    assert sweeps["mixed"] * 5 <= sweeps["plain"] < 5000
    assert relative_change(found, converge(method, prior, data, tol=1e-11, start=found)) < 1e-8
    log_z = [float(objective(method, prior, rows, s, data.full, False).log_z) for s in (expected, found)]
    assert log_z[0] == pytest.approx(log_z[1], rel=1e-9)


# --- How far two states lie apart ---


def test_relative_change_is_the_largest_of_all_tensors():
    a, b = (torch.tensor([0.0, 2.0]), torch.tensor([0.5])), (torch.tensor([1.0, 4.0]), torch.tensor([0.2]))
    assert relative_change(a, b) == pytest.approx(0.5)  # 2 of 4; small tensors count by their own size of 1
    assert relative_change(a, a) == 0
