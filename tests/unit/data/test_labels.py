"""Labels: one type, distinct values, indices into the classes, and messages that name what does not fit."""

import datetime

import numpy as np
import pytest

from cavity.data.labels import concat_labels, encode, listed, plain


def test_numbers_stay_numbers_when_they_are_concatenated():
    assert concat_labels([np.array([1, 2]), np.array([0.5])]).tolist() == [1, 2, 0.5]
    with pytest.raises(TypeError, match="numbers and strings"):
        concat_labels([np.array([1]), np.array(["a"])])


def test_labels_are_encoded_as_indices_and_others_are_refused():
    y, classes = np.array(["b", "a", "b", "c"]), np.array(["a", "b", "c"])
    found = encode(y, classes)
    assert (found.tolist(), found.dtype) == ([1, 0, 1, 2], np.int64)
    with pytest.raises(ValueError, match=r"^y, row 3: label 'c' is not one of the classes 'a', 'b'"):
        encode(y, classes[:2])
    with pytest.raises(TypeError, match="numbers and strings"):
        encode(y, np.array([0, 1]))


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
    assert encode(y, classes, as_text=True).tolist() == [1, 0]


@pytest.mark.parametrize("as_text", [False, True])
def test_the_first_unknown_label_is_named_with_its_place(as_text):
    with pytest.raises(ValueError, match="row 1: label 'c' is not one of the classes 'a', 'b'"):
        encode(np.array(["a", "c", "d"]), np.array(["a", "b"]), lambda i: f"row {i}", as_text=as_text)


def test_labels_become_values_of_json():
    labels = [np.int64(3), np.float32(0.5), np.True_, "a", datetime.date(2020, 1, 2)]
    assert [plain(label) for label in labels] == [3, 0.5, True, "a", "2020-01-02"]


def test_long_lists_are_cut_short():
    assert listed(list(range(14))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"
