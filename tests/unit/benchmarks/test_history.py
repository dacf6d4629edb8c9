import pytest

from benchmarks.history import HEADER, latest_runs, line, relative_speed, summary

WHERE = {"processor": "a CPU", "threads": 2}
SIZES = {"C": 10, "M": 200, "B": 200, "D": 784}


def step(when, commit, ms, what="cavity sep", **changes):
    return {"case": "step", "what": what, "dtype": "float64", "when": when, "commit": commit, "least_ms": ms,
            "median_ms": ms, "share_of_roofline": 0.5, **SIZES, **WHERE, **changes}  # fmt: skip


def point(when, seconds, nll):
    return {"case": "quality", "what": "gpflow", "data": "mnist", "dtype": "float64", "when": when, "commit": "c",
            "seconds": seconds, "nll": nll, "error": 0.02, **SIZES, **WHERE}  # fmt: skip


def rows(records):
    names = [*HEADER[:6], "at", "best", "best at", "runs"]
    return [dict(zip(names, row, strict=True)) for row in summary(records)]


def test_the_latest_and_the_best_with_their_commits():
    found = rows([step("1", "aaa", 100.0), step("3", "ccc", 90.0), step("2", "bbb", 80.0)])
    assert len(found) == 1
    assert (found[0]["latest"], found[0]["at"]) == ("90.0 ms", "ccc")
    assert (found[0]["best"], found[0]["best at"], found[0]["runs"]) == ("80.0 ms", "bbb", "3")


def test_of_one_second_the_last_is_the_latest():
    assert rows([step("1", "aaa", 100.0), step("1", "bbb", 110.0)])[0]["at"] == "bbb"


@pytest.mark.parametrize("change", [{"dtype": "float32"}, {"processor": "a GPU"}, {"threads": 1}, {"M": 100}])
def test_what_cannot_be_compared_has_a_row_of_its_own(change):
    assert len(rows([step("1", "aaa", 100.0), step("2", "bbb", 50.0, **change)])) == 2


def test_more_rows_a_second_are_better():
    speed = {"case": "predict", "what": "cavity", "commit": "c", "peak_memory_mib": 1, **SIZES, **WHERE}
    found = rows([speed | {"when": "1", "rows_per_second": 900}, speed | {"when": "2", "rows_per_second": 800}])
    assert (found[0]["latest"], found[0]["best"]) == ("800 rows/s", "900 rows/s")


def test_a_curve_stands_there_by_its_end():
    found = rows([point("1", 5.0, 0.3), point("1", 10.0, 0.2), point("2", 5.0, 0.4), point("2", 10.0, 0.25)])
    assert len(found) == 1
    assert (found[0]["latest"], found[0]["best"], found[0]["runs"]) == ("NLL 0.2500 in 10 s", "NLL 0.2000 in 10 s", "2")


def test_a_line_says_what_was_skipped_and_why():
    assert line({"case": "fit", "what": "ep", "skipped": "no folder"}).endswith("skipped: no folder")
    assert "50 % of the roofline" in line(step("1", "aaa", 100.0))


def test_speed_is_relative_to_a_rival_in_the_same_run():
    own, other = step("1", "aaa", 50.0), step("1", "aaa", 100.0, what="gpytorch")
    assert relative_speed(own, [own, other]) == 2.0
    assert relative_speed(other, [own, other]) is None
    for change in ({"when": "2"}, {"dtype": "float32"}, {"M": 100}, {"threads": 1}):
        assert relative_speed(own, [own, other | change]) is None


def test_more_rows_a_second_are_a_higher_speed():
    own = {"case": "predict", "what": "cavity", "when": "1", "rows_per_second": 900, **SIZES, **WHERE}
    assert relative_speed(own, [own, own | {"what": "gpytorch", "rows_per_second": 300}]) == 3.0


def test_the_latest_run_of_a_curve_has_all_its_points():
    found = latest_runs([point("2", 5.0, 0.4), point("2", 9.0, 0.3), point("1", 5.0, 0.2), step("1", "aaa", 1.0)])
    assert [(r["case"], r["when"]) for r in found] == [("quality", "2"), ("quality", "2"), ("step", "1")]
