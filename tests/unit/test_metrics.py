"""Scores of probabilities: by hand, and against scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from cavity.report import calibration_error, scores


def test_scores_by_hand():
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.25, 0.25], [0.2, 0.3, 0.5]])
    found = scores(["a", "b", "c", "c"], np.log(p), ["a", "b", "c"])
    assert found.error == 0.25
    assert found.nll == pytest.approx(-np.log([0.7, 0.6, 0.25, 0.5]).mean())
    rows = [0.09 + 0.04 + 0.01, 0.01 + 0.16 + 0.09, 0.25 + 0.0625 + 0.5625, 0.04 + 0.09 + 0.25]
    assert found.brier == pytest.approx(np.mean(rows))
    # four bins of one row: |0.7 − 1|, |0.6 − 1|, |0.5 − 0|, |0.5 − 1|
    assert found.ece == pytest.approx((0.3 + 0.4 + 0.5 + 0.5) / 4)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scores_agree_with_scikit_learn(n_classes):
    rng = np.random.default_rng(0)
    log_p = np.log(rng.dirichlet(np.ones(n_classes), 200))
    classes = np.array(["w", "x", "y", "z"][:n_classes])
    y = rng.choice(classes, 200)
    found = scores(y, log_p, classes)
    assert found.nll == pytest.approx(log_loss(y, np.exp(log_p), labels=classes), rel=1e-12)
    brier = brier_score_loss(y, np.exp(log_p), labels=classes, scale_by_half=False)
    assert found.brier == pytest.approx(brier, rel=1e-12)
    assert found.error == pytest.approx(1 - accuracy_score(y, classes[log_p.argmax(1)]))


def test_an_impossible_label_costs_infinitely_much():
    assert scores([1], np.array([[0.0, -np.inf]]), [0, 1]).nll == np.inf


def test_unknown_labels_are_refused():
    with pytest.raises(ValueError, match="y holds labels that are not among classes"):
        scores(["a", "q"], np.log(np.full((2, 2), 0.5)), ["a", "b"])


def test_calibrated_confidence_has_little_error():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, 20_000)
    is_right = rng.uniform(size=20_000) < confidence
    assert calibration_error(confidence, is_right) < 0.015
    assert calibration_error(confidence, rng.uniform(size=20_000) < confidence - 0.2) == pytest.approx(0.2, abs=0.015)


def test_bins_hold_equally_many_rows():
    """Two bins of two rows: (0.1, 0.2) with accuracy ½, (0.8, 1.0) with accuracy 1."""
    confidence, is_right = np.array([0.8, 0.1, 1.0, 0.2]), np.array([True, True, True, False])
    assert calibration_error(confidence, is_right, bins=2) == pytest.approx(0.5 * abs(0.15 - 0.5) + 0.5 * abs(0.9 - 1))
