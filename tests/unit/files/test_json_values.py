"""The JSON codec: values come back as they were, and nothing else comes back."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from cavity.files.json_values import (
    MAX_ITEMS,
    decode,
    decode_kernel,
    decode_labels,
    encode,
    encode_labels,
    parse_json,
    to_json,
)
from cavity.kernels import RBF, Constant, Kernel, Laplace, Linear, Matern12, Matern32, Matern52, Sum


def there_and_back(value):
    tensors = {}
    encoded = json.loads(json.dumps(encode(value, "x", tensors), allow_nan=False))
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    found = decode(encoded, "x", arrays)
    assert arrays == {}
    return found


# --- Any value ---

VALUES = [
    *(None, True, False, 0, -(2**100), 0.1, -0.0, 5e-324, 1.7976931348623157e308, "", "é\n\ud800\U0001f600"),
    *([], (), {}, [1, 1.0, True], (1, (2, [3])), {"a": {"b": ()}}, {"$float": 1}, {1: 2, "1": 3, None: 4, 2.5: 5}),
    {"lengthscale": (None, 2.0, math.inf), "relevance": 0.5},
]


def types(value):
    if isinstance(value, list | tuple):
        return type(value), [types(part) for part in value]
    if isinstance(value, dict):
        return [(types(key), types(part)) for key, part in value.items()]
    return type(value), math.copysign(1, value) if isinstance(value, float) else None


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(value):
    found = there_and_back(value)
    assert found == value
    assert types(found) == types(value)


def test_what_is_not_finite_comes_back():
    low, nan = there_and_back([-math.inf, math.nan])
    assert low == -math.inf
    assert math.isnan(nan)


@pytest.mark.parametrize(
    "value", [np.float64(0.1), np.float32(0.1), np.int64(3), np.uint8(3), np.bool_(True), np.str_("a"), Fraction(1, 4)]
)
def test_numbers_of_other_kinds_come_back_as_equal_ones(value):
    found = there_and_back({"a": value, value: 1})
    assert found == {"a": value, value: 1}
    assert type(found["a"]) in (float, int, bool, str)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", ">f8", "i8", ">i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 2)], ids=str)
def test_arrays_come_back_to_the_bit(dtype, shape):
    array = np.arange(6)[: math.prod(shape)].reshape(shape).astype(dtype)
    found = there_and_back({"a": [array]})["a"][0]
    np.testing.assert_array_equal(found, array, strict=array.dtype.isnative)
    assert found.dtype == array.dtype.newbyteorder("=")


def test_what_can_be_an_array_comes_back_as_one():
    pandas = pytest.importorskip("pandas")
    for value in (torch.arange(3.0), pandas.Series([0.0, 1.0, 2.0]), np.arange(6.0)[::2] / 2):
        np.testing.assert_array_equal(there_and_back(value), [0.0, 1.0, 2.0])


def test_without_tensors_arrays_become_lists():
    assert encode({"a": np.array([[1.5, math.inf]])}, "x") == {"a": [[1.5, {"$float": "inf"}]]}


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Path("x"),
        b"x",
        1j,
        {1},
        np.array(["a"]),
        np.array([1j]),
        np.datetime64("2020-01-01"),
        {(1, 2): 3},
        print,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_held_is_named(value):
    with pytest.raises(TypeError, match=r"^settings\.thing\b.*cannot be saved in a model file; use"):
        encode({"thing": value}, "settings", {})


def test_long_values_are_cut_in_messages():
    with pytest.raises(TypeError) as caught:
        encode({1} | set(range(10_000)), "x")
    assert len(str(caught.value)) < 250


INVALID = {
    "unknown tag": {"$eval": "1"},
    "two tags": {"$tuple": [], "$dict": []},
    "a tag among others": {"$tuple": [], "a": 1},
    "a tuple that is none": {"$tuple": "abc"},
    "a float that is none": {"$float": "1e5"},
    "a float that is a list": {"$float": ["inf"]},
    "pairs that are none": {"$dict": [[1]]},
    "pairs of texts": {"$dict": ["ab"]},
    "a key that is a list": {"$dict": [[[1], 2]]},
    "equal keys": {"$dict": [[1, 2], [1.0, 3]]},
    "an array of another": {"$array": "y"},
    "an array that is missing": {"$array": "x.a"},
    "an array without name": {"$array": [1]},
    "a kernel that is none": {"$kernel": "RBF"},
    "a kernel whose name is a list": {"$kernel": [["RBF"], {}]},
    "a class that is no kernel": {"$kernel": ["Kernel", {}]},
    "a module": {"$kernel": ["os.system", {"lengthscale": None, "variance": None}]},
    "a kernel that lacks": {"$kernel": ["RBF", {"lengthscale": 1.0}]},
    "a kernel with more": {"$kernel": ["Constant", {"lengthscale": 1.0, "variance": 1.0}]},
    "a kernel of words": {"$kernel": ["Constant", {"variance": "large"}]},
    "a kernel of tables": {"$kernel": ["Constant", {"variance": {"a": 1}}]},
    "a kernel of lists": {"$kernel": ["Constant", {"variance": [1.0]}]},
    "a true kernel": {"$kernel": ["Constant", {"variance": True}]},
    "a sum of none": {"$kernel": ["Sum", []]},
    "a sum of numbers": {"$kernel": ["Sum", [1, 2]]},
    "a sum with a table": {"$kernel": ["Sum", {"parts": []}]},
}


@pytest.mark.parametrize("value", INVALID.values(), ids=INVALID)
def test_values_that_were_not_encoded_raise(value):
    with pytest.raises(ValueError, match=r"\bx\b"):
        decode({"a": value}, "x", {})


# --- Kernels ---

A = np.array([[0.5, 2.0]])
KERNELS = [
    *(RBF(), Matern12(2.0), Matern32(A, 3.0), Matern52([1.0, 2.0], np.array(3.0)), Linear(variance=4.0), Laplace(2.0)),
    *(Constant(A[0]), RBF() + Constant(1.0), (RBF(A) + Linear()) * Constant(), Sum((RBF(), Linear(), Constant()))),
    RBF(1.0) * (Matern32(2.0) * (Linear(A) + Constant(3.0) + RBF())),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels_come_back(kernel):
    found = there_and_back(kernel)
    assert type(found) is type(kernel)
    assert repr(found) == repr(kernel).replace("[1.0, 2.0]", "array([1., 2.])").replace("array(3.)", "3.0")


class Mine(RBF):
    """One's own."""


