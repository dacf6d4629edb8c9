"""Other packages, the real ones (`pip install 'cavity[integrations]'`): skops, MLflow and MAPIE."""

from copy import deepcopy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import GPClassifier
from cavity.kernels import Constant, Linear

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the packages warn on import

TRUSTED = ["cavity.classifier.GPClassifier"]  # as the documentation says
X, Y = load_iris(return_X_y=True)
QUICK = {"n_inducing": 8, "max_epochs": 4, "random_state": 0, "device": "cpu"}
CASES = {
    "auto": GPClassifier(**QUICK),
    "sep": GPClassifier("sep", batch_size=40, dtype="float32", kernel="matern32", **QUICK),
    "gfitc": GPClassifier("gfitc", kernel=Linear() + Constant(), **QUICK),
    "vi": GPClassifier("vi", scaling="quantile", **QUICK),
    "paper": GPClassifier.paper("vi", n_inducing=8, max_epochs=3, random_state=0),
    "pipeline": make_pipeline(StandardScaler(), GPClassifier(scaling=None, **QUICK)),
}


@pytest.fixture(scope="module", params=CASES)
def fitted(request):
    return clone(CASES[request.param]).fit(X, np.array(["a", "b", "c"])[Y])


def check_alike(found, fitted):
    np.testing.assert_array_equal(found.predict_log_proba(X), fitted.predict_log_proba(X))
    assert found.predict(X).tolist() == fitted.predict(X).tolist()
    if hasattr(fitted, "partial_fit"):
        one, two = (clf.partial_fit(X[:30], ["a"] * 30).predict_log_proba(X) for clf in (found, deepcopy(fitted)))
        np.testing.assert_array_equal(one, two)


def test_skops(fitted, tmp_path):
    import skops.io

    skops.io.dump(fitted, tmp_path / "model.skops")
    assert skops.io.get_untrusted_types(file=tmp_path / "model.skops") == TRUSTED
    check_alike(skops.io.load(tmp_path / "model.skops", trusted=TRUSTED), fitted)
    check_alike(skops.io.loads(skops.io.dumps(fitted), trusted=TRUSTED), fitted)


@pytest.mark.parametrize("serialization", ["skops", "cloudpickle", "pickle"])
def test_mlflow(fitted, serialization, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MLflow may write a database where it runs
    import mlflow.pyfunc
    import mlflow.sklearn

    mlflow.sklearn.save_model(
        fitted, tmp_path / "model", serialization_format=serialization, skops_trusted_types=TRUSTED,
        pip_requirements=[],  # finding them out takes a while
    )  # fmt: skip
    check_alike(mlflow.sklearn.load_model(str(tmp_path / "model")), fitted)
    by_pyfunc = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(X)
    assert np.asarray(by_pyfunc).tolist() == fitted.predict(X).tolist()


@pytest.mark.parametrize("coverage", [0.8, 0.95, 0.99])
def test_mapie_has_the_same_sets(coverage):
    """Where the method is the same: the threshold on the probability of a label, with rows held out by the user."""
    from mapie.classification import SplitConformalClassifier

    X, y = load_digits(return_X_y=True)
    clf = GPClassifier(**QUICK).fit(X[:300], y[:300]).conformalize(X[300:700], y[300:700])
    theirs = SplitConformalClassifier(clf, confidence_level=coverage, conformity_score="lac", prefit=True)
    _, sets = theirs.conformalize(X[300:700], y[300:700]).predict_set(X[700:])
    ours = clf.predict_set(X[700:], coverage, score="threshold", allow_empty=True)
    p = clf.predict_proba(X[700:])
    least = p[ours].min()
    is_close = abs(p - least) < 1e-6  # MAPIE's threshold has a tolerance of 1e-8
    assert is_close.mean() < 1e-3
    np.testing.assert_array_equal(ours[~is_close], sets[:, :, 0][~is_close])
