"""Model files that someone has changed, or that are something else: a clear error, or the same model."""

import json
import math
import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cavity.data.profile import ColumnProfile, Profile
from cavity.files import json_values
from cavity.files import model_file as modelfile
from cavity.files import tensor_file as tensorfile
from cavity.files.model_file import FORMAT, ModelFileError, read, write
from cavity.fitting.encoding import fit_encoding
from cavity.fitting.novelty import Novelty
from cavity.kernels import RBF, Grouped
from cavity.training.checkpoint import Checkpoints
from tests.models import log_p, mixed_model, model, posterior, run, said

# --- Files that are something else ---


def a_checkpoint(path):
    Checkpoints(path.parent / "steps").save(1, {"x": torch.zeros(2)}, {})
    next((path.parent / "steps").iterdir()).rename(path)


OTHERS = {
    "nothing": (lambda path: None, "the file does not exist. Check the name"),
    "a folder": (lambda path: path.mkdir(), "it is a folder. Use a file"),
    "a pipe": (lambda path: os.mkfifo(path), "it is a device. Use a file"),
    "empty": (lambda path: path.write_bytes(b""), "it is empty. Use a file"),
    "a pickle": (lambda path: path.write_bytes(pickle.dumps(print)), "it is a pickle, which can run any code"),
    "an old pickle": (
        lambda path: path.write_bytes(pickle.dumps({}, 2)),
        "it is a pickle, which can run any code",
    ),
    "a zip": (lambda path: torch.save({}, path), "it is a zip archive, as torch.save"),
    "an array": (
        lambda path: path.write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr'"),
        "it does not start like a safetensors file",
    ),
    "a text": (lambda path: path.write_text("a,b\n1,2\n" * 99), "it does not start like a safetensors file"),
    "safetensors": (
        lambda path: save_file({"x": torch.zeros(2)}, path),
        "it is a safetensors file, not a cavity model",
    ),
    "a checkpoint": (a_checkpoint, "it is a training checkpoint, not a cavity model"),
}


@pytest.mark.parametrize(("make", "reason"), OTHERS.values(), ids=OTHERS)
def test_files_of_another_kind_are_called_by_name(tmp_path, make, reason):
    path = tmp_path / "m.cavity"
    make(path)
    with pytest.raises(ModelFileError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} cannot be read: {reason}")


def test_a_file_larger_than_memory_is_refused(tmp_path, monkeypatch):
    write(tmp_path / "m", model())
    monkeypatch.setattr(modelfile, "available_bytes", lambda device: 1000)
    with pytest.raises(ModelFileError, match="only 1000 bytes are available"):
        read(tmp_path / "m")


# --- Files that someone has changed ---


def taken_apart(path):
    with open(path, "rb") as file:
        metadata, header = tensorfile.read_header(file)
        return json.loads(metadata[modelfile.RECORD]), tensorfile.read_tensors(file, header)


def put_together(path, record, tensors):
    """A file with a checksum that is right."""
    text = json.dumps(record)
    tensors = tensorfile.separate(tensors)
    save_file(tensors, path, {modelfile.RECORD: text, modelfile.DIGEST: tensorfile.digest(text, tensors)})


def refused(tmp_path, change, reason, given=None):
    """What the change of a sound file's record and tensors leads to."""
    path = tmp_path / "m.cavity"
    write(path, model() if given is None else given)
    record, tensors = taken_apart(path)
    change(record, tensors)
    put_together(path, record, tensors)
    with pytest.raises(ModelFileError, match=reason) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("number", [FORMAT + 1, 99, 10**30])
def test_a_newer_format_asks_for_an_upgrade(tmp_path, number):
    reason = (
        rf"format {number} of a newer cavity \(9\.9\);.*reads format {FORMAT}\. Upgrade: pip install --upgrade cavity"
    )
    refused(tmp_path, lambda record, tensors: record.update(format=number, cavity="9.9", more=[]), reason)


@pytest.mark.parametrize("number", [0, -1, "1", 1.0, True, None])
def test_a_format_is_a_number(tmp_path, number):
    refused(tmp_path, lambda record, tensors: record.update(format=number), "has no format number")


