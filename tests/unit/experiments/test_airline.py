"""What the airline experiment says about made-up records."""

from pathlib import Path

import pytest

from experiments.airline import run as airline
from experiments.experiment import read_config

FOLDER = Path(__file__).parents[3] / "experiments" / "airline"
CONFIG = read_config(FOLDER, smoke=False)


def record(method, *points):
    curve = [list(point) for point in points]
    return {"method": method, "curve": curve, "nll": curve[-1][1], "error": curve[-1][2], "train_seconds": curve[-1][0]}


LINEAR = {"method": "linear", "nll": 1.04, "error": 0.54, "train_seconds": 8.0}
SEP = record("sep", (0.5, 1.09, 0.60), (10.0, 1.00, 0.50), (120.0, 0.97, 0.48))
EP = record("ep", (0.5, 1.09, 0.60), (20.0, 1.00, 0.50), (120.0, 0.97, 0.48))
VI = record("vi", (0.5, 1.09, 0.60, -5.3), (40.0, 1.01, 0.51, -4.0), (120.0, 1.05, 0.49, -3.0))


def verdicts(*records):
    return airline.summarize(list(records), CONFIG, FOLDER).verdicts


def test_a_fit_for_each_method_with_all_that_matters():
    jobs = airline.jobs(CONFIG)
    assert [job["method"] for job in jobs] == CONFIG["methods"]
    assert all({"seconds", "rows", "times", "seed", "device"} <= set(job) for job in jobs)
    assert len({tuple(job) for job in jobs}) == 1


def test_the_paper_s_finding_holds_where_the_curves_say_so():
    found = verdicts(SEP, EP, VI, LINEAR)
    assert [verdict.holds for verdict in found] == [True, True, True, True]
    assert found[0].evidence == "SEP 10 s, EP 20 s, VI 40 s"
    assert found[-1].evidence == "1.0100 after 40 s, 1.0500 after 120 s"


def test_no_turn_where_vi_ends_at_its_best():
    steady = record("vi", (0.5, 1.09, 0.60, -5.3), (120.0, 1.01, 0.49, -3.0))
    assert not verdicts(SEP, EP, steady, LINEAR)[-1].holds


def test_a_method_that_never_passes_the_linear_model_is_late():
    slow = record("ep", (0.5, 1.09, 0.60), (120.0, 1.05, 0.55))
    quick, first, alike, _ = verdicts(SEP, slow, VI, LINEAR)
    assert not quick.holds
    assert not first.holds
    assert not alike.holds
    assert "EP never" in quick.evidence


def test_with_some_records_missing_there_is_a_table_and_no_verdict():
    shown = airline.summarize([SEP], CONFIG, FOLDER)
    assert shown.verdicts == []
    assert "| SEP | 120.0 | 0.4800 | 0.9700 | 0.9700 after 120 s |  |" in shown.text


@pytest.mark.parametrize("method", ["linear", "vi"])
def test_one_fit_at_smoke_size(method):
    job = next(j for j in airline.jobs(read_config(FOLDER, smoke=True)) if j["method"] == method)
    found = airline.run(job)
    assert 0.5 < found["nll"] < 1.2
    assert ("curve" in found) == (method == "vi")
    assert not set(found) & set(job)
    if method == "vi":
        assert all(len(point) == 4 and point[3] < -point[1] for point in found["curve"])
