"""The learned maps of columns, a search that goes on, and what is compared."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from cavity import GPClassifier
from cavity.data.schema import NUMBER, Column, Schema
from cavity.fitting import encoding as encodings
from cavity.fitting import search
from cavity.fitting.encoding import TableEncoding, fit_encoding, fit_scaler
from cavity.fitting.fit import Fit
from cavity.fitting.search import FullGP
from cavity.gp.probabilities import log_p_of
from cavity.inference.full import FullEP
from cavity.kernels import RBF, Matern12
from experiments.experiment import read_config
from experiments.search.longer import longer, unused_density
from experiments.search.run import fit_changed, jobs, summarize
from experiments.search.warps import MIXTURE, WEIGHT, Mixture, Warped, inputs
from experiments.tables.run import MADE_UP, table_split

CONFIG = read_config(Path(__file__).parents[3] / "experiments" / "search", smoke=False)
RNG = np.random.default_rng(0)
X = np.stack([np.exp(RNG.normal(size=80)), RNG.normal(size=80), np.ones(80)], 1)


def of_one_column(knots=(-1.0, 0.0, 2.0), levels=(-1.5, 0.5, 1.0)):
    return [(np.array(knots), np.array(levels)), None]


@pytest.mark.parametrize("n_classes", [1, 2])
def test_a_warped_kernel_is_the_kernel_of_warped_inputs(n_classes):
    kernel = Warped(RBF(), of_one_column())
    Z = torch.tensor([[[-2.0, 0.3], [-0.5, 1.0], [1.0, 0.0], [5.0, -1.0]]], dtype=torch.float64)
    params = kernel.start(n_classes, 2, 1.0) | {WEIGHT: torch.full((n_classes, 2), 1.2, dtype=torch.float64)}
    w = 1.0 / (1.0 + np.exp(-1.2))
    mapped = Z.clone()  # q(x) − x at the four places: −0.5, ½·(−0.5 + 0.5), ½·(0.5 − 1), −1
    mapped[0, :, 0] += w * torch.tensor([-0.5, 0.0, -0.25, -1.0], dtype=torch.float64)
    expected = RBF().bind({n: v for n, v in params.items() if n != WEIGHT}, mapped, torch.float64)
    found = kernel.bind(params, Z, torch.float64)
    torch.testing.assert_close(found.gram, expected.gram)
    torch.testing.assert_close(found.blocks(Z[0]).cross, expected.blocks(mapped[0]).cross)


@pytest.mark.parametrize("n_classes", [1, 2])
def test_the_gradient_by_the_weights_is_that_of_finite_differences(n_classes):
    rng = np.random.default_rng(3)
    kernel = Warped(RBF() + Matern12(), [*of_one_column(), (np.array([-2.0, 2.0]), np.array([-1.0, 1.0]))])
    Z = torch.from_numpy(rng.normal(size=(1, 6, 3)))
    params = kernel.start(n_classes, 3, 1.3)
    params[WEIGHT] = params[WEIGHT] + torch.from_numpy(rng.normal(size=(n_classes, 3)))
    by = torch.from_numpy(rng.normal(size=(n_classes, 6, 6)))
    by = by + by.mT

    def total(shift):
        return float((by * kernel.bind(params | {WEIGHT: params[WEIGHT] + shift}, Z, torch.float64).gram).sum())

    bound, none = kernel.bind(params, Z, torch.float64), by.new_zeros(n_classes, 6, 0)
    found = bound.pull_back(bound.blocks(Z[0, :0]), by.clone(), none, none[:, 0]).by_params[WEIGHT]
    for k, d in product(range(n_classes), range(3)):
        e = torch.zeros(n_classes, 3, dtype=torch.float64)
        e[k, d] = 1e-5
        assert float(found[k, d]) == pytest.approx((total(e) - total(-e)) / 2e-5, rel=1e-6, abs=1e-7)
    assert bool((found[:, 1] == 0.0).all())  # a feature without a map


def test_the_mixture_reaches_from_standardized_values_to_quantiles():
    """On a table with a gap, whose features have another order than its columns of numbers."""
    rows = X.copy()
    rows[2, 0] = np.nan
    schema = Schema(tuple(Column(str(j), NUMBER) for j in range(3)))
    y, weight = (rows[:, 1] > 0).astype(np.int64), np.ones(80)
    with inputs([MIXTURE], []):
        found, standard, quantile = (
            fit_encoding(schema, name, rows, y, weight, 2) for name in (MIXTURE, "standard", "quantile")
        )
        data = search.TrainingRows(rows, y, weight)
        kernel = FullGP.on_rows(data, found, 2, ("rbf",), torch.device("cpu")).kernel(1.0, 1.0)
    assert isinstance(found, TableEncoding)
    at = torch.from_numpy(found.transform(rows))
    np.testing.assert_array_equal(at.numpy(), standard.transform(rows))
    expected = quantile.transform(rows)
    known = ~np.isnan(rows[:, 0])
    np.testing.assert_allclose((at + kernel.difference(at)).numpy()[known], expected[known], atol=1e-8)


def test_only_for_a_while():
    before = Fit._candidates, encodings.fit_scaler, FullGP.on_rows, search.PRIORS
    with inputs([MIXTURE], ["quantile"]):
        assert isinstance(encodings.fit_scaler(MIXTURE, X, np.ones(80)), Mixture)
    assert before == (Fit._candidates, encodings.fit_scaler, FullGP.on_rows, search.PRIORS)
    assert encodings.fit_scaler is fit_scaler


@pytest.mark.parametrize("name", ["power", MIXTURE])
def test_a_fit_can_choose_each_map(name):
    rows = table_split(MADE_UP, 0, 60, 40)
    others = ["default", "standard", "quantile"]
    found = fit_changed({"more_inputs": [name], "fewer_inputs": others}, 0, rows)
    assert 0.0 < found["nll"] < np.log(2.0)
    assert found["nll"] != fit_changed({}, 0, rows)["nll"]


def test_maps_are_compared_on_all_splits():
    small = CONFIG | {"tables": ["a"], "candidates": {"default": {}, "other": {}}}
    small |= {"input_tables": ["a", "b"], "input_splits": [0, 1, 2]}
    factor = {"default": 1.0, "other": 1.0, "power too": 0.5, "power instead": 2.0}
    about = {"sharpness": 1.0, "seconds": 1.0, "cpu_seconds": 1.0}
    made = [job | about | {"nll": (1.0 + job["split"]) * factor.get(job["candidate"], 1.0)} for job in jobs(small)]
    assert len(made) == 2 + 2 * 3 * 4 - 1  # the default on split 0 of a once
    found = summarize(made, small, Path())
    assert "| power too | -50.0 ± 0.0 % | 2 | 6 | 0 | 1.00 |" in found.text
    assert [v.holds for v in found.verdicts] == [True, False]
    part = summarize(made[:-1], small, Path())
    assert part.verdicts[1].claim.endswith("(preliminary: 1 of 2 tables with columns of numbers)")


def made_up_rows(n_rows=150, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_rows, 2))
    return features, (features[:, 0] + 0.5 * rng.normal(size=n_rows) > 0).astype(np.int64)


def test_the_density_of_unused_rows_is_that_of_the_dense_formula():
    features, y = made_up_rows()
    rows = search.TrainingRows(features, y, np.ones(150))
    encoding = fit_encoding(None, None, *rows, 2)
    some, others = rows.take(np.arange(50)), rows.take(np.arange(50, 150))
    gp = FullGP.on_rows(some, encoding, 2, ("rbf", "matern12"), torch.device("cpu"))
    model = gp.model(1.0, 8.0)
    prior = model.prior(model.start())
    ep = FullEP.start(gp.labels, search.NOISE).converged(search.covariance(prior), 200, 0.5, 1e-10).ep
    learned = search.Learned(model.start(), 1.2, 0.0, ep)
    found = unused_density(gp, model, learned, others, features[50:])
    q = ep.latent(search.covariance(prior))
    blocks = prior.bound.blocks(torch.from_numpy(features[50:]))
    K = search.covariance(prior) + torch.diag_embed(1.0 / q.tau)
    weights = torch.linalg.solve(K, blocks.cross)
    mean = (weights * (q.nu / q.tau)[..., None]).sum(-2)
    var = blocks.diag - (weights * blocks.cross).sum(-2) + search.NOISE
    expected = log_p_of(1.2 * mean, var, 0.0)[torch.from_numpy(y[50:]), torch.arange(100)].mean()
    assert found == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(("gain", "more"), [(1.0, 2), (-1.0, 1)])
def test_a_search_goes_on_while_unused_rows_gain(monkeypatch, gain, more):
    """Twice at most; the round after which they do not gain is thrown away."""
    scores = iter([0.0, gain, 2.0 * gain])
    monkeypatch.setattr(search, "LEARN_ROWS", 40)
    monkeypatch.setattr("experiments.search.longer.unused_density", lambda *args: next(scores))
    features, y = made_up_rows()
    fits = []
    for steps, rounds in ((0, 0), (3, 2)):
        with longer(steps, rounds):
            fits.append(GPClassifier(random_state=0, device="cpu").fit(features, y))
    assert fits[1].n_iter_ == fits[0].n_iter_ + 3 * more
    same = np.allclose(fits[0].predict_proba(features), fits[1].predict_proba(features), atol=1e-6)
    assert same == (gain < 0.0)


def test_a_search_without_unused_rows_ends_as_it_did():
    features, y = made_up_rows()
    with longer(3, 2):
        found = GPClassifier(random_state=0, device="cpu").fit(features, y)
    assert found.n_iter_ == GPClassifier(random_state=0, device="cpu").fit(features, y).n_iter_
