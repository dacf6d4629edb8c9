import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from cavity.datasets import Dataset, load
from cavity.fitting.settings import FOLDS, PRIORS, START
from experiments import common
from experiments.defaults.overlap import shares, table
from experiments.defaults.run import as_json, classifier, compared, cost, fold, jobs, log_ratio, parts, run, summarize
from experiments.experiment import between_marks, read_config

FOLDER = Path(__file__).parents[3] / "experiments" / "defaults"
CONFIG = read_config(FOLDER, smoke=False)
SMALL = {
    "sets": ["a", "b"],
    "folds": 3,
    "folds_of": {"b": 2},
    "close": 0.02,
    "candidates": [
        {"name": "choice", "what": "the choice"},
        {"name": "other", "what": "another"},
        {"name": "rough", "what": "a rough one", "kernel": "matern52"},
    ],
}


def record(candidate, data_set, i, nll, calibrated):
    rest = {"sharpness": 2.0, "ece": 0.05, "ece_calibrated": 0.03, "error": 0.1, "error_calibrated": 0.1}
    return {"candidate": candidate, "data_set": data_set, "fold": i, "nll": nll, "nll_calibrated": calibrated, **rest}


def records(**levels):
    """Set b is twice as hard as a, fold by fold harder; levels are of NLL without and with calibration."""
    return [
        record(candidate, data_set, i, *(level * hard * (1.0 + 0.1 * i) for level in pair))
        for candidate, pair in levels.items()
        for data_set, hard, n in (("a", 1.0, 3), ("b", 2.0, 2))
        for i in range(n)
    ]


def job_of(name, data_set="wine"):
    return next(job for job in jobs(CONFIG) if (job["candidate"], job["data_set"]) == (name, data_set))


def made_of(name, X):
    return classifier(job_of(name), X)


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(3.0, 2.0, (40, 4))


def test_every_candidate_meets_every_fold_once():
    found = jobs(CONFIG)
    assert len(found) == len(CONFIG["candidates"]) * (7 * 8 + 2)
    assert len({(j["candidate"], j["data_set"], j["fold"]) for j in found}) == len(found)
    assert all("," not in job["candidate"] for job in found)  # so that --only can name it


def test_jobs_come_back_the_same_from_a_file():
    found = jobs(CONFIG)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert str(json.loads(json.dumps(found))) == str(found)
    assert str(as_json({"b": (1.0, math.inf), "a": None})) == "{'a': None, 'b': [1.0, None]}"


def test_a_fit_costs_what_its_method_and_its_set_cost():
    assert cost(job_of("vi", "satellite")) == 4.0 * cost(job_of("choice", "satellite")) == 120.0
    assert cost(job_of("sep")) == 0.5 * cost(job_of("choice"))


def test_the_choice_is_the_defaults(X):
    given = made_of("choice", X).get_params()
    assert (given["priors"], given["kernel"], given["method"]) == ("default", None, "ep")
    assert given["calibrate"] == FOLDS


@pytest.mark.parametrize(
    ("name", "changes"),
    [("spread-1", {"spread": 1.0}), ("relevance-0.3", {"relevance": 0.3}), ("relevance-1", {"relevance": 1.0})],
)
def test_priors_of_a_candidate_differ_from_the_choice_by_what_it_says(name, changes, X):
    assert made_of(name, X).priors == PRIORS | changes


def test_priors_that_are_not_named_are_not_there(X):
    assert made_of("no-priors", X).priors is None
    expected = {"lengthscale": (None, 0.5, math.inf), "spread": 1.0, "variance": (None, 2.0), "noise": (None, 2.0)}
    assert made_of("former", X).priors == expected


def test_a_start_is_in_median_distances_of_scaled_rows(X):
    kernel = made_of("former", X).kernel
    scaled = (X - X.mean(0)) / X.std(0, ddof=1)
    pairs = np.triu_indices(len(X), 1)
    distances = np.linalg.norm(scaled[:, None] - scaled, axis=-1)[pairs]
    assert kernel.lengthscale == pytest.approx(1.5 * np.median(distances))
    assert kernel.variance == START.variance


def test_another_kernel_starts_where_the_default_does(X):
    kernel = made_of("matern52", X).kernel
    assert type(kernel).__name__ == "Matern52"
    assert (kernel.lengthscale, kernel.variance) == (None, START.variance)


def test_a_fold_never_reads_a_test_row(monkeypatch):
    order = np.random.default_rng(5).permutation(100)
    splits = tuple((np.roll(order, i)[:80], np.roll(order, i)[80:]) for i in range(2))
    rows = np.arange(100.0)[:, None]  # numbered
    data = Dataset("glass", rows, np.arange(100) % 3, ("x",), ("0", "1", "2"), "", "", splits)
    monkeypatch.setattr(common, "load", lambda name: data)
    X, y, X_valid, y_valid = fold("glass", 1, "authors")
    assert (len(X), len(X_valid)) == (68, 12)
    assert {*X[:, 0], *X_valid[:, 0]} == set(splits[1][0].astype(float))
    np.testing.assert_array_equal(np.concatenate([y, y_valid]), np.concatenate([X, X_valid])[:, 0] % 3)


