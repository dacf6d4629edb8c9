"""Which rows a person should look at, and why."""

import numpy as np
import pytest

from cavity.gp.probabilities import Uncertainty
from cavity.report import uncertain as module
from cavity.report.uncertain import MAX_LISTED, choose_candidates, uncertain_rows

CLASSES = ["ash", "birch", "cedar"]
P = np.array([
    [0.98, 0.01, 0.01],  # right and sure
    [0.98, 0.01, 0.01],  # wrong and sure
    [0.34, 0.33, 0.33],  # far
    [0.50, 0.48, 0.02],  # overlap
    [0.05, 0.60, 0.35],  # wrong and not sure
    [0.70, 0.25, 0.05],  # few rows like it
])  # fmt: skip
Y = np.array([0, 1, 0, 0, 2, 0])
ALEATORIC = np.array([0.0, 0.0, 0.05, 0.6, 0.05, 0.1])
EPISTEMIC = np.array([0.0, 0.0, 1.04, 0.1, 0.1, 0.6])


def review(which=slice(None), index=None, p=P, names=None):
    """What is said of these rows."""
    entropy = Uncertainty(*(part[which] for part in (ALEATORIC + EPISTEMIC, ALEATORIC, EPISTEMIC)))
    index = 100 + np.arange(6)[which] if index is None else index
    return uncertain_rows(index, Y[which], np.log(p[which]), entropy, CLASSES, names)


def test_every_kind_is_named_and_no_row_twice():
    found = {row.row: row for row in review()}
    assert {place: row.why for place, row in found.items()} == {
        101: "confident but wrong: 98 % for ash, labeled birch; check the label",
        102: "unlike the training rows: collect and label similar rows",
        103: "classes ash and birch overlap here; more rows will not separate them",
        104: "wrong with low confidence: 35 % for the label cedar",
        105: "too few similar training rows to tell ash from birch: collect and label similar rows",
    }
    row = found[104]
    assert row.truth == "cedar"
    assert [label for label, _ in row.top] == ["birch", "cedar", "ash"]
    assert [p for _, p in row.top] == pytest.approx([0.6, 0.35, 0.05])
    assert (row.total, row.aleatoric, row.epistemic) == pytest.approx((0.15, 0.05, 0.1))


def test_kinds_come_in_turn_and_twenty_rows_are_enough():
    found = review(np.tile(np.arange(6), 30), index=np.arange(180))
    assert len(found) == MAX_LISTED
    assert len({row.row for row in found}) == MAX_LISTED
    assert len({row.why for row in found[:4]}) == 4
    assert len({row.why for row in found}) == 4  # rows far away come before those with too few like them


def test_rows_that_are_sure_and_right_are_no_one_s_business():
    assert review([0, 0, 0]) == []


def test_whole_numbers_stand_for_rows_and_other_names_go_before_the_reason():
    (by_number,) = review([1], index=np.array([2]), names=[7, 8, 9])
    assert by_number.row == 9
    (by_name,) = review([1], index=np.array([2]), names=["u", "v", "w"])
    assert by_name.row == 2
    assert by_name.why.startswith("w: confident but wrong")


def test_a_confidence_short_of_one_is_not_written_as_one():
    sure = np.tile([1 - 1e-9, 1e-9, 1e-20], (6, 1))
    assert "over 99.9 % for ash" in review([1], p=sure)[0].why


def test_few_rows_are_all_taken_apart():
    rows, is_sample = choose_candidates(Y, np.log(P))
    np.testing.assert_array_equal(rows, np.arange(6))
    assert is_sample.all()


def test_of_many_rows_a_sample_and_the_worst_are_taken_apart(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 50)
    monkeypatch.setattr(module, "WORST_ROWS", 2)
    p, y = np.tile([0.9, 0.1], (1000, 1)), np.zeros(1000, dtype=int)
    p[[17, 400]] = 0.5
    p[800], y[800], y[900] = [0.999, 0.001], 1, 1
    rows, is_sample = choose_candidates(y, np.log(p))
    assert {17, 400, 800, 900} <= set(rows.tolist())
    assert is_sample.sum() == 50
    assert len(rows) == len(set(rows.tolist())) <= 54
