from pathlib import Path

import numpy as np
import pytest

from experiments.experiment import read_config
from experiments.sep_toy import one_dimension as line
from experiments.sep_toy import run as sep_toy

SETTINGS = {"damping": 0.5, "tol": 1e-10, "max_sweeps": 500}
X = np.linspace(-16.0, 16.0, 2001)
PRIOR = line.natural(0.5, 4.0)


def gaussians(*moments):
    """A problem whose factors are Gaussians with these means and variances, and what its posterior is."""
    sites = np.stack([line.natural(*pair) for pair in moments])
    return line.Problem(X, PRIOR, line.log_density(X, sites)), PRIOR + sites.sum(0)


@pytest.mark.parametrize("tied", [False, True])
def test_gaussian_factors_are_no_approximation(tied):
    problem, expected = gaussians((1.0, 2.0), (-0.5, 0.7), (0.3, 5.0))
    fit = line.approximate(problem, tied, **SETTINGS)
    assert fit.converged
    np.testing.assert_allclose(line.posterior(problem, fit.sites), expected, rtol=1e-8)


@pytest.mark.parametrize("tied", [False, True])
def test_the_evidence_is_exact_for_equal_gaussian_factors(tied):
    problem, _ = gaussians(*[(1.0, 2.0)] * 4)
    fit = line.approximate(problem, tied, **SETTINGS)
    exact = line.moments(X, line.log_posterior(problem)).log_z
    assert line.log_evidence(problem, fit.sites) == pytest.approx(float(exact), abs=1e-8)


def test_ep_has_the_evidence_of_gaussian_factors_that_differ():
    problem, _ = gaussians((1.0, 2.0), (-0.5, 0.7))
    fit = line.approximate(problem, False, **SETTINGS)
    exact = line.moments(X, line.log_posterior(problem)).log_z
    assert line.log_evidence(problem, fit.sites) == pytest.approx(float(exact), abs=1e-8)


@pytest.mark.parametrize("family", ["awkward", "probit"])
def test_with_one_factor_the_two_are_the_same_and_have_its_moments(family):
    problem = line.draw(family, 1, 3, 4.0)
    exact = line.moments(problem.x, line.log_posterior(problem))
    expected = line.natural(exact.mean, exact.variance)
    for tied in (False, True):
        q = line.posterior(problem, line.approximate(problem, tied, **SETTINGS).sites)
        np.testing.assert_allclose(q, expected, rtol=1e-7)


def test_equal_factors_make_ep_and_sep_the_same():
    problem = line.draw("probit", 1, 0, 4.0)
    problem = problem._replace(log_factors=problem.log_factors.repeat(6, axis=0))
    ep, sep = (line.approximate(problem, tied, **SETTINGS).sites for tied in (False, True))
    np.testing.assert_allclose(ep, sep, atol=1e-8)


def test_tied_sites_are_equal_and_each_site_matches_moments_on_average():
    problem = line.draw("probit", 5, 0, 4.0)
    fit = line.approximate(problem, True, **SETTINGS)
    assert fit.converged
    np.testing.assert_array_equal(fit.sites, fit.sites[:1].repeat(5, axis=0))
    cavity = line.posterior(problem, fit.sites) - fit.sites[0]
    tilted = line.moments(problem.x, line.log_density(problem.x, cavity) + problem.log_factors)
    new = line.natural(tilted.mean, tilted.variance) - cavity
    np.testing.assert_allclose(new.mean(0), fit.sites[0], atol=1e-8)


def test_moments_and_divergence_of_gaussians():
    p, q = line.natural(1.0, 2.0), line.natural(0.0, 3.0)
    log_z, mean, variance = line.moments(X, line.log_density(X, p))
    assert (float(log_z), float(mean), float(variance)) == pytest.approx((0.0, 1.0, 2.0), abs=1e-10)
    expected = 0.5 * (np.log(3.0 / 2.0) + (2.0 + 1.0) / 3.0 - 1.0)
    assert line.divergence(X, line.log_density(X, p), q) == pytest.approx(expected)


def test_a_run_that_cannot_end_says_so():
    job = {"family": "awkward", "factors": 5, "seed": 0, "method": "ep", "prior_variance": 4.0}
    found = sep_toy.run(job | {"damping": 0.5, "tol": 1e-9, "max_sweeps": 3})
    assert found == {"converged": False, "sweeps": 3}


RECORD = {"damping": 0.5, "tol": 1e-9, "max_sweeps": 500, "prior_variance": 4.0, "converged": True, "sweeps": 40,
          "mean": 0.1, "exact_mean": 0.0, "exact_variance": 1.0, "log_z": 0.0, "exact_log_z": 0.1,
          "kl_best": 0.01}  # fmt: skip


def made_up(family, n, seed, method, variance, kl):
    own = {"family": family, "factors": n, "seed": seed, "method": method, "variance": variance, "kl": kl}
    return RECORD | own


def test_show_judges_by_medians(tmp_path):
    config = {"families": ["awkward"], "factors": [5, 20], "drawn": {}, "max_sweeps": 500,
              "close_mean": 0.2, "close_variance": 0.2}  # fmt: skip
    records = [
        made_up("awkward", n, seed, method, 1.0 if method == "ep" else 0.5, 0.01 + 1.0 / n)
        for n in (5, 20)
        for seed in range(3)
        for method in ("ep", "sep")
    ]
    lost = {"converged": False, "family": "awkward", "factors": 5, "seed": 9, "method": "ep", "sweeps": 500}
    shown = sep_toy.summarize([*records, lost], config, tmp_path)
    assert [v.holds for v in shown.verdicts] == [True, False, True]
    assert "EP 6 of 7 (awkward), SEP 6 of 6 (awkward)" in shown.text
    assert "| awkward | 20 | 3 | SEP | 0.1 (0.1, 0.1) | 0.5 (0.5, 0.5) | 0.05 (0.05, 0.05) |" in shown.text
    assert not shown.figures


def test_the_figure_has_a_row_for_each_method():
    pytest.importorskip("matplotlib")
    job = {"family": "probit", "factors": 2, "seed": 0, "prior_variance": 4.0} | SETTINGS
    fits = [one | sep_toy.run(one) for one in (job | {"method": method} for method in sep_toy.METHODS)]
    figure = sep_toy._draw(fits)
    assert len(figure.axes) == 2 * 4
    assert [axes.get_title() for axes in figure.axes[:4]] == ["prior", "× factor 1", "× factor 2", "∝ posterior"]


def test_jobs_hold_what_their_outcome_depends_on():
    config = read_config(Path(__file__).parents[3] / "experiments" / "sep_toy", smoke=True)
    jobs = sep_toy.jobs(config)
    assert len(jobs) == len(config["families"]) * 3 * 2
    assert sep_toy.run(jobs[0]) == sep_toy.run(dict(jobs[0]))
