"""One pass over a source: sums that neither overflow nor cancel, all labels, a fair sample, on any workers."""

import json
import threading
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from cavity.data import Arrays, Batches, survey
from cavity.data.schema import find_schema
from cavity.data.source import BLOCK_ROWS, row_hashes
from cavity.data.surveys import FOLDS, CellStatistics, Moments, find_copies
from cavity.runtime.distributed import Workers

N = 3000


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((N, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 1e6]


@pytest.fixture
def y():
    return np.random.default_rng(1).integers(0, 4, N)


def batches(X, y, size):
    return Batches([(X[i : i + size], y[i : i + size]) for i in range(0, len(X), size)])


class Threads(Workers):
    """A rank of several, each of them a thread."""

    def __init__(self, rank, size, barrier, box):
        self.rank, self.size, self._barrier, self._box = rank, size, barrier, box

    def gather(self, value):
        self._box[self.rank] = value
        self._barrier.wait()
        found = list(self._box)
        self._barrier.wait()
        return found


def survey_together(make, size, **settings):
    """What each of several workers finds."""
    barrier, box, found = threading.Barrier(size, timeout=20), [None] * size, [None] * size

    def work(rank):
        found[rank] = survey(make(), workers=Threads(rank, size, barrier, box), **settings)

    workers = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def assert_same(a, b):
    assert (a.lane_rows, a.feature_names, a.n_features) == (b.lane_rows, b.feature_names, b.n_features)
    assert a.fingerprint == b.fingerprint
    for name in ("classes", "class_counts", "mean", "sd", "lowest", "highest", "size"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for part, other in zip(a.sample, b.sample, strict=True):
        np.testing.assert_array_equal(part, other)


# --- Sums ---


@pytest.mark.parametrize("lanes", [1, 3])
def test_sums_are_those_of_all_rows(X, y, lanes):
    found = survey(Arrays(X, y, lanes))
    np.testing.assert_allclose(found.mean, X.mean(0), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(found.sd, X.std(0, ddof=1), rtol=1e-9)
    np.testing.assert_array_equal(found.lowest, X.min(0))
    np.testing.assert_array_equal(found.highest, X.max(0))
    np.testing.assert_array_equal(found.size, np.abs(X).max(0))
    assert found.n_rows == sum(found.lane_rows) == N
    assert len(found.lane_rows) == lanes
    np.testing.assert_array_equal(found.class_counts, np.bincount(y))


@pytest.mark.parametrize("scale", [1e300, 1e-300, 5e307, 1.0])
def test_values_of_any_size_have_a_mean_and_an_sd(scale):
    Z = np.random.default_rng(0).uniform(-2, 3, (5000, 1)) + np.array([[0.0]])
    found = Moments.of(Z[:3000] * scale).merge(Moments.of(Z[3000:] * scale))
    mean, sd = found.mean_and_sd()
    np.testing.assert_allclose(mean / scale, Z.mean(0), rtol=1e-12)
    np.testing.assert_allclose(sd / scale, Z.std(0, ddof=1), rtol=1e-12)


def test_sizes_that_differ_from_block_to_block_go_together():
    parts = [np.array([[1e-200], [2e-200]]), np.array([[1.0], [3.0]]), np.zeros((2, 1)), np.array([[1e200], [3e200]])]
    whole = Moments.of(parts[0])
    for part in parts[1:]:
        whole = whole.merge(Moments.of(part))
    mean, sd = whole.mean_and_sd()
    exact = np.concatenate(parts) / 1e200
    np.testing.assert_allclose(mean / 1e200, exact.mean(0), rtol=1e-14)
    np.testing.assert_allclose(sd / 1e200, exact.std(0, ddof=1), rtol=1e-14)


def test_tiny_values_among_zeros_have_an_sd():
    whole = Moments.of(np.zeros((2, 1))).merge(Moments.of(np.array([[1e-200], [0.0]])))
    np.testing.assert_allclose(whole.mean_and_sd()[1], [5e-201], rtol=1e-12)


def test_the_largest_numbers_give_finite_results():
    limit = np.finfo(float).max
    mean, sd = Moments.of(np.array([[limit], [-limit], [limit]])).mean_and_sd()
    assert np.isfinite(mean).all()
    assert np.isfinite(sd).all()


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 + 0.3, -7e300, 3e-310])
def test_a_constant_feature_has_sd_0_and_its_own_value_for_a_mean(constant):
    n = 2 * BLOCK_ROWS + 77
    found = survey(Arrays(np.full((n, 1), constant), np.zeros(n), lanes=2))
    assert (found.mean[0], found.sd[0], found.lowest[0], found.highest[0]) == (constant, 0.0, constant, constant)


def test_small_deviations_from_a_large_mean_are_not_lost():
    x = 1e9 + np.random.default_rng(0).standard_normal(40_000)
    found = survey(Arrays(x[:, None], np.zeros(len(x)), lanes=3))
    np.testing.assert_allclose(found.sd, x.std(ddof=1), rtol=1e-9)


def test_one_row_is_enough():
    found = survey(Arrays([[3.0, -1.0]], ["a"]))
    assert (found.mean.tolist(), found.sd.tolist(), found.n_rows) == ([3.0, -1.0], [0.0, 0.0], 1)


def test_no_row_is_not_enough():
    with pytest.raises(ValueError, match="no rows"):
        survey(Arrays(np.zeros((0, 2)), np.zeros(0)))
    with pytest.raises(ValueError, match="no labels"):
        survey(Arrays(np.zeros((3, 2))))


# --- Labels ---


@pytest.mark.parametrize("labels", [
    np.array([5, 2, 5, 2**40]), np.array(["b", "a", "b", "abc"]), np.array(["b", "a", "b", "abc"], dtype=object),
    np.array([True, False, True, True]), np.array([0.5, 2.5, 0.5, -1.0]), np.array([3, 1, 3, 2], dtype=np.uint8),
], ids=lambda labels: str(labels.dtype))  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 4])
def test_classes_are_the_sorted_labels_however_they_come(labels, size):
    classes, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    found = survey(batches(np.arange(4.0)[:, None], labels, size))
    assert found.classes.tolist() == classes.tolist()
    assert found.classes.dtype == labels.dtype
    assert found.class_counts.tolist() == counts.tolist()
    order = np.argsort(found.sample.row)
    assert found.sample.y[order].tolist() == place.tolist()