RECORDS = {
    "more": ({"more": 1}, "lacks or adds more"),
    "classes of others": (
        {"classes": {"dtype": "<i8", "values": [1, 2]}},
        r"of shape \(2, M, M\)",
    ),
    "many classes": ({"classes": {"dtype": "<i8", "values": list(range(1000))}}, r"of shape \(1000, M, M\)"),
    "equal classes": ({"classes": {"dtype": "<U1", "values": ["a", "a", "b"]}}, "distinct"),
    "negative features": ({"n_features": -2, "feature_names": None}, "n_features"),
    "absurd features": ({"n_features": 10**12, "feature_names": None}, "Z must be torch.float64 of shape"),
    "names": ({"feature_names": ["a"]}, "1 feature_names for 2 features"),
    "names of numbers": ({"feature_names": [1, 2]}, "feature_names"),
    "method": ({"method": "magic"}, "method"),
    "precision": ({"precision": "float16"}, "precision"),
    "sharpness": ({"sharpness": 0.0}, "sharpness"),
    "negative sharpness": ({"sharpness": -1.0}, "sharpness"),
    "sharpness beyond measure": ({"sharpness": 1e30}, "sharpness"),
    "epsilon": ({"epsilon": 1.0}, "epsilon"),
    "negative epsilon": ({"epsilon": -0.1}, "epsilon"),
    "scaler": ({"scaler": "robust"}, "scaler"),
    "another scaler": ({"scaler": "standard"}, "unknown tensors"),
    "another kernel": (
        {"kernel": {"$kernel": ["Constant", {"variance": None}]}},
        "unknown tensors",
    ),
    "no kernel": ({"kernel": {"$tuple": []}}, "not a kernel"),
    "a list of settings": ({"params": []}, "params"),
    "a setting that is missing": ({"params": {"noise": {"$array": "params.other"}}}, "invalid content"),
    "an array twice": ({"params": {"noise": [{"$array": "params.noise.0"}]}}, "params.noise.0 is missing"),
    "an array of scores": ({"metrics": {"Z": {"$array": "metrics.Z"}}}, "metrics.Z is missing"),
    "history": ({"history": {"0": {}}}, "history"),
    "records": ({"history": [1, 2]}, "history"),
    "iterations": ({"n_iter": -1}, "n_iter"),
    "likelihood": ({"log_marginal_likelihood": "high"}, "log_marginal_likelihood"),
}


@pytest.mark.parametrize(("change", "reason"), RECORDS.values(), ids=RECORDS)
def test_a_record_that_no_fit_wrote_is_refused(tmp_path, change, reason):
    refused(tmp_path, lambda record, tensors: record.update(change), reason)


@pytest.mark.parametrize("name", modelfile._RULES)
def test_no_field_may_be_missing_or_of_another_type(tmp_path, name):
    refused(tmp_path, lambda record, tensors: record.pop(name), "lacks|no format number")
    for value in (-1, [[]]):
        refused(tmp_path, lambda record, tensors, value=value: record.update({name: value}), "cannot be read")


def put(**values):
    """Sets some entries of tensors."""

    def change(record, tensors):
        for name, (place, value) in values.items():
            tensors[name.replace("__", ".")].reshape(-1)[place] = value

    return change


def cast(name, dtype):
    def change(record, tensors):
        tensors[name] = tensors[name].to(dtype)

    return change


def reshaped(name, *shape):
    def change(record, tensors):
        tensors[name] = torch.zeros(shape, dtype=torch.float64)

    return change


def two_kernels(record, tensors):
    tensors |= {"log_noise": torch.zeros(2).double(), "kernel.log_variance": torch.zeros(2).double()}
    tensors["kernel.log_lengthscale"] = torch.zeros(2, 2).double()


def older(record, number):
    """The record of a model of numbers as an older format has it."""
    record["format"] = number
    for since, fields in modelfile.SINCE.items():
        for name, default in fields.items() if number < since else ():
            assert record.pop(name) is default


def without_held_out(tensors):
    for name in [name for name in tensors if name.startswith(modelfile.HELD_OUT)]:
        del tensors[name]


def random_labels(*values, number=2):
    def change(record, tensors):
        older(record, number)
        without_held_out(tensors)
        tensors["epsilon"] = torch.tensor(values, dtype=torch.float64)

    return change


