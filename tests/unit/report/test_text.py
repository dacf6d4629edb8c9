"""Numbers, names and tables as text."""

import doctest

import numpy as np
import pytest

import cavity.report.text
from cavity.report.text import SHADES, counted, images, listed, name, number, table, text_width, tidy, uniform_format
from tests.unit.report import made_up

# --- Numbers and names ---


def test_numbers_that_are_not_finite_are_signs():
    assert [number(v) for v in (np.inf, -np.inf, np.nan)] == ["∞", "−∞", "–"]
    assert [tidy(v) for v in (np.inf, 0.0, -0.5, 1.23e-9)] == ["∞", "0", "−0.5", "1.23e−9"]


def test_numbers_of_one_chart_have_the_same_decimals():
    write = uniform_format([0.0123, 0.5])
    assert (write(0.5), write(0.0123), write(0.0)) == ("0.500", "0.012", "0.000")
    assert uniform_format([])(1.0) == "1.00"


@pytest.mark.parametrize("width", [3, 8, 20])
@pytest.mark.parametrize("label", [label for label in made_up.HOSTILE if label])
def test_a_name_that_is_cut_fits(label, width):
    assert text_width(name(label, width)) <= width
    assert name(label, width)[:-1] in name(label, 10_000)


def test_lists_and_counts_as_people_write_them():
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert counted(0, "row") == "0 rows"
    assert counted(1, "class") == "1 class"
    assert counted(1234, "row") == "1,234 rows"


# --- Terminal ---


def test_table_aligns_its_columns():
    lines = table(["name", "error"], [["a", "1.0"], ["longer name", "10.25"]]).split("\n")
    assert lines == ["name         error", "a              1.0", "longer name  10.25"]


def test_images_stand_side_by_side_with_their_captions():
    pictures = np.array([[[0.0, 1.0], [1.0, 0.0]], [[5.0, 5.0], [5.0, 5.0]]])
    lines = images(pictures, [["one"], ["two"]], gap=2).split("\n")
    dark, light = SHADES[-1] * 2, SHADES[0] * 2
    assert lines == [light + dark, dark, "one   two"]  # no blanks at the end of a line


def test_examples():
    assert doctest.testmod(cavity.report.text).failed == 0