def test_new_labels_in_later_blocks_are_counted(monkeypatch):
    monkeypatch.setattr("cavity.data.iterables.MIN_ROWS", 1)
    y = np.array(["m", "m", "a", "z", "m", "cc"])
    found = survey(batches(np.zeros((6, 1)), y, 2))
    assert (found.classes.tolist(), found.class_counts.tolist()) == (["a", "cc", "m", "z"], [1, 1, 3, 1])


@pytest.mark.parametrize(("first", "second"), [
    (["a", "b"], [1, 2]), ([1, 2], ["a", "b"]),
    (np.array(["a", 1], dtype=object), ["b", "c"]), ([1, 2], np.array(["a", "b"], dtype=object)),
])  # fmt: skip
def test_labels_that_cannot_be_sorted_are_refused(first, second, monkeypatch):
    monkeypatch.setattr("cavity.data.iterables.MIN_ROWS", 1)
    with pytest.raises(TypeError, match=r"one type, got (numbers and strings|int and str)"):
        survey(Batches([(np.zeros((2, 1)), first), (np.zeros((2, 1)), second)]))


def test_a_column_that_is_no_label_is_suspected(monkeypatch):
    monkeypatch.setattr("cavity.data.labels.MAX_CLASSES", 10)
    with pytest.raises(
        ValueError, match=r"at most 10 different labels, got more, such as .*check that this is the label column"
    ):
        survey(Arrays(np.zeros((11, 1)), np.arange(11.0)))


def test_given_classes_may_have_no_row(X):
    found = survey(Arrays(X[:3], ["b", "d", "b"]), classes=["d", "c", "b", "a", "a"])
    assert (found.classes.tolist(), found.class_counts.tolist()) == (["a", "b", "c", "d"], [0, 2, 0, 1])
    assert sorted(found.sample.y.tolist()) == [1, 1, 3]


def test_a_label_outside_the_given_classes_is_named_with_its_row(X, y):
    y[2100] = 9
    with pytest.raises(ValueError, match=r"^X, row 2100: label 9 is not one of the classes 0, 1, 2, 3"):
        survey(Arrays(X, y, lanes=2), classes=range(4))
    assert survey(Arrays(X, y)).classes.tolist() == [0, 1, 2, 3, 9]