def residual(number=2, **values):
    given = {"variance": [[1.0, 2.0]] * 3, "share": [[0.5, 0.2]] * 3, "typical": [1.0] * 3} | values

    def change(record, tensors):
        older(record, number)
        without_held_out(tensors)
        tensors.update(
            (f"residual.{name}", torch.tensor(x, dtype=torch.float64)) for name, x in given.items() if x is not None
        )

    return change


def held_out_in_format_5(record, tensors):
    record["format"] = 5


TENSORS = {
    "held-out rows in an older format": (held_out_in_format_5, r"unknown tensors: held_out\.adaptive"),
    "held-out labels of others": (put(held_out__y=(3, 3)), r"held_out\.y must be labels"),
    "negative held-out labels": (put(held_out__y=(3, -1)), r"held_out\.y must be labels"),
    "held-out rows that do not count": (put(held_out__weight=(3, 0.0)), "weight be positive"),
    "held-out scores that are NaN": (put(held_out__adaptive=(3, math.nan)), r"held_out\.adaptive has NaN"),
    "fewer held-out rows": (reshaped("held_out.confidence", 20), "held_out.confidence must be"),
    "held-out labels that are floats": (cast("held_out.y", torch.float64), "int64 of shape"),
    "more random labels than labels": (random_labels(0.5, 0.4, 0.1), "sum to less than 1"),
    "negative random labels": (random_labels(0.5, -0.1, 0.1), "at or above 0"),
    "random labels that are NaN": (random_labels(0.5, math.nan, 0.1), "NaN"),
    "random labels of others": (random_labels(0.5, 0.1), "epsilon must be"),
    "random labels in the first format": (random_labels(0.5, 0.1, 0.1, number=1), "unknown tensors: epsilon"),
    "a residual in the first format": (residual(number=1), "unknown tensors: residual.share, residual.typical"),
    "half a residual": (residual(variance=None), "residual.variance must be .*, got nothing"),
    "a residual that falls": (residual(variance=[[3.0, 2.0]] * 3), "residual.variance must increase"),
    "a residual that is negative": (residual(variance=[[-3.0, 2.0]] * 3), "residual.variance must increase"),
    "a share above one": (residual(share=[[0.5, 1.5]] * 3), "between 0 and 1"),
    "a share that is NaN": (residual(share=[[0.5, math.nan]] * 3), "NaN"),
    "a residual of others": (residual(share=[[0.5, 1.0]] * 2), "residual.share must be"),
    "nan": (put(Z=(3, math.nan)), "Z has NaN"),
    "infinity": (put(m=(0, -math.inf)), "m has NaN, infinity"),
    "nan in a setting": (put(params__noise=(0, math.nan)), r"params\.noise has NaN"),
    "a mean beyond measure": (put(m=(0, 1e300)), "beyond 1e"),
    "a length-scale beyond measure": (put(kernel__log_lengthscale=(0, -400.0)), "beyond 350"),
    "a variance beyond measure": (put(kernel__log_variance=(0, 340.0)), "variances beyond"),
    "noise beyond measure": (put(log_noise=(1, 1e10)), "beyond 350"),
    "both triangles": (put(R_inverse=(slice(0, 16), 0.5)), "must be triangular"),
    "a negative diagonal": (put(R_inverse=(0, -1.0)), "positive diagonal"),
    "a zero diagonal": (put(R_inverse=(5, 0.0)), "positive diagonal"),
    "no spread": (put(scaler__sd=(0, 0.0)), r"scaler\.sd"),
    "negative spread": (put(scaler__sd=(0, -1.0)), r"scaler\.sd"),
    "knots that fall": (put(scaler__knots=(0, 9.0)), "must increase"),
    "equal knots": (put(scaler__knots=(1, -1.0)), "must increase"),
    "levels that fall": (put(scaler__levels=(0, 9.0)), "must increase"),
    "wrong counts": (put(scaler__counts=(0, 2)), "number of knots"),
    "counts that overflow": (put(scaler__counts=(0, 2**62)), "number of knots"),
    "no counts": (put(scaler__counts=(slice(0, 2), torch.tensor([4, 0]))), "number of knots"),
    "single precision": (cast("Z", torch.float32), "float32 of shape"),
    "whole numbers": (cast("m", torch.int64), "int64 of shape"),
    "counts that are floats": (cast("scaler.counts", torch.float64), "int64 of shape"),
    "too few classes": (reshaped("R_inverse", 2, 4, 4), "R_inverse must be"),
    "a square that is none": (reshaped("R_inverse", 3, 5, 4), "R_inverse must be"),
    "no square": (reshaped("R_inverse", 3, 0, 0), "R_inverse must be"),
    "a number": (reshaped("R_inverse"), "R_inverse must be"),
    "points of others": (reshaped("Z", 3, 5, 2), "Z must be"),
    "points of another space": (reshaped("Z", 3, 4, 7), "Z must be"),
    "two sets of points": (reshaped("Z", 2, 4, 2), "2 sets of points"),
    "two kernels": (two_kernels, "2 kernels"),
    "noise of others": (reshaped("log_noise", 2), "kernel.log_lengthscale must be"),
    "fewer length-scales": (reshaped("kernel.log_lengthscale", 1, 2), "kernel.log_lengthscale must be"),
    "no noise": (lambda record, tensors: tensors.pop("log_noise"), "log_noise must be .*, got nothing"),
    "no means": (lambda record, tensors: tensors.pop("m"), "m must be .*, got nothing"),
    "no setting": (lambda record, tensors: tensors.pop("params.noise"), "params.noise is missing"),
    "one more": (lambda record, tensors: tensors.update(more=torch.zeros(1)), "unknown tensors: more"),
}


