"""What the methods share: who counts how often, and the sites of every row."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.gp.sites import Site
from cavity.inference import EP, GFITC, METHODS, Method, PlainVI
from cavity.inference.base import RowSites, factor_counts, factor_weights
from tests.problems import objective, random_problem, update
from tests.reference import oracle

ALIKE = {"lengthscale": np.ones(2), "variance": np.array(1.5), "noise": np.array(0.3)}


def test_factor_counts_against_loops():
    """n_k = (N − N_k) + N_k (C − 1), rows counted by weight."""
    y, w = np.array([0, 0, 1, 2, 2, 2]), np.array([1.0, 2.0, 0.5, 1.0, 1.0, 3.0])
    own = torch.tensor([w[y == k].sum() for k in range(4)])
    np.testing.assert_allclose(factor_counts(own), oracle.sep_counts(y, 4, w))


def test_factor_weights_skip_the_own_class():
    batch = random_problem(n_rows=6).data().full
    weight = torch.arange(1.0, 7.0, dtype=torch.float64)
    found = factor_weights(batch._replace(weight=weight))
    for i in range(6):
        for j in range(3):
            assert found[j, i] == (0 if batch.own[j, i] else weight[i])


@pytest.mark.parametrize("shared", [False, True])
def test_empty_sites_are_one_for_every_row_and_class(shared):
    problem = random_problem(n_rows=6, n_inducing=5)
    prior = problem.prior() if not shared else replace(problem, **ALIKE).prior(shared=(True, True))
    found = RowSites.empty(prior, 7)
    assert [x.shape for x in found.store] == [(2, 3, 7)] * 2
    assert found.T.shape == (3, 5, 5)
    assert found.t.shape == (3, 5)
    assert not any(x.any() for x in (*found.store, found.T, found.t))
    assert found.held is None
    parts = [x[half] for x in found.store for half in range(2)]
    assert len({x.data_ptr() for x in parts}) == 4  # no two of them the same memory


# --- Sites of every row, in batches ---


@pytest.fixture
def sites():
    """A state of 9 rows with sites of its own, and its batches of 3."""
    problem = random_problem(seed=5, n_rows=9)
    state = RowSites.empty(problem.prior(), 9)
    return state._replace(store=some_sites(9)), list(problem.data().in_order(3))


def some_sites(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    return Site(*(torch.from_numpy(rng.standard_normal((2, 3, n_rows))) for _ in range(2)))


def copied(site):
    return Site(*(x.clone() for x in site))


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def at(site, positions):
    return Site(*(x[..., positions] for x in site))


def test_new_sites_are_held_back_until_the_next_batch(sites):
    state, (first, second, _) = sites
    before, new = copied(state.store), some_sites(3, seed=1)
    one = state.with_sites(first, new)
    assert same(one.sites(first), new)
    assert same(state.store, before)  # not a place of it
    two = one.with_sites(second, some_sites(3, seed=2))
    assert same(at(two.store, first.positions), new)
    assert same(at(two.store, torch.arange(3, 9)), at(before, torch.arange(3, 9)))


def test_asking_for_another_batch_writes_the_one_before(sites):
    """So batches that share rows see the newest sites."""
    state, (first, *_) = sites
    new = some_sites(3, seed=1)
    one = state.with_sites(first, new)
    across = first._replace(positions=torch.tensor([2, 3, 0]))
    found = one.sites(across)
    assert same(at(found, [0, 2]), at(new, [2, 0]))
    assert same(at(found, [1]), at(state.store, [3]))


def test_settled_writes_what_is_held_back_in_place(sites):
    state, (first, second, _) = sites
    new, where = some_sites(3, seed=1), [x.data_ptr() for x in state.store]
    expected = copied(state.store)
    for x, n in zip(expected, new, strict=True):
        x[..., second.positions] = n
    found = state.with_sites(second, new).settled()
    assert found.held is None
    assert same(found.store, expected)
    assert [x.data_ptr() for x in found.store] == where
    assert found.settled() is found
    assert same(found.sites(first), at(expected, first.positions))


def test_a_batch_discarded_leaves_no_trace(sites):
    """Going on from the state before it, whatever came between."""
    state, (first, second, third) = sites
    kept, dropped, last = (some_sites(3, seed=k) for k in (1, 2, 3))
    expected = copied(state.store)
    for x, a, b in zip(expected, kept, last, strict=True):
        x[..., first.positions], x[..., third.positions] = a, b
    good = state.with_sites(first, kept)
    good.sites(second)
    good.with_sites(second, dropped)
    again = good.settled()  # as a refresh does
    assert same(again.sites(second), at(expected, second.positions))
    assert same(again.with_sites(third, last).settled().store, expected)
    assert same(good.with_sites(third, last).settled().store, expected)


def test_the_same_batch_twice_keeps_its_last_sites(sites):
    state, (first, *_) = sites
    before, new = copied(state.store), [some_sites(3, seed=k) for k in (1, 2)]
    one = state.with_sites(first, new[0])
    two = one.with_sites(first, new[1])
    assert same(state.store, before)
    assert same(one.sites(first), new[0])  # as long as nothing is written
    assert same(two.settled().sites(first), new[1])


def test_all_rows_at_once_replace_the_store(sites):
    """Nothing is written in place there: a fixed point may go back to an older state."""
    state, _ = sites
    full, before, new = random_problem(seed=5, n_rows=9).data().full, copied(state.store), some_sites(9, seed=1)
    found = state.with_sites(full, new)
    assert found.sites(full) is new
    assert found.held is None
    assert same(state.store, before)


def test_a_step_of_ep_copies_no_store():
    """Its cost must not grow with the rows: over an epoch the sites of all rows stay in their place in memory."""
    problem = random_problem(seed=5, n_rows=9)
    prior, data = problem.prior(), problem.data()
    state = EP().init(prior, data.own_weight, len(data))
    where = [x.data_ptr() for x in state.store]
    for batch in data.in_order(3):
        rows = prior.conditional(batch.X)
        state = update(EP(), prior, rows, state, batch, 0.8)
        objective(EP(), prior, rows, state, batch)
        assert [x.data_ptr() for x in state.store] == where
        assert state.held[1].precision.shape == (2, 3, 3)
    assert all(x.any(0).any(0).all() for x in state.settled().store)  # and every row has got its sites


def test_a_step_of_ep_discarded_leaves_no_trace():
    """Two steps, with another one tried and dropped between them, are two steps."""
    problem, results = random_problem(seed=5, n_rows=9), []
    prior, data = problem.prior(), problem.data()
    first, second, third = data.in_order(3)
    for has_detour in (False, True):
        state = EP().init(prior, data.own_weight, len(data))
        state = update(EP(), prior, prior.conditional(first.X), state, first, 0.8)
        if has_detour:
            dropped = update(EP(), prior, prior.conditional(second.X), state, second, 0.8)
            objective(EP(), prior, prior.conditional(second.X), dropped, second)
        state = update(EP(), prior, prior.conditional(third.X), state, third, 0.8).settled()
        results.append((*state.store, state.T, state.t))
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-13)


@pytest.mark.parametrize("method", [*METHODS.values(), PlainVI])
def test_a_method_has_all_that_training_needs(method):
    made = method()
    assert isinstance(made, Method)
    assert made.keeps_rows == (method in (EP, GFITC))
    assert made.learns_q == (method is PlainVI)


def test_methods_by_name():
    assert list(METHODS) == ["ep", "sep", "gfitc", "vi"]
    assert PlainVI not in METHODS.values()
