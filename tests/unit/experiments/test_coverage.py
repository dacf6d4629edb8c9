"""Simulated reports: their truth is what was asked for, misses are counted, and verdicts follow from the counts."""

import numpy as np
import pytest

from cavity.metrics import calibration_error, scores
from experiments.coverage import run as coverage

JOB = {"model": "typical", "classes": 3, "kind": "overconfident", "error": 0.05, "rows": 36, "reports": 5, "seed": 0}


@pytest.mark.parametrize("kind", ["overconfident", "underconfident", "mixed", "local"])
def test_the_truth_is_what_was_asked_for(kind):
    """And what many rows have: their scores are close to the true ones."""
    world = coverage.make_world(JOB | {"kind": kind})
    assert world.truth["ece"] == pytest.approx(0.05, abs=1e-6)
    y, p, accuracy = world.draw(np.random.default_rng(1), 100_000)
    assert np.abs(p.sum(1) - 1).max() < 1e-12
    found = scores(y, np.log(p), range(3))
    assert found.error == pytest.approx(world.truth["error"], abs=0.006)
    assert found.nll == pytest.approx(world.truth["nll"], abs=0.015)
    assert found.brier == pytest.approx(world.truth["brier"], abs=0.01)
    assert (p.argmax(1) == y).mean() == pytest.approx(accuracy.mean(), abs=0.006)


def test_a_calibrated_model_has_no_error():
    world = coverage.make_world(JOB | {"error": 0.0})
    assert world.truth["ece"] < 1e-12
    y, p, _ = world.draw(np.random.default_rng(0), 100_000)
    assert calibration_error(p.max(1), p.argmax(1) == y) < 0.01


def test_misses_are_shares_of_the_reports_and_a_run_can_be_repeated():
    found = coverage.run(JOB)
    assert found == coverage.run(dict(JOB))
    for name in coverage.INTERVALS:
        below, above = found[f"below_{name}"], found[f"above_{name}"]
        assert 0 <= below + above <= 1
        assert found[f"width_{name}"] > 0
    assert (5 * found["below_ece"]).is_integer()


def test_a_cell_outside_the_limits_fails_the_claim(tmp_path):
    pytest.importorskip("matplotlib")
    config = {"reports": 5, "least": 0.92, "most": 0.97}
    made = {f"{what}_{name}": 0.02 for what in ("below", "above", "width") for name in coverage.INTERVALS}
    records = [JOB | made, JOB | made | {"rows": 300, "below_nll": 0.08}, JOB | made | {"error": 0.0, "above_ece": 0.0}]
    shown = coverage.summarize(records, config, tmp_path)
    fails = {verdict.claim for verdict in shown.verdicts if not verdict.holds}
    assert fails == {"the interval of the NLL covers in at least 92% of the reports",
                     "the interval of the calibration error covers in at most 97% of the reports"}  # fmt: skip
    assert len(shown.verdicts) == 2 * len(coverage.INTERVALS)
    assert "| typical, overconfident | 3 | 0.05 | 300 | 96.0% | 90.0% |" in shown.text
    assert "| typical, calibrated | 3 | 0 | 36 |" in shown.text
    assert len(shown.figures["coverage"].axes) == len(coverage.INTERVALS)
