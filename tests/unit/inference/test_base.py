"""What the methods share: who counts how often, and how far two states lie apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.inference import EP, GFITC, METHODS, Method, PlainVI
from cavity.inference.base import RowSites, factor_counts, factor_weights, relative_change
from tests.problems import random_problem
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


def test_relative_change_is_the_largest_of_all_tensors():
    a, b = [torch.tensor([0.0, 2.0]), torch.tensor([0.5])], [torch.tensor([1.0, 4.0]), torch.tensor([0.2])]
    assert relative_change(a, b) == pytest.approx(0.5)  # 2 of 4; small tensors count by their own size of 1
    assert relative_change(a, a) == 0


@pytest.mark.parametrize("shared", [False, True])
def test_empty_sites_are_one_for_every_row_and_class(shared):
    problem = random_problem(n_rows=6, n_inducing=5)
    prior = problem.prior() if not shared else replace(problem, **ALIKE).prior(shared=(True, True))
    found = RowSites.empty(prior, 7)
    assert [x.shape for x in (*found.own, *found.other)] == [(3, 7)] * 4
    assert found.T.shape == (3, 5, 5)
    assert found.t.shape == (3, 5)
    assert not any(x.any() for x in (*found.own, *found.other, found.T, found.t))
    parts = [*found.own, *found.other]
    assert len({x.data_ptr() for x in parts}) == 4  # no two of them the same memory


@pytest.mark.parametrize("method", [*METHODS.values(), PlainVI])
def test_a_method_has_all_that_training_needs(method):
    made = method()
    assert isinstance(made, Method)
    assert made.keeps_rows == (method in (EP, GFITC))
    assert made.learns_q == (method is PlainVI)


def test_methods_by_name():
    assert list(METHODS) == ["ep", "sep", "gfitc", "vi"]
    assert PlainVI not in METHODS.values()