def test_waveform_is_drawn_anew(monkeypatch):
    monkeypatch.delattr(common, "load")
    (X, y, X_valid, y_valid), other = fold("waveform", 0, "authors"), fold("waveform", 1, "authors")
    assert (X.shape, y.shape, X_valid.shape, y_valid.shape) == ((300, 21), (300,), (2000, 21), (2000,))
    assert not np.isclose(X[0], other[0][0]).any()


def test_one_fit_is_scored_without_and_with_calibration():
    job = next(j for j in jobs(read_config(FOLDER, smoke=True)) if j["data_set"] == "iris")
    found = run(job)
    assert found["sharpness"] != 1.0
    assert found["nll"] != found["nll_calibrated"]
    X, y, X_valid, y_valid = fold("iris", job["fold"], "random")
    alone = classifier(job | {"calibrate": False}, X).fit(X, y)
    log_p = alone.predict_log_proba(X_valid)[np.arange(len(y_valid)), y_valid]
    assert found["nll"] == pytest.approx(-log_p.mean(), abs=1e-5)


def test_ratios_over_the_same_folds_have_no_error_where_folds_agree():
    ratio = log_ratio([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert ratio.mean == pytest.approx(-math.log(2.0))
    assert ratio.se == pytest.approx(0.0)


def test_the_error_of_a_ratio_is_that_of_many_draws():
    rng = np.random.default_rng(0)
    draws = [1.0 + 0.2 * rng.normal(size=(2, 8)) for _ in range(2000)]
    found = [log_ratio(*pair.tolist()) for pair in draws]
    assert np.mean([r.se for r in found]) == pytest.approx(np.std([r.mean for r in found]), rel=0.1)


def test_geometric_means_weigh_sets_alike():
    cells = {
        (c, d): [{"nll": v, "nll_calibrated": v}] * 2
        for c, d, v in (("x", "a", 1.0), ("x", "b", 8.0), ("y", "a", 2.0), ("y", "b", 2.0))
    }
    assert compared(cells, ["a", "b"], ("x", "nll"), ("y", "nll")).mean == pytest.approx(0.5 * math.log(2.0))


def test_the_claims_are_judged_by_the_records():
    shown = summarize(records(choice=(0.5, 0.404), other=(0.5, 0.4), rough=(0.5, 0.1)), SMALL, FOLDER)
    assert [verdict.holds for verdict in shown.verdicts] == [True, True]  # a rough kernel is no rival
    assert "another" in shown.verdicts[0].evidence
    assert "-19.2 ± 0.0 %; lower on 2 of 2 sets" in shown.verdicts[1].evidence
    assert "| another | 0.440 | 0.840 | 0.6079 | -1.0 ± 0.0 % |" in shown.text
    assert set(shown.figures) == {"defaults"}


@pytest.mark.parametrize(
    ("levels", "holds"),
    [({"choice": (0.5, 0.41), "other": (0.5, 0.4)}, [False, True]), ({"choice": (0.4, 0.41)}, [True, False])],
)
def test_a_claim_that_fails_is_seen_to_fail(levels, holds):
    assert [verdict.holds for verdict in summarize(records(**levels), SMALL, FOLDER).verdicts] == holds


def test_cells_that_lack_folds_are_left_out():
    made = records(choice=(0.5, 0.4), other=(0.1, 0.1))
    assert "| another | 0.110 |  |  |  |" in summarize(made[:-1], SMALL, FOLDER).text
    assert len(summarize(made[:-1], SMALL, FOLDER).verdicts) == 2
    without = [r for r in made if (r["candidate"], r["data_set"]) != ("choice", "b")]
    shown = summarize(without, SMALL, FOLDER)
    assert (shown.verdicts, shown.figures) == ([], {})


# --- Test rows that the choice has used ---


def test_shares_of_test_rows():
    """Of three splits of twenty rows, of which the choice has used the first, rows 4 to 19."""
    rows = np.arange(20)
    tests = rows[:4], rows[2:6], rows[2:4]
    splits = tuple((np.setdiff1d(rows, test), test) for test in tests)
    data = Dataset("made up", np.zeros((20, 1)), np.zeros(20, int), ("x",), ("0",), "", "", splits)
    found = shares(data, folds=1)
    assert found.elsewhere == pytest.approx((2 / 4 + 2 / 4 + 0 / 2) / 3)
    assert found.used == pytest.approx((0 / 4 + 2 / 4 + 0 / 2) / 3)
    held_out = splits[0][0][parts(16, 0)[1]]
    assert len(held_out) == 3
    assert found.scored == pytest.approx(np.isin(tests[1], held_out).mean() / 3)
    assert shares(data, folds=0)[1:] == (0.0, 0.0)


@pytest.mark.skipif("CAVITY_DATA" not in os.environ, reason="CAVITY_DATA names no data folder")
def test_the_readme_says_which_test_rows_the_choice_has_used():
    page = (FOLDER / "README.md").read_text()
    assert between_marks(page, "overlap", table(CONFIG)) == page
    used = [name for name in CONFIG["sets"] if name not in ("waveform", "satellite")]
    assert [shares(load(name), 8).used for name in used] == [1.0] * 6
