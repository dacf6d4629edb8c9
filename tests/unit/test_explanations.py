"""What speaks for a label: against loops, finite differences, and Shapley values by another program."""

import itertools
import math
import warnings
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.stats import norm

import cavity
from cavity import GPClassifier
from cavity.explanations import Background, Explanation, choose_labels, training_background
from cavity.gp.margins import Margins
from cavity.kernels import RBF, Constant, Laplace, Linear, Matern12, Matern32, ScaledKernel
from tests.autograd_kernels import ByAutograd
from tests.models import posterior
from tests.tables import mixed_table

KERNELS = {
    "RBF": RBF(),
    "Matern32": Matern32(),
    "Laplace": Laplace(),
    "linear": Linear() + Constant(),
    "product": RBF() * (Linear() + Constant()),
    "autograd": ByAutograd(RBF()),
}
NEW = torch.from_numpy(np.random.default_rng(0).normal(0.0, 1.2, (9, 2)))
SIGN = torch.from_numpy(np.random.default_rng(1).permuted(np.tile([1.0, -1.0, 0.0], (9, 1)), axis=1))


@dataclass(frozen=True, eq=False)
class OneByOne(ScaledKernel):
    """A sum of RBF kernels of single features."""

    def cross(self, params, Z, X):
        scale = torch.exp(-params["log_lengthscale"])[:, None, None, :]
        squares = ((Z[:, :, None, :] - X[:, None, :, :]) * scale).square()
        return torch.exp(params["log_variance"])[:, None, None] * torch.exp(-0.5 * squares).sum(-1)

    def diag(self, params, X):
        return (X.shape[-1] * torch.exp(params["log_variance"])[:, None]).expand(-1, X.shape[1])


def table(n_rows=150, seed=0):
    """A table of everything, with the column of names that models leave out."""
    frame = mixed_table(n_rows, seed, cities=6)
    return frame.drop(columns="label"), frame["label"]


def fit(X, y, kernel=None, **options):
    options = {"n_inducing": 12, "max_epochs": 8, "random_state": 0} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.CavityWarning)  # of the column that is left out
        return GPClassifier(kernel=kernel, **options).fit(X, y)


@pytest.fixture(scope="module")
def fitted():
    return fit(*table())


def margin_of(clf, X, label, against):
    """From `latent`."""
    mean = clf.sharpness_ * clf.latent(X)[0]
    labels = clf.classes_.tolist()
    return mean[:, labels.index(label)] - mean[:, labels.index(against)]


# --- Margins ---


@pytest.mark.parametrize("shared", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_margins_are_differences_of_latent_means(kernel, shared):
    q = posterior(kernel, shared, sharpness=1.7)
    found = Margins(q).at(NEW, SIGN)
    expected = 1.7 * (SIGN.mT * q.marginals(NEW)[0]).sum(0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("shared", [(False, False), (True, True), (True, False)])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_gradients_of_margins_against_finite_differences(kernel, shared):
    margins, step = Margins(posterior(kernel, shared, sharpness=1.7)), 1e-5
    found = margins.gradient(NEW, SIGN)
    for d in range(2):
        by = step * torch.eye(2, dtype=torch.float64)[d]
        slope = (margins.at(NEW + by, SIGN) - margins.at(NEW - by, SIGN)) / (2 * step)
        np.testing.assert_allclose(found[:, d], slope, rtol=1e-6, atol=1e-8)


def test_a_row_at_an_inducing_point_has_a_finite_gradient():
    q = posterior(Matern12())
    assert torch.isfinite(Margins(q).gradient(q.prior.Z[0], SIGN[:1].expand(4, -1))).all()


def test_blocks_do_not_matter(monkeypatch):
    margins = Margins(posterior())
    at, gradient = margins.at(NEW, SIGN), margins.gradient(NEW, SIGN)
    monkeypatch.setattr("cavity.gp.margins.BLOCK_ELEMENTS", 8)
    np.testing.assert_allclose(margins.at(NEW, SIGN), at, rtol=0, atol=1e-12)
    np.testing.assert_allclose(margins.gradient(NEW, SIGN), gradient, rtol=0, atol=1e-12)


# --- Labels ---


def test_the_predicted_label_is_explained_against_the_next():
    log_p = np.log([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])
    own, other = choose_labels(log_p, np.array(["a", "b", "c"]), None, None)
    assert (own.tolist(), other.tolist()) == ([1, 0], [2, 1])


def test_labels_can_be_given_for_all_rows_or_each():
    log_p, classes = np.log([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]]), np.array(["a", "b", "c"])
    assert [part.tolist() for part in choose_labels(log_p, classes, "a", None)] == [[0, 0], [1, 2]]
    assert [part.tolist() for part in choose_labels(log_p, classes, None, "a")] == [[1, 2], [0, 0]]
    assert [part.tolist() for part in choose_labels(log_p, classes, ["a", "b"], "c")] == [[0, 1], [2, 2]]


def test_a_label_without_probability_is_better_than_the_same_label_twice():
    log_p = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
    own, other = choose_labels(log_p, np.array([3, 5]), None, None)
    assert (own.tolist(), other.tolist()) == ([1, 0], [0, 1])


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (ValueError, "against, row 0: label 'd' is not one of the classes", {"against": "d"}),
        (ValueError, r"label must be a label, or one for each of the 2 rows, got shape \(3,\)", {"label": list("abc")}),
        (ValueError, "against must differ from label in every row, got 'b' for both in row 1",
         {"label": ["a", "b"], "against": "b"}),
        (TypeError, "one type", {"label": 1}),
    ],
)  # fmt: skip
def test_an_invalid_label_is_named(error, message, options):
    arguments = {"label": None, "against": None} | options
    with pytest.raises(error, match=message):
        choose_labels(np.log(np.full((2, 3), 1 / 3)), np.array(["a", "b", "c"]), **arguments)


