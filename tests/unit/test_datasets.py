"""cavity.datasets: the bundled sets, the generator, the data folder and the OpenML cache (no network)."""

import doctest
import hashlib
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.datasets

import cavity.datasets
from cavity.datasets import NAMES, Dataset, load, make_waveform

FOLDER = os.environ.get("CAVITY_DATA")
needs_folder = pytest.mark.skipif(not FOLDER, reason="CAVITY_DATA is not set")

COUNTS = {
    "glass": (9, [70, 76, 17, 13, 9, 29]),
    "new_thyroid": (5, [150, 35, 30]),
    "satellite": (36, [1533, 703, 1358, 626, 707, 1508]),
    "svmguide2": (20, [221, 117, 53]),
    "vehicle": (18, [218, 212, 217, 199]),
    "vowel": (10, [90] * 6),
    "vowel_f0_f9": (10, [90] * 6),
    "waveform": (21, [311, 350, 339]),
    "wine": (13, [59, 71, 48]),
}
TRAIN_ROWS = {
    "glass": 192,
    "new_thyroid": 193,
    "satellite": 1287,
    "svmguide2": 351,
    "vehicle": 761,
    "vowel": 486,
    "vowel_f0_f9": 486,
    "waveform": 300,
    "wine": 160,
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data folder, an empty user cache, and a network that refuses."""

    def refuse(**kwargs: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.delenv("CAVITY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", refuse)
    return tmp_path / "cavity"


def openml(n_features: int, labels: list[str]) -> tuple[SimpleNamespace, list[dict[str, object]]]:
    """A stand-in for fetch_openml's answer, and the list of calls it will fill."""
    X = np.arange(len(labels) * n_features, dtype=float).reshape(len(labels), n_features)
    names = [f"c{i}" for i in range(n_features)]
    return SimpleNamespace(data=X, target=np.array(labels, dtype=object), feature_names=names), []


def serve(monkeypatch: pytest.MonkeyPatch, n_features: int, labels: list[str]) -> list[dict[str, object]]:
    answer, calls = openml(n_features, labels)

    def fetch(**kwargs: object) -> SimpleNamespace:
        calls.append(kwargs)
        return answer

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return calls


def assert_consistent(data: Dataset) -> None:
    assert data.X.ndim == 2
    assert data.X.shape == (len(data.y), len(data.feature_names))
    np.testing.assert_array_equal(np.unique(data.y), np.arange(len(data.class_names)))
    assert data.license
    assert data.citation


# What needs neither folder nor network


@pytest.mark.parametrize(
    ("name", "shape", "n_classes"),
    [
        ("digits", (1797, 64), 10),
        ("iris", (150, 4), 3),
        ("breast_cancer", (569, 30), 2),
        ("wine", (178, 13), 3),
    ],
)
def test_bundled_sets_need_nothing(cache: Path, name: str, shape: tuple[int, int], n_classes: int) -> None:
    data = load(name)
    assert_consistent(data)
    assert data.name == name
    assert data.X.shape == shape
    assert len(data.class_names) == n_classes
    assert data.splits == ()
    assert not cache.exists()


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="name='glas'") as error:
        load("glas")
    assert all(name in str(error.value) for name in NAMES)


def test_docstring_examples() -> None:
    result = doctest.testmod(cavity.datasets)
    assert result.attempted >= 4
    assert result.failed == 0


def test_dataset_is_frozen_and_prints_short() -> None:
    data = load("iris")
    with pytest.raises(AttributeError):
        data.name = "other"  # type: ignore[misc]
    assert "setosa" in repr(data)
    assert len(repr(data)) < 400


# The waveform generator


def test_waveform_repeats_with_its_seed() -> None:
    X, y = make_waveform(50, random_state=3)
    again, _ = make_waveform(50, random_state=3)
    other, _ = make_waveform(50, random_state=np.random.default_rng(4))
    assert X.shape == (50, 21)
    assert y.shape == (50,)
    np.testing.assert_array_equal(X, again)
    assert not np.array_equal(X, other)