@pytest.mark.parametrize(("change", "reason"), TENSORS.values(), ids=TENSORS)
def test_tensors_that_no_fit_wrote_are_refused(tmp_path, change, reason):
    refused(tmp_path, change, reason)


# --- Mixed tables ---


def of_parts(**values):
    return lambda record, tensors: record["parts"].update(values)


def of_column(j, **values):
    return lambda record, tensors: record["columns"][j].update(values)


def levels(*texts):
    """The levels of the first category are these."""

    def change(record, tensors):
        own = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in texts]
        n, lengths = record["columns"][1]["levels"], tensors["columns.lengths"]
        start = int(lengths[:n].sum())
        tensors["columns.text"] = torch.cat([torch.tensor(list(b"".join(own))).byte(), tensors["columns.text"][start:]])
        tensors["columns.lengths"] = torch.cat([torch.tensor([len(text) for text in own]), lengths[n:]])

    return change


def without_columns(n_features):
    """A table of numbers with gaps, which may have columns without features."""

    def change(record, tensors):
        record.update(n_features=n_features, feature_names=None)

    return change


def gappy_model():
    X = np.random.default_rng(0).standard_normal((50, 2))
    X[::3, 1] = np.nan
    encoding = fit_encoding(None, "standard", X, np.zeros(50, np.int64), np.ones(50), 3)
    q = posterior(Grouped(RBF(), encoding.feature_groups), rows=encoding.transform(X))
    return model(posterior=q, encoding=encoding)


