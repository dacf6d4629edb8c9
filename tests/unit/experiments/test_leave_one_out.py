"""The leave-one-out log density as SEP's objective: its value by other formulas, its gradient by differences."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cavity.gp.gaussian import Natural, Whitened
from cavity.gp.gradients import pull_back
from cavity.gp.probabilities import log_p_of
from cavity.inference import EP, SEP, Terms
from cavity.inference.ep import leave_one_out
from experiments.experiment import read_config
from experiments.leave_one_out.objective import AVERAGE, OWN, PredictiveSEP
from experiments.leave_one_out.run import jobs, run, summarize
from tests.problems import converge, objective, random_problem
from tests.reference.test_inference import signs

WAYS = pytest.mark.parametrize("leaves_out", [AVERAGE, OWN])
PROBLEMS = [random_problem(seed=41, n_rows=12, n_inducing=3), random_problem(seed=5, n_rows=14, n_classes=2)]


def at_the_fixed_point(problem):
    prior, data = problem.prior(), problem.data()
    return prior, data, converge(SEP(), prior, data)


def density(method, prior, data, state):
    f = prior.conditional(data.X)
    return method.log_density(f, state, method.natural(prior, state), data.full)


@WAYS
@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("is_full", [True, False])
def test_the_gradient_is_the_slope_at_a_fixed_q(leaves_out, weight, problem, is_full):
    """By finite differences along single hyper-parameters, with T and t held fixed in u-space."""
    model, data = problem.model(), problem.data()
    theta, method = model.start(), PredictiveSEP(1.0, weight, leaves_out)
    prior, _, state = at_the_fixed_point(problem)
    batch = data.full if is_full else next(iter(data.in_order(5)))
    found = objective(method, prior, prior.conditional(batch.X), state, batch, exact=True).gradient
    gradient = model.join(pull_back(prior, prior.conditional(batch.X), found))
    step = 1e-3

    def value(shift):
        prior = model.prior(theta + shift)
        f = prior.conditional(batch.X)
        return float(objective(method, prior, f, state, batch, exact=True).log_z)

    directions = [*torch.eye(len(theta), dtype=torch.float64)[::3], torch.from_numpy(signs(len(theta)))]
    for e in directions:
        slope = (8 * (value(step * e) - value(-step * e)) - (value(2 * step * e) - value(-2 * step * e))) / (12 * step)
        assert float(gradient @ e) == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_without_average_sites_it_is_the_density_under_explicit_cavities(problem):
    prior, data, state = at_the_fixed_point(problem)
    C, f = len(state.counts), prior.conditional(data.X)
    total, K_inverse = 0.0, torch.linalg.inv(prior.K.expand(C, -1, -1))
    for i, y in enumerate(problem.y):
        removed = torch.tensor([C - 1.0 if k == y else 1.0 for k in range(C)]) / state.counts
        keep = (1.0 - removed)[:, None]
        cov = torch.linalg.inv(K_inverse + keep[..., None] * state.T)
        mean = (cov @ (keep * state.t)[..., None])[..., 0]
        v = (K_inverse @ f.blocks.cross[..., i].expand(C, -1)[..., None])[..., 0]
        var = (v * (cov @ v[..., None])[..., 0]).sum(-1) + f.s[:, i]
        total += float(log_p_of((v * mean).sum(-1)[:, None], var[:, None], 0.0)[y, 0])
    assert float(density(PredictiveSEP(leaves_out=AVERAGE), prior, data, state)[0]) == pytest.approx(total, rel=1e-8)


def test_without_own_sites_it_is_nearly_that_of_ep():
    """With many rows SEP's sites leave a row out nearly as EP's do; an average site leaves most of the row in."""
    problem, ep = random_problem(seed=2, n_rows=90, n_inducing=6), EP()
    prior, data, state = at_the_fixed_point(problem)
    f, of_ep, rows = prior.conditional(data.X), converge(ep, prior, data), torch.arange(90)
    q = Whitened.from_sites(*ep.site_sums(f, of_ep, data.full))
    a, h = q.project(f.W)
    y = torch.from_numpy(problem.y)
    seen, left_out = (
        float(log_p_of(*moments, 0.0)[y, rows].sum())
        for moments in ((a, h + f.s), leave_one_out(prior, of_ep, q, data.full))
    )
    optimism = seen - left_out
    own, average = (float(density(PredictiveSEP(leaves_out=way), prior, data, state)[0]) for way in (OWN, AVERAGE))
    assert optimism > 0.0
    assert abs(own - left_out) < 0.2 * optimism
    assert average - left_out > 0.5 * optimism


def test_at_the_end_of_training_it_is_log_z():
    prior, data, state = at_the_fixed_point(PROBLEMS[0])
    f, natural = prior.conditional(data.X), Natural(*prior.whiten(state.T, state.t))
    terms = Terms(gradient=False)
    found, expected = (m.objective(prior, f, state, natural, data.full, terms) for m in (PredictiveSEP(), SEP()))
    assert float(found.log_z) == float(expected.log_z)
    with pytest.raises(ValueError, match="alpha must be 1"):
        PredictiveSEP(0.5)


CONFIG = read_config(Path(__file__).parents[3] / "experiments" / "leave_one_out", smoke=False)
SMALL = CONFIG | {"tables": {"larger": ["a"], "small": ["b", "c"]}}


def records(factor):
    """NLL of log Z times a factor, twice that without calibration."""
    about = {"sharpness": 2.0, "cpu_seconds": 1.0}
    nll = [1.0 if job["objective"] == "log Z" else factor[job["table"]] for job in jobs(SMALL)]
    return [job | about | {"nll": x, "nll_uncalibrated": 2.0 * x} for job, x in zip(jobs(SMALL), nll, strict=True)]


def test_sizes_are_judged_apart():
    made = records({"a": 0.5, "b": 1.0, "c": 1.0})
    found = summarize(made, SMALL, Path())
    assert [v.holds for v in found.verdicts] == [False, True]
    assert "-50.0" in found.text
    part = summarize(made[:-1], SMALL, Path())
    assert part.verdicts[1].claim.endswith("on small tables (preliminary: 1 of 2)")
    assert summarize(made[:1], SMALL, Path()).verdicts == []


def test_a_job_is_made_with_its_objective(monkeypatch):
    """And without it the fit is that of SEP: the first job has no changes."""
    seen = []
    monkeypatch.setattr(PredictiveSEP, "log_density", lambda self, *args: seen.append(self) or 1 / 0)
    small = read_config(Path(__file__).parents[3] / "experiments" / "leave_one_out", smoke=True)
    first, half, average = jobs(small)
    assert run(first)["nll"] > 0.0
    for job in (half, average):
        with pytest.raises(ZeroDivisionError):
            run(job)
    assert [(m.weight, m.leaves_out) for m in seen] == [(0.5, OWN), (1.0, AVERAGE)]