def test_waveform_has_the_moments_of_its_recipe() -> None:
    X, y = make_waveform(60_000, random_state=0)
    position = np.arange(1, 22)
    wave = {peak: np.maximum(6 - np.abs(position - peak), 0) for peak in (7, 11, 15)}
    for label, (a, b) in enumerate([(7, 15), (7, 11), (11, 15)]):
        rows = X[y == label]
        variance = 1 + (wave[a] - wave[b]) ** 2 / 12  # noise, and a uniform weight
        error = np.sqrt(variance / len(rows))
        assert np.all(np.abs(rows.mean(0) - (wave[a] + wave[b]) / 2) < 5 * error)
        np.testing.assert_allclose(rows.var(0), variance, rtol=0.06)
    np.testing.assert_allclose(np.bincount(y) / len(y), 1 / 3, atol=0.01)


def test_waveform_refuses_no_rows() -> None:
    with pytest.raises(ValueError, match="n_samples=0"):
        make_waveform(0)


# No data folder: OpenML and the cache


def test_openml_copy_is_cached_with_its_sum(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = serve(monkeypatch, 18, ["van", "bus", "opel", "saab", "bus"])
    first = load("vehicle")
    assert [call["data_id"] for call in calls] == [54]
    assert_consistent(first)
    assert first.class_names == ("bus", "opel", "saab", "van")
    assert first.y.tolist() == [3, 0, 1, 2, 0]
    assert first.splits == ()

    assert sorted(path.name for path in cache.iterdir()) == [
        "vehicle_openml.npz",
        "vehicle_openml.npz.sha256",
    ]
    content = (cache / "vehicle_openml.npz").read_bytes()
    assert (cache / "vehicle_openml.npz.sha256").read_text() == hashlib.sha256(content).hexdigest()

    second = load("vehicle")
    assert len(calls) == 1
    np.testing.assert_array_equal(second.X, first.X)
    np.testing.assert_array_equal(second.y, first.y)


def test_cached_copy_that_changed_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, 18, ["bus", "opel", "saab", "van"])
    load("vehicle")
    path = cache / "vehicle_openml.npz"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match="SHA-256") as error:
        load("vehicle")
    assert str(path) in str(error.value)


def test_cache_write_is_all_or_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = serve(monkeypatch, 18, ["bus", "opel", "saab", "van"])
    replace = os.replace

    def fail_on_data(source: Path, target: Path) -> None:
        if Path(target).suffix == ".npz":
            raise OSError("the disk is full")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail_on_data)
        with pytest.raises(OSError, match="disk is full"):
            load("vehicle")
    assert not list(cache.glob("*.npz"))
    assert not list(cache.glob("*.tmp"))

    assert load("vehicle").X.shape == (4, 18)  # the next call starts again
    assert len(calls) == 2


@pytest.mark.parametrize(("name", "first_row"), [("vowel", [1, 3, *range(5, 13)]), ("vowel_f0_f9", range(3, 13))])
def test_vowel_keeps_six_classes_and_ten_columns(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, first_row: list[int]
) -> None:
    # OpenML's columns: train or test, speaker, sex, F0 to F9; eleven vowels.
    words = ["hid", "hId", "hEd", "hAd", "hYd", "had", "hOd", "hod", "hUd", "hud", "hed"]
    serve(monkeypatch, 13, words)
    data = load(name)
    assert data.X.shape == (6, 10)
    assert data.X[0].tolist() == list(first_row)
    assert data.feature_names == tuple(f"c{i}" for i in first_row)
    assert set(data.class_names) == set(words[:6])


def test_mnist_from_openml_stays_small(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, 784, [str(i) for i in range(10)])
    assert load("mnist").X.dtype == np.uint8


def test_openml_set_of_another_shape_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, 17, ["bus", "opel", "saab", "van"])
    with pytest.raises(ValueError, match="17 features and 4 classes, expected 18 and 4"):
        load("vehicle")
    assert not cache.exists()


@pytest.mark.parametrize("name", ["glass", "new_thyroid", "satellite", "vehicle", "vowel", "mnist"])
def test_no_folder_and_no_network_says_what_to_do(cache: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match="CAVITY_DATA") as error:
        load(name)
    assert f"{name}.npz" in str(error.value)
    assert "no network" in str(error.value)


@pytest.mark.parametrize(
    ("name", "advice"), [("svmguide2", "LIBSVM"), ("waveform", "make_waveform"), ("airline", "Data Expo")]
)
def test_sets_that_are_nowhere_else_say_where_from(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, advice: str
) -> None:
    calls = serve(monkeypatch, 20, ["a", "b", "c"])
    with pytest.raises(FileNotFoundError, match=advice):
        load(name)
    assert calls == []


