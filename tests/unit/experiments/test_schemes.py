from pathlib import Path

import numpy as np
import pytest

from experiments.experiment import read_config
from experiments.schemes.run import SCHEMES, jobs, run, seconds_to, summarize, thinned

FOLDER = Path(__file__).parents[3] / "experiments" / "schemes"
JOB = {"data_set": "iris", "splits": "random", "inducing": 0.1, "steps": 15, "split": 0, "seed": 0}


def record(scheme, i, pace, end, processor=1.0):
    """log Z_q from −100 to its end, evenly in 11 steps."""
    curve = [[n + 1, pace * n, -100.0 + 0.1 * n * (end + 100.0)] for n in range(11)]
    ends = {"log_z": end, "converged_log_z": end, "nll": 0.3, "error": 0.1, "cpu_seconds": processor + 0.01 * i}
    return {"scheme": scheme, "split": i, "curve": curve, **ends}


def records(outer=(3.0, -20.0), inner=(1.0, -21.0), exact=(1.0, -20.5), processor=1.2):
    return [
        made
        for i in range(3)
        for made in (
            record("outer", i, *outer),
            record("inner", i, *inner),
            record("inner-exact", i, *exact, processor),
        )
    ]


def test_all_schemes_run_on_all_splits():
    config = read_config(FOLDER, smoke=False)
    found = jobs(config)
    assert {job["scheme"] for job in found} == set(SCHEMES)
    assert len(found) == len(SCHEMES) * config["repetitions"]
    assert all(job["steps"] == 250 for job in found)


def test_a_thin_curve_keeps_both_ends():
    history = [{"epoch": n, "objective": -1.0 / n, "seconds": 0.5 * n} for n in range(1, 251)]
    history.insert(3, {"epoch": 3, "objective": None, "seconds": 2.0})
    curve = thinned(history)
    assert curve[0] == [1, 0.5, -1.0]
    assert curve[-1] == [250, 125.0, -0.004]
    assert 50 < len(curve) < 70
    steps = [point[0] for point in curve]
    assert steps == sorted(set(steps))


def test_time_to_a_share_of_the_rise_that_all_make():
    of = {r["scheme"]: r for r in records() if r["split"] == 0}
    level = -100.0 + 0.9 * 79.0
    assert seconds_to(of, "inner", 0.9) == pytest.approx(9.0)
    assert seconds_to(of, "outer", 0.9) == pytest.approx(3.0 * (level + 100.0) / 8.0)


def test_the_papers_findings_are_seen():
    shown = summarize(records(), {}, FOLDER)
    assert [verdict.holds for verdict in shown.verdicts] == [True] * 4
    assert "inner, exact gradient" in shown.text


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({"outer": (3.0, -10.0)}, [0]),
        ({"outer": (0.9, -20.0)}, [1]),
        ({"exact": (1.0, -10.0)}, [0, 2]),
        ({"processor": 1.0}, [3]),
    ],
)
def test_a_finding_that_is_not_there_is_not_seen(changes, fails):
    found = summarize(records(**changes), {}, FOLDER).verdicts
    assert [i for i, verdict in enumerate(found) if not verdict.holds] == fails


def test_splits_that_lack_a_scheme_do_not_count():
    some = [r for r in records() if r["split"] == 0 or r["scheme"] == "inner"]
    assert "± nan" in summarize(some, {}, FOLDER).text
    assert summarize(some[1:], {}, FOLDER).verdicts == []


def test_schemes_start_alike_and_end_near_each_other():
    found = {scheme: run(JOB | {"scheme": scheme}) for scheme in SCHEMES}
    first = {scheme: r["curve"][0][2] for scheme, r in found.items()}
    assert first["inner"] == first["inner-exact"]  # sites and log Z_q come before the first gradient
    ends = [r["converged_log_z"] for r in found.values()]
    assert np.ptp(ends) < 2.0
    assert all(r["curve"][-1][0] == 15 for r in found.values())
    assert found["outer"]["log_z"] == pytest.approx(found["outer"]["converged_log_z"], abs=0.2)
