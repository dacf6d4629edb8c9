"""Actions by expected cost, and the value of knowing more."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import cavity
from cavity import GPClassifier
from cavity.data import Arrays
from cavity.decisions import Costs
from cavity.gp.gaussian import Posterior
from cavity.gp.probabilities import log_p_of, moments
from tests.tables import mixed_table

CLASSES = np.array(["ash", "birch", "cedar"])
P = np.random.default_rng(0).dirichlet(np.full(3, 0.7), 200)
COST = np.random.default_rng(1).normal(0.0, 2.0, (3, 5))
NAMES = list("vwxyz")


def decide(cost, p=P, **options):
    return Costs.read(cost, CLASSES[: p.shape[1]], **options).decide(p)


def clouds(n_classes=3, seed=0, n_rows=90):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n_rows)
    return rng.normal(0.0, 1.0, (n_rows, 2)) + 2.0 * np.stack([np.cos(2 * y), np.sin(2 * y)], 1), y


@pytest.fixture(scope="module")
def fitted():
    X, y = clouds()
    return GPClassifier(n_inducing=8, max_epochs=15, random_state=0).fit(X, CLASSES[y])


@pytest.fixture(scope="module")
def new():
    return np.random.default_rng(7).uniform(-5, 5, (60, 2))


# --- Choices ---


def test_expected_costs_and_choices_are_those_of_a_loop():
    found = decide(COST, actions=NAMES)
    for i, p in enumerate(P):
        costs = [sum(p[k] * COST[k, a] for k in range(3)) for a in range(5)]
        np.testing.assert_allclose(found.costs[i], costs, rtol=0, atol=1e-14)
        assert found.choice[i] == int(np.argmin(costs))
        assert found.action[i] == NAMES[found.choice[i]]
        assert found.cost[i] == found.costs[i, found.choice[i]]
        known = sum(p[k] * COST[k].min() for k in range(3))
        assert found.value_of_label[i] == pytest.approx(min(costs) - known, abs=1e-14)
    assert (found.value_of_label >= 0).all()
    assert found.value_of_rows is None


def test_a_constant_for_each_true_label_changes_no_choice_and_no_value():
    plain, moved = (decide(COST + by, actions=NAMES) for by in (0.0, np.array([[5.0], [-3.0], [100.0]])))
    np.testing.assert_array_equal(plain.choice, moved.choice)
    np.testing.assert_allclose(plain.value_of_label, moved.value_of_label, rtol=0, atol=1e-12)
    np.testing.assert_allclose(moved.cost, plain.cost + P @ [5.0, -3.0, 100.0], rtol=0, atol=1e-12)


def test_two_costs_of_two_labels_are_a_threshold():
    p = np.linspace(0, 1, 1001)
    found = decide([[0, 1], [9, 0]], np.column_stack([1 - p, p]))  # missing a birch costs nine times a false alarm
    np.testing.assert_array_equal(found.action == "birch", p > 0.1)


def test_abstaining_at_a_cost_is_a_threshold_of_the_confidence():
    found = decide(1 - np.eye(3), abstain=0.3)
    np.testing.assert_array_equal(found.action == "abstain", P.max(1) < 0.7)
    assert found.actions.tolist() == [*CLASSES, "abstain"]
    (at_the_limit,) = decide(1 - np.eye(3), np.array([[0.7, 0.2, 0.1]]), abstain=0.3).action
    assert at_the_limit == "ash"


def test_abstaining_can_cost_more_for_some_labels():
    found = decide(1 - np.eye(3), abstain=[0.0, 2.0, 2.0])
    np.testing.assert_allclose(found.costs[:, 3], 2.0 * (1.0 - P[:, 0]), rtol=0, atol=1e-14)


def test_of_equal_costs_the_first_column_wins():
    p = np.full((4, 3), 1 / 3)
    assert decide(1 - np.eye(3), p).choice.tolist() == [0] * 4
    assert decide(np.zeros((3, 2)), p, actions=["b", "a"]).action.tolist() == ["b"] * 4


def test_a_label_that_decides_nothing_is_worth_nothing():
    found = decide([[1, 2], [3, 5], [0, 1]], actions=["do", "leave"])  # doing it is better whatever the label is
    assert set(found.action) == {"do"}
    np.testing.assert_array_equal(found.value_of_label, 0.0)


# --- Costs as they come ---


def test_named_rows_may_have_any_order():
    frame = pd.DataFrame(COST, index=CLASSES, columns=NAMES)
    expected = decide(COST, actions=NAMES)
    for cost in (frame, frame.iloc[[2, 0, 1]], frame.iloc[::-1].T.to_dict(), COST.tolist()):
        found = decide(cost, actions=None if isinstance(cost, pd.DataFrame | dict) else NAMES)
        np.testing.assert_array_equal(found.action, expected.action)
        np.testing.assert_array_equal(found.costs, expected.costs)


def test_actions_have_the_type_of_the_labels_where_they_are_labels():
    numbers = np.array([3, 5])
    assert Costs.read([[0, 1], [1, 0]], numbers).actions is numbers
    mixed = Costs.read([[0, 1], [1, 0]], numbers, abstain=0.1)
    assert mixed.actions.tolist() == [3, 5, "abstain"]
    named = Costs.read([[0, 1], [1, 0]], numbers, actions=["go", "stay"])
    assert named.actions.dtype.kind == "U"
    of_booleans = Costs.read({False: {False: 0, True: 1}, True: {False: 5, True: 0}}, np.array([False, True]))
    assert of_booleans.actions.dtype == bool


@pytest.mark.parametrize(
    ("error", "message", "cost", "options"),
    [
        (ValueError, r"cost must have a row for each of the 3 classes .* \(2, 2\)", np.eye(2), {}),
        (ValueError, r"cost must have a row for each of the 3 classes .* \(3,\)", np.ones(3), {}),
        (ValueError, r"cost must have a row .* \(3, 0\)", np.ones((3, 0)), {}),
        (ValueError, "cost must hold finite numbers.* nan", np.full((3, 3), np.nan), {}),
        (ValueError, "cost must hold finite numbers.* -inf", np.full((3, 3), -np.inf), {}),
        (ValueError, "cost must hold finite numbers.* 1e[+]300", np.full((3, 3), 1e300), {}),
        (TypeError, "cost must hold numbers", [["a", "b", "c"]] * 3, {}),
        (TypeError, "cost must hold numbers", [[1], [1, 2], [3]], {}),
        (TypeError, "cost must map each label to a dict", {"ash": 1}, {}),
        (ValueError, "cost must have the same actions", {"ash": {"a": 1}, "birch": {"b": 1}, "cedar": {"a": 1}}, {}),
        (ValueError, "one row for each label.* 'ash', 'elm'", {"ash": {"a": 1}, "elm": {"a": 1}}, {}),
        (ValueError, "one row for each label", pd.DataFrame(np.eye(3)), {}),
        (ValueError, "actions must name the 5 columns of cost.*got None", COST, {}),
        (ValueError, "actions must name the 5 columns of cost, got 6 names", COST, {"actions": list("abcdef")}),
        (ValueError, "actions must have different names, got 'a' twice", COST, {"actions": list("abcda")}),
        (ValueError, "different names, got 'abstain'", COST, {"actions": [*"abcd", "abstain"], "abstain": 1}),
        (ValueError, r"abstain must be a cost, or one for each of the 3 classes, got shape \(2,\)", np.eye(3),
         {"abstain": [1, 2]}),
        (ValueError, "abstain must hold finite numbers", np.eye(3), {"abstain": np.nan}),
        (TypeError, "abstain must hold numbers", np.eye(3), {"abstain": "cheap"}),
    ],
)  # fmt: skip
def test_an_invalid_argument_is_named(error, message, cost, options):
    with pytest.raises(error, match=message):
        Costs.read(cost, CLASSES, **options)


# --- With a model ---


def test_zero_one_costs_give_the_prediction_and_the_risk(fitted, new):
    found = fitted.decide(new, 1 - np.eye(3))
    np.testing.assert_array_equal(found.action, fitted.predict(new))
    np.testing.assert_allclose(found.cost, 1 - fitted.predict_proba(new).max(1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.value_of_label, found.cost, rtol=0, atol=1e-12)


def test_knowing_the_functions_is_worth_something_and_less_than_the_label(fitted, new):
    found = fitted.decide(new, COST, actions=NAMES)
    assert (found.value_of_rows >= 0).all()
    assert (found.value_of_rows <= found.value_of_label).all()
    assert 0.1 * found.value_of_label.mean() < found.value_of_rows.mean() < 0.95 * found.value_of_label.mean()


def test_more_rows_are_worth_more_where_the_model_has_seen_none(fitted):
    X, _ = clouds()
    near, far = (fitted.decide(rows, 1 - np.eye(3)).value_of_rows.mean() for rows in (X[:30], X[:30] + 50.0))
    assert far > 3.0 * near


def test_the_value_of_rows_is_that_of_random_functions():
    """The same integral by random draws; two labels, with costs of a rare disease."""
    X, y = clouds(2)
    clf = GPClassifier(n_inducing=8, max_epochs=15, random_state=0, calibrate=False).fit(X, y)
    X, cost = np.random.default_rng(3).uniform(-3, 3, (5, 2)), np.array([[0.0, 1.0], [4.0, 0.0]])
    mean, spread, rest = moments(clf.posterior_, clf._encode(X), Posterior.parts)
    z = torch.randn(2, 20_000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws = mean[:, None] + spread.sqrt()[:, None] * z
    p = log_p_of(draws.flatten(1), rest[:, None].expand_as(draws).flatten(1), 0.0).exp().numpy()
    costs = np.einsum("ksn,ka->sna", p.reshape(draws.shape), cost)
    gain = costs[:, np.arange(5), costs.mean(0).argmin(-1)] - costs.min(-1)
    expected, error = gain.mean(0), gain.std(0) / np.sqrt(len(costs))
    assert (np.abs(clf.decide(X, cost).value_of_rows - expected) < 4 * error + 0.003).all()


def test_a_single_action_leaves_nothing_to_learn_for(fitted, new):
    found = fitted.decide(new, [[1.0], [2.0], [-5.0]], actions=["go"])
    np.testing.assert_array_equal(found.value_of_rows, 0.0)
    np.testing.assert_array_equal(found.value_of_label, 0.0)


def test_the_value_of_rows_can_be_left_out(fitted, new):
    found, whole = fitted.decide(new, 1 - np.eye(3), value_of_rows=False), fitted.decide(new, 1 - np.eye(3))
    assert found.value_of_rows is None
    np.testing.assert_array_equal(found.costs, whole.costs)


def test_two_calls_give_the_same_bits_and_blocks_do_not_matter(fitted, new):
    whole, again = (fitted.decide(new, COST, actions=NAMES) for _ in range(2))
    parts = [fitted.decide(rows, COST, actions=NAMES) for rows in np.array_split(new, 7)]
    for i, part in enumerate(whole[:-1]):
        np.testing.assert_array_equal(part, again[i])
        together = np.concatenate([one[i] for one in parts])
        if part.dtype == np.float64:
            np.testing.assert_allclose(together, part, rtol=0, atol=1e-12)
        else:
            np.testing.assert_array_equal(together, part)


def test_every_kind_of_model_and_input_decides(tmp_path):
    X = mixed_table(150).drop(columns="id")
    y = X.pop("label")
    models = {
        "search": GPClassifier(random_state=0, max_epochs=5),
        "sep": GPClassifier("sep", n_inducing=10, max_epochs=3, batch_size=50, random_state=0),
        "vi": GPClassifier("vi", n_inducing=10, max_epochs=3, random_state=0, class_weight="balanced"),
    }
    cost = {"low": {"wait": 0, "act": 1}, "mid": {"wait": 1, "act": 1}, "top": {"wait": 9, "act": 0}}
    for name, clf in models.items():
        found = clf.fit(X, y).decide(X, cost, abstain=0.4)
        assert found.costs.shape == (150, 3)
        assert all(np.isfinite(part).all() for part in found[1:6]), name
        clf.save(tmp_path / "model.cavity")
        for other in (cavity.load(tmp_path / "model.cavity").decide(X, cost, abstain=0.4),
                      clf.decide(pl.from_pandas(X), cost, abstain=0.4)):  # fmt: skip
            for mine, its in zip(found, other, strict=True):
                np.testing.assert_array_equal(mine, its)


def test_a_source_is_decided_in_blocks(fitted, new):
    source = Arrays(new, np.zeros(len(new)))
    found, expected = (fitted.decide(rows, COST, actions=NAMES) for rows in (source, new))
    np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_allclose(found.costs, expected.costs, rtol=0, atol=1e-12)


def test_a_model_that_learns_online_decides():
    X, y = clouds()
    clf = GPClassifier("sep", n_inducing=8, random_state=0).partial_fit(X[:60], y[:60], classes=[0, 1, 2])
    found = clf.partial_fit(X[60:], y[60:]).decide(X, 1 - np.eye(3), abstain=0.2)
    assert set(found.action) <= {0, 1, 2, "abstain"}
