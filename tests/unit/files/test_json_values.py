"""Values in the words of JSON: they come back as they were, and nothing else comes back."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from cavity.files.json_values import (
    decode,
    decode_kernel,
    decode_labels,
    encode,
    encode_labels,
    parameter_shapes,
    shown,
)
from cavity.kernels import RBF, Constant, Kernel, Linear, Matern12, Matern32, Matern52, Sum


def there_and_back(value):
    tensors = {}
    words = json.loads(json.dumps(encode(value, "x", tensors), allow_nan=False))
    found = decode(words, "x", lambda name: tensors.pop(name).numpy())
    assert tensors == {}
    return found


def take_nothing(name):
    raise AssertionError(name)


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
    with pytest.raises(TypeError, match=r"^settings\.thing\b.*cannot hold; .*(use|needed)"):
        encode({"thing": value}, "settings", {})


def test_long_values_are_cut_in_messages():
    with pytest.raises(TypeError) as caught:
        encode({1} | set(range(10_000)), "x")
    assert len(str(caught.value)) < 250


BAD_WORDS = {
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


@pytest.mark.parametrize("words", BAD_WORDS.values(), ids=BAD_WORDS)
def test_other_words_are_refused(words):
    with pytest.raises(ValueError, match=r"\bx\b"):
        decode({"a": words}, "x", take_nothing)


# --- Kernels ---

A = np.array([[0.5, 2.0]])
KERNELS = [
    *(RBF(), Matern12(2.0), Matern32(A, 3.0), Matern52([1.0, 2.0], np.array(3.0)), Linear(variance=4.0)),
    *(Constant(A[0]), RBF() + Constant(1.0), (RBF(A) + Linear()) * Constant(), Sum((RBF(), Linear(), Constant()))),
    RBF(1.0) * (Matern32(2.0) * (Linear(A) + Constant(3.0) + RBF())),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels_come_back(kernel):
    found = there_and_back(kernel)
    assert type(found) is type(kernel)
    assert repr(found) == repr(kernel).replace("[1.0, 2.0]", "array([1., 2.])").replace("array(3.)", "3.0")


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_shapes_are_those_of_the_kernel(kernel):
    shapes = {name: tuple(value.shape) for name, value in kernel.start(2, 2, 1.0).items()}
    assert parameter_shapes(kernel, 2, 2) == shapes


def test_kernels_are_shown_as_they_print():
    kernel = (RBF(2.0) + Linear(A)) * Constant() + RBF()
    text = "(RBF(lengthscale=2.0, variance=None) + Linear(lengthscale=array of shape (1, 2), variance=None)) * "
    text += "Constant(variance=None) + RBF(lengthscale=None, variance=None)"
    words = encode({"kernel": kernel}, "x", {})
    assert shown(words, {"x.kernel.0.0.1.lengthscale": (1, 2)}) == {"kernel": text}


def test_values_are_shown_in_plain_json():
    words = encode({"a": (1, math.inf), "b": {1: "x"}, "c": [None, 0.5]}, "x", {})
    assert shown(words, {}) == {"a": [1, "inf"], "b": {"1": "x"}, "c": [None, 0.5]}


class Mine(RBF):
    """One's own."""


class _Sum(Sum):
    """Almost ours."""


@pytest.mark.parametrize("kernel", [Mine(), RBF() + Mine(), _Sum((RBF(), RBF()))], ids=repr)
def test_kernels_of_ones_own_are_named(kernel):
    with pytest.raises(TypeError, match=r"kernel.*(Mine|_Sum).*cannot hold; kernels of cavity\.kernels.*pickle"):
        encode(kernel, "kernel", {})


def test_a_class_of_a_known_name_is_not_taken_for_it():
    class RBF(Mine):
        pass

    with pytest.raises(TypeError, match="cannot hold"):
        encode(RBF(), "kernel", {})


def test_only_kernels_are_kernels():
    assert isinstance(decode_kernel(encode(RBF(), "x"), "x", take_nothing), Kernel)
    with pytest.raises(ValueError, match="x is not a kernel"):
        decode_kernel([1], "x", take_nothing)


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
    with pytest.raises(TypeError, match=r"classes=.*cannot hold; .*y\.astype\(str\)"):
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
