"""Hyper-parameters as views of one vector, and the priors on them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.fitting.settings import PRIORS
from cavity.kernels import RBF, Linear
from cavity.training.parameters import HyperPrior, kind
from tests.problems import random_problem

PROBLEM = random_problem(seed=2)


@pytest.fixture
def model():
    return PROBLEM.model()


# --- Parametric prior ---


def test_split_undoes_start(model):
    parts = model.split(model.start())
    assert set(parts) == set(model.learned) == set(model.values)
    for name, value in parts.items():
        assert torch.equal(value, model.values[name])


def test_prior_follows_theta(model):
    theta = model.start()
    moved = model.prior(theta + 0.25)
    start = model.prior(theta)
    torch.testing.assert_close(moved.Z, start.Z + 0.25)
    torch.testing.assert_close(moved.log_noise, start.log_noise + 0.25)
    for name in ("log_lengthscale", "log_variance"):
        torch.testing.assert_close(moved.params[name], start.params[name] + 0.25)


@pytest.mark.parametrize(
    ("learned", "names"),
    [
        ((True, False), {"kernel.log_lengthscale", "kernel.log_variance", "log_noise"}),
        ((False, True), {"Z"}),
        ((False, False), set()),
    ],
)
def test_what_is_not_learned_stays(learned, names):
    model = PROBLEM.model(learned=learned)
    assert set(model.learned) == names
    theta = model.start()
    assert len(theta) == sum(model.values[name].numel() for name in names)
    moved, start = model.prior(theta + 1.0), model.prior(theta)
    assert torch.equal(moved.Z, start.Z) == ("Z" not in names)
    assert torch.equal(moved.log_noise, start.log_noise) == ("log_noise" not in names)


def test_parameters_of_a_sum_reach_their_own_part():
    model = PROBLEM.model(kernel=RBF(1.0, 2.0) + Linear(3.0, 4.0))
    params = model.prior(model.start()).params
    assert set(params) == {f"{i}.log_{name}" for i in (0, 1) for name in ("lengthscale", "variance")}
    assert float(params["1.log_variance"][0].detach()) == pytest.approx(math.log(4.0))


def test_kind_is_what_a_name_ends_in():
    names = {
        "kernel.0.1.log_lengthscale": "lengthscale",
        "kernel.log_variance": "variance",
        "log_noise": "noise",
        "Z": "Z",
    }
    assert {name: kind(name) for name in names} == names


def test_spread_gives_each_kind_its_number(model):
    parts = model.split(model.full({"lengthscale": 0.25, "noise": 3.0}, 1.0))
    assert (parts["kernel.log_lengthscale"] == 0.25).all()
    assert (parts["log_noise"] == 3.0).all()
    assert (parts["Z"] == 1.0).all()
    assert (parts["kernel.log_variance"] == 1.0).all()


# --- HyperPrior ---

SPECS = [
    {},
    {"lengthscale": (None, 0.5)},
    {"lengthscale": (2.0, 1.0), "variance": (1.0, 1.5), "noise": (0.1, 0.7)},
    {"lengthscale": (None, 0.5, 2.0), "noise": (0.1, 0.7, math.inf)},
    {"spread": 0.4},
    {"lengthscale": (1.0, 0.5), "spread": 0.4},
    {"relevance": 0.5},
    {"relevance": 0.5, "spread": 0.4},
    {"lengthscale": (None, 2.0, math.inf), "relevance": 0.3, "noise": (0.1, 0.7)},
    PRIORS,
]
MODELS = {
    "one kernel": PROBLEM.model(),
    "shared": replace(PROBLEM, noise=np.full(1, 0.2)).model(RBF(1.5, 2.0), shared=(True, False)),
    "a sum": PROBLEM.model(RBF(1.0, 2.0) + Linear(3.0, 4.0)),
    "no inducing points": PROBLEM.model(learned=(True, False)),
    "no kernel": PROBLEM.model(learned=(False, True)),
}


def pull(prior, theta):
    return prior.add_gradient(theta, torch.zeros_like(theta))


def shifted(model):
    generator = torch.Generator().manual_seed(0)
    return model.start() + torch.randn(len(model.start()), generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("spec", SPECS)
def test_gradient_is_that_of_the_log_density(model, spec):
    prior, theta = HyperPrior(model, spec), shifted(model).requires_grad_()
    density = prior.log_density(theta)
    expected = torch.autograd.grad(density + 0.0 * theta.sum(), theta)[0]  # a flat density has no graph
    torch.testing.assert_close(pull(prior, theta.detach()), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("spec", SPECS)
def test_gradient_against_finite_differences(model, spec):
    prior, theta, step = HyperPrior(model, spec), shifted(model), 1e-5
    found = pull(prior, theta)
    for i in range(len(theta)):
        moved = [theta.index_add(0, torch.tensor([i]), torch.tensor([sign * step]).double()) for sign in (1, -1)]
        above, below = (float(prior.log_density(point)) for point in moved)
        assert float(found[i]) == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-6)


def test_log_density_against_loops(model):
    spec = SPECS[2]
    theta = shifted(model)
    parts, expected = model.split(theta), 0.0
    for name, value in parts.items():
        if kind(name) in spec:
            median, sd = spec[kind(name)]
            expected -= sum((v - math.log(median)) ** 2 / (2 * sd**2) for v in value.reshape(-1).tolist())
    assert float(HyperPrior(model, spec).log_density(theta)) == pytest.approx(expected, rel=1e-12)


def test_a_median_left_open_is_the_start_value(model):
    prior = HyperPrior(model, {"lengthscale": (None, 0.5)})
    assert not pull(prior, model.start()).any()
    pulled = model.split(pull(prior, model.start() + 1.0))
    torch.testing.assert_close(pulled["kernel.log_lengthscale"], torch.full((3, 2), -4.0, dtype=torch.float64))
    assert not pulled["Z"].any()


def test_a_prior_with_two_sides(model):
    """sd ½ below the median and none above: pull −1/sd² × distance from below only."""
    prior = HyperPrior(model, {"noise": (None, 0.5, math.inf)})
    below, above = (model.split(pull(prior, model.start() + shift))["log_noise"] for shift in (-1.0, 1.0))
    torch.testing.assert_close(below, torch.full_like(below, 4.0))
    assert not above.any()


def test_spread_pulls_length_scales_of_the_classes_together(model):
    """−½ Σ (log ℓ_kd − mean over k)² / sd², against loops."""
    theta, sd = shifted(model), 0.4
    value = model.split(theta)["kernel.log_lengthscale"]
    expected = 0.0
    for d in range(2):
        column = value[:, d].tolist()
        expected -= sum((v - sum(column) / 3) ** 2 for v in column) / (2 * sd**2)
    prior = HyperPrior(model, {"spread": sd})
    assert float(prior.log_density(theta)) == pytest.approx(expected)
    pulls = model.split(pull(prior, theta))
    assert not pulls["kernel.log_variance"].any()
    torch.testing.assert_close(pulls["kernel.log_lengthscale"].sum(0), torch.zeros(2, dtype=torch.float64))


def test_relevance_against_loops(model):
    """−½ Σ (log ℓ_kd − mean over k and d)² / sd², over those below the mean only."""
    theta, sd = shifted(model), 0.4
    values = model.split(theta)["kernel.log_lengthscale"].reshape(-1).tolist()
    mean = sum(values) / 6
    expected = -sum((v - mean) ** 2 for v in values if v < mean) / (2 * sd**2)
    prior = HyperPrior(model, {"relevance": sd})
    assert float(prior.log_density(theta)) == pytest.approx(expected, rel=1e-12)
    pulls = model.split(pull(prior, theta))
    assert pulls["kernel.log_lengthscale"].any()
    for name in ("kernel.log_variance", "log_noise", "Z"):
        assert not pulls[name].any()


def at_length_scales(model, log_lengthscale):
    """θ at its start but for these."""
    theta = model.start().clone()
    model.split(theta)["kernel.log_lengthscale"].copy_(torch.as_tensor(log_lengthscale, dtype=torch.float64))
    return theta


def test_length_scales_that_are_short_together_cost_nothing(model):
    prior, spread = HyperPrior(model, {"relevance": 0.4}), shifted(model)
    values = model.split(spread)["kernel.log_lengthscale"].clone()
    densities = [float(prior.log_density(at_length_scales(model, values + shift))) for shift in (-7.0, 0.0, 3.0)]
    assert densities == pytest.approx([densities[1]] * 3, rel=1e-12)
    assert densities[1] < -0.1
    pulled = model.split(pull(prior, spread))["kernel.log_lengthscale"]
    assert float(pulled.sum()) == pytest.approx(0.0, abs=1e-12)
    for equal in (-5.0, 0.0, 2.0):
        theta = at_length_scales(model, torch.full((3, 2), equal))
        assert float(prior.log_density(theta)) == pytest.approx(0.0, abs=1e-25)
        torch.testing.assert_close(pull(prior, theta), torch.zeros_like(theta), rtol=0, atol=1e-12)


def test_a_feature_that_matters_more_pays_more_than_one_that_matters_less(model):
    """One of six by 1 below the others is 5/6 below the mean; by 1 above them, it leaves five by 1/6 below."""
    prior, costs = HyperPrior(model, {"relevance": 1.0}), {}
    for step in (-1.0, 1.0):
        one = torch.zeros(3, 2)
        one[1, 0] = step
        costs[step] = -float(prior.log_density(at_length_scales(model, one)))
    assert costs[-1.0] == pytest.approx(0.5 * (5 / 6) ** 2)
    assert costs[1.0] == pytest.approx(0.5 * 5 * (1 / 6) ** 2)


def test_each_kernel_of_a_sum_has_a_mean_of_its_own():
    model = PROBLEM.model(kernel=RBF(1.0, 2.0) + Linear(3.0, 4.0))
    prior, theta = HyperPrior(model, {"relevance": 0.4}), model.start().clone()
    model.split(theta)["kernel.0.log_lengthscale"].sub_(4.0)
    assert float(prior.log_density(theta)) == pytest.approx(0.0, abs=1e-20)
    model.split(theta)["kernel.1.log_lengthscale"][0, 0] -= 4.0
    assert float(prior.log_density(theta)) < -1.0


@pytest.mark.parametrize("name", ["relevance", "spread"])
def test_an_infinite_sd_is_no_prior(model, name):
    prior = HyperPrior(model, {name: math.inf})
    assert prior.log_density(shifted(model)) == 0
    assert not pull(prior, shifted(model)).any()


@pytest.mark.parametrize("spec", [{"relevance": 0.4}, {"spread": 0.4}, PRIORS])
def test_length_scales_that_are_not_learned_have_no_prior(spec):
    model = PROBLEM.model(learned=(False, True))
    assert HyperPrior(model, spec).log_density(shifted(model)) == 0
    assert not pull(HyperPrior(model, spec), shifted(model)).any()


def test_no_prior_is_flat(model):
    prior = HyperPrior(model, {})
    assert prior.log_density(shifted(model)) == 0
    assert not pull(prior, shifted(model)).any()
