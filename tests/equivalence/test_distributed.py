"""Several processes find what one finds: the rows are shared, the sums are the same."""

import warnings

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.data import CSV, Arrays, Parquet
from cavity.datasets import make_waveform
from tests.searches import N_ROWS, make_small
from tests.tables import mixed_table, write_csv, write_parquet
from tests.workers import run

STEPS = 50
N = 103  # not a multiple of the workers: uneven shards
COMMON = {"n_inducing": 8, "random_state": 0, "calibrate": False, "tol": 0.0}
BATCHES = {"batch_size": 25, "max_epochs": STEPS // 5}  # 5 batches an epoch
CASES = {
    "ep": {"method": "ep", **BATCHES},
    "sep": {"method": "sep", **BATCHES},
    "vi": {"method": "vi", **BATCHES},
    "plain vi": {"method": "vi", "optimizer": "paper", **BATCHES},
    "full ep": {"method": "ep", "batch_size": None, "max_epochs": STEPS},
    "full sep": {"method": "sep", "batch_size": None, "max_epochs": STEPS},
    "full vi": {"method": "vi", "batch_size": None, "max_epochs": STEPS},
    "gfitc": {"method": "gfitc", "max_epochs": 8},
    "exact": {"method": "ep", "updates": "inner-exact", **BATCHES},
    "exact sep": {"method": "sep", "updates": "inner-exact", **BATCHES},
    "outer": {"method": "ep", "updates": "outer", "optimizer": "adam", "max_epochs": 5},
    "nothing learned": {"method": "ep", "learn_kernel": False, "learn_inducing": False, "batch_size": None},
    "calibrated": {"method": "ep", "batch_size": None, "max_epochs": 10, "calibrate": 2},
    "tiny batches": {"method": "sep", "batch_size": 2, "max_epochs": 1},
}


def rows():
    """Labels in order: the first shard has no row of the last class."""
    X, y = make_waveform(N, random_state=0)
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


def fitted(names):
    """What matters of the fits."""
    found = {}
    for name in names:
        X, y = rows()
        model = GPClassifier(**(COMMON | CASES[name])).fit(X, y)
        q = model.posterior_
        found[name] = {
            "mean": q.mean, "cov": q.cov, "Z": model.inducing_points_, "noise": model.noise_,
            "log_z": model.log_marginal_likelihood_, "p": model.predict_proba(X), "sharpness": model.sharpness_,
        }  # fmt: skip
    return found


@pytest.fixture(scope="module")
def alone():
    return fitted(CASES)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request, tmp_path_factory):
    return run(fitted, request.param, tmp_path_factory.mktemp("workers"), list(CASES))


def test_the_first_shard_misses_a_class():
    assert set(rows()[1][: N // 3]) != set(rows()[1])


LEARNED = ("Z", "noise")
# VI's last sweeps on all rows are mixed and magnify rounding: 1e-14 in X moves q by 4e-4 in one process too.
COMPARED = {"full vi": LEARNED}


@pytest.mark.parametrize("name", CASES)
def test_ranks_find_what_one_process_finds(alone, together, name):
    for found in together:
        for what in COMPARED.get(name, alone[name]):
            expected = alone[name][what]
            np.testing.assert_allclose(found[name][what], expected, rtol=1e-9, atol=1e-9, err_msg=f"{name}: {what}")


@pytest.mark.parametrize("name", CASES)
def test_every_rank_has_the_same_model_to_the_last_bit(together, name):
    first, *others = together
    for other in others:
        for what, expected in first[name].items():
            assert np.array_equal(other[name][what], expected), what


def cut_short():
    """Fits without time on noise, half of whose rows are copies: in memory and from a source."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 2))[rng.integers(0, 300, 300)], rng.choice(2, 300, p=[0.9, 0.1])
    found = []
    for given in ((X, y), (Arrays(X, y, lanes=4), None)):
        model = GPClassifier("sep", n_inducing=5, batch_size=40, max_seconds=1e-9, random_state=0, device="cpu")
        model.fit(*given)
        events = [str(record["event"]) for record in model.history_ if record["event"]]
        found.append((model.predict_proba(X), model.sharpness_, events, np.asarray(model.posterior_.epsilon)))
    return found


def test_workers_agree_on_a_fit_that_is_cut_short(tmp_path):
    """On the rows held out with all their copies, and on the weight of class frequencies."""
    alone, ranks = cut_short(), run(cut_short, 2, tmp_path)
    for found in ranks:
        for (p, sharpness, events, epsilon), expected in zip(found, alone, strict=True):
            assert events == expected[2]
            assert "time_limit" in events
            assert sharpness == pytest.approx(expected[1], rel=1e-6)
            np.testing.assert_allclose(epsilon, expected[3], rtol=0, atol=1e-3)
            np.testing.assert_allclose(p, expected[0], rtol=0, atol=1e-3)
    for a, b in zip(*ranks, strict=True):
        np.testing.assert_array_equal(a[0], b[0])


def from_files(folder):
    """Fits of a table with categories, a date and gaps: batches from Parquet and CSV, and all rows of Parquet."""
    found = {}
    sources = {"parquet": Parquet(folder / "parquet", target="label", lanes=4), "csv": CSV(folder / "csv", "label")}
    new = mixed_table(50, seed=1).drop(columns="label")
    settings = {"n_inducing": 8, "random_state": 0, "tol": 0.0}
    for name, batch_size in (("parquet", 40), ("csv", 40), ("parquet", None)):
        model = GPClassifier(**settings, batch_size=batch_size, max_epochs=5, class_weight="balanced", device="cpu")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X has columns that are left out")
            model.fit(sources[name])
        levels = [part.table for part in model._encoding.categories]
        found[name, batch_size] = (model._schema, model.predict_proba(new), model.log_marginal_likelihood_, *levels)
    return found


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_workers_find_the_levels_and_gaps_of_all_files(size, tmp_path):
    table = mixed_table(240)
    write_parquet(table, tmp_path / "parquet")
    write_csv(table, tmp_path / "csv", parts=5)
    alone, ranks = from_files(tmp_path), run(from_files, size, tmp_path / "work", tmp_path)
    for found in ranks:
        for name, (schema, *values) in found.items():
            assert schema == alone[name][0]
            for one, other, first in zip(values, alone[name][1:], ranks[0][name][1:], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9, err_msg=name)
                np.testing.assert_array_equal(one, first)


def searched():
    """Fits that begin with a search: EP at fixed inducing points, and mini-batches in memory and from a source."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        for name, n_rows in (*N_ROWS.items(), ("source", N_ROWS["batches"])):
            X, y = make_waveform(n_rows + 1, random_state=0)  # uneven shards
            given = (Arrays(X, y, lanes=4), None) if name == "source" else (X, y)
            model = GPClassifier(random_state=0, device="cpu").fit(*given)
            tried = [(record["scaling"], record["rows"]) for record in model.history_ if record["event"] == "candidate"]
            found[name] = tried, model.predict_proba(X), model.sharpness_, model.log_marginal_likelihood_
    return found


def test_workers_find_what_one_process_finds_after_a_search(tmp_path):
    """All make the same search; then each has some of the rows."""
    alone, ranks = searched(), run(searched, 2, tmp_path)
    for found in ranks:
        for name, (tried, *values) in found.items():
            assert tried == alone[name][0]
            for one, other, first in zip(values, alone[name][1:], ranks[0][name][1:], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=name)
                np.testing.assert_array_equal(one, first)
