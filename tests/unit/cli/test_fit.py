"""`cavity fit`: Ctrl-C once and twice, columns left out, labels that are none, names that need no import."""

import signal
import threading

import numpy as np
import pytest

from cavity.cli.fit import (
    KERNELS,
    LINE,
    METHODS,
    check_labels,
    describe_columns,
    explain_text,
    row_counters,
    stop_on_interrupt,
)

RNG = np.random.default_rng(0)

pa = pytest.importorskip("pyarrow")


# --- Ctrl-C ---


def test_the_first_asks_and_the_second_leaves(capfd):
    with stop_on_interrupt() as asked:
        assert not asked.is_set()
        signal.raise_signal(signal.SIGINT)
        assert asked.is_set()
        assert "stopping after this step; press Ctrl-C again to quit now" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_afterwards_everything_is_as_before():
    before = signal.getsignal(signal.SIGINT)
    with stop_on_interrupt():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
    with pytest.raises(KeyError), stop_on_interrupt():
        raise KeyError
    assert signal.getsignal(signal.SIGINT) == before


def test_another_thread_just_gets_an_event():
    found = []

    def work():
        with stop_on_interrupt() as asked:
            found.append(asked.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]


# --- Columns and labels ---


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "2", "?", "4"], "text: row 3 has '?'"),
        (["3,500", "4,500"], "text: row 1 has '3,500', where the comma can separate thousands or decimals"),
        (["3,5", "south"], ""),
        (["1", "2"], "text that looks like numbers"),
        (["a", "1", "b"], ""),
        (["", None], ""),
        ([None, "", "1", "2", *["3"] * 5000, "n/a?"], "text: row 5,005 has 'n/a?'"),
    ],
)
def test_text_that_is_mostly_numbers_is_explained(cells, expected):
    assert explain_text(pa.array(cells, pa.string())) == expected


def test_decimal_commas_are_numbers_where_the_file_has_them():
    assert explain_text(pa.array(["1,5", "2,5", "3,5", "?"]), ",") == "text: row 4 has '?'"


def test_columns_are_described_in_a_line_for_each_kind():
    facts = [
        *({"name": f"x{i}", "kind": "number", "gaps": i % 2} for i in range(100)),
        {"name": "town", "kind": "category", "levels": 1200, "gaps": 40},
        {"name": "ward", "kind": "category", "levels": 3},
        {"name": "n" * 200, "kind": "category", "levels": 2},
        {"name": "day", "kind": "date", "features": ["time", "year"], "gaps": 0},
        {"name": "hour", "kind": "time", "features": ["time", "day"]},
    ]
    numbers, categories, dates, times, gaps = describe_columns(facts)
    assert numbers.startswith("100 numbers: x0, x1, x2, ")
    assert numbers.endswith(" more")
    assert categories.startswith("3 categories: town (1,200 levels), ward (3), nnn")
    assert dates == "1 date: day (time, year)"
    assert times == "1 time: hour (time, day)"
    assert gaps.startswith("90 gaps in 51 columns: town (40), x1 (1), x3 (1), ")
    assert max(map(len, (numbers, categories, gaps))) < LINE + 50


def test_a_row_counter_with_gaps_is_found():
    X = np.column_stack([np.arange(50.0), np.arange(50.0) % 7])
    X[::9] = np.nan
    assert row_counters(X, ["a", "b"]) == ["a"]


def test_columns_that_count_the_rows_are_found():
    X = np.column_stack([np.arange(5), np.arange(5) * 2, np.arange(7, 12), np.ones(5)]).astype(float)
    assert row_counters(X, ["a", "b", "c", "d"]) == ["a", "c"]
    assert row_counters(X[:2], ["a", "b", "c", "d"]) == []


@pytest.mark.parametrize(
    "column",
    [
        RNG.permutation(150),
        RNG.permutation(150)[:100] + 7000,  # of which some rows were removed
        np.sort(RNG.choice(2000, 200, replace=False)),
        RNG.choice(100_000, 3000, replace=False),
        RNG.permutation(9),
    ],
)
def test_columns_that_number_the_rows_are_found_shuffled_and_with_gaps(column):
    assert row_counters(column[:, None].astype(float), ["x"]) == ["x"]


@pytest.mark.parametrize("name", ["id", "patient_id", "customerId", "ID", "Unnamed: 0", "index", "row number"])
def test_a_name_tells_an_identifier_of_any_range(name):
    wide = RNG.choice(10**9, 50, replace=False)[:, None].astype(float)
    assert row_counters(wide, [name]) == [name]
    assert row_counters(wide % 7, [name]) == []  # a group, not a row
    assert row_counters(wide + 0.5, [name]) == []


@pytest.mark.parametrize(
    "column",
    [
        RNG.integers(18, 90, 60),  # ages
        RNG.poisson(3.0, 500),
        RNG.choice(10**6, 200, replace=False),  # prices, which happen to differ
        RNG.integers(0, 2, 30),
        RNG.normal(size=100),
        RNG.permutation(6),
        np.arange(40) // 2,
    ],
)
def test_numbers_that_describe_rows_are_left_alone(column):
    for name in ("x", "uric acid", "grid", "body_mass_index", "paid", "humidity"):
        assert row_counters(column[:, None].astype(float), [name]) == []


def test_no_feature_of_the_data_sets_counts_rows():
    from sklearn import datasets

    for load in (datasets.load_wine, datasets.load_breast_cancer, datasets.load_digits, datasets.load_iris):
        found = load()
        assert row_counters(found.data, list(found.feature_names)) == []


def test_what_cannot_be_labels_is_refused():
    check_labels(np.array([1, 2]), "y")
    check_labels(np.arange(20), "y")
    with pytest.raises(ValueError, match=r"got quantities such as 0\.5"):
        check_labels(np.array([1.0, 0.5]), "y")
    with pytest.raises(ValueError, match="at least two different labels, got one, 4"):
        check_labels(np.array([4, 4]), "y")
    with pytest.raises(ValueError, match="30 different labels in 40 rows"):
        check_labels(np.arange(40) % 30, "y")


# --- Names ---


def test_the_methods_and_kernels_named_for_the_help_are_those_of_the_package():
    from cavity.inference import METHODS as KNOWN
    from cavity.kernels import BY_NAME

    assert {"auto", *KNOWN} == set(METHODS)
    assert list(BY_NAME) == list(KERNELS)