MIXED = {
    "no columns": (lambda record, tensors: record.update(columns=None), "cycles must be|parts must|unknown tensors"),
    "no parts": (lambda record, tensors: record.update(parts=None), "must be numbers, because it has no parts"),
    "a column less": (lambda record, tensors: record["columns"].pop(), "7 columns for 8 features"),
    "an unknown kind": (of_column(0, kind="colour"), "invalid columns"),
    "a kind of another type": (of_column(0, kind=["number"]), "invalid columns"),
    "a category without levels": (of_column(1, levels=0), "invalid columns"),
    "more levels than can be": (of_column(1, levels=10**12), "invalid columns"),
    "levels of a truth value": (of_column(1, levels=True), "invalid columns"),
    "levels in the record": (of_column(1, levels=["a", "b"]), "invalid columns"),
    "levels of a number": (of_column(0, levels=3), "invalid columns"),
    "a reason to use a column": (of_column(0, reason="why not"), "invalid columns"),
    "no reason": (of_column(3, reason=None), "invalid columns"),
    "another number of levels": (of_column(1, levels=3), "levels.1 must be"),
    "a number that is left out": (of_column(0, kind="left out"), "parts do not fit"),
    "a category that is left out": (of_column(1, kind="left out", levels=0), "must be|unknown tensors"),
    "a category that is a number": (of_column(1, kind="number", levels=0), "must be|unknown tensors"),
    "a number that is a category": (of_column(0, kind="category", levels=3), "parts do not fit"),
    "a date that is a number": (of_column(2, kind="number"), "cycles must be"),
    "a number less": (of_parts(numeric=[0, 2, 5]), "must be|gaps and cycles"),
    "a number twice": (of_parts(numeric=[0, 0, 2, 5]), "in their order"),
    "numbers in another order": (of_parts(numeric=[2, 0, 5, 7]), "in their order"),
    "a column that does not exist": (of_parts(numeric=[0, 2, 5, 8]), "columns below 8"),
    "a negative column": (of_parts(numeric=[-1, 0, 2, 5]), "columns below 8"),
    "a column that is text": (of_parts(numeric=["0", 2, 5, 7]), "invalid parts"),
    "a column that is a truth value": (of_parts(numeric=[False, 2, 5, 7]), "invalid parts"),
    "parts that are numbers": (of_parts(gaps=3), "invalid parts"),
    "a gap that is a number": (of_parts(gaps=[0]), "invalid parts"),
    "a gap without a scale": (of_parts(gaps=[[0, 0.5]]), "invalid parts"),
    "a gap of zero scale": (of_parts(gaps=[[0, 0.5, 0.0]]), "invalid parts"),
    "a gap of negative scale": (of_parts(gaps=[[0, 0.5, -1.0]]), "invalid parts"),
    "a gap of any scale": (of_parts(gaps=[[0, 0.5, 1e300]]), "invalid parts"),
    "a gap without a center": (of_parts(gaps=[[0, None, 1.0]]), "invalid parts"),
    "a center beyond one": (of_parts(gaps=[[0, 1.5, 1.0]]), "invalid parts"),
    "a gap of a category": (of_parts(gaps=[[1, 0.5, 1.0]]), "those of its numbers"),
    "a gap twice": (of_parts(gaps=[[0, 0.5, 1.0]] * 2), "in their order"),
    "a cycle of lists": (of_parts(cycles=[[2, ["year"]]]), "invalid parts"),
    "a cycle of a century": (of_parts(cycles=[[2, "century"]]), "invalid parts"),
    "a cycle twice": (of_parts(cycles=[[2, "year"], [2, "year"]]), "each once"),
    "a cycle of a number": (of_parts(cycles=[[0, "year"]]), "dates or times"),
    "no cycles": (of_parts(cycles=[]), "must be .*shape"),
    "one more part": (of_parts(more=[]), "invalid parts"),
    "levels in another order": (levels("b", "a", "c", "d"), "sorted and distinct"),
    "equal levels": (levels("a", "a", "b", "c"), "sorted and distinct"),
    "levels that are no text": (levels(b"\xff\xfe", "a", "b", "c"), "decode"),
    "a level less": (levels("a", "b", "c"), "columns.lengths must be"),
    "negative lengths": (put(columns__lengths=(0, -5)), "must sum to the length"),
    "lengths that overflow": (put(columns__lengths=(0, 2**62)), "must sum to the length"),
    "longer text": (lambda record, tensors: tensors.update({"columns.text": torch.zeros(9).byte()}), "must sum"),
    "no text": (lambda record, tensors: tensors.pop("columns.text"), "columns.text must be"),
    "text that is numbers": (cast("columns.text", torch.float64), "uint8 of shape"),
    "a table of NaN": (put(levels__1=(0, math.nan)), "levels.1 has NaN"),
    "a table beyond measure": (put(levels__4=(0, 1e200)), "levels.4 has .*beyond 1e"),
    "a table of others": (reshaped("levels.1", 4, 4), "levels.1 must be"),
    "a table without features": (reshaped("levels.1", 5, 0), "levels.1 must be"),
    "a wider table": (reshaped("levels.1", 5, 9), "which are not those of its parts"),
    "a table of a number": (reshaped("levels.0", 5, 1), "unknown tensors: levels.0"),
    "length-scales of others": (reshaped("kernel.log_lengthscale", 3, 2), "kernel.log_lengthscale must be"),
}


