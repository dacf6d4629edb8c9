"""Drift: novel rows, columns that moved, labels, and the page."""

import numpy as np
import pandas as pd
import pytest

from cavity import GPClassifier
from cavity.report import examine_drift


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = 3.0 * np.eye(3)[y] + rng.standard_normal((n, 3))
    color = np.array(["red", "green", "blue"])[(y + rng.integers(0, 2, n)) % 3]
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D")
    level = np.where(rng.random(n) < 0.3, np.nan, x[:, 2])
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "level": level, "color": color, "when": when})
    return frame, np.array(["x", "y", "z"])[y]


@pytest.fixture(scope="module")
def clf():
    return GPClassifier(random_state=0).fit(*rows(200))


def moved(clf, X):
    return [column.name for column in examine_drift(clf, X).moved]


def test_rows_like_the_training_rows_have_not_drifted(clf):
    X, y = rows(300, seed=1)
    found = examine_drift(clf, X, y)
    assert found.moved == []
    assert not found.novelty.are_many
    assert found.novelty.p_value > 0.01
    assert found.novelty.histogram.sum() == found.novelty.n_rows == found.n_labeled == 300
    assert found.novelty.expected[0] < 0.05 < found.novelty.expected[1]
    assert found.scores.error.value < 0.4


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("a", lambda X: X.assign(a=X["a"] + 2.0), "median"),
        ("color", lambda X: X.assign(color="red"), "red"),
        ("color", lambda X: X.assign(color=X["color"].replace("red", "violet")), "new levels"),
        ("level", lambda X: X.assign(level=np.nan), "gaps"),
        ("b", lambda X: X.assign(b=X["b"].where(X.index % 3 > 0)), "gaps 0.0"),
        ("when", lambda X: X.assign(when=X["when"] + pd.Timedelta(days=300)), "2024-"),
    ],
)
def test_a_column_that_moved_is_found(clf, name, change, what):
    found = examine_drift(clf, change(rows(300, seed=1)[0]))
    assert [column.name for column in found.moved] == [name]
    assert what in found.columns[0].what
    assert 0.0 < found.columns[0].distance <= 1.0


def test_novel_rows_are_listed_with_what_is_unusual(clf):
    X = rows(100, seed=1)[0]
    X.loc[7, "color"] = "violet"
    X.loc[8, "a"] = 99.0
    found = examine_drift(clf, X, row_names=np.arange(100) + 1).novelty
    listed = {row.row: row.cells for row in found.strangest}
    assert listed["8"][0][:2] == ("color", "violet (not in training)")
    assert listed["9"][0][:2] == ("a", "99")
    assert [row.novelty for row in found.strangest] == sorted(row.novelty for row in found.strangest)


def test_labels_that_are_not_known_are_counted(clf):
    X, y = rows(50, seed=1)
    y = np.array(["new", "new", *y[2:]])
    found = examine_drift(clf, X, y)
    assert found.unknown_labels == (("new", 2),)
    assert found.n_labeled == 48
    assert examine_drift(clf, X, np.full(50, "new")).scores is None
    with pytest.raises(ValueError, match="one label for each of the 50 rows, got 49"):
        examine_drift(clf, X, y[1:])


def test_the_page_tells_it_all(clf, tmp_path):
    X, y = rows(120, seed=1)
    report = clf.drift(X.assign(a=X["a"] + 2.0), y, title="<Monday>")
    html = report.save(tmp_path / "drift.html").read_text()
    assert "&lt;Monday&gt;" in html
    assert "1 column has moved: a" in html
    assert all(
        f'id="{key}"' in html for key in ("novelty", "columns", "labels", "moved-columns-title", "reliability-title")
    )
    assert html == report.html
    assert "1 column has moved: a" in repr(report)
    assert report._repr_html_().startswith("<iframe")


def test_a_report_has_novel_rows(clf):
    X, y = rows(80, seed=1)
    X.loc[3, "a"] = 99.0
    report = clf.report(X, y)
    assert report.findings.novelty.strangest[0].row == "3"
    assert "The strangest rows" in report.html
