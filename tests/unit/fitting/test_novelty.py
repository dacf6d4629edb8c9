"""Novelty: uniform on rows like the training rows, small far away, after every kind of fit."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import ks_2samp

import cavity
from cavity import GPClassifier
from cavity.data import Arrays
from cavity.data.profile import Profile
from cavity.fitting.encoding import fit_encoding
from cavity.fitting.novelty import MOST_ROWS, Metric, Novelty, left_out_parts, whiten
from cavity.fitting.rows import TrainingRows

FITS = {
    "full GP": {},
    "full GP, no calibration": {"calibrate": False},
    "cross-fitting": {"n_inducing": 8, "max_epochs": 8},
    "mini-batches": {"method": "sep", "n_inducing": 10, "batch_size": 40, "max_epochs": 3},
    "per class": {"method": "sep", "n_inducing": 6, "init": "kmeans-per-class", "max_epochs": 3},
    "gfitc": {"method": "gfitc", "n_inducing": 8, "max_epochs": 3},
    "vi": {"method": "vi", "n_inducing": 8, "max_epochs": 3},
    "weights of classes": {"class_weight": "balanced"},
    "unscaled": {"scaling": None},
}


def blobs(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.standard_normal((n, 3)) + 3.0 * np.eye(3)[y], y


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X, y = blobs(n, seed)
    size = np.where(rng.random(n) < 0.2, np.nan, X[:, 0])
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    return pd.DataFrame({"size": size, "color": np.array(["red", "green", "blue"])[y], "age": X[:, 1], "day": days}), y


@pytest.fixture(scope="module", params=FITS)
def fitted(request):
    X, y = blobs(200, seed=2)
    return GPClassifier(random_state=0, device="cpu", **FITS[request.param]).fit(X, y)


def test_novelty_is_uniform_on_fresh_rows_or_larger(fitted):
    p = fitted.novelty(blobs(400, seed=1)[0])
    assert ((p > 0.0) & (p <= 1.0)).all()
    assert ks_2samp(p, fitted._novelty.usual, alternative="greater").pvalue > 0.01
    assert (p <= 0.05).mean() < 0.1


def test_far_rows_are_novel(fitted):
    farthest = 1e300 if fitted.scaling is not None else 1e12
    far = np.array([[9.0, 9.0, 9.0], [-1e3, 0.0, 0.0], [farthest, 0.0, 0.0], [np.nan, 1.0, 1.0]])
    n_known = fitted._novelty.held_out.shape[1]
    assert (fitted.novelty(far) <= 2.5 / n_known).all()


def test_two_calls_and_other_chunks_give_the_same_bits(fitted):
    X = blobs(150, seed=2)[0]
    p = fitted.novelty(X)
    np.testing.assert_array_equal(p, fitted.novelty(X))
    np.testing.assert_array_equal(p[40:70], fitted.novelty(X[40:70]))
    np.testing.assert_array_equal(p[:1], fitted.novelty(X[:1]))
    np.testing.assert_array_equal(p, fitted.novelty(Arrays(X)))


def test_files_and_pickles_keep_it(fitted, tmp_path):
    X = blobs(50, seed=2)[0]
    fitted.save(tmp_path / "m.cavity")
    for found in (cavity.load(tmp_path / "m.cavity"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(found.novelty(X), fitted.novelty(X))


def test_a_class_that_is_not_known_is_novel():
    X, y = blobs(300)
    clf = GPClassifier(random_state=0).fit(X[y < 2], y[y < 2])
    assert (clf.novelty(X[y == 2]) <= 0.05).mean() > 0.5


def test_what_is_unusual_by_column():
    X, y = table(200)
    clf = GPClassifier(random_state=0).fit(X, y)
    strange = X.head(5).copy()
    strange.loc[0, "color"] = "violet"
    strange.loc[1, "age"] = 50.0
    strange.loc[2, "age"] = np.nan
    strange.loc[3, "day"] = pd.Timestamp("1950-01-01")
    p, by_column, columns = clf.novelty(strange, explain=True)
    assert columns == ["size", "color", "age", "day"]
    assert (p[:4] < 0.05).all()
    assert by_column.shape == (5, 4)
    assert by_column[:4].argmin(1).tolist() == [1, 2, 2, 3]
    np.testing.assert_allclose(by_column[:4].min(1), 1 / 201)
    gap = clf.novelty(X[X["size"].isna()], explain=True)  # as many training rows have
    assert (gap.by_column[:, 0] > 0.1).all()


def test_a_new_level_differs_from_a_gap():
    X, y = table(200)
    X.loc[::3, "color"] = None
    clf = GPClassifier(random_state=0).fit(X, y)
    rows = X.head(2).assign(color=["violet", None])
    assert clf.novelty(rows, explain=True).by_column[:, 1].round(3).tolist() == [0.005, 1.0]


def test_rows_of_a_batch_are_compared_with_those_before():
    X, y = blobs(300)
    clf = GPClassifier("sep", n_inducing=10, random_state=0).partial_fit(X[:100], y[:100], classes=[0, 1, 2])
    with pytest.raises(ValueError, match="partial_fit has seen a single batch"):
        clf.novelty(X)
    clf.partial_fit(X[100:200], y[100:200]).partial_fit(X[200:], y[200:])
    assert clf._novelty.held_out.shape == (4, 200)
    p = clf.novelty(blobs(300, seed=1)[0])
    assert (p <= 0.05).mean() < 0.12
    assert clf.novelty([[50.0, 0.0, 0.0]])[0] < 0.01
    assert clf._novelty.profile.columns[0].known == 300


def test_learning_goes_on_after_a_fit():
    X, y = blobs(200)
    clf = GPClassifier("sep", n_inducing=10, max_epochs=3, random_state=0).fit(X, y)
    before = clf._novelty.held_out.shape[1]
    clf.partial_fit(*blobs(50, seed=1))
    assert clf._novelty.held_out.shape[1] == before + 50
    assert clf.novelty([[50.0, 0.0, 0.0]])[0] < 0.01


def test_without_rows_to_compare_with_the_error_says_what_to_do():
    clf = GPClassifier("vi", n_inducing=5, max_epochs=2, calibrate=False, random_state=0).fit(*blobs(60))
    with pytest.raises(ValueError, match="fit with calibrate=True"):
        clf.novelty(blobs(5)[0])


def test_an_older_file_says_so(tmp_path):
    clf = GPClassifier(random_state=0).fit(*blobs(60))
    clf._novelty = None
    clf.save(tmp_path / "m.cavity")
    with pytest.raises(ValueError, match="older version of cavity: fit and save the model again"):
        cavity.load(tmp_path / "m.cavity").novelty(blobs(5)[0])


def test_copies_count_as_weights_do():
    X, y = blobs(60)
    times = np.random.default_rng(0).integers(1, 4, 60)
    one = GPClassifier(random_state=0).fit(X, y, sample_weight=times.astype(float))
    two = GPClassifier(random_state=0).fit(X.repeat(times, axis=0), y.repeat(times))
    new = blobs(50, seed=1)[0]
    np.testing.assert_array_equal(one.novelty(new), two.novelty(new))


def test_only_the_ratio_of_small_weights_matters():
    X, y = blobs(60)
    found = [GPClassifier(random_state=0).fit(X, y, sample_weight=np.full(60, w))._novelty for w in (1.0, 1e-3)]
    np.testing.assert_allclose(found[1].held_out[3], found[0].held_out[3])


def test_at_most_so_many_rows_are_kept():
    found = GPClassifier(random_state=0).fit(*blobs(30))._novelty
    more = found.with_rows(torch.ones(3, MOST_ROWS).double(), np.ones(MOST_ROWS))
    assert more.held_out.shape == (4, MOST_ROWS)
    assert bool((more.held_out == 1.0).all())


@pytest.mark.parametrize("scaling", ["standard", None])
def test_distances_without_a_row_are_those_of_a_fit_without_it(scaling):
    X, y = blobs(40)
    rows, ones = TrainingRows(X * [1.0, 10.0, 0.1], y, np.ones(40)), np.ones(40)
    encoding = fit_encoding(None, scaling, rows.X, y, ones, 3)
    metric = Metric.of(encoding, rows, ones, 3)
    clf = GPClassifier(random_state=0).fit(X, y)
    prior = replace(clf.posterior_.prior, Z=torch.from_numpy(encoding.transform(rows.X))[None])
    q = replace(clf.posterior_, prior=prior)
    f = torch.zeros(3, 40).double(), torch.full((3, 40), 2.0).double()
    found = left_out_parts(q, encoding, rows, ones, metric, clf._novelty.profile, f)[0].numpy()
    for i in range(0, 40, 5):
        others = np.arange(40) != i
        without = Metric.of(encoding, rows.take(np.flatnonzero(others)), ones[others], 3).whitening
        U = whiten(without, torch.from_numpy(encoding.transform(rows.X))).numpy()
        assert found[i] == pytest.approx(np.linalg.norm(U[others] - U[i], axis=1).min(), rel=0.08)


def test_the_rank_is_exact():
    held_out = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]).double()
    found = Novelty(Profile(()), torch.ones(1).double(), held_out)
    parts = torch.tensor([[0.5, 1.5, 2.5, 9.0], [0.0] * 4, [0.0] * 4]).double()
    np.testing.assert_allclose(found.p_values(parts), [1.0, 0.75, 0.5, 0.25])
    new = torch.tensor([[0.5], [0.0], [1.0]]).double()
    np.testing.assert_allclose(found.p_values(new), [0.25])  # a new level, and no row has one
