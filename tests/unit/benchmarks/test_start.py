"""The start is measured on tables that are there."""

import numpy as np
import pytest

from benchmarks import start
from benchmarks.history import line
from benchmarks.problems import Options, Size


def test_mean_squared_distance_to_the_nearest_point_of_the_class():
    X, y = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 5.0]]), np.array([0, 0, 1])
    Z = np.array([[[0.0, 1.0], [3.0, 4.0]], [[0.0, 5.0], [0.0, 0.0]]])
    assert start.inertia(X, y, Z) == pytest.approx((1.0 + 10.0 + 0.0) / 3)


def test_every_way_is_timed_and_scored(monkeypatch):
    monkeypatch.setattr(start, "TURNS", 1)
    records = list(start.measure(Options(size=Size(M=20), what=("digits",))))
    assert [record["what"] for record in records] == ["kmeans", "kmeans-per-class", "scikit-learn"]
    common, per_class, other = (record["inertia"] for record in records)
    assert per_class < common < 1.1 * other
    for record in records:
        assert record["seconds"] > 0
        assert "digits, 1797 rows, M=20 D=64" in line(record)


def test_without_data_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path))
    (record,) = start.measure(Options(what=("mnist",)))
    assert "skipped: CAVITY_DATA names no folder with mnist.npz" in line(record)