class _Sum(Sum):
    """Almost ours."""


@pytest.mark.parametrize("kernel", [Mine(), RBF() + Mine(), _Sum((RBF(), RBF()))], ids=repr)
def test_kernels_of_ones_own_are_named(kernel):
    with pytest.raises(TypeError, match=r"kernel.*(Mine|_Sum).*cannot be saved in a model file; use RBF,.*pickle"):
        encode(kernel, "kernel", {})


def test_a_class_of_a_known_name_is_not_taken_for_it():
    class RBF(Mine):
        pass

    with pytest.raises(TypeError, match="cannot be saved"):
        encode(RBF(), "kernel", {})


def test_only_kernels_are_kernels():
    assert isinstance(decode_kernel(encode(RBF(), "x"), "x", {}), Kernel)
    with pytest.raises(ValueError, match="x is not a kernel"):
        decode_kernel([1], "x", {})


# --- Labels ---

LABELS = [
    *(
        np.array([-1, 2]),
        np.array([1, 2, 3], np.int32),
        np.array([0, 255], np.uint8),
        np.array([0, 2**64 - 1], np.uint64),
    ),
    *(
        np.array([0.1, 1 / 3]),
        np.array([0.1, 0.5], np.float32),
        np.array([0.1, 0.5], np.float16),
        np.array([0, 1], ">i4"),
    ),
    *(np.array([False, True]), np.array(["a", "b" * 7]), np.array(["a", "é\U0001f600"], "<U50"), np.array(["", " "])),
    *(
        np.array(["a", "bb"], object),
        np.array(["a", "b"], ">U3"),
        np.array([-0.0, 1.0]),
        np.array([-128, 127], np.int8),
    ),
]


@pytest.mark.parametrize("classes", LABELS, ids=lambda a: f"{a.dtype.str} {a.tolist()}")
def test_labels_come_back_with_their_dtype(classes):
    found = decode_labels(json.loads(json.dumps(encode_labels(classes))))
    np.testing.assert_array_equal(found, classes, strict=True)
    assert found.dtype.str == classes.dtype.str
    assert [type(label) for label in found] == [type(label) for label in classes]


@pytest.mark.parametrize(
    "classes",
    [
        np.array([b"a", b"b"]), np.array(["2020-01-01", "2021-01-01"], "M8[D]"), np.array([1, 2], object),
        np.array(["a", None], object), np.array([1j, 2]), np.array([1, 2], np.longdouble),
    ],
    ids=lambda a: a.dtype.str,
)  # fmt: skip
def test_labels_of_other_types_are_named(classes):
    with pytest.raises(TypeError, match=r"classes=.*cannot be saved in a model file; .*y\.astype\(str\)"):
        encode_labels(classes)