# --- The sample ---


@pytest.mark.parametrize("size", [0, 1, 100, N, 5 * N])
def test_a_sample_has_so_many_different_rows(X, y, size):
    found = survey(Arrays(X, y, lanes=3), sample_rows=size)
    sample = found.sample
    assert len(sample.X) == len(sample.y) == min(size, N)
    first = np.cumsum([0, *found.lane_rows])[sample.lane]
    assert len(set(first + sample.row)) == min(size, N)
    np.testing.assert_array_equal(sample.X, X[first + sample.row])
    np.testing.assert_array_equal(sample.y, y[first + sample.row])


def test_a_sample_is_the_same_in_any_blocks_and_begins_a_larger_one(X, y, monkeypatch):
    expected = survey(Arrays(X, y), sample_rows=50).sample
    monkeypatch.setattr("cavity.data.iterables.MIN_ROWS", 1)
    for size in (7, 100, 2999):
        for part, other in zip(survey(batches(X, y, size), sample_rows=50).sample, expected, strict=True):
            np.testing.assert_array_equal(part, other)
    larger = survey(Arrays(X, y), sample_rows=500).sample
    np.testing.assert_array_equal(larger.row[:50], expected.row)
    assert survey(Arrays(X, y), sample_rows=50, seed=1).sample.row.tolist() != expected.row.tolist()


def test_every_row_is_as_likely_to_be_drawn():
    """300 of 3000 rows, 40 times: counts in ten stretches of 3 lanes, to about four standard errors."""
    source = Arrays(np.zeros((N, 1)), np.zeros(N), lanes=3)
    drawn = [survey(source, sample_rows=300, seed=seed).sample for seed in range(40)]
    rows = np.concatenate([sample.lane * 1000 + sample.row for sample in drawn])
    counts = np.bincount(rows // 300, minlength=10)
    assert np.abs(counts - 1200).max() < 4 * np.sqrt(1200 * 0.9)


# --- Several workers ---


@pytest.mark.parametrize("size", [2, 3, 6])
def test_workers_find_what_one_finds_to_the_last_bit(X, y, size):
    """Also where a rank has no lane, and where one has not all labels."""
    y = np.where(np.arange(N) < N // 2, 0, y)

    def make():
        return Arrays(X, y, lanes=5)

    alone = survey(make(), sample_rows=200, seed=3)
    for found in survey_together(make, size, sample_rows=200, seed=3):
        assert_same(found, alone)


def test_workers_agree_on_given_classes(X, y):
    alone = survey(Arrays(X, y, lanes=2), classes=range(6))
    for found in survey_together(lambda: Arrays(X, y, lanes=2), 2, classes=range(6)):
        assert_same(found, alone)


# --- The fingerprint ---


def test_the_fingerprint_is_for_json_and_tells_data_apart(X, y):
    def print_of(X, y):
        found = survey(Arrays(X, y))
        assert json.loads(json.dumps(found.fingerprint)) == found.fingerprint
        return found.fingerprint

    here = print_of(X, y)
    assert here["class_counts"] == np.bincount(y).tolist()
    assert here["lane_rows"] == [N]
    assert print_of(X, y.astype(str)) != here
    assert print_of(X + 1e-3, y) != here
    assert print_of(X, np.roll(y, 1)) == here
    assert print_of(X[:-1], y[:-1]) != here
    assert print_of(X, y.astype("datetime64[D]"))["classes"][0] == "1970-01-01"


# --- Copies ---


def with_copies():
    """Thirty rows twice, and the first of them twenty times more."""
    X, y = np.random.default_rng(0).standard_normal((90, 2)), np.arange(90) % 3
    X[30:60] = X[:30]
    X[60:80] = X[0]
    return X, y


@pytest.mark.parametrize("lanes", [1, 4])
def test_all_copies_of_sampled_rows_are_found(lanes):
    X, y = with_copies()
    source = Arrays(X, y, lanes=lanes)
    known = survey(source, sample_rows=40, seed=1)
    skip = find_copies(source, known, 20, 60)
    wanted = row_hashes(known.sample.X[:20])
    is_skipped = np.isin(row_hashes(X), wanted)
    assert set(skip.hashes) == set(wanted)
    assert (skip.hashes[1:] > skip.hashes[:-1]).all()
    assert skip.lane_rows.sum() == is_skipped.sum() > 20
    assert skip.class_counts.tolist() == np.bincount(y[is_skipped], minlength=3).tolist()
    for lane in range(lanes):
        rows = np.concatenate([block.X for block in source.blocks(lane)])
        assert skip.lane_rows[lane] == np.isin(row_hashes(rows), wanted).sum()


def test_no_more_rows_are_taken_than_allowed():
    X, y = with_copies()
    source = Arrays(X, y)
    known = survey(source, sample_rows=90, seed=1)
    skip = find_copies(source, known, 90, 15)
    assert 10 <= skip.lane_rows.sum() <= 15
    assert row_hashes(X[:1])[0] not in skip.hashes  # it has 22 copies


def test_every_class_keeps_a_row():
    source = Arrays(np.arange(10.0)[:, None], [0] * 8 + [1, 2])
    skip = find_copies(source, survey(source, sample_rows=10), 10, 10)
    assert skip.class_counts.tolist() == [7, 0, 0]


def test_hashes_tell_rows_apart():
    X = np.random.default_rng(0).integers(-3, 3, (20_000, 6)).astype(float)
    assert len(np.unique(row_hashes(X))) == len(np.unique(X, axis=0))
    assert (row_hashes(X * -0.0) == row_hashes(np.zeros((1, 6)))).all()
    assert len(np.unique(row_hashes(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 0.0], [0.0, 1.0]])))) == 4
    wide = np.asfortranarray(X)
    np.testing.assert_array_equal(row_hashes(wide), row_hashes(X))


