"""Recorded steps do what ordinary steps do, and a step that fails does nothing.

What a GPU records is here done again as it is: the logic is the same on every device.
"""

from dataclasses import replace

import pytest
import torch

from cavity.inference import EP, SEP, VI, RowSites
from cavity.training.cuda_graphs import Replay
from cavity.training.optimizers import Adam
from tests.problems import PLAN, random_problem, trainer

PROBLEM = random_problem(seed=5, n_rows=18)
RATES = [2.0**-5, 2.0**-6, 2.0**-7, 2.0**-6]  # exact in single precision
DAMPING = 0.7
METHODS = pytest.mark.parametrize("method", [EP, SEP, VI])


def as_it_is(work):
    """Recording on a GPU runs the work, so here too."""
    work()
    return work


def places(run, size):
    return (list(run.data.draws(size, 2, 0)) * 2)[: len(RATES)]


def ordinary(run, theta, state, batches, optimizer):
    for positions, rate in zip(batches, RATES, strict=True):
        before = theta
        state, _, gradient = run.evaluate_unchecked(theta, state, run.data.batch(positions), DAMPING)
        theta = theta.clone()
        optimizer.move_(theta, gradient, rate)
    return theta, state.settled() if isinstance(state, RowSites) else state, before


def leaves(state):
    return (
        [state] if isinstance(state, torch.Tensor) else [x for part in state if part is not None for x in leaves(part)]
    )


def copied(state):
    return [x.clone() for x in leaves(state)]


@METHODS
@pytest.mark.parametrize("size", [6, 5])  # equal batches, and two sizes
def test_steps_are_the_ordinary_ones(method, size):
    run = trainer(method(), PROBLEM, replace(PLAN, batch_size=size))
    theta, state = run.start()
    batches = places(run, size)
    expected_theta, expected_state, before = ordinary(run, theta, state, batches, Adam(0.1, decay=False))
    theta, state = run.start()
    replay = Replay(run.evaluate_unchecked, run.data, Adam(0.1, decay=False), as_it_is)
    first = replay.run(theta, state, theta, batches[:1], RATES[:1], DAMPING)
    assert first.steps == 1
    found = replay.run(first.theta, first.state, first.before, batches[1:], RATES[1:], DAMPING)
    assert found.steps == 3
    torch.testing.assert_close(found.theta, expected_theta, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(found.before, before, rtol=1e-13, atol=1e-13)
    for x, y in zip(leaves(found.state), leaves(expected_state), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)


@METHODS
def test_a_failure_changes_nothing_and_stops_the_rest(method):
    run = trainer(method(), PROBLEM, replace(PLAN, batch_size=6))
    batches = places(run, 6)
    failing = {"on": None}

    def slope(theta, state, batch, damping):
        state, objective, gradient = run.evaluate_unchecked(theta, state, batch, damping)
        is_bad = torch.equal(batch.positions, batches[2].positions) and failing["on"] is not None
        return state, objective, gradient * torch.nan if is_bad else gradient

    optimizer = Adam(0.1, decay=False)
    replay = Replay(slope, run.data, optimizer, as_it_is)
    theta, state = run.start()
    two = replay.run(theta, state, theta, batches[:2], RATES[:2], DAMPING)
    kept = two.theta.clone(), copied(two.state), two.before.clone(), [x.clone() for x in optimizer._moments]
    failing["on"] = True
    found = replay.run(two.theta, two.state, two.before, batches[2:], RATES[2:], DAMPING)
    assert found.steps == 0
    assert found.total == 0
    assert torch.equal(found.theta, kept[0])
    assert torch.equal(found.before, kept[2])
    assert all(map(torch.equal, leaves(found.state), kept[1]))
    assert all(map(torch.equal, optimizer._moments, kept[3]))
    failing["on"] = None
    assert replay.run(found.theta, found.state, found.before, batches[2:], RATES[2:], DAMPING).steps == 2


def test_from_a_state_of_ones_own():
    """After an ordinary step replaying goes on from there."""
    run = trainer(EP(), PROBLEM, replace(PLAN, batch_size=6))
    batches = places(run, 6)
    expected, _, _ = ordinary(run, *run.start(), batches, Adam(0.1, decay=False))
    optimizer = Adam(0.1, decay=False)
    replay = Replay(run.evaluate_unchecked, run.data, optimizer, as_it_is)
    theta, state = run.start()
    found = replay.run(theta, state, theta, batches[:2], RATES[:2], DAMPING)
    state, _, gradient = run.evaluate_unchecked(found.theta, found.state, run.data.batch(batches[2]), DAMPING)
    theta = found.theta.clone()
    optimizer.move_(theta, gradient, RATES[2])
    last = replay.run(theta, state, found.theta, batches[3:], RATES[3:], DAMPING)
    torch.testing.assert_close(last.theta, expected, rtol=1e-13, atol=1e-13)


def test_all_rows_as_one_batch():
    run = trainer(SEP(), PROBLEM, PLAN)
    theta, state = run.start()
    replay = Replay(run.evaluate_unchecked, run.data, Adam(0.1, decay=False), as_it_is)
    found = replay.run(theta, state, theta, [run.data.full], RATES[:1], DAMPING)
    expected = run.evaluate_unchecked(theta, state, run.data.full, DAMPING)
    torch.testing.assert_close(found.total, float(expected[1]))
    for x, y in zip(leaves(found.state), leaves(expected[0]), strict=True):
        torch.testing.assert_close(x, y)