@pytest.mark.parametrize(("change", "reason"), MIXED.values(), ids=MIXED)
def test_mixed_tables_that_no_fit_wrote_are_refused(tmp_path, change, reason):
    refused(tmp_path, change, reason, mixed_model())


def test_columns_without_features_are_not_as_many_as_a_file_says(tmp_path):
    """They would take memory for inducing points in the units of X."""
    refused(tmp_path, without_columns(10**12), "too many for its 3 features", gappy_model())
    path = tmp_path / "m.cavity"
    record, tensors = taken_apart(path)
    put_together(path, record | {"n_features": 5}, tensors)
    assert read(path).encoding.n_columns == 5


def test_columns_came_with_the_third_format(tmp_path):
    for number in (1, 2):
        refused(tmp_path, lambda record, tensors, n=number: record.update(format=n), "adds columns, noise_in_u, parts")


def test_noise_outside_of_u_came_with_the_fourth_format(tmp_path):
    refused(tmp_path, lambda record, tensors: record.update(format=3), "adds noise_in_u")


# --- A thousand changes at random ---

HOSTILE = [
    *(None, True, False, 0, 1, -1, 2, 10**12, 10**39, 0.5, -0.5, 1e308, "", "x", "\x00", "é\ud800", "$", [], {}, [0]),
    *({"$float": "nan"}, {"$tuple": []}, {"$dict": []}, {"$array": "Z"}, {"$kernel": ["Sum", []]}, {"": {}}, {"$x": 1}),
    *([1e308] * 9, "y" * 10_000, {"dtype": "<U999999", "values": ["a", "b"]}, {"$kernel": ["RBF", {"lengthscale": 1}]}),
]  # fmt: skip
NUMBERS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 5e-324, 1e30, -1e30, 1e75, 1e154, 1e308]
DTYPE_NAMES = [*tensorfile.DTYPES, "F128", "BF16", "", 3]


def flipped(raw, rng):
    """One bit, as often in the header as in the numbers."""
    end = 8 + int.from_bytes(raw[:8], "little") if rng.random() < 0.7 else len(raw)
    place = int(rng.integers(end))
    return raw[:place] + bytes([raw[place] ^ (1 << int(rng.integers(8)))]) + raw[place + 1 :]


def cut(raw, rng):
    """Its end, its start or its middle is missing, or something is put in."""
    a, b = sorted(rng.integers(0, len(raw) + 1, 2).tolist())
    junk = rng.bytes(int(rng.integers(1, 100)))
    return [raw[:a], raw[a:], raw[:a] + raw[b:], raw + junk, raw[:a] + junk + raw[a:], raw[:a] + raw[a:b] + raw[a:]][
        int(rng.integers(6))
    ]


def relength(raw, rng):
    """Another number before the header."""
    length = int.from_bytes(raw[:8], "little")
    some = [0, 1, 7, 2**31, 2**32 + length, 2**63, 2**64 - 1, len(raw), len(raw) - 8, len(raw) - 7]
    other = int(rng.choice([length + int(rng.integers(-64, 65)), int(rng.integers(0, 2 * len(raw)))]))
    return max(other if rng.random() < 0.5 else some[int(rng.integers(len(some)))], 0).to_bytes(8, "little") + raw[8:]


def reshelved(raw, rng):
    """The header that describes the tensors is edited, and its length is right again."""
    length = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + length])
    one, two = (str(name) for name in rng.choice(sorted(set(head) - {"__metadata__"}), 2, replace=False))
    kind = int(rng.integers(7))
    if kind == 0:
        head[one], head[two] = head[two], head[one]
    elif kind == 1:
        head[one]["shape"] = [[10**12], [2**62, 4], [-1], [], [0], [1, *head[one]["shape"]], "x"][int(rng.integers(7))]
    elif kind == 2:
        head[one]["dtype"] = DTYPE_NAMES[int(rng.integers(len(DTYPE_NAMES)))]
    elif kind == 3:
        head[one]["data_offsets"] = [[0, 8 * 10**12], head[two]["data_offsets"], [8, 0], [0], None][
            int(rng.integers(5))
        ]
    elif kind == 4:
        head["more"] = head.pop(one)
    elif kind == 5:
        del head[one]
    else:
        head[one] = HOSTILE[int(rng.integers(len(HOSTILE)))]
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + raw[8 + length :]


