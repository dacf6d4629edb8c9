"""Tables that fits without time are measured on."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import short_limits
from benchmarks.history import line
from benchmarks.problems import Options


@pytest.fixture
def tables(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": rng.standard_normal(90), "b": rng.choice(["x", "y"], 90), "target": rng.integers(0, 2, 90)}
    )
    table.loc[3, "a"] = np.nan
    table.loc[4, "b"] = None
    (tmp_path / "tables").mkdir()
    for name in ("first", "second"):
        table.to_parquet(tmp_path / "tables" / f"{name}.parquet")
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path))
    return table


def test_numbers_text_and_gaps_become_numbers(tables):
    X, y = short_limits.encoded(tables.copy())
    assert X.shape == (90, 4)  # a, whether a is missing, and b: x, y
    assert np.isfinite(X).all()
    assert set(y) == {"0", "1"}


def test_every_limit_is_scored_beside_class_frequencies(tables, monkeypatch):
    monkeypatch.setattr(short_limits, "LIMITS", (1e-9,))
    records = list(short_limits.measure(Options(what=("second",))))
    assert [(r["what"], r["limit"], r["B"], r["epochs"]) for r in records] == [
        ("second", 1e-9, 60, 1),
        ("second", 1e-9, 100, 1),
    ]
    for record in records:
        assert 0.5 < record["frequencies"] < 0.8
        assert "class frequencies 0." in line(record)
    assert line(records[0] | {"nll": 9.0}).count("WORSE") == 1


def test_without_tables_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path))
    (record,) = short_limits.measure(Options())
    assert "skipped: CAVITY_DATA names no folder with tables/*.parquet" in line(record)