def test_a_folder_that_lacks_the_file_is_an_error_not_another_copy(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = serve(monkeypatch, 9, ["a", "b", "c", "d", "e", "f"])
    with pytest.raises(FileNotFoundError, match=r"glass\.npz is not in .*absent.*OpenML"):
        load("glass", folder=tmp_path / "absent")
    assert calls == []


# With the data folder


@needs_folder
@pytest.mark.parametrize("name", COUNTS)
def test_sizes_and_counts(name: str) -> None:
    data = load(name)
    n_features, counts = COUNTS[name]
    assert_consistent(data)
    assert data.X.shape == (sum(counts), n_features)
    assert data.X.dtype == np.float64
    assert np.bincount(data.y).tolist() == counts


@needs_folder
@pytest.mark.parametrize("name", COUNTS)
def test_splits_are_disjoint_and_cover(name: str) -> None:
    data = load(name)
    assert len(data.splits) == 20
    for train, test in data.splits:
        assert len(train) == TRAIN_ROWS[name]
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(data.y)))


@needs_folder
def test_split_gives_the_rows_it_names() -> None:
    data = load("glass")
    train, test = data.splits[7]
    X_train, y_train, X_test, y_test = data.split(7)
    np.testing.assert_array_equal(X_train, data.X[train])
    np.testing.assert_array_equal(y_train, data.y[train])
    np.testing.assert_array_equal(X_test, data.X[test])
    np.testing.assert_array_equal(y_test, data.y[test])


def test_split_out_of_range() -> None:
    with pytest.raises(IndexError, match="'iris' does not exist: this copy has 0 splits"):
        load("iris").split(0)


@needs_folder
def test_both_vowel_forms_have_the_same_rows() -> None:
    vowel, acoustic = load("vowel"), load("vowel_f0_f9")
    np.testing.assert_array_equal(vowel.y, acoustic.y)
    np.testing.assert_array_equal(vowel.X[:, 1:], acoustic.X[:, [0, *range(2, 10)]])


@needs_folder
def test_wine_equals_the_bundled_copy() -> None:
    bundled = sklearn.datasets.load_wine()
    data = load("wine")
    np.testing.assert_array_equal(data.X, bundled.data)
    np.testing.assert_array_equal(data.y, bundled.target)


@needs_folder
def test_mnist() -> None:
    data = load("mnist")
    assert_consistent(data)
    assert data.X.shape == (70_000, 784)
    assert data.X.dtype == np.uint8
    X_train, y_train, X_test, y_test = data.split()
    assert X_train.shape == (60_000, 784)
    assert X_test.shape == (10_000, 784)
    assert np.bincount(y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@needs_folder
def test_airline() -> None:
    pytest.importorskip("pyarrow")
    data = load("airline")
    assert_consistent(data)
    assert data.X.shape == (2_127_066, 8)
    assert np.isfinite(data.X).all()
    assert data.feature_names[0] == "age"
    assert np.bincount(data.y).tolist() == [586_067, 785_176, 755_823]
    assert data.splits == ()


@needs_folder
@pytest.mark.parametrize("tampered", ["glass.npz", "uci_splits.npz"])
def test_tampered_file_is_refused(tmp_path: Path, tampered: str) -> None:
    for file in ("glass.npz", "uci_splits.npz"):
        shutil.copyfile(Path(FOLDER or "") / file, tmp_path / file)
    assert len(load("glass", folder=tmp_path).splits) == 20

    path = tmp_path / tampered
    path.write_bytes(path.read_bytes()[:-1] + b"\0\0")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ValueError, match="SHA-256") as error:
        load("glass", folder=tmp_path)
    assert str(path) in str(error.value)
    assert found in str(error.value)
    assert cavity.datasets._SHA256[tampered] in str(error.value)


@needs_folder
def test_folder_without_splits_still_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path / "not here"))  # the argument goes first
    shutil.copyfile(Path(FOLDER or "") / "glass.npz", tmp_path / "glass.npz")
    data = load("glass", folder=tmp_path)
    assert data.X.shape == (214, 9)
    assert data.splits == ()


@needs_folder
def test_original_file_in_the_user_cache_is_used(cache: Path) -> None:
    cache.mkdir()
    shutil.copyfile(Path(FOLDER or "") / "glass.npz", cache / "glass.npz")
    assert load("glass").X.shape == (214, 9)
