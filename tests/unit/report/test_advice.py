"""What is said about what was found: each piece where it should be said, and only there."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cavity.gp.probabilities import Uncertainty
from cavity.metrics import check_calibration, score_intervals
from cavity.report.advice import EVENTS, LEVELS, Evidence, as_options, give_advice
from cavity.report.analysis import describe_model
from cavity.report.baselines import FREQUENCIES, Baseline
from cavity.report.findings import training_curve

N = 2000
RNG = np.random.default_rng(0)
P = 0.97 * RNG.dirichlet([0.3, 0.3, 0.3], N) + 0.01
Y = (P.cumsum(1) < RNG.uniform(size=(N, 1))).sum(1)
FLAT = Baseline("logistic regression", np.log(np.full((N, 3), 1 / 3)), "")


def model(**more):
    """With training rows enough, and settings that ask for nothing."""
    known = {"rows": 900, "class_counts": [300, 300, 300]}
    usual = {"training_": known, "inducing_points_": np.zeros((3, 100, 2)), "sharpness_": 1.0, "n_iter_": 100}
    return SimpleNamespace(**(usual | more))


def evidence(p=P, y=Y, rivals=(FLAT,), clf=None, **more):
    """Of a calibrated model with nothing to complain of."""
    log_p = np.log(p)
    rivals = [Baseline(name, log_p_of[: len(y)], note) for name, log_p_of, note in rivals]
    nothing = Uncertainty(np.zeros(len(y)), np.zeros(len(y)), np.zeros(len(y)))
    usual = {"n_given": len(y), "entropy": nothing, "training": training_curve([]), "is_training": False, "n_known": 0}
    return Evidence(
        clf=clf or model(),
        classes=["ash", "birch", "cedar"],
        features=["u", "v"],
        y=y,
        log_p=log_p,
        scores=[score_intervals(b.name, y, b.log_p) for b in (Baseline("this model", log_p, ""), *rivals)],
        baselines=rivals,
        calibration=check_calibration(y, log_p),
        is_constant=np.zeros(2, dtype=bool),
        **(usual | more),
    )


USUAL = evidence()
UNNOTICED = f"{USUAL.scores[0].ece.high:.3f}"  # the end of the interval in the table


def said(e, start):
    """The pieces of advice that begin so."""
    return [piece for piece in give_advice(e) if piece.what.startswith(start)]


def one(e, part, level):
    """The one piece that says so."""
    (found,) = [piece for piece in give_advice(e) if part in piece.what]
    assert found.level == level
    assert found.what.endswith(".")
    assert found.remedy.endswith(".")
    return found


def history(objectives, *events):
    records = [{"epoch": i, "objective": v, "seconds": 1.0, "event": None} for i, v in enumerate(objectives)]
    return training_curve([*records, *({"epoch": 9, "objective": None} | event for event in events)])


def test_where_all_is_well_it_is_said():
    found = give_advice(USUAL)
    assert [piece.level for piece in found] == ["note", "good", "good"]
    assert "with a confidence of at least 95 %" in found[0].what
    assert found[1].what == (
        f"On 2,000 rows there is no sign of miscalibration, but a calibration error of up to {UNNOTICED} could go "
        f"unnoticed. The calibration error is {USUAL.calibration.ece.value:.3f} (95 % interval 0.000 to {UNNOTICED})."
    )
    assert found[2].what == "The probabilities (NLL) are better than those of logistic regression."


def test_the_worst_comes_first():
    e = replace(USUAL, training=history(np.arange(30.0), {"event": "stopped"}), n_given=10**6)
    levels = [piece.level for piece in give_advice(e)]
    assert levels == sorted(levels, key=LEVELS.index)
    assert set(levels) == set(LEVELS)


def test_training_rows_get_a_warning_and_no_praise():
    e = replace(USUAL, is_training=True)
    assert "train_test_split" in one(e, "The model was trained on these rows", "warning").remedy
    assert not any(piece.level == "good" for piece in give_advice(e))


@pytest.mark.parametrize("known", [{"is_training": True}, {"n_known": N}, {"n_known": N // 10}])
def test_training_rows_get_no_verdict_on_probabilities(known):
    """Neither that they are right nor that they are wrong, nor how the model compares with others."""
    better = [Baseline("random forest", np.log(0.9 * np.eye(3)[Y] + 0.1 / 3), "")]
    for p in (P, P**3 / (P**3).sum(1, keepdims=True)):
        e = replace(evidence(p, rivals=better), **known)
        assert e.no_verdict in ("the model was trained on these rows", "200 of the 2,000 rows are training rows")
        said = " ".join(piece.what for piece in give_advice(e))
        assert "training data" in said or "trained on these rows" in said
        assert not re.search("calibrat|confident:|Random forest|frequent than", said)


def test_a_few_rows_that_are_equal_by_chance_do_not_prevent_a_verdict():
    assert replace(USUAL, n_known=3).no_verdict == USUAL.no_verdict == ""


@pytest.mark.parametrize(("known", "level"), [(3, "note"), (N // 2, "warning")])
def test_rows_that_are_among_the_training_rows_are_counted(known, level):
    found = one(replace(USUAL, n_known=known), "are also in the training data", level)
    assert found.what.startswith(f"{known:,} rows of 2,000")


def test_a_sample_is_owned_up_to():
    assert one(replace(USUAL, n_given=123_456), "random sample", "note").what == (
        "This report is based on a random sample of 2,000 of the 123,456 rows."
    )


def test_few_rows_and_few_of_a_class():
    one(evidence(P[:60], Y[:60]), "The report has only 60 rows", "note")
    y = np.where(Y == 2, 0, Y)
    y[:4] = 2
    one(evidence(y=y), "Fewer than 10 rows have the label cedar", "note")
    e = replace(USUAL, clf=model(training_={"class_counts": [300, 3, 4]}))
    one(e, "fewer than 10 rows of birch and cedar", "warning")


def test_lopsided_classes_unless_they_are_weighted():
    counts = {"class_counts": [900, 40, 300]}
    found = one(replace(USUAL, clf=model(training_=counts)), "imbalanced", "note")
    assert "900 rows of ash, 40 of birch" in found.what
    assert "class_weight='balanced'" in found.remedy
    assert not said(replace(USUAL, clf=model(training_=counts, class_weight="balanced")), "The classes are imbalanced")


def test_a_class_that_is_never_predicted():
    p = np.column_stack([P[:, 0] + P[:, 1] - 1e-3, np.full(N, 1e-3), P[:, 2]])
    assert one(evidence(p), "birch is never predicted", "warning").what.endswith("rows have this label.")


@pytest.mark.parametrize(("far", "is_said"), [(N // 10, True), (5, False)])
def test_rows_far_from_the_training_rows(far, is_said):
    epistemic = np.where(np.arange(N) < far, 0.95 * np.log(3), 0.1)
    e = replace(USUAL, entropy=Uncertainty(epistemic, np.zeros(N), epistemic))
    assert [piece.level for piece in said(e, "10 % of the rows are far")] == ["warning"] * is_said


def test_features_that_are_always_the_same():
    e = replace(USUAL, is_constant=np.array([False, True]))
    one(e, "1 feature is constant: v.", "note")


@pytest.mark.parametrize(
    ("power", "how", "settings", "remedy"),
    [
        (3.0, "overconfident", {"calibrate": False}, "calibrate=True"),
        (3.0, "overconfident", {"method_": "vi"}, "method='ep'"),
        (3.0, "overconfident", {}, "similar to the training rows"),
        (0.4, "underconfident", {}, "n_inducing"),
    ],
)
def test_probabilities_that_are_too_sharp_or_too_flat(power, how, settings, remedy):
    p = P**power / (P**power).sum(1, keepdims=True)
    found = one(evidence(p, clf=model(**settings)), how, "warning")
    assert remedy in found.remedy
    assert not said(evidence(p), "No sign of miscalibration")


def test_too_high_here_and_too_low_there():
    """Right in 75 %, and 75 % sure on average: but sure of the half that is not."""
    p = np.where((np.arange(N) % 2)[:, None] == 0, [0.55, 0.40, 0.05], [0.95, 0.04, 0.01])
    y = np.where(np.arange(N) % 2 == 0, 0, np.arange(N) // 2 % 2)
    one(evidence(p, y), "correct on average, but too high in some rows", "warning")


def test_few_rows_leave_large_errors_unnoticed_and_are_no_praise():
    p = np.tile([0.5, 0.3, 0.2], (12, 1))
    e = evidence(p, np.arange(12) % 2)
    assert e.calibration.ece.high > 0.2
    found = one(e, f"error of up to {e.calibration.ece.high:.3f} could go unnoticed", "note")
    assert found.remedy == "More rows would show smaller errors."


def test_a_class_that_comes_more_often_than_it_should():
    y = np.where((Y == 0) & (np.arange(N) % 2 == 0), 1, Y)
    found = [
        piece.what for piece in give_advice(evidence(y=y)) if "frequent than its probabilities predict" in piece.what
    ]
    assert found[0].startswith("ash is less frequent")
    assert found[1].startswith("birch is more frequent")
    assert not [piece for piece in give_advice(USUAL) if "frequent than its probabilities predict" in piece.what]


def test_a_better_baseline_is_a_warning_with_what_to_try():
    better = np.log(0.9 * np.eye(3)[Y] + 0.1 / 3)
    for name, remedy in (
        ("logistic regression", "Linear()"),
        ("random forest", "kernel=Matern52(), scaling='quantile'"),
    ):
        found = one(evidence(rivals=[Baseline(name, better, "")]), f"{name.capitalize()} has fewer errors", "warning")
        assert remedy in found.remedy
        assert "n_inducing=200" in found.remedy
    crowded = model(training_={"class_counts": [50, 50, 50]})
    assert "n_inducing" not in one(evidence(rivals=[Baseline("random forest", better, "")], clf=crowded),
                                   "Random forest has fewer errors", "warning").remedy  # fmt: skip


def test_a_model_no_better_than_frequencies_has_learned_nothing():
    share = np.log(np.tile(np.bincount(Y) / N, (N, 1)))
    wild = np.roll(P, 1, axis=0)
    found = one(evidence(wild, rivals=[Baseline(FREQUENCIES, share, "")]), "Class frequencies have", "warning")
    assert "learned nothing" in found.remedy


def test_equal_within_chance_is_said_and_what_folds_mean():
    other = np.log(np.clip(P + RNG.normal(0, 1e-3, P.shape), 1e-3, None))
    e = evidence(rivals=[Baseline("logistic regression", other, "")], n_known=None)
    assert "pass `train`" in one(e, "not significantly better than logistic regression", "note").what


def test_an_impossible_label_of_a_baseline_counts_as_worse():
    impossible = np.log(P)
    impossible[0, Y[0]] = -np.inf
    assert one(evidence(rivals=[Baseline("random forest", impossible, "")]), "probabilities (NLL) are better", "good")
    assert not said(evidence(rivals=[]), "The probabilities (NLL)")


@pytest.mark.parametrize(
    ("event", "part", "level"),
    [
        (
            {"event": "calibration_failed", "reason": "made to fail"},
            "were not calibrated, because the fit of one fold failed (made to fail)",
            "warning",
        ),
        ({"event": "stopped"}, "Training was stopped early, and the probabilities were not calibrated.", "note"),
        (
            {"event": "dtype_too_coarse", "dtype": "float32"},
            "float32 was not precise enough",
            "note",
        ),
        ({"event": "step_rejected", "reason": "no factor"}, "1 time (last: step rejected: no factor)", "note"),
        ({"event": "evaluation_rejected", "reason": "no factor"}, "undid a step 1 time", "note"),
        ({"event": "checkpoint_skipped", "reason": "torn"}, "A damaged checkpoint was skipped (torn)", "note"),
        ({"event": "calibration_stopped"}, "Training was stopped early, and", "note"),
        ({"event": "hyperparameters_kept", "batches": 1, "reason": "x"}, "Some batches could not update", "note"),
    ],
)
def test_events_of_training_are_explained(event, part, level):
    one(replace(USUAL, training=history([], event)), part, level)


def test_many_steps_back_are_a_warning():
    one(
        replace(USUAL, training=history([], *[{"event": "step_rejected", "reason": "x"}] * 9)),
        "undid a step 9 times",
        "warning",
    )


def test_training_that_had_not_settled():
    e = replace(USUAL, training=history(np.arange(30.0)))
    assert "max_epochs=200" in one(e, "had not converged after 100 epochs", "warning").remedy
    assert "max_seconds=5" in one(replace(e, clf=model(max_seconds=5)), "had not converged", "warning").remedy
    assert not said(replace(USUAL, training=history(-np.exp(-np.arange(90.0)))), "Training had not converged")


def test_almost_as_many_inducing_points_as_rows():
    e = replace(USUAL, clf=model(training_={"class_counts": [50, 50, 50]}))
    assert "n_inducing=50" in one(e, "100 inducing points per class for 150 training rows", "note").remedy


@pytest.mark.parametrize(
    ("sharpness", "part"), [(3.0, "much sharper (3.0 times)"), (0.25, "much flatter (0.25 times)")]
)
def test_much_left_to_calibration(sharpness, part):
    one(replace(USUAL, clf=model(sharpness_=sharpness)), part, "note")


def test_a_model_of_which_nothing_is_known_gets_advice_all_the_same():
    e = replace(USUAL, clf=SimpleNamespace())
    assert [piece.level for piece in give_advice(e)] == ["note", "good", "good"]
    assert dict(describe_model(e))["Rows in this report"] == "2,000"


def test_only_what_a_baseline_does_better_is_said():
    """As many errors, better probabilities."""
    guess = P.argmax(1)
    better = np.log(
        np.where(
            np.eye(3)[guess] > 0, np.where((guess == Y)[:, None], 0.98, 0.4), np.where((guess == Y)[:, None], 0.01, 0.3)
        )
    )
    found = one(evidence(rivals=[Baseline("random forest", better, "")]), "Random forest has", "warning")
    assert "better probabilities" in found.what
    assert "fewer errors" not in found.what


# --- Pages from the command line ---

ARGUMENT = re.compile(r"\b[a-z]+(_[a-z]+)*=\S+|\bclf\.|train_test_split|`train`|cavity\.metrics|n_inducing|max_epochs")


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("Try n_inducing=200 and a larger max_epochs.", "Try `--inducing 200` and more `--epochs`."),
        ("Fit again with max_epochs=200 or more.", "Fit again with `--epochs 200` or more."),
        ("Fit again with more than max_seconds=5.", "Fit again with more than `--seconds 5`."),
        ("Use class_weight='balanced'.", "Use `--class-weight balanced`."),
        ("Try kernel=Matern52(), scaling='quantile'.", "Try `--kernel matern52`, `--scaling quantile`."),
        ("Continue with resume=True.", "Continue with `--resume`."),
        ("Fit again with calibrate=True.", "Fit again with calibrate=True (in Python)."),
    ],
)
def test_arguments_become_options(text, option):
    assert as_options(text) == option


def test_a_page_from_the_command_line_advises_options():
    """Each option exists; what has none is said to be for Python."""
    from cavity.cli.fit import fit
    from cavity.cli.report import report

    known = {name for command in (fit, report) for part in command.params for name in part.opts}
    better = Baseline("random forest", np.log(0.9 * np.eye(3)[Y] + 0.1 / 3), "")
    cases = [
        evidence(rivals=[better, better._replace(name="logistic regression")], n_known=None, n_given=10**6),
        evidence(P**0.4 / (P**0.4).sum(1, keepdims=True), clf=model(training_={"class_counts": [900, 4, 300]})),
        replace(
            USUAL, is_training=True, training=history(np.arange(30.0), *({"event": kinds[0][0]} for kinds in EVENTS))
        ),
        replace(USUAL, clf=model(sharpness_=3.0, max_seconds=5), training=history(np.arange(30.0))),
        replace(USUAL, entropy=Uncertainty(*3 * [np.full(N, 0.95 * np.log(3))]), n_known=None),
    ]
    said = []
    for e in cases:
        said += [text for piece in give_advice(replace(e, is_command_line=True)) for text in (piece.what, piece.remedy)]
        assert any(ARGUMENT.search(piece.remedy + piece.what) for piece in give_advice(e))
    for text in said:
        assert not ARGUMENT.search(re.sub(r"\S+(?: \+ \S+)* \(in Python\)", "", text)), text
    options = set(re.findall(r"`(--[a-z-]+)", " ".join(said)))
    assert {"--inducing", "--epochs", "--seconds", "--train", "--holdout", "--kernel", "--scaling"} <= options <= known
