"""`fit` and `predict` on sources: the same answers as on arrays, and errors that say where."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from cavity import GPClassifier
from cavity.data import CSV, Arrays, Batches, Parquet, survey
from cavity.datasets import make_waveform
from cavity.fitting import encoding
from cavity.fitting.settings import FULL_BATCH_ROWS
from cavity.inference import METHODS
from cavity.runtime.warnings import CavityWarning
from tests.tables import KINDS, mixed_table, write_csv, write_parquet

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
N = 900
NAMES = np.array(["north", "east", "west"])


@pytest.fixture(scope="module")
def rows():
    X, y = make_waveform(N, random_state=2)
    return X, NAMES[y]


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    return written(tmp_path_factory.mktemp("rows"), *rows)


def written(folder, X, y):
    columns = {f"x{i}": X[:, i] for i in range(X.shape[1])}
    for part, places in enumerate(np.array_split(np.arange(len(X)), 3)):
        table = pa.table({name: values[places] for name, values in columns.items()} | {"side": y[places]})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=50)
    return folder


def classifier(**changes):
    return GPClassifier(**({"n_inducing": 10, "random_state": 0, "max_epochs": 6} | changes))


def test_few_rows_are_read_and_fitted_as_arrays_are(rows, folder):
    X, y = rows
    found, expected = classifier(max_epochs=3).fit(Parquet(folder, target="side")), classifier(max_epochs=3).fit(X, y)
    assert np.array_equal(found.posterior_.mean, expected.posterior_.mean)
    assert found.sharpness_ == expected.sharpness_
    assert found.classes_.tolist() == sorted(NAMES)
    assert found.feature_names_in_.tolist() == [f"x{i}" for i in range(21)]
    assert N < FULL_BATCH_ROWS


@pytest.mark.parametrize("method", [name for name in METHODS if name != "gfitc"])
def test_batches_from_files_learn_as_well_as_batches_from_memory(method, rows, folder):
    X, y = rows
    X_test, y_test = make_waveform(2000, random_state=3)
    nll = []
    for given in ((Parquet(folder, target="side"),), (X, y)):
        model = classifier(method=method, batch_size=100, max_epochs=20).fit(*given)
        log_p = model.predict_log_proba(Arrays(X_test))
        nll.append(-log_p[np.arange(len(y_test)), np.searchsorted(model.classes_, NAMES[y_test])].mean())
        assert model.sharpness_ != 1.0
    assert nll[0] == pytest.approx(nll[1], abs=0.03)
    assert nll[0] < 0.45


def test_log_z_is_that_of_the_rows_learned_from(rows):
    X, y = rows
    model = classifier(method="sep", batch_size=300, calibrate=False).fit(Arrays(X, y, lanes=3))
    again = classifier(method="sep", batch_size=300, calibrate=False, max_epochs=1, learning_rate=1e-12).fit(X, y)
    assert model.log_marginal_likelihood_ > again.log_marginal_likelihood_
    assert -N < model.log_marginal_likelihood_ < 0


def test_classes_can_be_balanced(rows):
    X, y = rows
    few = np.concatenate([np.flatnonzero(y == "north")[:40], np.flatnonzero(y != "north")])

    def share(weight):
        model = classifier(batch_size=100, class_weight=weight, max_epochs=10).fit(Arrays(X[few], y[few]))
        return (model.predict(X) == "north").mean()

    assert share("balanced") > share(None) + 0.03


def test_a_data_loader_will_do(rows):
    X, y = rows
    loader = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(np.searchsorted(np.unique(y), y))), 64)
    model = classifier(batch_size=100, max_epochs=15).fit(loader)
    assert (np.unique(y)[model.predict(X)] == y).mean() > 0.8


def test_predictions_of_a_source_are_those_of_its_rows(rows, folder):
    X, y = rows
    model = classifier().fit(X, y)
    source = Parquet(folder, target="side")
    np.testing.assert_allclose(model.predict_proba(source), model.predict_proba(X), rtol=0, atol=1e-10)
    assert (model.predict(source) == model.predict(X)).all()


def test_predictions_are_written_whole_or_not_at_all(rows, folder, tmp_path):
    X, y = rows
    model, source = classifier(max_epochs=2).fit(X, y), Parquet(folder)
    assert model.predict_to(source, tmp_path / "out") == N
    whole = pq.read_table(tmp_path / "out")
    (tmp_path / "out" / "part-00001.parquet").unlink()
    with pytest.raises(ValueError, match=r"must not hold predictions, got .*resume=True"):
        model.predict_to(source, tmp_path / "out")
    assert 0 < model.predict_to(source, tmp_path / "out", resume=True) < N
    assert pq.read_table(tmp_path / "out").equals(whole)
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_a_failure_leaves_no_part_that_looks_whole(rows, folder, tmp_path, monkeypatch):
    X, y = rows
    model, calls = classifier(max_epochs=2).fit(X, y), []

    def broken(self, X):
        calls.append(len(X))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, X)

    real = GPClassifier._log_proba
    monkeypatch.setattr(GPClassifier, "_log_proba", broken)
    with pytest.raises(KeyboardInterrupt):
        model.predict_to(Parquet(folder), tmp_path / "out")
    done = sum(pq.read_metadata(path).num_rows for path in (tmp_path / "out").glob("*.parquet"))
    monkeypatch.undo()
    assert model.predict_to(Parquet(folder), tmp_path / "out", resume=True) == N - done


@pytest.mark.parametrize("batch_size", [100, "auto"])
def test_an_infinite_value_is_named_by_file_and_row(rows, batch_size, tmp_path):
    X, y = rows
    X = X.copy()
    X[310, 4] = np.inf
    source = Parquet(written(tmp_path, X, y), target="side")
    with pytest.raises(ValueError, match=r"part-1\.parquet, row 10: feature 'x4' is infinite"):
        classifier(batch_size=batch_size).fit(source)


def test_a_label_that_the_survey_has_not_seen_is_named_by_file_and_row(rows, tmp_path):
    X, y = rows
    known = survey(Arrays(X, y))
    y = y.copy()
    y[605] = "up"
    source = Parquet(written(tmp_path, X, y), target="side", lanes=1)
    with pytest.raises(ValueError, match=r"part-2\.parquet, row 5: label 'up' is not one of the classes"):
        classifier(batch_size=100).fit(source, survey=known)


def test_what_a_source_cannot_do_is_said(rows):
    X, y = rows
    source = Arrays(X, y)
    with pytest.raises(ValueError, match="y and sample_weight must be None"):
        classifier().fit(source, y)
    with pytest.raises(ValueError, match="scaling='auto' needs several fits"):
        classifier(batch_size=100, scaling="auto").fit(source)
    with pytest.raises(ValueError, match="calibrate=3 needs several fits"):
        classifier(batch_size=100, calibrate=3).fit(source)
    with pytest.raises(ValueError, match="at least two classes"):
        classifier(batch_size=100).fit(Arrays(X, np.zeros(N)))
    model = classifier(max_epochs=1).fit(source)
    with pytest.raises(ValueError, match="20 features, but GPClassifier is expecting 21"):
        model.predict(Arrays(X[:, 1:]))


def test_settings_that_need_too_much_memory_are_refused_with_some_that_do_not(rows, monkeypatch):
    X, y = rows
    monkeypatch.setattr("cavity.fitting.fit.available_bytes", lambda device: 10**8)
    with pytest.raises(ValueError, match=r"these settings need about .* but only 100 MB are available; .*n_inducing="):
        classifier(n_inducing=800, method="sep", batch_size=100).fit(X, y)


# --- Categories, dates and gaps ---


@pytest.fixture(scope="module")
def table():
    return mixed_table(N)


@pytest.fixture(scope="module")
def files(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    return {"parquet": Parquet(write_parquet(table, folder / "parquet"), target="label", lanes=4),
            "csv": CSV(write_csv(table, folder / "csv"), target="label")}  # fmt: skip


def halves(table):
    return table.drop(columns="label"), table["label"].to_numpy()


LEFT_OUT = pytest.mark.filterwarnings("ignore:X has columns that are left out")


def test_what_is_left_out_is_told_once(files):
    for batch_size in (100, "auto"):
        with pytest.warns(CavityWarning, match=r"'id' \(text with 900 different values in 900 rows\)") as found:
            model = classifier(batch_size=batch_size, max_epochs=1).fit(files["csv"])
        assert len([one for one in found if "left out" in str(one.message)]) == 1
        assert tuple(column.kind for column in model.columns_) == KINDS


@LEFT_OUT
@pytest.mark.parametrize("kind", ["parquet", "csv", "arrays", "batches"])
def test_few_rows_with_categories_are_fitted_as_a_frame_is(kind, table, files):
    X, y = halves(table)
    batches = [(X[k : k + 64], y[k : k + 64]) for k in range(0, N, 64)]
    given = files | {"arrays": Arrays(X, y, lanes=3), "batches": Batches(batches)}
    found, expected = classifier(max_epochs=3).fit(given[kind]), classifier(max_epochs=3).fit(X, y)
    assert found._schema == expected._schema
    assert np.array_equal(found.posterior_.mean, expected.posterior_.mean)
    assert found.sharpness_ == expected.sharpness_
    assert found.groups_ == expected.groups_


@LEFT_OUT
@pytest.mark.parametrize("weight", [None, "balanced"])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_stream_is_encoded_as_rows_in_memory_are(kind, weight, table, files):
    X, y = halves(table)
    changes = {"batch_size": 100, "max_epochs": 1, "calibrate": False, "class_weight": weight}
    found, expected = (classifier(**changes).fit(*given)._encoding for given in ((files[kind],), (X, y)))
    assert (found.numeric, found.cycles) == (expected.numeric, expected.cycles)
    np.testing.assert_allclose(found.gaps, expected.gaps, rtol=1e-12)
    for one, other in zip(found.categories, expected.categories, strict=True):
        assert (one.column, one.by_fold is None) == (other.column, other.by_fold is None)
        np.testing.assert_allclose(one.table, other.table, rtol=1e-12)
        if one.by_fold is not None:
            np.testing.assert_allclose(one.by_fold, other.by_fold, rtol=1e-12)
    assert [part.by_fold is None for part in found.categories] == [True, False, True]
    for name in ("mean", "sd") if weight is None else ():  # those of a source have no weights
        np.testing.assert_allclose(getattr(found.scaler, name), getattr(expected.scaler, name), rtol=1e-12)


@LEFT_OUT
@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_batches_of_a_mixed_table_learn_as_well_from_files(scaling, table, files):
    X, y = halves(table)
    X_test, y_test = halves(mixed_table(2000, seed=1))
    nll = []
    for given in ((files["parquet"],), (X, y)):
        model = classifier(batch_size=100, max_epochs=20, n_inducing=30, scaling=scaling).fit(*given)
        log_p = model.predict_log_proba(X_test)
        nll.append(-log_p[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)].mean())
    assert nll[0] == pytest.approx(nll[1], abs=0.04)
    assert nll[0] < 0.85


@LEFT_OUT
def test_rows_held_out_do_not_encode_themselves(table, files, monkeypatch):
    """The class frequencies of a level come from the rows that are learned from."""
    seen = {}

    def fit_encoding(schema, scaling, X, y, weight, n_classes, known, scaler):
        seen.update(rows=known.rows.sum(), levels=known.counts[2].sum(), gaps=known.missing[0].sum())
        return encoding.fit_encoding(schema, scaling, X, y, weight, n_classes, known, scaler)

    monkeypatch.setattr("cavity.fitting.fit.fit_encoding", fit_encoding)
    known = survey(files["parquet"], sample_rows=N)
    model = classifier(batch_size=100, max_epochs=1).fit(files["parquet"], survey=known)
    held = known.sample.X[: N - int(seen["rows"])]
    assert N // 20 <= len(held) <= N // 4
    assert model.sharpness_ != 1.0
    assert seen["levels"] == table["city"].notna().sum() - (~np.isnan(held[:, 2])).sum()
    assert seen["gaps"] == table["size"].isna().sum() - np.isnan(held[:, 0]).sum()


@LEFT_OUT
def test_a_source_is_predicted_as_its_frame_is(table, files, tmp_path):
    """By the names of its columns; with levels that training has not seen, and more gaps."""
    X, y = halves(table)
    model = classifier(max_epochs=3).fit(X, y)
    new = mixed_table(300, seed=5, cities=120).drop(columns="label").assign(more="text", flag=None)
    new.loc[:40, "color"] = "unseen"
    expected = model.predict_log_proba(new[list(X.columns)])
    shuffled = new[["more", *reversed(list(X.columns))]]
    paths = write_parquet(shuffled, tmp_path / "parquet"), write_csv(shuffled, tmp_path / "csv")
    for source in (
        Parquet(paths[0]),
        CSV(paths[1]),
        Arrays(new[list(X.columns)], lanes=2),
        Batches([new[list(X.columns)]]),
    ):
        np.testing.assert_allclose(model.predict_log_proba(source), expected, rtol=0, atol=1e-10)
    assert model.predict_to(CSV(paths[1]), tmp_path / "out") == 300
    found = pq.read_table(tmp_path / "out").select([f"p_{label}" for label in model.classes_]).to_pandas()
    np.testing.assert_allclose(found, np.exp(expected), rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match=r"has no column 'color'"):
        model.predict(Parquet(write_parquet(new.drop(columns="color"), tmp_path / "fewer")))


def test_a_model_of_numbers_takes_truth_values_as_numbers(rows, tmp_path):
    X, y = rows
    X = np.column_stack([X[:, :3], X[:, 3] > 0])
    model = classifier(max_epochs=2).fit(X, y)
    columns = {f"x{i}": X[:, i] for i in range(3)} | {"flag": X[:, 3] > 0}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    np.testing.assert_allclose(model.predict_proba(Parquet(tmp_path)), model.predict_proba(X), rtol=0, atol=1e-10)


def test_gaps_in_numbers_need_no_names(rows):
    X, y = rows
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    loader = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(np.searchsorted(np.unique(y), y))), 64)
    for batch_size in (100, "auto"):
        model = classifier(batch_size=batch_size, max_epochs=15).fit(loader)
        assert (np.unique(y)[model.predict(loader)] == y).mean() > 0.7
        assert "missing" in {what for _, what in model.groups_}
        assert model._schema is None


def test_categories_of_a_data_loader_are_named_by_the_classifier():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 5, N), rng.standard_normal(N)])
    y = (X[:, 0] % 2 == 0).astype(np.int64)
    loader = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(y)), 64)
    model = classifier(batch_size=100, categorical_features=[0]).fit(loader)
    assert model.columns_[0].levels == ("0", "1", "2", "3", "4")
    assert (model.predict(loader) == model.predict(X)).all()
    with pytest.raises(ValueError, match=r"categorical_features must be given to the source, as in Parquet"):
        classifier(categorical_features=[0]).fit(Arrays(X, y))
    classifier(categorical_features=[0], max_epochs=1).fit(Arrays(X, y, categorical_features=[0]))
    classifier(categorical_features=None, max_epochs=1).fit(Arrays(X, y))


def test_a_survey_of_other_columns_is_refused(files):
    known = survey(Arrays(np.random.default_rng(0).standard_normal((N, 6)), np.arange(N) % 3))
    with pytest.raises(ValueError, match="survey must be of this source"):
        classifier().fit(files["csv"], survey=known)