# --- Explanations ---


def test_contributions_are_the_margin_less_its_mean_over_the_background(fitted):
    """By a loop over columns and background rows, with `latent` on tables of text and dates."""
    X, _ = table()
    rows, background = X.iloc[:4], X.iloc[20:29]
    found = fitted.explain(rows, background=background)
    assert found.columns == list(X.columns)
    for i in range(4):
        pair = found.label[i], found.against[i]
        (margin,), repeated = margin_of(fitted, rows.iloc[[i]], *pair), rows.iloc[[i] * 9].reset_index(drop=True)
        assert found.margin[i] == pytest.approx(margin, abs=1e-9)
        assert found.base[i] == pytest.approx(margin_of(fitted, background, *pair).mean(), abs=1e-9)
        for j, name in enumerate(X.columns):
            replaced = repeated.assign(**{name: background[name].reset_index(drop=True)})
            mean = margin_of(fitted, replaced, *pair).mean()
            assert found.contributions[i, j] == pytest.approx(margin - mean, abs=1e-9)
    whole = found.base + found.contributions.sum(1) + found.interactions
    np.testing.assert_allclose(whole, found.margin, rtol=0, atol=1e-12)


def test_the_gradient_is_that_of_the_margin_by_each_number(fitted):
    X, _ = table()
    rows = X[X["size"].notna() & X["day"].notna()].iloc[:5]
    found, step = fitted.explain(rows, background=X), 1e-4
    ends = [margin_of_each(fitted, rows.assign(size=rows["size"] + by), found) for by in (step, -step)]
    sd = X["size"].fillna(X["size"].mean()).std(ddof=0)
    np.testing.assert_allclose(found.gradient[:, 0], sd * (ends[0] - ends[1]) / (2 * step), rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(found.gradient[:, [1, 2, 3, 5]], 0.0)  # categories, and what is left out
    assert (found.gradient[:, 4] != 0.0).all()


def margin_of_each(clf, X, found):
    pairs = zip(found.label, found.against, strict=True)
    return np.array([margin_of(clf, X.iloc[[i]], *pair)[0] for i, pair in enumerate(pairs)])


def test_the_gradient_by_a_gap_is_zero(fitted):
    X, _ = table()
    found = fitted.explain(X[X["size"].isna()].iloc[:3])
    np.testing.assert_array_equal(found.gradient[:, 0], 0.0)
    assert (found.contributions[:, 0] != 0.0).all()


def test_a_column_that_is_left_out_says_nothing(fitted):
    found = fitted.explain(table()[0])
    np.testing.assert_array_equal(found.contributions[:, 5], 0.0)
    np.testing.assert_array_equal(found.gradient[:, 5], 0.0)


def test_a_constant_column_says_nothing():
    rng = np.random.default_rng(0)
    X, y = np.column_stack([rng.standard_normal(40), np.full(40, 3.0)]), rng.integers(0, 2, 40)
    found = fit(X, y).explain(X)
    np.testing.assert_allclose(found.contributions[:, 1], 0.0, atol=1e-9)
    np.testing.assert_allclose(found.gradient[:, 1], 0.0, atol=1e-9)


def test_two_labels_explain_each_other():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), np.array(["no", "yes"])[(rng.standard_normal(60) > 0).astype(int)]
    clf = fit(X, y, calibrate=False)
    yes, no = (clf.explain(X, label=label) for label in ("yes", "no"))
    for mine, other in zip((yes.margin, yes.contributions, yes.gradient, yes.interactions),
                           (no.margin, no.contributions, no.gradient, no.interactions), strict=True):  # fmt: skip
        np.testing.assert_allclose(mine, -other, rtol=0, atol=1e-12)
    np.testing.assert_allclose(norm.cdf(yes.margin / yes.sd), clf.predict_proba(X)[:, 1], rtol=0, atol=1e-9)


