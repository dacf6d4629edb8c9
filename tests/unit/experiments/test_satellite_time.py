from itertools import product
from pathlib import Path

import pytest

from cavity.fitting.settings import PAPER_STEPS
from experiments.experiment import read_config
from experiments.satellite_time.run import cost, jobs, run, summarize

FOLDER = Path(__file__).parents[3] / "experiments" / "satellite_time"
CONFIG = {"data_set": "satellite", "splits": "authors", "inducing": [4, 100], "repetitions": 2, "times": [0.1, 10.0, 3],
          "methods": ["gfitc", "ep", "sep", "vi"]}  # fmt: skip
# NLL at 1, 2 and 4 times the seconds of a method's first point, and the error at its end.
PAPER = {"gfitc": (2.0, [0.6, 0.5, 0.4], 0.11), "ep": (1.0, [0.6, 0.4, 0.3], 0.12), "sep": (1.0, [0.6, 0.4, 0.3], 0.12),
         "vi": (2.0, [0.9, 0.6, 0.8], 0.12)}  # fmt: skip


def records(**changes):
    found = []
    for M, (method, (first, nll, error)), i in product([4, 100], (PAPER | changes).items(), range(2)):
        curve = [[first * 2**j, value + 0.01 * i, error + 0.1 - 0.05 * j] for j, value in enumerate(nll)]
        ends = {"seconds": curve[-1][0], "nll": curve[-1][1], "error": curve[-1][2]}
        found.append({"inducing": M, "method": method, "split": i, "curve": curve, **ends})
    return found


def verdicts(**changes):
    return [verdict.holds for verdict in summarize(records(**changes), CONFIG, FOLDER).verdicts]


def test_every_fit_is_asked_for_once():
    config = read_config(FOLDER, smoke=False)
    found = jobs(config)
    assert len(found) == 3 * 4 * config["repetitions"]
    assert len({str(job) for job in found}) == len(found)
    assert all(job["seed"] == job["split"] and job["times"] == config["times"] for job in found)


def test_long_fits_are_known_to_be_long():
    seconds = {(j["method"], j["inducing"]): cost(j) for j in jobs(CONFIG | {"repetitions": 1})}
    assert seconds["gfitc", 100] == max(seconds.values())
    assert seconds["sep", 4] == min(seconds.values())


def test_the_papers_findings_are_seen():
    assert verdicts() == [True] * 6


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({"gfitc": (1.0, [0.5, 0.35, 0.3, 0.2], 0.11)}, [0, 1]),
        ({"gfitc": (2.0, [0.6, 0.25, 0.2], 0.11)}, [1]),
        ({"gfitc": (0.5, [0.7, 0.6, 0.5], 0.11)}, [2]),
        ({"vi": (2.0, [0.9, 0.6, 0.8], 0.18)}, [3]),
        ({"vi": (2.0, [0.9, 0.7, 0.6], 0.12)}, [4]),
        ({"ep": (1.0, [0.6, 0.4, 0.25], 0.12)}, [5]),
    ],
)
def test_a_finding_that_is_not_there_is_not_seen(changes, fails):
    assert [i for i, holds in enumerate(verdicts(**changes)) if not holds] == fails


def test_the_table_says_when_a_method_is_as_good_as_sep():
    rows = [line.split(" | ") for line in summarize(records(), CONFIG, FOLDER).text.splitlines()]
    as_sep = {row[1]: row[6] for row in rows if row[0] == "| 4"}
    assert as_sep["VI"] == as_sep["GFITC"] == "never"
    assert 3.5 < float(as_sep["SEP"]) < 4.5


def test_some_of_the_fits_are_enough_to_be_shown():
    shown = summarize([r for r in records() if r["method"] == "vi" and r["inducing"] == 4], CONFIG, FOLDER)
    assert shown.verdicts == []
    assert "| 4 | VI |" in shown.text


@pytest.mark.parametrize("method", ["ep", "sep", "gfitc", "vi"])
def test_a_curve_leads_to_the_fit(method, monkeypatch):
    """Half-way along training scores are near those at its end: for every method they are of q, not of the prior."""
    monkeypatch.setitem(PAPER_STEPS, method, 60)
    job = {"data_set": "iris", "splits": "random", "split": 0, "seed": 0, "inducing": 4, "method": method}
    record = run(job | {"times": [0.01, 10.0, 40]})
    half = next(point for point in record["curve"] if point[0] >= 0.5 * record["seconds"])
    assert half[1] == pytest.approx(record["nll"], abs=0.3)
    assert record["curve"][-1][1:] == [record["nll"], record["error"]]
