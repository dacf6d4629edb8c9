"""Rows held out: by their values alone, a fraction of each label, recognized in any order."""

import numpy as np
import pytest

from cavity.cli.holdout import digest, hold_out, recognize, row_keys
from cavity.cli.rows import TableRows

LABELS = np.array(["a", "b", "c"])


def some_rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return TableRows(rng.standard_normal((n, 3)), LABELS[np.arange(n) % 3], np.arange(1, n + 1))


def keys(rows):
    return row_keys(rows.X, rows.y)


def held(rows, fraction=0.2, seed=0):
    return hold_out(keys(rows), rows.y, fraction, seed)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.5, 0.9])
def test_each_label_gives_its_share(share):
    found = held(some_rows(), share)
    for label in LABELS:
        assert found[some_rows().y == label].sum() == round(20 * share)


def test_the_seed_alone_decides_and_order_does_not_matter():
    rows, order = some_rows(), np.random.default_rng(1).permutation(60)
    assert np.array_equal(held(rows)[order], held(rows.take(order)))
    assert not np.array_equal(held(rows), held(rows, seed=1))
    assert digest(keys(rows)) == digest(keys(rows.take(order)))


def test_many_seeds_hold_every_row_out_about_equally_often():
    rows = some_rows()
    often = np.mean([held(rows, seed=seed) for seed in range(400)], axis=0)
    assert 0.1 < often.min() < often.max() < 0.3


def test_a_label_is_never_held_out_whole():
    rows = some_rows(4)._replace(y=np.array(["a", "a", "a", "b"]))
    found = held(rows, 0.9)
    assert found.tolist()[3] is False
    assert found.sum() == 2


def test_equal_rows_stay_together_but_at_one_place():
    rows = some_rows(10)
    copies = TableRows(np.repeat(rows.X, 6, 0), np.repeat(["a"], 60), np.arange(60))
    found = held(copies, 0.3).reshape(10, 6)
    assert sum(len(set(six.tolist())) > 1 for six in found) <= 1


@pytest.mark.parametrize("change", ["value", "label", "fewer"])
def test_another_value_label_or_number_of_rows_is_another_digest(change):
    rows = some_rows()
    other = rows.take(np.arange(60))
    if change == "value":
        other.X[7, 1] += 1e-12
    elif change == "label":
        other.y[7] = "c" if other.y[7] != "c" else "a"
    else:
        other = other.take(np.arange(59))
    assert digest(keys(rows)) != digest(keys(other))


def test_how_values_are_stored_makes_no_difference():
    X, y = np.array([[0.0, 1.0], [2.0, -0.0]]), np.array([1, 2])
    stored = [(X, y), (X + 0.0, np.array(["1", "2"])), (np.asfortranarray(X), y.astype(float))]
    assert len({digest(row_keys(*rows)) for rows in stored}) == 1


def test_rows_are_recognized_and_others_are_not():
    rows = some_rows()
    about = {"holdout": {"share": 0.2, "seed": 3, "rows": 12, "digest": digest(keys(rows))}}
    assert np.array_equal(recognize(rows.X, rows.y, about), held(rows, 0.2, 3))
    other = some_rows(seed=1)
    assert recognize(other.X, other.y, about) is None
    for unknown in ({}, {"holdout": None}, {"holdout": {"digest": None}}):
        assert recognize(rows.X, rows.y, unknown) is None
