"""Rows in blocks are all rows at once: sites, q, log Z and its gradient, and what a step holds of k(Z, X)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.gp.prior import Prior
from cavity.inference import EP, GFITC, SEP, VI, PlainVI, Terms
from cavity.inference.ep import leave_one_out
from cavity.runtime import memory
from cavity.training import fixed_point
from cavity.training.optimizers import Adam
from cavity.training.step import InBlocks, Inference, blocks_of, rows_of
from tests.live import Live
from tests.problems import PLAN, converge, random_problem, refresh, sweeps, trainer

WEIGHT = np.random.default_rng(7).uniform(0.3, 2.5, 47)
PROBLEM = replace(random_problem(seed=33, n_rows=47), weight=WEIGHT)
SIZE = 10  # rows of a block, at least
METHODS = pytest.mark.parametrize("method", [EP, lambda: EP(0.7), SEP, GFITC, VI, PlainVI])


@pytest.fixture
def blocks(monkeypatch):
    """Small blocks; they are kept between passes over the rows if asked for."""

    def use(kept=False, size=SIZE, problem=PROBLEM):
        C, M, _ = problem.Z.shape
        monkeypatch.setattr(memory, "PASS_ELEMENTS", size * C * M)
        monkeypatch.setattr(memory, "LEAST_BLOCK", 1)
        monkeypatch.setattr(memory, "KEPT_BLOCKS", 1000 if kept else 0)

    return use


@pytest.fixture
def prior():
    return PROBLEM.prior()


def close(a, b, atol=1e-10):
    for x, y in zip(fixed_point.leaves(a), fixed_point.leaves(b), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=atol)


def a_step(method, terms):
    """A state after three updates, log Z and its gradient there, by their order of use in training."""
    data, model = PROBLEM.data(), PROBLEM.model()
    prior, inference = model.prior(model.start()), Inference(method)
    state = method.init(prior, data.own_weight, len(data))
    f, natural = rows_of(prior, data.full), None
    for _ in range(3):
        state, natural = inference.update(prior, f, state, data.full, 0.6, natural)
    found = inference.objectives(prior, f, state, data.full, natural, terms)
    log_z, gradient = inference.gradient(model, prior, found)
    state = inference.refresh(prior, state, [data.full])
    return state, log_z, gradient, inference.log_z(prior, state, [data.full])


@METHODS
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_blocks_find_what_all_rows_find(method, kept, exact, blocks):
    state, log_z, gradient, (total, *counts) = a_step(method(), Terms(exact=exact))
    blocks(kept)
    in_blocks = a_step(method(), Terms(exact=exact))
    close(in_blocks[0], state)
    torch.testing.assert_close(in_blocks[1], log_z, rtol=1e-12, atol=0)
    close((in_blocks[2],), (gradient,))
    assert in_blocks[3] == (pytest.approx(total, rel=1e-12), *counts)
    assert gradient.abs().max() > 0.1


@pytest.mark.parametrize("method", [EP, SEP, GFITC, VI])
def test_whole_runs_agree(method, blocks):
    """Steps, sweeps that are mixed, the last passes."""

    def run():
        plan = replace(PLAN, max_epochs=4, final_sweeps=3)
        return trainer(method(), PROBLEM, plan).train(Adam(0.05, decay=False))

    alone = run()
    blocks()
    found = run()
    torch.testing.assert_close(found.theta, alone.theta, rtol=0, atol=1e-9)
    assert found.log_z == pytest.approx(alone.log_z, rel=1e-9)
    close(found.state, alone.state, atol=1e-7)


def test_several_workers_have_blocks_of_their_own(blocks, prior):
    """The share of the terms without rows is that of every block of every worker."""
    blocks()
    data, method = PROBLEM.data(), EP()
    state = sweeps(method, prior, data, 2)
    shares = []

    class Spy(EP):
        def objective(self, prior, f, state, natural, batch, terms):
            shares.append(terms.share)
            return super().objective(prior, f, state, natural, batch, terms)

    list(Inference(Spy()).objectives(prior, rows_of(prior, data.full), state, data.full, None))
    assert shares == [0.25] * 4


# --- Blocks ---


def test_blocks_are_all_rows_in_order_of_nearly_equal_size(blocks, prior):
    blocks()
    data = PROBLEM.data()
    found = blocks_of(prior, data.full)
    assert [i for rows in found for i in range(47)[rows]] == list(range(47))
    assert {rows.stop - rows.start for rows in found} == {11, 12}


def test_small_problems_and_mini_batches_are_one_block(blocks, prior):
    data = PROBLEM.data()
    assert not isinstance(rows_of(prior, data.full), InBlocks)
    blocks(size=24)
    assert not isinstance(rows_of(prior, data.full), InBlocks)
    blocks()
    (batch,) = data.in_order(len(data))
    assert not isinstance(rows_of(prior, batch), InBlocks)


@pytest.mark.parametrize("kept", [False, True])
def test_kept_blocks_are_computed_once(kept, blocks, prior, monkeypatch):
    blocks(kept)
    calls, conditional = [], Prior.conditional

    def spy(self, X, *args):
        calls.append(len(X))
        return conditional(self, X, *args)

    monkeypatch.setattr(Prior, "conditional", spy)
    data = PROBLEM.data()
    found = rows_of(prior, data.full)
    for _ in range(3):
        list(found)
    assert len(calls) == (4 if kept else 12)
    assert max(calls) == 12


@pytest.mark.parametrize("method", [EP, SEP, VI, GFITC])
def test_steps_and_sweeps_hold_no_matrix_of_all_rows(method, blocks, monkeypatch):
    """Of more rows they hold the rows and, of each, a dozen times its sites; k(Z, X) alone would be more."""
    monkeypatch.setattr(fixed_point, "LARGE_STATE", 1000)

    def peak(n_rows):
        problem = random_problem(seed=5, n_rows=n_rows, n_inducing=60)
        blocks(size=50, problem=problem)
        run = trainer(method(), problem, replace(PLAN, max_epochs=1, final_sweeps=12, sweep_tol=0.0))
        with torch.no_grad(), Live() as live:
            run.train(Adam(0.01))
        return live.peak

    few, many = peak(500), peak(1500)
    assert many - few < 12 * memory.FLOAT * 4 * 3 * 1000 < memory.FLOAT * 3 * 60 * 1000


def test_sites_come_apart_and_together(prior):
    data = PROBLEM.data()
    state = sweeps(EP(), prior, data, 2)
    parts = {20: slice(0, 20), 27: slice(20, 47)}
    found = state.blank()
    for size, rows in parts.items():
        part = state.part(rows)
        assert part.store.precision.shape[-1] == size
        found.fill(rows, part)
    close(found, state, atol=0)
    assert found.T is state.T  # by which mixing knows what has not changed


def test_leave_one_out_of_a_part_is_that_of_all_rows(prior):
    data = PROBLEM.data()
    state = refresh(EP(), prior, converge(EP(), prior, data), [data.full])
    q, rows = EP().q(prior, state), slice(10, 30)
    whole = leave_one_out(prior, state, q, data.full)
    part = leave_one_out(prior, state.part(rows), q, data.full.part(rows))
    close(part, tuple(x[:, rows] for x in whole))