def places(words, path=()):
    """Every node of a record."""
    inside = words.items() if isinstance(words, dict) else enumerate(words) if isinstance(words, list) else ()
    return [path, *(place for key, part in inside for place in places(part, (*path, key)))]


def reworded(record, tensors, rng):
    """Something in the record is another thing, gone or doubled."""
    found = places(record)[1:]
    *path, last = found[int(rng.integers(len(found)))]
    node = record
    for key in path:
        node = node[key]
    if rng.random() < 0.2:
        del node[last]
    elif rng.random() < 0.1 and isinstance(node, list):
        node.append(node[last])
    else:
        node[last] = HOSTILE[int(rng.integers(len(HOSTILE)))]


def renumbered(record, tensors, rng):
    """Some numbers are others, or tensors change places."""
    one, two = (str(name) for name in rng.choice(sorted(tensors), 2, replace=False))
    x = tensors[one] if tensors[one].is_floating_point() else tensors[one].double()
    kind = int(rng.integers(5))
    if kind == 0:
        tensors[one], tensors[two] = tensors[two], tensors[one]
    elif kind == 1:
        x.reshape(-1)[int(rng.integers(x.numel()))] = NUMBERS[int(rng.integers(len(NUMBERS)))]
    elif kind == 2:
        x *= NUMBERS[int(rng.integers(len(NUMBERS)))]
    elif kind == 3:
        tensors[one] = x[torch.from_numpy(rng.permutation(len(x)))]
    else:
        tensors[one] = x.to([torch.float32, torch.int64, torch.bool, torch.float16][int(rng.integers(4))])


def outcome(path):
    """The model, or None where the file is refused in good order."""
    try:
        return read(path)
    except ModelFileError as error:
        message = str(error)
    assert message.startswith(f"{path} cannot be read: ")
    assert message.endswith(".")
    return None


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_thousand_changed_files_are_refused_or_read_as_they_are(tmp_path, is_mixed):
    """Where the checksum was not made right again: the same model or none. Elsewhere: what is read is sound."""
    path, rng = tmp_path / "m.cavity", np.random.default_rng(0)
    write(path, mixed_model() if is_mixed else model(posterior=posterior(n_inducing=24)))
    raw, original, refused = path.read_bytes(), said(read(path)), 0
    assert (10_000 if is_mixed else 15_000) < len(raw) < 70_000
    for i in range(1000):
        change = (flipped, flipped, flipped, cut, relength, reshelved, reshelved, reworded, reworded, renumbered)[
            i % 10
        ]
        if change in (reworded, renumbered):
            path.write_bytes(raw)
            record, tensors = taken_apart(path)
            change(record, tensors, rng)
            put_together(path, record, tensors)
        else:
            path.write_bytes(change(raw, rng))
        found = outcome(path)
        refused += found is None
        if found is not None and change in (reworded, renumbered):
            sound(found)
        elif found is not None:
            assert said(found) == original
    assert refused > 700


def sound(found):
    """It could be written, and its predictions are probabilities."""
    record, tensors = modelfile.pack(found)
    modelfile.unpack(json_values.parse_json(json.dumps(record, allow_nan=False)), tensors)
    p = np.exp(log_p(found, np.array([[0.5], [np.nan]]) * np.ones(found.n_features)))
    np.testing.assert_allclose(p.sum(1), 1, rtol=0, atol=1e-8)


@pytest.mark.parametrize("first", range(8))
def test_a_flipped_bit_in_any_byte_of_the_header_is_noticed(tmp_path, first):
    path = tmp_path / "m.cavity"
    write(path, model(history=[], metrics={}, training={}, params={}))
    raw, original = path.read_bytes(), said(read(path))
    for i in range(first, 8 + int.from_bytes(raw[:8], "little"), 16):
        path.write_bytes(raw[:i] + bytes([raw[i] ^ (1 << (i + first) % 8)]) + raw[i + 1 :])
        found = outcome(path)
        assert found is None or said(found) == original, i


# --- Memory ---

MEASURE = """
import json, resource, sys, torch
from cavity.files import model_file as modelfile
torch.set_num_threads(1)

def largest():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def growth(path):
    before = largest()
    try:
        modelfile.read(path)
        found = "read"
    except modelfile.ModelFileError as error:
        found = str(error)
    return largest() - before, found

growth(sys.argv[1])  # what is loaded once
print(json.dumps([growth(path) for path in sys.argv[2:]]))
"""


