"""Datasets by name: those of the paper, small ones that come with scikit-learn, and a generator.

The datasets of the paper are read from a data folder: the argument `folder`, else the environment variable
`CAVITY_DATA`, else the user cache (`$XDG_CACHE_HOME/cavity`, by default `~/.cache/cavity`). The SHA-256 checksum of
every file is verified. Without a data folder, datasets that are on OpenML are downloaded to the user cache. Rows are
neither scaled nor shuffled.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.datasets

from cavity.files.atomic import atomic_write

__all__ = ["NAMES", "Dataset", "load", "make_waveform"]

Split = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset with its license and citation.

    Attributes:
        name: the name to load it by.
        X: features, (N, D).
        y: labels from 0 to C - 1, indices into `class_names`, (N,).
        feature_names: names of the columns of `X`.
        class_names: names of the classes.
        license: terms of use.
        citation: the source to cite.
        splits: published pairs (train_rows, test_rows); empty if there are none for these rows.
    """

    name: str
    X: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    class_names: tuple[str, ...]
    license: str
    citation: str
    splits: tuple[Split, ...] = field(default=(), repr=False)

    def split(self, i: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return X_train, y_train, X_test, y_test of split `i`."""
        if not 0 <= i < len(self.splits):
            raise IndexError(f"split {i} of {self.name!r} does not exist: this copy has {len(self.splits)} splits")
        train, test = self.splits[i]
        return self.X[train], self.y[train], self.X[test], self.y[test]


@dataclass(frozen=True)
class _Paper:
    file: str
    n_features: int
    n_classes: int
    license: str
    citation: str
    openml: int | None = None
    hint: str = ""


_CC = "CC BY 4.0 (general terms of the UCI repository)"
_UCI = "Dua & Graff, UCI Machine Learning Repository"
_SIEBERT, _DETERDING = f"{_UCI}; Siebert, Turing Institute, 1987", f"{_UCI}; Deterding, 1989"
_GUIDE = "Hsu, Chang & Lin, A practical guide to support vector classification; LIBSVM data collection"
_CART = "Breiman et al., CART, 1984; Villacampa-Calvo et al., Multi-class GP classification with noisy inputs"
_LECUN = "LeCun, Bottou, Bengio & Haffner, 1998"
_EXPO = "ASA Data Expo 2009, Airline on-time performance; Hensman et al., 2013"
_LIBSVM_HINT = "The LIBSVM data collection has it as text (multi-class, svmguide2)."
_DRAW_HINT = "Or generate rows with cavity.datasets.make_waveform."
_EXPO_HINT = "The source is the airline data of the ASA Data Expo 2009, January to April 2008."

_PAPER = {
    "glass": _Paper("glass.npz", 9, 6, _CC, _UCI, 41),
    "new_thyroid": _Paper("new_thyroid.npz", 5, 3, _CC, _UCI, 40682),
    "satellite": _Paper("satellite.npz", 36, 6, _CC, _UCI, 182),
    "svmguide2": _Paper("svmguide2.npz", 20, 3, "none stated", _GUIDE, hint=_LIBSVM_HINT),
    "vehicle": _Paper("vehicle.npz", 18, 4, _CC, _SIEBERT, 54),
    "vowel": _Paper("vowel.npz", 10, 6, _CC, _DETERDING, 307),
    "vowel_f0_f9": _Paper("vowel_f0_f9.npz", 10, 6, _CC, _DETERDING, 307),
    "waveform": _Paper("waveform.npz", 21, 3, "Apache-2.0", _CART, hint=_DRAW_HINT),
    "wine": _Paper("wine.npz", 13, 3, _CC, _UCI),
    "mnist": _Paper("mnist.npz", 784, 10, "CC BY-SA 3.0 (according to the Keras documentation)", _LECUN, 554),
    "airline": _Paper("airline_2008_jan_apr.parquet", 8, 3, "public domain (US)", _EXPO, hint=_EXPO_HINT),
}
_SHA256 = {
    "airline_2008_jan_apr.parquet": "29e12177bb81a855847fd2cd08c31da948101621c6f819d3bbb30d718109b184",
    "glass.npz": "6ff1e5dbc7685b474d2b1204c40ab82ec14e26c7e18efd675a67246782f3e9a9",
    "mnist.npz": "f448f3203781874116c54cbb4289f90ae5171fb82eaebc5c2f5c1b82aa91abee",
    "new_thyroid.npz": "99ec6b8cb79166fb04dcda294b9ae3e1a1ce35b96f8d134487711502bce16c53",
    "satellite.npz": "9579c344bf34f6f2d6ccf508677cca554fed620855da7d9497e179622e291d51",
    "svmguide2.npz": "2600bebe2ed72ee553485a2b0dbb87e413de2edc8be895e18d0210c3476ae9c8",
    "uci_splits.npz": "3d85fef3608a30570c235d6d167e275609aad55f8dacf70514cd3caf00832235",
    "vehicle.npz": "d6632e357dcfd3799b8faad4e31c788dc11c7361bb3e790d80d5a346d1377daa",
    "vowel.npz": "c5be1dad358bdd8109657d9c7d0404d28eb482aff53dbefc59b592c0d6473686",
    "vowel_f0_f9.npz": "c2942a8890ce70c7c0b740ae6cbd0418283d1d5ce23525a4a3808f2bff7e0720",
    "waveform.npz": "bcb352cf660c46c008af0c55379b8021d34e5c593f7ff25d8e27d6876a93c08a",
    "wine.npz": "a14591d381d24fd46357a61cd0e2e2223feee5bb20b5d5dfda09acecd5590fbc",
}
_BUNDLED = {
    "digits": "E. Alpaydin & C. Kaynak, 1998; " + _UCI,
    "iris": "R. A. Fisher, 1936; " + _UCI,
    "breast_cancer": "Wolberg, Street & Mangasarian, 1995; " + _UCI,
    "wine": _UCI,
}
_AIRLINE = ["age", "distance", "air_time", "dep_time", "arr_time", "day_of_week", "day_of_month", "month"]
NAMES = tuple(sorted({*_PAPER, *_BUNDLED}))


def load(name: str, *, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a dataset.

    `digits`, `iris`, `breast_cancer` and, if the data folder lacks it, `wine` come with scikit-learn. With a data
    folder, the eight UCI datasets have the 20 splits of the authors, and `mnist` has one (60000 training rows, 10000
    test rows). A copy from OpenML has no splits, because the order of its rows may differ. Its classes have OpenML's
    names, and `satellite` may lack a few rows.

    Args:
        name: one of `NAMES`.
        folder: the data folder.

    Raises:
        ValueError: the name is unknown, or a file has the wrong checksum.
        FileNotFoundError: the data folder lacks the file, or the download failed.

    >>> digits = load("digits")
    >>> digits.X.shape, len(digits.class_names)
    ((1797, 64), 10)
    """
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got name={name!r}")
    given = folder or os.environ.get("CAVITY_DATA")
    home = Path(given or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cavity")
    license, citation = (_PAPER[name].license, _PAPER[name].citation) if name in _PAPER else (_CC, _BUNDLED[name])
    if name in _PAPER and (home / _PAPER[name].file).is_file():
        found = _from_folder(name, home)
    elif name in _BUNDLED:
        data = getattr(sklearn.datasets, f"load_{name}")()
        found = {"X": data.data, "y": data.target, "feature_names": data.feature_names}
        found["class_names"] = data.target_names
    elif _PAPER[name].openml is None:
        raise FileNotFoundError(_advice(name, home))
    elif given:
        raise FileNotFoundError(f"{_advice(name, home)} If neither is set, it is downloaded from OpenML.")
    else:
        found = _from_openml(name, home)
    names = {key: tuple(map(str, found[key])) for key in ("feature_names", "class_names")}
    return Dataset(name, **found | names, license=license, citation=citation)


def make_waveform(
    n_samples: int = 1000, random_state: int | np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate (X, y) with the waveform generator of Breiman et al. (CART, 1984): 21 features, 3 classes.

    Each class mixes two of three triangular waves with a uniform random weight per row, plus unit normal noise.

    Args:
        n_samples: number of rows.
        random_state: a seed or a generator.

    >>> X, y = make_waveform(300, random_state=0)
    >>> X.shape
    (300, 21)
    """
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got n_samples={n_samples}")
    rng = np.random.default_rng(random_state)
    peaks = np.array([[7, 15], [7, 11], [11, 15]])  # the two waves of each class
    waves = np.maximum(6 - abs(np.arange(1, 22) - peaks[..., None]), 0)  # (class, wave, feature)
    y = rng.integers(3, size=n_samples)
    weight = rng.uniform(size=(n_samples, 1))
    blend = weight * waves[y, 0] + (1 - weight) * waves[y, 1]
    return blend + rng.standard_normal(blend.shape), y


def _from_folder(name: str, home: Path) -> dict[str, Any]:
    path, splits = home / _PAPER[name].file, home / "uci_splits.npz"
    if name == "airline":
        import pyarrow.parquet  # slow to import

        table = pyarrow.parquet.read_table(_read(path, _SHA256[path.name]), columns=[*_AIRLINE, "label"])
        X = np.column_stack([table[column].to_numpy().astype(np.float64) for column in _AIRLINE])
        y = table["label"].to_numpy().astype(np.int64)
        return {"X": X, "y": y, "feature_names": _AIRLINE, "class_names": ["on time", "late", "early"]}
    found: dict[str, Any] = _read_npz(path, _SHA256[path.name])
    if name == "mnist":
        X, y = (np.concatenate([found[f"{part}_train"], found[f"{part}_test"]]) for part in "Xy")
        names = {"feature_names": [f"pixel{i}" for i in range(784)], "class_names": range(10)}
        return {"X": X, "y": y, "splits": ((np.arange(60000), np.arange(60000, 70000)),)} | names
    if splits.is_file():
        rows, key = _read_npz(splits, _SHA256[splits.name]), name.removesuffix("_f0_f9")  # of the same rows
        found["splits"] = tuple(zip(rows[f"{key}_train"], rows[f"{key}_test"], strict=True))
    return found


def _from_openml(name: str, home: Path) -> dict[str, Any]:
    path = home / f"{name}_openml.npz"
    checksum = path.with_suffix(".npz.sha256")
    if not path.is_file():
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **_fetch(name, home))
        content = buffer.getvalue()
        home.mkdir(parents=True, exist_ok=True)
        with atomic_write(checksum) as temporary:  # before the data: a data file always has a checksum
            temporary.write_text(hashlib.sha256(content).hexdigest())
        with atomic_write(path) as temporary:
            temporary.write_bytes(content)
    return _read_npz(path, checksum.read_text())


def _fetch(name: str, home: Path) -> dict[str, np.ndarray]:
    entry = _PAPER[name]
    try:
        data = sklearn.datasets.fetch_openml(data_id=entry.openml, as_frame=False, parser="liac-arff", cache=False)
    except (OSError, ValueError) as error:  # no network, or OpenML refused
        raise FileNotFoundError(f"The download from OpenML failed ({error}). {_advice(name, home)}") from error
    X, labels, features = np.asarray(data.data), np.asarray(data.target).astype(str), data.feature_names
    if name.startswith("vowel"):
        columns = range(-10, 0) if name == "vowel_f0_f9" else [-12, -10, *range(-8, 0)]  # speaker, F0, F2..F9
        rows = np.isin(labels, ["hid", "hId", "hEd", "hAd", "hYd", "had"])
        X, labels, features = X[rows][:, list(columns)], labels[rows], [features[i] for i in columns]
    classes, y = np.unique(labels, return_inverse=True)
    if (X.shape[1], len(classes)) != (entry.n_features, entry.n_classes):
        raise ValueError(
            f"OpenML dataset {entry.openml} is not {name!r}: it has {X.shape[1]} features and {len(classes)} "
            f"classes, expected {entry.n_features} and {entry.n_classes}"
        )
    X = X.astype(np.uint8 if name == "mnist" else np.float64)
    return {"X": X, "y": y, "feature_names": np.array(features), "class_names": classes}


def _advice(name: str, home: Path) -> str:
    remedy = "Set CAVITY_DATA, or pass folder=, to a folder that contains it."
    return f"{_PAPER[name].file} is not in {home}. {remedy} {_PAPER[name].hint}".rstrip()


def _read_npz(path: Path, expected: str) -> dict[str, np.ndarray]:
    with np.load(_read(path, expected), allow_pickle=False) as archive:
        return dict(archive)


def _read(path: Path, expected: str) -> io.BytesIO:
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ValueError(f"{path} has changed: its SHA-256 checksum is {found}, expected {expected}")
    return io.BytesIO(content)
