"""Features that share length-scales in groups."""

import numpy as np
import pytest
import torch

from cavity.kernels import RBF, Constant, Grouped, Linear, Matern32
from cavity.kernels.grouped import for_groups

GROUPS = (0, 1, 1, 2, 1)
RNG = np.random.default_rng(0)
X, Z = torch.from_numpy(RNG.standard_normal((7, 5))), torch.from_numpy(RNG.standard_normal((2, 4, 5)))
KERNELS = [RBF(), Linear(), Matern32() + Linear() * Constant()]


def started(kernel, n_features):
    g = torch.Generator().manual_seed(1)
    start = kernel.start(2, n_features, 1.5)
    return {name: x + 0.3 * torch.randn(x.shape, generator=g, dtype=x.dtype) for name, x in start.items()}


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_group_is_features_of_equal_length_scale(kernel):
    grouped = Grouped(kernel, GROUPS)
    params = started(grouped, 5)
    assert all(x.shape == (2, 3) for name, x in params.items() if name.endswith("log_lengthscale"))
    one = grouped.bind(params, Z, torch.float64)
    two = kernel.bind(grouped.expand(params), Z, torch.float64)
    assert torch.equal(one.gram, two.gram)
    assert torch.equal(one.blocks(X).cross, two.blocks(X).cross)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_gradient_of_a_group_is_the_sum_over_its_features(kernel):
    grouped = Grouped(kernel, GROUPS)
    params = started(grouped, 5)
    one, two = grouped.bind(params, Z, torch.float64), kernel.bind(grouped.expand(params), Z, torch.float64)
    by = [torch.from_numpy(RNG.standard_normal(shape)) for shape in ((2, 4, 4), (2, 4, 7), (2, 7))]
    by[0] = by[0] + by[0].mT
    own, each = (bound.pull_back(bound.blocks(X), *(x.clone() for x in by)) for bound in (one, two))
    torch.testing.assert_close(own.by_Z, each.by_Z, rtol=0, atol=0)
    for name, value in own.by_params.items():
        found = each.by_params[name]
        if name.endswith("log_lengthscale"):
            found = torch.stack([found[:, [g == k for g in GROUPS]].sum(1) for k in range(3)], dim=1)
        torch.testing.assert_close(value, found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("groups", [(0, 1), (0, 2, 2, 3, 2), (1, 2, 2, 3, 2), (0, 1, 1, -1, 1)], ids=str)
def test_groups_are_numbered_without_gaps_for_every_feature(groups):
    with pytest.raises(ValueError, match="groups must have the group of each of 5 features, numbered from 0"):
        Grouped(RBF(), groups).start(2, 5, 1.0)


def test_a_length_scale_of_a_column_is_that_of_its_groups():
    columns = [0, 1, 1, 2]  # the second column has a gap, and so two groups
    found = for_groups(RBF(np.array([1.0, 2.0, 3.0])) + Linear(5.0) * Constant(), columns, (0, 1, 2, 3, 3))
    lengthscales = [np.asarray(part.lengthscale).tolist() for part in (found.kernel.parts[0],)]
    assert lengthscales == [[1.0, 2.0, 2.0, 3.0]]
    assert found.kernel.parts[1].parts[0].lengthscale == 5.0
    by_class = for_groups(RBF(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])), columns, (0, 1, 2, 3, 3)).kernel
    assert by_class.lengthscale.tolist() == [[1, 2, 2, 3], [4, 5, 5, 6]]
    kept = for_groups(RBF(np.array([1.0, 2.0, 3.0, 4.0])), columns, (0, 1, 2, 3, 3)).kernel  # one for each group
    assert kept.lengthscale.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_the_fitted_kernel_has_a_length_scale_for_each_group():
    grouped = Grouped(RBF(), GROUPS)
    fitted = grouped.fitted(started(grouped, 5))
    assert isinstance(fitted, Grouped)
    assert fitted.kernel.lengthscale.shape == (2, 3)
