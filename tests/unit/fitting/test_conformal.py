"""Prediction sets: scores of labels, thresholds of held-out rows, and the coverage that follows."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_iris

from cavity import GPClassifier, load
from cavity.data import Arrays
from cavity.fitting.conformal import MOST_GROUPS, HeldOutScores, label_scores

RNG = np.random.default_rng(0)
P = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.25, 0.5, 0.25], [1 / 3, 1 / 3, 1 / 3]])


def draw(n_rows, n_classes=4, rng=RNG, sharpness=1.0, rarer=0.0):
    """Probabilities of a model that knows the truth up to a sharpness and how frequent classes are, and labels."""
    f = 1.5 * rng.standard_normal((n_rows, n_classes))
    truth = np.exp(f + rarer * np.arange(n_classes)) / np.exp(f).sum(1, keepdims=True)
    y = (truth.cumsum(1) < rng.random((n_rows, 1))).sum(1).clip(max=n_classes - 1)
    log_p = sharpness * f
    return log_p - np.log(np.exp(log_p).sum(1, keepdims=True)), y


def scores_of(log_p, y, weight=None):
    return HeldOutScores.of_labels(log_p, y, np.ones(len(y)) if weight is None else weight)


# --- Scores ---


def test_the_adaptive_score_is_the_probability_of_all_labels_that_are_no_more_probable():
    expected = [
        [0.7, np.log(0.3), np.log(0.1)],
        [np.log(0.6), np.log(0.6), 0.4],
        [np.log(0.5), 0.5, np.log(0.5)],
        [1 / 3] * 3,
    ]
    np.testing.assert_allclose(label_scores(np.log(P), "adaptive"), expected, rtol=1e-12)


def test_scores_have_the_order_of_the_probabilities():
    log_p, _ = draw(200, 7)
    order = np.argsort(log_p, axis=1)
    for kind in ("adaptive", "threshold"):
        assert (np.diff(np.take_along_axis(label_scores(log_p, kind), order, 1), axis=1) > 0).all()


def test_scores_differ_far_into_the_tails():
    log_p = np.log1p(-np.exp([[-50.0], [-60.0]])) + np.array([[0.0, -50.0, -900.0], [0.0, -60.0, -900.0]])
    found = label_scores(log_p, "adaptive")
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, 1:], [[-50.0, -900.0], [-60.0, -900.0]], rtol=1e-12)


# --- Thresholds ---


def least(n_rows, coverage, scores=None):
    scores = np.arange(n_rows, dtype=float) if scores is None else scores
    held_out = HeldOutScores(np.zeros(len(scores), dtype=int), np.ones(len(scores)), scores, scores, scores)
    return held_out.rule(coverage, 2, score="threshold").least[0]


@pytest.mark.parametrize(
    ("n_rows", "coverage", "expected"),
    [
        (9, 0.9, 0.0),
        (8, 0.9, -np.inf),
        (19, 0.9, 1.0),
        (18, 0.9, 0.0),
        (99, 0.95, 4.0),
        (0, 0.9, -np.inf),
        (3, 0.5, 1.0),
    ],
)
def test_the_new_row_counts_as_one_of_the_rows(n_rows, coverage, expected):
    """With n rows, the floor of (1 − coverage)(n + 1) of them may have lower scores than any label in the set."""
    assert least(n_rows, coverage) == expected


def test_exact_coverage_by_enumeration():
    """Of n + 1 exchangeable rows without ties each is the new one equally often: the fraction covered is known."""
    for n, coverage in ((9, 0.9), (12, 0.8), (30, 0.75)):
        scores = RNG.standard_normal(n + 1)
        covered = [scores[i] >= least(n, coverage, np.delete(scores, i)) for i in range(n + 1)]
        assert np.mean(covered) == 1 - np.floor((1 - coverage) * (n + 1) + 1e-9) / (n + 1) >= coverage - 1e-9


def test_weights_are_copies_of_rows():
    log_p, y = draw(60)
    copies = RNG.integers(1, 4, 60)
    for conditional in (None, "class", "confidence"):
        for coverage in (0.7, 0.9):
            one = scores_of(log_p, y, copies.astype(float)).rule(coverage, 4, conditional)
            many = scores_of(log_p.repeat(copies, 0), y.repeat(copies)).rule(coverage, 4, conditional)
            np.testing.assert_array_equal(one.least, many.least)
            np.testing.assert_array_equal(one.limits, many.limits)


def test_a_class_with_too_few_rows_is_in_every_set():
    log_p, y = draw(300)
    y[y == 2] = 1
    y[:8] = 2
    rule = scores_of(log_p, y).rule(0.9, 4, "class")
    assert np.isneginf(rule.least).tolist() == [False, False, True, False]
    assert rule.sets(log_p)[:, 2].all()


# --- Coverage ---


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("score", ["adaptive", "threshold"])
def test_marginal_coverage_whatever_the_model(score, sharpness):
    """The mean over draws of held-out rows and new rows is the nominal coverage, however wrong the model is."""
    rng = np.random.default_rng(1)
    for coverage in (0.6, 0.9):
        covered = []
        for _ in range(40):
            (a, y), (b, z) = draw(199, rng=rng, sharpness=sharpness), draw(400, rng=rng, sharpness=sharpness)
            sets = scores_of(a, y).rule(coverage, 4, None, score, True).sets(b)
            covered.append(sets[np.arange(400), z].mean())
        assert abs(np.mean(covered) - coverage) < 4 * np.std(covered) / np.sqrt(len(covered))


@pytest.mark.parametrize("conditional", ["class", "confidence"])
def test_conditional_coverage(conditional):
    rng = np.random.default_rng(2)
    (a, y), (b, z) = (draw(20_000, rng=rng, sharpness=2.0, rarer=-0.5) for _ in range(2))
    sets = scores_of(a, y).rule(0.8, 4, conditional, "adaptive", True).sets(b)
    covered, confidence = sets[np.arange(len(z)), z], b.max(1)
    groups = z if conditional == "class" else np.digitize(confidence, np.quantile(confidence, [0.2, 0.4, 0.6, 0.8]))
    by_group = [covered[groups == k].mean() for k in np.unique(groups)]
    np.testing.assert_allclose(by_group, 0.8, atol=0.025)
    marginal = scores_of(a, y).rule(0.8, 4, None, "adaptive", True).sets(b)[np.arange(len(z)), z]
    assert np.ptp([marginal[groups == k].mean() for k in np.unique(groups)]) > 2 * np.ptp(by_group)


def test_groups_by_confidence_are_few_where_rows_are_few():
    counts = [len(scores_of(*draw(n)).rule(0.9, 4, "confidence").least) for n in (30, 220, 1000, 5000)]
    assert counts == [1, 2, MOST_GROUPS, MOST_GROUPS]


def test_a_set_is_empty_only_if_that_is_allowed():
    log_p, _ = draw(500, sharpness=3.0)
    held_out = scores_of(log_p, log_p.argmax(1))  # a model that is always right: a small part of the rows is enough
    sets = held_out.rule(0.5, 4, allow_empty=True).sets(log_p)
    assert 0.4 < (sets.sum(1) == 0).mean() < 0.6
    sure = np.exp(log_p.max(1))
    assert sure[sets.any(1)].min() >= sure[~sets.any(1)].max()  # rows that the model is least sure of are empty
    sets = held_out.rule(0.5, 4).sets(log_p)
    assert (sets.sum(1) == 1).all()
    assert sets[np.arange(500), log_p.argmax(1)].all()


def test_sets_are_nested():
    log_p, _ = draw(300)
    held_out = scores_of(*draw(300))
    for conditional in (None, "class"):
        sets = [held_out.rule(c, 4, conditional).sets(log_p) for c in (0.5, 0.8, 0.9, 0.99)]
        assert all((a <= b).all() for a, b in pairwise(sets))


# --- The classifier ---

X, LABELS = load_iris(return_X_y=True)
Y = np.array(["setosa", "versicolor", "virginica"])[LABELS]
QUICK = {"n_inducing": 8, "max_epochs": 5, "random_state": 0}
FITS = {
    "full": {"random_state": 0},
    "folds": QUICK | {"calibrate": 2},
    "sep": QUICK | {"method": "sep", "batch_size": 30},
    "vi": QUICK | {"method": "vi", "calibrate": 2},
    "gfitc": QUICK | {"method": "gfitc", "calibrate": 2},
}


@pytest.fixture(scope="module", params=FITS)
def fitted(request):
    return GPClassifier(**FITS[request.param]).fit(X[::2], Y[::2])


def test_every_kind_of_fit_has_sets(fitted, tmp_path):
    sets = fitted.predict_set(X, 0.9)
    assert sets.shape == (150, 3)
    assert sets.dtype == bool
    assert sets.any(1).all()
    fitted.save(tmp_path / "m.cavity")
    np.testing.assert_array_equal(load(tmp_path / "m.cavity").predict_set(X, 0.9), sets)
    np.testing.assert_array_equal(fitted.predict_set(Arrays(X), 0.9), sets)
    rows = [fitted.predict_set(X[[i]], 0.9)[0] for i in (0, 70, 149)]
    np.testing.assert_array_equal(rows, sets[[0, 70, 149]])


def test_leave_one_out_scores_cover_new_rows():
    clf = GPClassifier(random_state=0).fit(X[::2], Y[::2])
    assert len(clf._held_out.y) == len(np.unique(np.column_stack([X[::2], LABELS[::2]]), axis=0))
    assert clf._held_out.weight.sum() == 75
    sets = clf.predict_set(X[1::2], 0.9, allow_empty=True)
    assert 0.8 < sets[np.arange(75), LABELS[1::2]].mean() < 0.97


def test_class_weights_do_not_count_as_rows():
    weight = {"setosa": 1.0, "versicolor": 20.0, "virginica": 0.5}
    clf = GPClassifier(class_weight=weight, random_state=0).fit(X, Y)
    assert clf._held_out.weight.sum() == pytest.approx(150)
    balanced = GPClassifier(class_weight="balanced", **FITS["folds"]).fit(X[:120], Y[:120])
    assert np.unique(balanced._held_out.weight.round(9)).tolist() in ([1.0], [1.0, 2.0])


def test_leave_one_out_scores_need_no_calibration():
    clf = GPClassifier(calibrate=False, random_state=0).fit(X[::2], Y[::2])
    assert clf.sharpness_ == 1.0
    sets = clf.predict_set(X[1::2], 0.9, allow_empty=True)
    assert 0.8 < sets[np.arange(75), LABELS[1::2]].mean() < 0.97


def test_small_weights_are_relative():
    clf, same = (GPClassifier(random_state=0).fit(X, Y, sample_weight=np.full(150, w)) for w in (0.01, 1.0))
    assert clf._held_out.weight.sum() == pytest.approx(150) == pytest.approx(same._held_out.weight.sum())


def test_without_held_out_rows_the_error_says_what_to_do():
    clf = GPClassifier(calibrate=False, **QUICK).fit(X[::2], Y[::2])
    with pytest.raises(ValueError, match=r"calibrate=True, or call conformalize\(X, y\)"):
        clf.predict_set(X)
    with pytest.raises(ValueError, match="conformalize"):
        clf.to_onnx(coverage=0.9)
    p = clf.predict_proba(X)
    sets = clf.conformalize(X[1::2], Y[1::2]).predict_set(X, 0.9)
    assert sets[1::2][np.arange(75), LABELS[1::2]].mean() >= 0.9  # the held-out rows themselves
    np.testing.assert_array_equal(clf.predict_proba(X), p)


def test_partial_fit_forgets_the_held_out_rows():
    """They say nothing about the probabilities of a model that has learned since."""
    clf = GPClassifier("sep", batch_size=30, **QUICK).fit(X[::2], Y[::2])
    clf.predict_set(X)
    clf.partial_fit(X[1::2], Y[1::2])
    with pytest.raises(ValueError, match="has kept none"):
        clf.predict_set(X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"coverage": 1.0}, "coverage must be a number above 0 and below 1, got 1.0"),
        ({"coverage": "all"}, "coverage must be"),
        ({"coverage": np.nan}, "coverage must be"),
        ({"conditional": "row"}, "conditional must be None, 'class' or 'confidence', got 'row'"),
        ({"score": "aps"}, "score must be 'adaptive' or 'threshold', got 'aps'"),
    ],
)
def test_bad_arguments(fitted, arguments, message):
    with pytest.raises(ValueError, match=message):
        fitted.predict_set(X, **arguments)


def test_conformalize_checks_its_rows(fitted):
    with pytest.raises(ValueError, match="features"):
        fitted.conformalize(X[:, :2], Y)
    with pytest.raises(ValueError, match="rose"):
        fitted.conformalize(X[:2], ["setosa", "rose"])
