"""Classes too unlikely for quadrature: all of a row from one table, as good as one at a time and far cheaper."""

import numpy as np
import pytest
import torch
from scipy.special import log_ndtr

from cavity.numerics import quadrature
from cavity.numerics.quadrature import max_log_probs, max_log_probs_raw
from cavity.numerics.tails import laplace, laplace_by_table, table_range

TAIL = quadrature.LOG_TRUST


def rows(n_classes, spread, sds, gap=0.0, n_rows=6, seed=0):
    """Means about 0, but the first class's lies `gap` higher; σ between the two `sds`."""
    rng = np.random.default_rng([n_classes, seed])
    mean = spread * rng.standard_normal((n_classes, n_rows))
    mean[0] += gap
    return torch.from_numpy(mean), torch.from_numpy(rng.uniform(*sds, (n_classes, n_rows)) ** 2)


MANY = [(5.0, (1, 3), 0.0), (2.0, (1, 3), 60.0), (10.0, (0.5, 2), 30.0), (20.0, (1, 3), 0.0)]


@pytest.mark.parametrize("n_classes", [150, 400])
@pytest.mark.parametrize(("spread", "sds", "gap"), MANY)
def test_a_table_gives_what_one_class_at_a_time_gives(n_classes, spread, sds, gap):
    mean, var = rows(n_classes, spread, sds, gap)
    tail = max_log_probs_raw(mean, var) < TAIL
    low, high, need = table_range(mean, var.sqrt(), tail)
    k, row = tail.nonzero(as_tuple=True)
    expected = laplace(mean[:, row], var.sqrt()[:, row], k)
    found = laplace_by_table(mean, var.sqrt(), low, high, int(need.max()))[k, row]
    assert len(k) > 20
    assert (found - expected).abs().max() < 0.01


def test_a_table_against_the_closed_form():
    """All others lie far below where class k overtakes the winner, so it is between these two."""
    mean, var = rows(100, 1.0, (1.0, 2.0), gap=80.0)
    found = max_log_probs_raw(mean, var)[1:]
    sd = torch.hypot(*torch.broadcast_tensors(var[:1].sqrt(), var[1:].sqrt()))
    expected = torch.from_numpy(log_ndtr(((mean[1:] - mean[:1]) / sd).numpy()))
    assert (expected < TAIL).all()
    assert (found - expected).abs().max() < 0.01


def test_many_unlikely_classes_cost_no_more_than_a_table(monkeypatch):
    def refuse(*args):
        raise AssertionError("one class at a time, in a row with hundreds")

    mean, var = rows(400, 2.0, (1, 3), gap=60.0)
    monkeypatch.setattr(quadrature, "laplace", refuse)
    assert (max_log_probs_raw(mean, var)[1:] < TAIL).all()


def test_few_unlikely_classes_take_no_table(monkeypatch):
    def refuse(*args):
        raise AssertionError("a table for a single class")

    mean, var = torch.tensor([[0.0], [1.0], [-60.0]]).double(), torch.ones(3, 1).double()
    monkeypatch.setattr(quadrature, "laplace_by_table", refuse)
    assert max_log_probs_raw(mean, var)[2, 0] < TAIL


def test_a_row_does_not_depend_on_the_others():
    """Bit for bit, with tables, single classes and decided ones side by side."""
    kinds = [rows(120, *kind, n_rows=4) for kind in MANY] + [rows(120, 1.0, (0.01, 0.02), n_rows=4)]
    mean, var = (torch.cat(parts, 1) for parts in zip(*kinds, strict=True))
    together = max_log_probs(mean, var)
    assert not together.isinf().any()
    for i in range(mean.shape[1]):
        assert torch.equal(max_log_probs(mean[:, i : i + 1], var[:, i : i + 1])[:, 0], together[:, i])
    assert torch.equal(max_log_probs(mean.flip(1), var.flip(1)), together.flip(1))


# --- Classes that are decided before the quadrature begins ---


def narrow_rows():
    """Few of 200 classes can win any row."""
    return rows(200, 1.0, (0.02, 0.05), n_rows=30)


def test_decided_classes_are_left_out_of_the_quadrature(monkeypatch):
    sizes, integrate = [], quadrature._among_all

    def record(mean, sd):
        sizes.append(len(mean))
        return integrate(mean, sd)

    monkeypatch.setattr(quadrature, "_among_all", record)
    max_log_probs_raw(*narrow_rows())
    assert max(sizes) <= 20


def test_leaving_them_out_changes_nothing():
    mean, var = narrow_rows()
    expected = quadrature._among_all(mean - mean.amax(0), var.sqrt()).exp()
    assert ((expected > 0.01) & (expected < 0.99)).sum() > 10
    torch.testing.assert_close(max_log_probs_raw(mean, var).exp(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("problem", [narrow_rows(), rows(100, 5.0, (1, 3)), rows(4, 30.0, (1, 2))])
def test_without_tails_only_their_logarithms_differ(problem):
    whole, without = max_log_probs(*problem), max_log_probs(*problem, tails=False)
    assert (whole < TAIL).any()
    torch.testing.assert_close(without.exp(), whole.exp(), rtol=0, atol=1e-12)
    seen = whole > TAIL + 1
    torch.testing.assert_close(without[seen], whole[seen], rtol=1e-12, atol=1e-14)
