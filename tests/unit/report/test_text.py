"""Tables and pictures for a terminal."""

import doctest

import numpy as np

import cavity.report.text
from cavity.report.text import SHADES, images, table


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
