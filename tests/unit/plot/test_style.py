"""What all displays share."""

import ast
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.svm import SVC

from cavity.plot import style
from cavity.report.features import feature_names
from cavity.report.palette import COLORS


def test_the_first_looks_are_all_different():
    looks = [style.nth_style(i) for i in range(4 * len(COLORS))]
    assert len(set(looks)) == len(looks)
    assert len({found.color for found in looks[: len(COLORS)]}) == len(COLORS)


def test_axes_given_are_used(ax, no_new_figure):
    assert style.axes_for(ax, 1, 1) is ax


def test_without_axes_pyplot_opens_a_figure_of_that_size():
    from matplotlib import pyplot

    found = style.axes_for(None, 3.0, 2.0)
    assert pyplot.gcf() is found.figure
    assert found.figure.get_size_inches().tolist() == [3.0, 2.0]


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'cavity\[report\]'"):
        style.axes_for(None, 1, 1)


@pytest.mark.parametrize("path", sorted(Path(style.__file__).parent.glob("*.py")), ids=lambda path: path.name)
def test_matplotlib_is_imported_only_where_something_is_drawn(path):
    """The import of the package must work without it."""
    top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert top
    assert not any("matplotlib" in ast.unparse(node) for node in top)


def test_names_are_those_given_then_those_of_the_fit_then_numbers():
    clf = SimpleNamespace(feature_names_in_=np.array(["a", "b"], dtype=object))
    assert feature_names(clf, 2, ["x", 3]) == ["x", "3"]
    assert feature_names(clf, 2) == ["a", "b"]
    assert feature_names(object(), 2) == ["x0", "x1"]
    with pytest.raises(ValueError, match="`feature_names` must have 3 names, one for each feature, got 2"):
        feature_names(clf, 3)


def test_a_classifier_without_probabilities_is_refused():
    with pytest.raises(TypeError, match="with predict_proba"):
        style.probabilities(SVC().fit([[0.0], [1.0]], [0, 1]), [[0.0]])
