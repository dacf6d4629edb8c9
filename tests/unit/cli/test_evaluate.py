"""Scores added up block by block are those of all rows at once."""

import numpy as np
import pytest

from cavity.cli.evaluate import Tally, class_table, describe_scores
from cavity.metrics import scores

CLASSES = np.array(["a", "b", "c"])


@pytest.fixture
def predicted():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 200)
    return rng.integers(0, 2, 200), np.log(p)  # no row is a c


def tallied(place, log_p, size=64):
    tally = Tally(CLASSES)
    for start in range(0, len(place), size):
        tally.add(place[start : start + size], log_p[start : start + size])
    return tally


def test_scores_are_the_same_in_any_blocks(predicted):
    place, log_p = predicted
    expected = scores(CLASSES[place], log_p, CLASSES)
    for size in (7, 64, 200):
        assert tallied(place, log_p, size).scores() == pytest.approx(expected, abs=1e-12)


def test_each_label_has_its_recall_and_precision(predicted):
    place, log_p = predicted
    said = log_p.argmax(1)
    found = {one["label"]: one for one in tallied(place, log_p).by_class()}
    for k, label in enumerate(CLASSES[:2]):
        hits = int(((place == k) & (said == k)).sum())
        assert found[label]["rows"] == (place == k).sum()
        assert found[label]["recall"] == pytest.approx(hits / (place == k).sum())
        assert found[label]["predicted"] == (said == k).sum()
        assert found[label]["precision"] == pytest.approx(hits / (said == k).sum())
    assert found["c"]["rows"] == 0
    assert found["c"]["recall"] is None
    assert found["c"]["precision"] == 0.0


def test_the_error_of_the_most_frequent_label_is_named(predicted):
    tally = tallied(*predicted)
    label, error = tally.most_frequent()
    assert error == pytest.approx(1 - max(np.bincount(predicted[0])) / 200)
    assert f"always predicting {label!r} gives {100 * error:.1f} %" in describe_scores(tally)
    assert len(class_table(tally).splitlines()) == 4


def test_no_rows_have_no_scores():
    with pytest.raises(ValueError, match="At least one row"):
        Tally(CLASSES).scores()


def test_certain_and_right_is_perfect():
    with np.errstate(divide="ignore"):
        log_p = np.log(np.eye(3))
    found = tallied(np.arange(3), log_p).scores()
    assert found == (0.0, 0.0, 0.0, 0.0)
