"""Which rows to label next: what is chosen, from which pools, and what is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import cavity
from cavity import GPClassifier, active
from cavity.active import METHODS, choose, query
from cavity.data import Arrays, Parquet

RNG = np.random.default_rng(0)
POOL = RNG.normal(0.0, 2.0, (90, 2))
X = RNG.normal(0.0, 1.0, (40, 2))
Y = np.where(X[:, 0] > 0.4, "right", np.where(X[:, 1] > 0.0, "up", "down"))
QUICK = {"n_inducing": 8, "max_epochs": 4, "random_state": 0, "device": "cpu"}
EVERY = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def clf():
    return GPClassifier(**QUICK).fit(X, Y)


def test_bald_starts_with_the_largest_epistemic_uncertainty(clf):
    rows = query(clf, POOL, 12)
    assert rows.dtype == np.int64
    assert rows[0] == clf.uncertainty(POOL).epistemic.argmax()
    assert len(set(rows)) == 12
    assert np.array_equal(query(clf, POOL, 12), rows)
    assert np.array_equal(query(clf, POOL, 5), rows[:5])


def test_a_batch_does_not_ask_one_question_many_times(clf):
    near = np.array([6.0, 6.0]) + 1e-3 * RNG.normal(size=(30, 2))
    pool = np.concatenate([near, POOL])
    alone = np.argsort(-clf.uncertainty(pool).epistemic)[:10]
    assert (alone < 30).sum() == 10
    assert (query(clf, pool, 10) < 30).sum() <= 5


def test_entropy_and_margin(clf):
    p = clf.predict_proba(POOL)
    entropy, two = -(p * np.log(p)).sum(1), np.sort(p, 1)[:, -2:]
    assert query(clf, POOL, 6, "entropy").tolist() == np.argsort(-entropy)[:6].tolist()
    assert query(clf, POOL, 6, "margin").tolist() == np.argsort(two[:, 1] - two[:, 0])[:6].tolist()


def test_random_rows_follow_the_seed(clf):
    one, again, other = (query(clf, POOL, 20, "random", random_state=seed).tolist() for seed in (0, 0, 1))
    assert one == again != other
    assert len(set(one)) == 20


def test_epig_leaves_out_rows_that_teach_about_themselves_alone(clf):
    far = 40.0 * np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]])
    pool = np.concatenate([POOL, far])
    assert query(clf, pool, 1)[0] >= 90
    assert query(clf, pool, 5, "epig").max() < 90


@EVERY
def test_copies_of_a_row_are_asked_once(clf, method):
    pool = np.repeat(POOL[:6], 5, axis=0)
    pool[0] = pool[0] * [1.0, -1.0] * [1.0, -1.0]
    rows = query(clf, pool, 6, method, random_state=0)
    assert sorted(rows // 5) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="got 7: only 6 of the 30 rows of the pool differ"):
        query(clf, pool, 7, method)


@EVERY
@pytest.mark.parametrize("candidates", [active.CANDIDATES, 3])
def test_blocks_and_sources_change_nothing(clf, method, candidates, monkeypatch, tmp_path):
    monkeypatch.setattr(active, "CANDIDATES", candidates)
    expected = choose(clf, POOL, 4, method, random_state=0)
    monkeypatch.setattr(active, "CHUNK_ROWS", 7)
    pd.DataFrame(POOL, columns=["x0", "x1"]).to_parquet(tmp_path / "pool.parquet", row_group_size=20)
    for pool in (POOL, Arrays(POOL, lanes=3), Parquet(tmp_path / "pool.parquet")):
        found = choose(clf, pool, 4, method, random_state=0)
        assert np.array_equal(found.rows, expected.rows)
        assert np.array_equal(found.candidates, expected.candidates)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", active.JOINT)
def test_candidates_of_a_large_pool(clf, method, monkeypatch):
    """The best by screening, and others in proportion to their scores."""
    monkeypatch.setattr(active, "CANDIDATES", 4)
    found = choose(clf, POOL, 1, method)
    best = np.argsort(-active._scores(clf, POOL, "bald"))[:4]
    assert set(best) < set(found.candidates)
    assert 4 < len(found.candidates) <= 8
    assert (np.diff(found.candidates) > 0).all()
    assert len(choose(clf, POOL, 3, method).candidates) > 12  # a few for every row of the batch


FITS = {
    "full": {"n_inducing": "auto"},
    "ep": {"method": "ep", "calibrate": False},
    "sep": {"method": "sep", "batch_size": 16, "class_weight": "balanced"},
    "vi": {"method": "vi"},
    "gfitc": {"method": "gfitc"},
    "shared": {"method": "ep", "share_kernel": True, "share_inducing": True, "dtype": "float32"},
    "paper vi": None,
}


@pytest.mark.filterwarnings("ignore:.* has not converged:cavity.runtime.warnings.CavityWarning")
@pytest.mark.parametrize("case", FITS)
def test_every_kind_of_fit(case, tmp_path):
    if case == "paper vi":
        clf = GPClassifier.paper("vi", n_inducing=8, max_epochs=3, random_state=0).fit(X, Y)
    else:
        clf = GPClassifier(**(QUICK | FITS[case])).fit(X, Y)
    clf.save(tmp_path / "model.cavity")
    choice = choose(clf, POOL, 8)
    assert len(set(choice.rows)) == 8
    assert np.isfinite(choice.scores[0]).all()
    assert choice.rows[0] == clf.uncertainty(POOL).epistemic.argmax()
    assert np.array_equal(query(cavity.load(tmp_path / "model.cavity"), POOL, 8), choice.rows)


def test_two_classes():
    clf = GPClassifier(**QUICK).fit(X, Y == "right")
    assert query(clf, POOL, 5)[0] == clf.uncertainty(POOL).epistemic.argmax()


@EVERY
def test_tables_with_categories_and_gaps(method):
    frame = pd.DataFrame({"size": RNG.normal(size=60), "color": RNG.choice(["red", "green", None], 60)})
    frame.loc[::7, "size"] = np.nan
    y = np.where(frame["color"] == "red", "warm", "cold")
    clf = GPClassifier(**QUICK).fit(frame[:30], y[:30])
    found = query(clf, frame[30:], 5, method, random_state=0)
    assert np.array_equal(query(clf, pl.from_pandas(frame[30:]), 5, method, random_state=0), found)
    assert np.array_equal(query(clf, Arrays(frame[30:]), 5, method, random_state=0), found)
    gaps = pd.DataFrame({"size": [np.nan] * 4, "color": ["red", "red", None, None]})
    assert sorted(query(clf, gaps, 2, method) // 2) == [0, 1]


@pytest.mark.filterwarnings("ignore::cavity.CavityWarning")
def test_a_loop_with_partial_fit():
    """Each batch is learned and left the pool; what it taught is not asked again."""
    clf = GPClassifier("sep", n_inducing=10, random_state=0, device="cpu")
    clf.partial_fit(X, Y, classes=["down", "right", "up"])
    left = np.arange(len(POOL))
    for _ in range(3):
        before = clf.uncertainty(POOL).epistemic
        rows = left[query(clf, POOL[left], 10)]
        clf.partial_fit(POOL[rows], np.where(POOL[rows, 0] > 0.4, "right", "up"))
        assert clf.uncertainty(POOL[rows]).epistemic.mean() < before[rows].mean()
        left = np.setdiff1d(left, rows)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n": 0}, ValueError, "n must be an int of 1 or more, got 0"),
        ({"n": 2.0}, ValueError, "n must be an int of 1 or more, got 2.0"),
        ({"n": True}, ValueError, "n must be an int of 1 or more, got True"),
        ({"n": 91}, ValueError, "n must be at most the number of different rows .*, got 91: the pool has 90 rows"),
        (
            {"method": "BALD"},
            ValueError,
            "method must be one of 'bald', 'epig', 'entropy', 'margin', 'random', got 'BALD'",
        ),
        ({"pool": POOL[:, :1]}, ValueError, "1 features"),
        ({"pool": np.full((3, 2), np.inf)}, ValueError, "must be finite"),
        ({"pool": Arrays(POOL[:0])}, ValueError, "The pool has no rows"),
        ({"clf": "clf"}, TypeError, "clf must be a fitted GPClassifier, got str"),
        ({"method": "random", "random_state": "seed"}, ValueError, "seed"),
    ],
)
def test_what_is_refused(clf, changes, error, message):
    given = {"clf": clf, "pool": POOL, "n": 3, "method": "bald"} | changes
    with pytest.raises(error, match=message):
        choose(**given)


def test_a_classifier_must_be_fitted():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        query(GPClassifier(), POOL, 3)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'Query'"):
        active.Query  # noqa: B018
