"""From q(u) to class probabilities and their uncertainty."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.gp import probabilities as predict
from cavity.gp.gaussian import Posterior
from cavity.inference import EP, VI, PlainVI
from cavity.inference.vi import EPSILON
from tests.live import Live
from tests.problems import converge, random_problem, refresh
from tests.reference import oracle

PROBLEM = random_problem(seed=5, n_rows=18)
NEW = torch.from_numpy(np.random.default_rng(9).uniform(-4, 4, (40, 2)))


def posterior(problem):
    prior = problem.prior()
    return EP().posterior(prior, converged(problem, prior))


def converged(problem, prior):
    state = converge(EP(), prior, problem.data(), tol=1e-8)
    return refresh(EP(), prior, state, problem.data().in_order(None))


@pytest.fixture(scope="module")
def q():
    return posterior(PROBLEM)


def test_probabilities_sum_to_one(q):
    log_p = predict.log_probabilities(q, NEW)
    assert log_p.shape == (40, 3)
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1, rtol=0, atol=1e-12)


def test_probabilities_are_those_of_the_marginals(q):
    """Eq. (11) by another quadrature."""
    mean, var = predict.marginals(q, NEW)
    assert mean.shape == var.shape == (40, 3)
    expected = oracle.log_class_probabilities(mean, var)
    np.testing.assert_allclose(predict.log_probabilities(q, NEW), expected, rtol=0, atol=1e-9)


def test_marginals_include_the_noise(q):
    """Far from all inducing points f is the prior: variance + noise."""
    mean, var = predict.marginals(q, torch.full((1, 2), 1e3, dtype=torch.float64))
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    np.testing.assert_allclose(var[0], PROBLEM.variance + PROBLEM.noise, rtol=1e-12)


def test_uncertainty_parts_add_up_within_their_bounds(q):
    found = predict.uncertainty(q, NEW)
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.total, rtol=0, atol=1e-15)
    for part in found:
        assert part.shape == (40,)
        assert (part >= 0).all()
        assert (part <= math.log(3) + 1e-12).all()
    p = np.exp(predict.log_probabilities(q, NEW))
    np.testing.assert_allclose(found.total, -(p * np.log(p)).sum(1), rtol=1e-10)


def test_aleatoric_part_against_random_draws():
    """The mean entropy of the labels over noise-free latent functions; the noise is most of the variance here."""
    noise = np.array([2.0, 3.0, 4.0])
    q = posterior(replace(PROBLEM, noise=noise))
    mean, var = predict.marginals(q, NEW[:3])
    f = mean + np.sqrt(var - noise) * np.random.default_rng(0).standard_normal((200, 3, 3))
    log_p = oracle.log_class_probabilities(f.reshape(-1, 3), np.broadcast_to(noise, (600, 3)))
    entropy = -(np.exp(log_p) * log_p).sum(1).reshape(200, 3)
    standard_error = entropy.std(0) / np.sqrt(200)
    found = predict.uncertainty(q, NEW[:3]).aleatoric
    assert (np.abs(found - entropy.mean(0)) < 4 * standard_error).all()
    assert (standard_error < 0.02).all()


def test_without_noise_nothing_is_aleatoric():
    found = predict.uncertainty(posterior(replace(PROBLEM, noise=np.full(3, 1e-12))), NEW)
    assert found.aleatoric.max() < 1e-3
    assert found.epistemic.max() > 0.5


def test_the_value_of_rows_is_right_to_a_percent_of_the_range_of_costs(q, monkeypatch):
    cost = torch.from_numpy(np.random.default_rng(3).uniform(0, 1, (3, 4)))
    found = predict.value_of_rows(q, NEW, cost)
    monkeypatch.setattr(predict, "NODES", 4096)
    exact = predict.value_of_rows(q, NEW, cost)
    assert np.sqrt(((found - exact) ** 2).mean()) < 0.005
    assert np.abs(found - exact).max() < 0.015
    assert exact.max() > 0.05


def test_far_from_the_data_uncertainty_is_epistemic_and_total_is_highest(q):
    far = predict.uncertainty(q, torch.full((1, 2), 1e3, dtype=torch.float64))
    near = predict.uncertainty(q, torch.from_numpy(PROBLEM.X[:6]))
    assert far.total[0] > near.total.mean()
    assert far.epistemic[0] > far.aleatoric[0]


def test_an_impossible_class_adds_no_entropy():
    """log p = −∞ must not make 0 × ∞."""
    mean = torch.tensor([[0.0], [-1e200]], dtype=torch.float64)
    var = torch.ones(2, 1, dtype=torch.float64)
    assert float(predict._entropy(predict.log_p_of(mean, var, 0.0))) == 0.0


def test_blocks_are_all_of_one_size_and_hold_every_row(q):
    X = NEW[:1].repeat(predict.BLOCK_ROWS + 6, 1)
    assert [len(block) for block in predict._blocks(q, X)] == [predict.BLOCK_ROWS] * 2
    assert predict.log_probabilities(q, X).shape == (predict.BLOCK_ROWS + 6, 3)


@pytest.mark.parametrize("budget", [5 * 7 * 3, 64 * 7 * 3, 100 * 7 * 3])
def test_a_block_fits_into_the_cache(q, budget, monkeypatch):
    monkeypatch.setattr(predict, "BLOCK_ON_CPU", budget * q.prior.Z.shape[-2] // 7)
    rows = predict._block_rows(q)
    assert rows * 3 * q.prior.Z.shape[-2] <= predict.BLOCK_ON_CPU < 2 * rows * 3 * q.prior.Z.shape[-2]


def test_a_row_has_the_same_bits_with_any_others(q):
    X = NEW.repeat(5, 1)
    together = predict.log_probabilities(q, X)
    for i in (0, 3, 39, 199):
        np.testing.assert_array_equal(predict.log_probabilities(q, X[i : i + 1])[0], together[i])


def test_blocks_do_not_show(q, monkeypatch):
    monkeypatch.setattr(predict, "NODES", 16)
    X = NEW[:10]
    whole = predict.log_probabilities(q, X), *predict.uncertainty(q, X)
    monkeypatch.setattr(predict, "BLOCK_ROWS", 7)
    assert [len(block) for block in predict._blocks(q, X)] == [7, 7]
    for a, b in zip(whole, (predict.log_probabilities(q, X), *predict.uncertainty(q, X)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


def test_pieces_do_not_show(q, monkeypatch):
    """Bit for bit: all that is done to a piece is done row by row."""
    monkeypatch.setattr(predict, "NODES", 16)
    X = NEW.repeat(5, 1)
    whole = predict.log_probabilities(q, X), *predict.marginals(q, X), *predict.uncertainty(q, X)
    monkeypatch.setattr(predict, "PIECE_ROWS", predict.BLOCK_ROWS)
    for a, b in zip(whole, (predict.log_probabilities(q, X), *predict.marginals(q, X), *predict.uncertainty(q, X)),
                    strict=True):  # fmt: skip
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("ask", [predict.log_probabilities, predict.marginals, predict.uncertainty])
def test_beside_what_is_returned_memory_does_not_grow_with_the_rows(q, ask, monkeypatch):
    monkeypatch.setattr(predict, "NODES", 2)
    monkeypatch.setattr(predict, "PIECE_ROWS", 64)
    beside = []
    for n_rows in (200, 2000):
        with Live() as live:
            found = ask(q, NEW[:1].repeat(n_rows, 1))
        beside.append(live.peak - sum(np.asarray(part).nbytes for part in found) - n_rows * NEW[:1].numpy().nbytes)
    assert beside[1] < beside[0] + 20_000  # what was set up the first time


# --- With a share of labels taken for random ---


def with_epsilon(q, epsilon):
    return Posterior(q.prior, q.whitened, epsilon)


@pytest.mark.parametrize("epsilon", [EPSILON, 0.3])
def test_epsilon_mixes_the_probabilities_with_equal_ones(q, epsilon):
    p, mixed = (np.exp(predict.log_probabilities(with_epsilon(q, e), NEW)) for e in (0.0, epsilon))
    np.testing.assert_allclose(mixed, (1 - epsilon) * p + epsilon / 3, rtol=1e-12)
    np.testing.assert_allclose(mixed.sum(1), 1, rtol=0, atol=1e-12)


def test_no_class_is_less_likely_than_epsilon_allows():
    """Where p itself is 0 to the last digit."""
    mean, var = torch.tensor([[0.0], [-1e100], [-50.0]], dtype=torch.float64), torch.ones(3, 1).double()
    log_p = predict.log_p_of(mean, var, EPSILON)
    np.testing.assert_allclose(log_p[1:, 0], math.log(EPSILON / 3), rtol=1e-12)
    np.testing.assert_allclose(log_p[0, 0], math.log1p(-EPSILON * 2 / 3), rtol=1e-9)


@pytest.mark.parametrize("epsilon", [EPSILON, 0.3])
def test_uncertainty_with_epsilon(q, epsilon):
    """Total is the entropy of the mixed probabilities; random labels are aleatoric."""
    found = predict.uncertainty(with_epsilon(q, epsilon), NEW)
    p = np.exp(predict.log_probabilities(with_epsilon(q, epsilon), NEW))
    np.testing.assert_allclose(found.total, -(p * np.log(p)).sum(1), rtol=1e-10)
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.total, rtol=0, atol=1e-15)
    assert (found.epistemic >= 0).all()
    assert (found.aleatoric > predict.uncertainty(q, NEW).aleatoric).all()


@pytest.mark.parametrize("method", [VI, PlainVI])
def test_predictions_of_vi_include_epsilon(method):
    """At the prior, far from all points, the probabilities are those of the prior mixed with equal ones."""
    prior = PROBLEM.prior()
    q = method().posterior(prior, method().init(prior, PROBLEM.data().own_weight, 18))
    far = torch.full((1, 2), 1e3, dtype=torch.float64)
    var = (PROBLEM.variance + PROBLEM.noise)[None]
    p = np.exp(oracle.log_class_probabilities(np.zeros((1, 3)), var))
    expected = (1 - EPSILON) * p + EPSILON / 3
    np.testing.assert_allclose(np.exp(predict.log_probabilities(q, far)), expected, rtol=1e-10)
    assert np.abs(p - expected).max() > 1e-6


def test_predictions_of_ep_do_not(q):
    assert q.epsilon == 0.0


# --- With a sharpness ---


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_sharpness_multiplies_the_means_that_probabilities_are_made_of(q, sharpness, epsilon):
    mean, var = predict.marginals(q, NEW)
    p = np.exp(oracle.log_class_probabilities(sharpness * mean, var))
    sharp = replace(q, sharpness=sharpness, epsilon=epsilon)
    found = np.exp(predict.log_probabilities(sharp, NEW))
    np.testing.assert_allclose(found, (1 - epsilon) * p + epsilon / 3, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.sum(1), 1, rtol=0, atol=1e-12)
    for a, b in zip(predict.marginals(sharp, NEW), (mean, var), strict=True):
        np.testing.assert_array_equal(a, b)  # f itself is left alone


@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_uncertainty_with_a_sharpness(q, sharpness):
    sharp = replace(q, sharpness=sharpness)
    found, log_p = predict.uncertainty(sharp, NEW), predict.log_probabilities(sharp, NEW)
    np.testing.assert_allclose(found.total, -(np.exp(log_p) * log_p).sum(1), rtol=1e-10)
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.total, rtol=0, atol=1e-15)
    assert (found.epistemic >= 0).all()
    surer = found.total < predict.uncertainty(q, NEW).total
    assert (surer == (sharpness > 1)).mean() > 0.9


def test_without_sharpness_nothing_is_multiplied(q):
    assert q.sharpness == 1.0
    mean, var = predict.moments(q, NEW)
    np.testing.assert_array_equal(predict.log_probabilities(q, NEW), predict.log_p_of(mean, var, 0.0).mT)


def test_what_moves_to_a_device_stays_as_sharp_and_as_random(q):
    moved = replace(q, sharpness=2.0, epsilon=0.1).to(torch.device("cpu"))
    assert (moved.sharpness, moved.epsilon) == (2.0, 0.1)
