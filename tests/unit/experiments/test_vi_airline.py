"""What the experiment on VI's objective says about made-up records."""

from pathlib import Path

from experiments.experiment import read_config
from experiments.vi_airline import run as vi_airline

FOLDER = Path(__file__).parents[3] / "experiments" / "vi_airline"
CONFIG = read_config(FOLDER, smoke=False)


def record(fit, *points):
    return {"fit": fit, "curve": [list(point) for point in points]}


PAPER = record("paper", (1.0, 1.09, 0.60, -5.3), (50.0, 1.00, 0.50, -4.0), (300.0, 1.10, 0.49, -3.5))
NATURAL = record("natural", (1.0, 2.0, 0.60, -5.3), (300.0, 1.50, 0.49, -3.0))


def verdicts(*records):
    return vi_airline.summarize(list(records), CONFIG, FOLDER).verdicts


def test_the_two_quantities_part():
    found = verdicts(PAPER, NATURAL)
    assert [verdict.holds for verdict in found] == [True, True, True]
    assert found[0].evidence == "-1.0000 after 50 s, -1.1000 after 300 s"
    assert found[1].evidence == "-4.0000 after 50 s, -3.5000 after 300 s"


def test_they_do_not_where_the_last_look_is_the_best():
    steady = record("paper", (1.0, 1.09, 0.60, -5.3), (300.0, 1.00, 0.50, -4.0))
    falls, rises = verdicts(steady)
    assert not falls.holds
    assert not rises.holds


def test_the_table_has_both_quantities_of_every_fit():
    text = vi_airline.summarize([PAPER, NATURAL], CONFIG, FOLDER).text
    assert "| VI as in the paper | log E[p] | -1.0000 after 50 s | -1.1000 after 300 s |" in text
    assert "| VI by natural gradients | E[log p] | -3.0000 after 300 s | -3.0000 after 300 s |" in text


def test_a_fit_for_each_way_to_train():
    assert [job["fit"] for job in vi_airline.jobs(CONFIG)] == ["paper", "natural"]


def test_natural_gradients_are_ours_and_the_other_is_the_paper_s():
    paper, natural = (
        vi_airline.run(job | {"seconds": 0.1}) for job in vi_airline.jobs(read_config(FOLDER, smoke=True))
    )
    assert paper["curve"] != natural["curve"]
    assert all(len(point) == 4 for found in (paper, natural) for point in found["curve"])
