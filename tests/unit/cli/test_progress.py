"""How far through the rows: lines in a log, a bar on a terminal, nothing where nothing is asked for."""

import gzip
import sys

import pytest

from cavity.cli import progress
from cavity.cli.files import find
from cavity.cli.progress import count_rows, through_rows
from tests.clock import Clock

pytest.importorskip("pyarrow")


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    return found


@pytest.fixture
def data(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n" + "1,a\n" * 1000)
    return find([str(tmp_path / "rows.csv")])


def test_rows_are_counted_where_that_is_cheap(data, tmp_path):
    assert count_rows(data) == 1000
    with gzip.open(tmp_path / "rows.csv.gz", "wt") as file:
        file.write("x,y\n1,a\n")
    assert count_rows(find([str(tmp_path / "rows.csv.gz")])) is None


def test_a_log_has_a_line_each_half_minute(data, clock, capsys):
    with through_rows("predict", data, quiet=False) as done:
        for _ in range(10):
            clock.now += 20.0
            done(100)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert lines[0] == "predict: 200 of 1,000 rows, 0:40 gone, 2:40 left"


def test_a_terminal_has_a_bar(data, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with through_rows("predict", data, quiet=False) as done:
        done(500)
    assert "0.00/1.00k" in capsys.readouterr().err


def test_quiet_shows_nothing(data, clock, capsys):
    with through_rows("predict", data, quiet=True) as done:
        clock.now += 100.0
        done(500)
    assert capsys.readouterr().err == ""
