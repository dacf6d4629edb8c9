"""What the methods share: who counts how often, and how far two states lie apart."""

import numpy as np
import pytest
import torch

from cavity.inference.base import factor_counts, factor_weights, relative_change
from tests.problems import random_problem
from tests.reference import oracle


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
