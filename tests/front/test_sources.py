"""`fit` and `predict` on sources: the same answers as on arrays, and errors that say where."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from cavity import GPClassifier
from cavity.data import Arrays, Parquet, survey
from cavity.datasets import make_waveform
from cavity.fitting.settings import FULL_BATCH_ROWS
from cavity.inference import METHODS

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
