import sys

import pytest

from benchmarks import plot

STEP = {"case": "step", "what": "cavity sep", "dtype": "float64", "device": "cpu", "C": 10, "M": 200, "B": 200,
        "D": 784, "processor": "a CPU", "threads": 2, "floor_ms": 50.0}  # fmt: skip
POINT = {"case": "quality", "data": "mnist", "dtype": "float64", "M": 200, "B": 200, "rows": 60000, "commit": "aaa",
         "processor": "a CPU", "threads": 2}  # fmt: skip


def step(when, commit, ms, **changes):
    return STEP | {"when": when, "commit": commit, "least_ms": ms} | changes


def curve(when, what, *points):
    return [POINT | {"when": when, "what": what, "seconds": seconds, "nll": nll} for seconds, nll in points]


HISTORY = [
    step("1", "aaa", 100.0),
    step("1", "aaa", 150.0, what="gpytorch"),
    step("2", "bbb", 80.0),
    step("3", "bbb", 85.0),
    step("3", "bbb", 9.0, processor="a GPU"),
    step("4", "ccc", 70.0),
    *curve("1", "cavity sep", (5.0, 0.9)),
    *curve("2", "cavity sep", (20.0, 0.1), (5.0, 0.3)),
    *curve("2", "gpflow", (5.0, 0.5), (20.0, 0.2)),
]


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The panels as drawn: for each the points of every line by its label."""
    pytest.importorskip("matplotlib")
    made = []
    monkeypatch.setattr(plot, "new_figure", lambda *size, real=plot.new_figure: made.append(real(*size)) or made[0])

    def draw(records, name="picture.png"):
        plot.draw(records, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
        return made[0].axes, [{i.get_label(): i.get_xydata().tolist() for i in a.get_lines()} for a in made[0].axes]

    return draw


def test_the_least_time_of_each_commit_on_every_machine(drawn):
    _, (steps, on_gpu, _) = drawn(HISTORY)
    assert on_gpu["cavity SEP"] == [[0.0, 9.0]]
    assert steps["cavity SEP"] == [[0.0, 100.0], [1.0, 80.0], [2.0, 70.0]]
    assert steps["GPyTorch"] == [[0.0, 150.0]]
    assert [y for _, y in steps[plot.FLOOR]] == [50.0, 50.0, 50.0]


def test_the_latest_curve_of_each_data_set(drawn):
    axes, (_, _, curves) = drawn(HISTORY)
    assert curves == {"cavity SEP": [[5.0, 0.3], [20.0, 0.1]], "GPflow": [[5.0, 0.5], [20.0, 0.2]]}
    assert axes[2].get_xscale() == "log"
    assert "mnist" in axes[2].get_title(loc="left")


def test_every_axis_says_what_it_shows(drawn):
    axes, _ = drawn(HISTORY, "picture.svg")
    assert [(a.get_xlabel(), a.get_ylabel()) for a in axes] == [
        *[("commit", "least time of a step / ms")] * 2, ("seconds of training", "NLL of the test rows / nats"),
    ]  # fmt: skip


def test_many_commits_are_not_all_named(drawn):
    axes, _ = drawn([step(f"{i:03}", f"commit{i}", 50.0) for i in range(100)])
    names = [label.get_text() for label in axes[0].get_xticklabels()]
    assert names[0] == "commit99"
    assert len(names) <= plot.COMMITS_NAMED


def test_without_matplotlib_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'cavity\[report\]'"):
        plot.draw(HISTORY, tmp_path / "picture.png")


def test_nothing_to_draw(tmp_path):
    with pytest.raises(ValueError, match="nothing to draw"):
        plot.draw([], tmp_path / "picture.png")


def test_competitors_measured_apart_share_a_panel(drawn):
    """Of each the latest run at the setting measured most often."""
    other = [r | {"M": 50} for r in curve("4", "gpflow", (9.0, 0.7))]
    records = [*curve("1", "cavity sep", (5.0, 0.3)), *curve("2", "cavity sep", (5.0, 0.2)),
               *curve("3", "gpflow", (9.0, 0.4)), *other]  # fmt: skip
    _, (curves,) = drawn(records)
    assert curves == {"cavity SEP": [[5.0, 0.2]], "GPflow": [[9.0, 0.4]]}


def test_speed_over_commits_in_order_of_time(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    made = []
    monkeypatch.setattr(plot, "new_figure", lambda *size, real=plot.new_figure: made.append(real(*size)) or made[-1])
    fit = {"case": "fit", "what": "ep", "data": "vehicle", "rows": 761, "seconds": 3.0, "when": "5", "commit": "ccc",
           "processor": "a CPU", "threads": 2}  # fmt: skip
    rival = {"what": "gpytorch"}
    records = [step("3", "bbb", 50.0), step("3", "bbb", 100.0, **rival), step("1", "aaa", 100.0),
               step("1", "aaa", 150.0, **rival), step("4", "ddd", 9.0), fit]  # fmt: skip
    assert plot.draw_trends(records, tmp_path / "trends.png")
    speed, seconds = made[-1].axes
    assert [label.get_text() for label in speed.get_xticklabels()][::-1] == ["aaa", "bbb"]
    assert [line.get_xydata().tolist() for line in speed.get_lines()] == [[[0.0, 1.5], [1.0, 2.0]]]
    assert [line.get_xydata().tolist() for line in seconds.get_lines()] == [[[0.0, 3.0]]]


def test_no_trends_to_draw(tmp_path):
    assert not plot.draw_trends([step("1", "aaa", 100.0)], tmp_path / "trends.png")
    assert not list(tmp_path.iterdir())
