"""Labels from files, and their places among those of a model."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from cavity.cli.labels import check_labels, places, read_labels

pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([3, 1], np.array([3, 1])),
        ([3.0, 1.0], np.array([3, 1])),
        ([True, False], np.array([True, False])),
        (["b", "a"], np.array(["b", "a"])),
        (pa.array(["b", "a"]).dictionary_encode(), np.array(["b", "a"])),
        ([Decimal("1.50"), Decimal("2")], np.array(["1.50", "2.00"])),
        ([datetime.date(2020, 1, 2)], np.array(["2020-01-02"])),
        ([0.5, 1.0], np.array([0.5, 1.0])),
    ],
)
def test_labels_are_whole_numbers_truth_values_or_text(cells, expected):
    found = read_labels(pa.chunked_array([cells]), "y")
    assert found.dtype.kind == expected.dtype.kind
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("cells", [[b"\xfc"], [[1], [2]]])
def test_bytes_and_lists_are_no_labels(cells):
    with pytest.raises(ValueError, match="one label a row"):
        read_labels(pa.array(cells), "y")


def test_what_cannot_be_labels_is_refused():
    check_labels(np.array([1, 2]), "y")
    check_labels(np.arange(20), "y")
    with pytest.raises(ValueError, match=r"amounts such as 0\.5"):
        check_labels(np.array([1.0, 0.5]), "y")
    with pytest.raises(ValueError, match="one label only, 4"):
        check_labels(np.array([4, 4]), "y")
    with pytest.raises(ValueError, match="30 different labels in 40 rows"):
        check_labels(np.arange(40) % 30, "y")


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array([2, 1]), np.array([1, 2])),
        (np.array(["2", "1"]), np.array([1, 2])),
        (np.array([2, 1]), np.array(["1", "2"])),
        (np.array([2, 1]), np.array([1.0, 2.0])),
        (np.array([True, False]), np.array([False, True])),
        (np.array(["b", "a"], dtype=object), np.array(["a", "b"])),
    ],
)
def test_a_label_is_found_however_it_is_stored(y, classes):
    assert places(y, classes, str).tolist() == [1, 0]


def test_the_first_unknown_label_is_named_with_its_place():
    with pytest.raises(ValueError, match="row 1: the model does not know the label 'c', but a, b"):
        places(np.array(["a", "c", "d"]), np.array(["a", "b"]), lambda i: f"row {i}")