def test_the_background_of_the_model_has_values_like_those_of_training(fitted):
    cells, weight = training_background(fitted._novelty.profile)
    assert cells.shape == (len(weight), 6)
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert set(cells[~np.isnan(cells[:, 1]), 1]) <= {0.0, 1.0, 2.0, 3.0}


def test_the_background_of_the_model_counts_by_its_weights(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((70, 3))
    clf = fit(X, rng.integers(0, 2, 70), calibrate=False)
    columns = [(rng.standard_normal(k), rng.dirichlet(np.ones(k))) for k in (2, 3, 9)]
    cells, weight = kept = Background.of_columns(columns)
    monkeypatch.setattr("cavity.explanations.training_background", lambda *_: kept)
    found = clf.explain(X[:1], label=1)
    for j in range(3):
        replaced = np.repeat(X[:1], len(cells), 0)
        replaced[:, j] = cells[:, j]
        mean = weight @ margin_of(clf, replaced, 1, 0)
        assert found.contributions[0, j] == pytest.approx(found.margin[0] - mean, abs=1e-9)
    assert found.base[0] == pytest.approx(weight @ margin_of(clf, cells, 1, 0), abs=1e-9)


def test_a_file_of_an_older_version_needs_rows_to_compare_with():
    clf = cavity.load(Path(__file__).parents[1] / "reference" / "model_v1.cavity")
    X = pd.DataFrame(clf.inducing_points_[0], columns=clf.feature_names_in_)
    with pytest.raises(ValueError, match="pass background=X with some training rows"):
        clf.explain(X)
    assert len(clf.explain(X[:2], background=X)) == 2


def test_rows_of_columns_have_their_distributions_and_combine_them_freely():
    rng = np.random.default_rng(0)
    columns = [(np.arange(k, dtype=float), rng.dirichlet(np.ones(k))) for k in (1, 2, 2, 7, 40)]
    columns.append((np.array([3.0, np.nan]), np.array([1.0, 0.0])))
    cells, weight = Background.of_columns(columns)
    for j, (values, share) in enumerate(columns[:5]):
        found = [weight[cells[:, j] == x].sum() for x in values]
        np.testing.assert_allclose(found, share, rtol=0, atol=1e-14)
    assert weight[np.isnan(cells[:, 5])].sum() < 1e-14
    centered = cells[:, 1:5] - weight @ cells[:, 1:5]
    covariance = centered.T @ (weight[:, None] * centered)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs(covariance / np.outer(sd, sd) - np.eye(4)).max() < 0.3


@pytest.mark.parametrize("scaling", [None, "quantile", "power", "common"])
def test_scalings_do_not_matter_for_what_the_parts_mean(scaling):
    rng = np.random.default_rng(2)
    X = np.exp(rng.standard_normal((60, 3)))
    clf = fit(X, (X[:, 0] > X[:, 1]).astype(int), scaling=scaling)
    found = clf.explain(X[:5], background=X[5:20])
    assert all(np.isfinite(part).all() for part in vars(found).values() if isinstance(part, np.ndarray)
               and part.dtype == np.float64)  # fmt: skip
    np.testing.assert_allclose(found.margin, margin_of_each(clf, pd.DataFrame(X), found), rtol=0, atol=1e-9)
    assert (np.abs(found.contributions[:, :2]).sum(1) > np.abs(found.contributions[:, 2])).all()


def test_every_kind_of_model_and_input_is_explained(tmp_path):
    X, y = table()
    models = {
        "search": {"n_inducing": "auto", "max_epochs": 5},
        "sep": {"method": "sep", "batch_size": 50},
        "vi": {"method": "vi", "class_weight": "balanced", "share_inducing": True, "share_kernel": True},
        "gfitc": {"method": "gfitc", "max_epochs": 2},
    }
    for name, options in models.items():
        clf = fit(X, y, **options)
        clf.save(tmp_path / "model.cavity")
        found = clf.explain(X)
        assert np.abs(found.contributions).max() > 0, name
        for other in (
            clf.explain(X),
            cavity.load(tmp_path / "model.cavity").explain(X),
            clf.explain(pl.from_pandas(X)),
        ):
            np.testing.assert_array_equal(found.contributions, other.contributions)
            np.testing.assert_array_equal(found.gradient, other.gradient)
        parts = [clf.explain(rows) for rows in (X.iloc[:1], X.iloc[1:7], X.iloc[7:])]
        np.testing.assert_allclose(
            np.concatenate([part.contributions for part in parts]), found.contributions, rtol=0, atol=1e-10
        )


def test_a_model_that_learns_online_is_explained():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((90, 3)), rng.integers(0, 3, 90)
    clf = GPClassifier("sep", n_inducing=8, random_state=0).partial_fit(X[:60], y[:60], classes=[0, 1, 2])
    found = clf.partial_fit(X[60:], y[60:]).explain(X[:7], against=0)
    assert set(found.against) == {0}
    assert found.columns == ["x0", "x1", "x2"]


def test_rows_far_out_are_explained():
    X = np.random.default_rng(0).standard_normal((40, 2))
    found = fit(X, (X[:, 0] > 0).astype(int)).explain([[1e300, -1e300], [0.0, 1e9]])
    assert np.isfinite(found.contributions).all()
    assert np.isfinite(found.gradient).all()


def test_as_text_it_names_the_largest_parts():
    found = Explanation(
        ["age", "sex", "class"],
        np.array([[30.0, "f", None]] * 12, dtype=object),
        *(np.array([label] * 12) for label in ("yes", "no")),
        *(np.full(12, x) for x in (1.5, 1.0, -0.25)),
        np.tile([1.25, -0.5, 0.0], (12, 1)),
        np.full(12, 1.0),
        np.zeros((12, 3)),
    )
    *first, last = [str(found).splitlines()[i] for i in (0, 1, 2, -1)]
    assert first == [
        "0: yes against no, margin +1.50 (-0.25 on average)",
        "   age=30.0 +1.25, sex=f -0.50",
        "   other columns +0.00, interactions +1.00",
    ]
    assert last == "… 2 more rows"
    assert len(found) == 12


# --- Additive models: Shapley values ---


def shapley(value, n):
    """Shapley values by their definition, from the value of each coalition."""
    found = np.zeros(n)
    for j, size in itertools.product(range(n), range(n)):
        weight = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
        for coalition in itertools.combinations([k for k in range(n) if k != j], size):
            found[j] += weight * (value({*coalition, j}) - value({*coalition}))
    return found


ADDITIVE = {"linear": Linear() + Constant(), "one by one": OneByOne() + Constant()}


def additive(name, with_categories):
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.standard_normal((80, 3)), columns=["a", "b", "c"])
    if with_categories:
        X["color"] = rng.choice(["red", "green", "blue"], 80)
        X["when"] = [pd.Timestamp("2024-01-01") + timedelta(days=int(d)) for d in rng.integers(0, 700, 80)]
        X.loc[::7, "a"] = np.nan
    score = X["b"] + np.sin(2 * X["c"]) + (X["color"] == "red" if with_categories else 0)
    y = np.digitize(score + 0.3 * rng.standard_normal(80), [-0.3, 0.8])
    return fit(X, y, ADDITIVE[name]), X