def test_no_file_takes_more_memory_than_it_should(tmp_path):
    """Twice its size and 200 MB; one that claims what it does not have takes nothing."""
    pytest.importorskip("resource")
    paths = [tmp_path / name for name in ("small", "huge shape", "huge header", "many parts", "large")]
    write(paths[0], model())
    raw = paths[0].read_bytes()
    length = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + length])
    head["Z"] |= {"shape": [10**4, 10**4, 10**4], "data_offsets": [0, 8 * 10**12]}
    text = json.dumps(head).encode()
    paths[1].write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    paths[2].write_bytes((2**40).to_bytes(8, "little") + raw[8:])
    record, tensors = taken_apart(paths[0])
    put_together(paths[3], record | {"metrics": {"a": [{"": 0}] * 240_000}}, tensors)
    write(paths[4], model(posterior=posterior(n_inducing=1600)))
    found = json.loads(run(MEASURE, *paths))
    (shape, why), (header, why_header), (parts, read_parts), (large, read_large) = found
    assert "Z" in why
    assert "does not start" in why_header
    assert shape < 20e6
    assert header < 20e6
    assert read_parts == read_large == "read"
    assert parts < 150e6
    assert large < 1.7 * paths[4].stat().st_size + 20e6


# --- Novelty ---


def with_novelty():
    """A model of two columns, with novelty made of nothing."""
    columns = ColumnProfile(np.array([0.0, 1.0]), np.array([2.0, 1.0]), 0.0), ColumnProfile(np.ones(1), np.ones(1), 2.0)
    held_out = torch.tensor([[1.0, 2.0], [0.1, 0.0], [0.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    return model(held_out=None, novelty=Novelty(Profile(columns), torch.eye(2, dtype=torch.float64), held_out))


NOVELTIES = {
    "an unknown part": (reshaped("novelty.more", 2), "unknown tensors: novelty.more"),
    "a part is missing": (lambda record, tensors: tensors.pop("novelty.rows"), "novelty.rows must be"),
    "an older format": (lambda record, tensors: record.update(format=5), "unknown tensors: novelty"),
    "values": (put(novelty__values=(1, 0.0)), "novelty.values must increase"),
    "rows": (put(novelty__rows=(0, 0.0)), "novelty.rows must be positive"),
    "gaps": (put(novelty__missing=(0, -1.0)), "novelty.missing at or above 0"),
    "counts": (put(novelty__counts=(0, 3)), "novelty.counts must be at or above 0 and sum"),
    "negative counts": (put(novelty__counts=(0, -1)), "novelty.counts must be at or above 0"),
    "counts of numbers": (cast("novelty.counts", torch.float64), "novelty.counts must be torch.int64"),
    "whitening": (reshaped("novelty.whitening", 3, 3), "novelty.whitening must be"),
    "a large whitening": (put(novelty__whitening=(0, 1e60)), "novelty.whitening has NaN, infinity"),
    "a distance": (put(novelty__held_out=(0, -1.0)), "novelty.held_out must hold"),
    "no distance": (put(novelty__held_out=(0, np.nan)), "novelty.held_out has NaN"),
    "no copies": (put(novelty__held_out=(6, 0.0)), "novelty.held_out must hold"),
    "too many rows": (reshaped("novelty.held_out", 4, 5001), "novelty.held_out must hold"),
    "too few parts": (reshaped("novelty.held_out", 3, 2), "novelty.held_out must be"),
}


@pytest.mark.parametrize(("change", "reason"), NOVELTIES.values(), ids=NOVELTIES)
def test_a_novelty_that_no_fit_wrote_is_refused(tmp_path, change, reason):
    refused(tmp_path, change, reason, with_novelty())


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_novelty_is_kept(tmp_path, diagonal):
    given = with_novelty()
    if diagonal:
        given = replace(given, novelty=replace(given.novelty, whitening=torch.ones(2, dtype=torch.float64)))
    write(tmp_path / "m.cavity", given)
    assert said(read(tmp_path / "m.cavity")) == said(given)