# --- Gaps ---


def with_gaps(X, share=0.3):
    return np.where(np.random.default_rng(2).random(X.shape) < share, np.nan, X)


@pytest.mark.parametrize("lanes", [1, 3])
def test_gaps_do_not_count_for_mean_sd_and_range(X, y, lanes):
    X = with_gaps(X)
    found = survey(Arrays(X, y, lanes))
    np.testing.assert_allclose(found.mean, np.nanmean(X, 0), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(found.sd, np.nanstd(X, 0, ddof=1), rtol=1e-9)
    np.testing.assert_array_equal(found.lowest, np.nanmin(X, 0))
    np.testing.assert_array_equal(found.highest, np.nanmax(X, 0))
    for c in range(4):
        assert found.statistics.missing[:, c].tolist() == np.isnan(X[y == c]).sum(0).tolist()
    assert found.statistics.rows.tolist() == np.bincount(y).tolist()
    assert json.loads(json.dumps(found.fingerprint)) == found.fingerprint


def test_without_gaps_there_is_nothing_to_say(X, y):
    found = survey(Arrays(X, y))
    assert (found.schema, found.statistics) == (None, None)


def test_parts_without_a_value_do_not_disturb_the_others():
    gap = np.full((3, 1), np.nan)
    values = np.array([[1e300], [3e300]])
    whole = Moments.of(gap).merge(Moments.of(values)).merge(Moments.of(gap))
    assert (whole.n, whole.n_values.tolist()) == (8, [2])
    mean, sd = whole.mean_and_sd()
    np.testing.assert_allclose(mean / 1e300, [2.0], rtol=1e-14)
    np.testing.assert_allclose(sd / 1e300, [np.sqrt(2.0)], rtol=1e-14)
    none = Moments.of(gap).merge(Moments.of(gap))
    assert [part.tolist() for part in (*none.mean_and_sd(), *none.bounds())] == [[0.0]] * 4


def test_constant_columns_have_one_value_or_none():
    """A value and gaps are two things to tell apart."""
    nan = np.nan
    X = np.array([[1.0, 1.0, nan, 1.0], [1.0, nan, nan, 2.0]])
    assert survey(Arrays(X, [0, 1])).is_constant.tolist() == [True, False, True, False]


# --- Categories ---


def mixed(n=N):
    rng = np.random.default_rng(4)
    color = np.array(["red", "green", None, "blue"], dtype=object)[rng.integers(0, 4, n)]
    return pd.DataFrame({"color": color, "size": with_gaps(rng.standard_normal((n, 1)))[:, 0],
                         "code": rng.integers(0, 300, n).astype(str), "id": [f"row {k}" for k in range(n)],
                         "empty": np.full(n, np.nan)})  # fmt: skip


def test_levels_are_found_as_in_a_frame(y):
    X = mixed()
    found, expected = survey(Arrays(X, y, lanes=3)), find_schema(X)
    assert found.schema == expected
    assert [column.kind for column in expected.columns] == ["category", "number", "category", "left out", "left out"]
    cells = expected.read(X)
    statistics = CellStatistics.of(expected, cells, y, np.ones(N), 4)
    np.testing.assert_array_equal(found.statistics.missing, statistics.missing)
    assert list(found.statistics.counts) == [0, 2]
    for j, counts in found.statistics.counts.items():
        np.testing.assert_array_equal(counts, statistics.counts[j])
    np.testing.assert_array_equal(found.sample.X[np.argsort(found.sample.lane * N + found.sample.row)], cells)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_workers_find_the_same_levels_and_statistics(y, size):
    alone = survey(Arrays(mixed(), y, lanes=5), sample_rows=200)
    for found in survey_together(lambda: Arrays(mixed(), y, lanes=5), size, sample_rows=200):
        assert_same(found, alone)
        assert found.schema == alone.schema
        np.testing.assert_array_equal(found.statistics.missing, alone.statistics.missing)
        for j, counts in found.statistics.counts.items():
            np.testing.assert_array_equal(counts, alone.statistics.counts[j])


@pytest.mark.parametrize("limit", ["MAX_LEVELS", "MAX_LEVEL_TEXT"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_category_with_too_many_levels_is_left_out_and_its_levels_are_not_kept(y, limit, size, monkeypatch):
    monkeypatch.setattr(f"cavity.data.schema.{limit}", 250)
    largest = []
    update = Counter.update
    monkeypatch.setattr(Counter, "update", lambda self, other: (update(self, other), largest.append(len(self))))
    monkeypatch.setattr("cavity.data.source.BLOCK_ROWS", 100)
    monkeypatch.setattr("cavity.data.arrays.block_rows", lambda *sizes: 100)
    found = survey_together(lambda: Arrays(mixed(), y, lanes=4, categorical_features=["id", "color", "code"]), size)
    for one in found:
        assert [column.kind for column in one.schema.columns] == [
            "category", "number", "left out", "left out", "left out"
        ]  # fmt: skip
        assert "different values" in one.schema.columns[2].reason
        assert one.schema == found[0].schema
    assert max(largest) <= 350


def test_an_identifier_is_kept_where_it_is_named(y):
    source = Arrays(mixed(), y, categorical_features=["id", "color", "code"])
    assert len(survey(source).schema.columns[3].levels) == N


def test_of_very_many_levels_and_classes_the_most_frequent_are_kept(monkeypatch):
    monkeypatch.setattr("cavity.data.surveys.MOST_COUNTS", FOLDS * 2 * 3)
    X = pd.DataFrame({"a": list("aaabbcccdd"), "b": [0.0] * 10})
    found = survey(Arrays(X, [0, 1] * 5))
    assert found.schema.columns[0].levels == ("a", "b", "c")
    assert found.statistics.counts[0].shape == (FOLDS, 3, 2)


def test_statistics_without_some_rows_are_those_of_the_others(y):
    X = mixed()
    schema = find_schema(X)
    cells = schema.read(X)
    rest = CellStatistics.of(schema, cells[100:], y[100:], np.ones(N - 100), 4).weighted(np.arange(4.0))
    whole = CellStatistics.of(schema, cells, y, np.ones(N), 4)
    found = whole.without(schema, cells[:100], np.eye(4, dtype=np.int64)[y[:100]]).weighted(np.arange(4.0))
    np.testing.assert_array_equal(found.rows, rest.rows)
    np.testing.assert_array_equal(found.missing, rest.missing)
    for j, counts in found.counts.items():
        np.testing.assert_array_equal(counts, rest.counts[j])


def test_the_fingerprint_knows_the_levels(y):
    def print_of(X):
        return survey(Arrays(X, y)).fingerprint

    X = mixed()[["color", "size"]]
    renamed = X.replace({"red": "ruby"})
    assert print_of(X) == print_of(X)
    assert print_of(X)["columns"] == ["category", "number"]
    assert print_of(X)["means_by_size"] == print_of(renamed)["means_by_size"]
    assert print_of(X) != print_of(renamed)
    assert len(json.dumps(print_of(mixed()))) < 1500
