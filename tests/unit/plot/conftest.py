"""Axes of their own, and a check that a display changes nothing outside them."""

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


@pytest.fixture(autouse=True)
def nothing_global():
    """Settings stay as they are; figures that a test opens through pyplot are closed."""
    from matplotlib import pyplot

    before, figures = dict(matplotlib.rcParams), pyplot.get_fignums()
    yield
    assert dict(matplotlib.rcParams) == before
    for number in set(pyplot.get_fignums()) - set(figures):
        pyplot.close(number)


@pytest.fixture
def no_new_figure():
    """Where axes are given, pyplot hears nothing of it."""
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    yield
    assert pyplot.get_fignums() == before