BAD_LABELS = {
    "none": (None, None),
    "no dtype": ("x", [1, 2]),
    "an object that runs": ("|V8", [1, 2]),
    "a structured dtype": ([["a", "<i8"]], [1, 2]),
    "petabytes of width": ("<U9999999", ["a", "b", "c", "d"]),
    "absurd width": ("<U99999999999", ["a", "b"]),
    "one": ("<i8", [1]),
    "equal": ("<i8", [1, 1]),
    "not sorted": ("<U1", ["b", "a"]),
    "mixed": ("<i8", [1, "a"]),
    "bools for ints": ("<i8", [False, True]),
    "ints for bools": ("|b1", [0, 1]),
    "floats for ints": ("<i8", [1.0, 2.0]),
    "ints for floats": ("<f8", [1, 2]),
    "too large": ("|u1", [1, 256]),
    "too fine": ("<f4", [0.1, 1.0]),
    "overflow": ("<f2", [1.0, 1e30]),
    "too wide": ("<U1", ["a", "bb"]),
    "text that NumPy cuts": ("<U3", ["a", "b\x00"]),
    "lists": ("|O", [["a"], ["b"]]),
    "nothing": ("|O", [None, None]),
}


@pytest.mark.parametrize(("dtype", "values"), BAD_LABELS.values(), ids=BAD_LABELS)
def test_other_labels_are_refused(dtype, values):
    with pytest.raises(ValueError, match="classes"):
        decode_labels({"dtype": dtype, "values": values})


@pytest.mark.parametrize("words", [None, [], {}, {"dtype": "<i8"}, {"dtype": "<i8", "values": [1, 2], "more": 1}])
def test_what_is_no_table_of_labels_is_refused(words):
    with pytest.raises(ValueError, match="classes"):
        decode_labels(words)


# --- Parsing ---


@pytest.mark.parametrize(
    "text", ["null", '{"a": [1, -2.5e-300, "\\ud800", {"b": [[]]}]}', '"[[[{{{"', '["\\\\", "\\"["]']
)
def test_json_is_parsed(text):
    assert parse_json(text) == json.loads(text)


BAD_JSON = {
    "nan": ("[NaN]", "not finite: NaN"),
    "infinity": ("-Infinity", "not finite: -Infinity"),
    "overflow": ("1e999", "not finite"),
    "digits": ("1" * 10**6, "digits"),
    "decimals": ("0." + "1" * 10**6, "digits"),
    "twice": ('{"a": {"b": 1, "b": 1}}', "duplicate key"),
    "open": ("[1", "JSON"),
    "deep": ("[" * 100_000 + "]" * 100_000, "deeply"),
    "deep and closed": ('{"":' * 500 + "0" + "}" * 500, "deeply"),
    "items": (f"[{'0,' * MAX_ITEMS}0]", "items"),
}


@pytest.mark.parametrize(("text", "reason"), BAD_JSON.values(), ids=BAD_JSON)
def test_invalid_or_excessive_json_raises(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


# --- Plain JSON ---

PLAIN = [
    (np.float64(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True), (np.str_("a"), "a"), (None, None),
    ((1, [2.0, "b"]), [1, [2.0, "b"]]), ({1: (2,), np.int64(3): None}, {"1": [2], "3": None}),
    (np.array([[1, 2]]), [[1, 2]]), (np.array(["a", "b"]), ["a", "b"]), (np.array([1, None], object), [1, None]),
    (RBF(2.0) + Constant(), "RBF(lengthscale=2.0, variance=None) + Constant(variance=None)"), (Path("x"), "x"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), PLAIN, ids=[type(value).__name__ for value, _ in PLAIN])
def test_plain_json_has_plain_types(value, expected):
    found = to_json(value)
    assert found == expected
    assert types(json.loads(json.dumps(found))) == types(found)


def test_plain_json_leaves_nan_and_infinity():
    found = to_json([np.float64("inf"), math.nan])
    assert found[0] == math.inf
    assert math.isnan(found[1])


def test_arrays_can_be_hashed():
    one, same, other = (to_json({"a": x}, hash_arrays=True)["a"] for x in (np.ones(3), np.ones(3), np.zeros(3)))
    assert one.startswith("array of shape (3,), ")
    assert one == same != other