@pytest.mark.parametrize("with_categories", [False, True])
@pytest.mark.parametrize("name", ADDITIVE)
def test_contributions_of_an_additive_margin_are_shapley_values(name, with_categories):
    clf, X = additive(name, with_categories)
    background, rows = X.iloc[10:17].reset_index(drop=True), X.iloc[:2]
    found = clf.explain(rows, background=background)
    np.testing.assert_allclose(found.interactions, 0.0, atol=1e-9)
    for i in range(2):

        def value(coalition, i=i):
            replaced = background.assign(**{c: rows.iloc[i][c] for c in X.columns[sorted(coalition)]})
            return margin_of(clf, replaced, found.label[i], found.against[i]).mean()

        np.testing.assert_allclose(found.contributions[i], shapley(value, X.shape[1]), rtol=0, atol=1e-9)


def test_interactions_are_not_zero_where_columns_act_together():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    found = fit(X, (X[:, 0] * X[:, 1] > 0).astype(int), RBF(), n_inducing=40).explain(X)
    assert np.abs(found.interactions).mean() > 0.3 * np.abs(found.margin).mean()


@pytest.mark.slow
@pytest.mark.parametrize("with_categories", [False, True])
@pytest.mark.parametrize("name", ADDITIVE)
def test_contributions_are_those_of_kernel_shap(name, with_categories):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shap = pytest.importorskip("shap")
        clf, X = additive(name, with_categories)
        background, rows = X.iloc[10:17], X.iloc[:3]
        found = clf.explain(rows, background=background)
        for i in range(3):

            def margin(cells, i=i):
                table = pd.DataFrame(cells, columns=X.columns).astype(X.dtypes)
                return margin_of(clf, table, found.label[i], found.against[i])

            explainer = shap.KernelExplainer(margin, background.astype(object), silent=True)
            values = explainer.shap_values(rows.iloc[[i]].astype(object), l1_reg=False, silent=True)[0]
            np.testing.assert_allclose(found.contributions[i], values, rtol=0, atol=1e-6)
            assert found.base[i] == pytest.approx(explainer.expected_value, abs=1e-8)
