"""Novelty beside other detectors: problems, and what made-up records show."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.experiment import read_config
from experiments.novelty.problems import disguised, make_problem
from experiments.novelty.run import KINDS, NAMES, RANK, UNIFORM, jobs, run, summarize

FOLDER = Path(__file__).parents[3] / "experiments" / "novelty"
CONFIG, SMOKE = (read_config(FOLDER, smoke=smoke) for smoke in (False, True))


def test_the_jobs_of_a_full_run():
    found = jobs(CONFIG)
    kinds = [job["kind"] for job in found]
    assert (kinds.count(RANK), kinds.count(UNIFORM)) == (40, 12)
    assert all(job["other"] != job["table"] for job in found)


def test_problems_of_a_set_of_scikit_learn():
    problem = make_problem("sklearn wine", 0, "made up", 60, 40, 3)
    assert "1" not in problem.y  # the most frequent class
    assert set(problem.novel) == set(KINDS)
    mixed, known = problem.novel["mixed"], problem.known
    pd.testing.assert_frame_equal(mixed.apply(np.sort), known.apply(np.sort))
    assert not mixed.equals(known)


def test_rows_in_the_guise_of_a_table():
    rng = np.random.default_rng(0)
    like = pd.DataFrame({"x": rng.normal(5.0, 2.0, 200), "color": rng.choice(["red", "blue"], 200, p=[0.8, 0.2])})
    other = pd.DataFrame({"u": rng.normal(size=200), "town": rng.choice(["a", "b", "c"], 200, p=[0.5, 0.3, 0.2])})
    found = disguised(other, like, rng)
    assert found["x"].mean() == pytest.approx(like["x"].mean())
    assert found["x"].std() == pytest.approx(like["x"].std())
    assert set(found["color"]) == {"red", "blue"}
    assert (found["color"] == "red").mean() >= 0.1


def test_a_rank_is_an_area():
    found = run(jobs(SMOKE)[0])
    assert {name for name in found if name.endswith("other")} >= {"cavity other", "forest other", "nearest other"}
    assert all(0.0 <= value <= 1.0 for value in found.values())


def test_records_that_support_all_claims():
    pytest.importorskip("matplotlib")
    records = []
    for job in jobs(CONFIG):
        if job["kind"] == RANK:
            kinds = KINDS if job["left_out"] is not None else ("mixed", "other")
            records.append(job | {f"{n} {k}": 0.9 if n == "cavity" else 0.8 for n in NAMES for k in kinds})
        else:
            records.append(job | {"both": [0.5] * 50, "small": [0.5] * 50, "below": [0.05] * 50, "mean": [0.5] * 50})
    shown = summarize(records, CONFIG, FOLDER)
    assert len(shown.verdicts) == 9
    assert all(verdict.holds for verdict in shown.verdicts)
    assert "0.900" in shown.text
    worse = [r | {"both": [0.01] * 50} if r["kind"] == UNIFORM else r | {"cavity other": 0.1} for r in records]
    assert sum(not verdict.holds for verdict in summarize(worse, CONFIG, FOLDER).verdicts) == 5  # others are cautious
