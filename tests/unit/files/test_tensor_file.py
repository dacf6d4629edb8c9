"""Files of tensors: what is written is there as a whole, and what is read is held against the size of the file."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from cavity.files import tensor_file as tensorfile
from cavity.files.tensor_file import (
    DTYPES,
    MOST_HEADER,
    MOST_PARTS,
    digest,
    parse,
    read_head,
    read_tensors,
    save,
    separate,
)


def tensors():
    return {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(7), "none": torch.zeros(0, 3)}


def raw(head, numbers=b"", length=None):
    """A file of this head."""
    text = json.dumps(head).encode() if not isinstance(head, bytes) else head
    return (len(text) if length is None else length).to_bytes(8, "little") + text + numbers


def entry(dtype="F32", shape=(2,), span=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(span)}


def read(path):
    with open(path, "rb") as file:
        head = read_head(file)
        return head, read_tensors(file, head)


# --- Writing ---


def test_what_is_saved_is_read_here_and_by_the_library(tmp_path):
    path = tmp_path / "x.safetensors"
    save(path, tensors(), {"text": "words"}, tmp_path / "aside")
    head, found = read(path)
    assert head.metadata == {"text": "words"}
    for again in (found, load_file(path)):
        assert set(again) == set(tensors())
        assert all(torch.equal(again[name], x) and again[name].dtype == x.dtype for name, x in tensors().items())
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_dtype_is_read_to_the_bit(tmp_path, dtype):
    draw = torch.randint(0, 256, (3, dtype.itemsize), dtype=torch.uint8, generator=torch.manual_seed(0))
    x = (draw % 2).bool()[:, 0] if dtype is torch.bool else draw.view(dtype)[:, 0]
    save_file({"x": x.contiguous()}, tmp_path / "x")
    found = read(tmp_path / "x")[1]["x"]
    assert found.dtype == dtype
    assert torch.equal(found.view(torch.uint8), x.contiguous().view(torch.uint8))


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        save(tmp_path / "taken", tensors(), {}, tmp_path / "aside")
    assert os.listdir(tmp_path) == ["taken"]


def test_shared_memory_is_separated():
    x = torch.arange(12.0)
    found = separate({"a": x[:6], "b": x[6:], "c": x.view(3, 4).T})
    assert len({y.untyped_storage().data_ptr() for y in found.values()}) == 3
    assert all(y.is_contiguous() for y in found.values())


@pytest.mark.parametrize(
    "other",
    [
        ("other", {"w": torch.zeros(4)}),
        ("text", {"v": torch.zeros(4)}),
        ("text", {"w": torch.zeros(2, 2)}),
        ("text", {"w": torch.zeros(8, dtype=torch.float16)}),
        ("text", {"w": torch.tensor([0.0, 0.0, -0.0, 0.0])}),
    ],
    ids=["text", "name", "shape", "dtype", "bit"],
)
def test_the_checksum_is_of_all_there_is(other):
    assert digest(*other) != digest("text", {"w": torch.zeros(4)}) == digest("text", {"w": torch.zeros(4)})


@pytest.mark.parametrize("number", tensorfile.FULL)
def test_a_full_disk_is_known(number):
    assert tensorfile.is_full(OSError(number, "full"))
    assert tensorfile.is_full(RuntimeError(f"I/O error: full (os error {number})"))
    assert not tensorfile.is_full(OSError(2, "no such file"))


# --- Reading ---

BROKEN = {
    "empty": (b"", "begin"),
    "short": (b"\x08\x00\x00", "begin"),
    "a length and no more": (bytes(8), "begin"),
    "header cut": (raw({"x": entry()})[:-3], "end is missing"),
    "header longer than the file": (raw({}, length=1000), "end is missing"),
    "header of petabytes": (raw({}, length=2**52), "begin"),
    "header beyond the limit": (raw({}, b"x" * 10, length=MOST_HEADER + 1), "begin"),
    "not JSON": (raw(b"hello, world"), "JSON"),
    "not text": (raw(b"\xff\xfe\xfd"), "JSON"),
    "a list": (raw([]), "table"),
    "texts that are none": (raw({"__metadata__": {"a": 1}}), "texts"),
    "no texts": (raw({"__metadata__": [1]}), "texts"),
    "an entry that is none": (raw({"x": 3}), "described"),
    "an entry with more": (raw({"x": entry() | {"more": 1}}, bytes(8)), "described"),
    "dtype": (raw({"x": entry("F128")}, bytes(8)), "dtype"),
    "dtype that is a list": (raw({"x": entry() | {"dtype": ["F32"]}}, bytes(8)), "dtype"),
    "negative shape": (raw({"x": entry(shape=(-2, -1))}, bytes(8)), "shape"),
    "fractional shape": (raw({"x": entry(shape=(2.0,))}, bytes(8)), "shape"),
    "true shape": (raw({"x": entry(shape=(True, 2))}, bytes(8)), "shape"),
    "too many axes": (raw({"x": entry(shape=(1,) * 99 + (2,))}, bytes(8)), "shape"),
    "a shape beyond any file": (raw({"x": entry(shape=(10**12, 10**12), span=(0, 8))}, bytes(8)), "shape"),
    "an empty shape beyond any file": (raw({"x": entry(shape=(0, 10**30), span=(0, 0))}), "shape"),
    "a shape that is larger than its bytes": (raw({"x": entry(shape=(10**12,))}, bytes(8)), "bytes"),
    "bytes that are not there": (raw({"x": entry(shape=(10**12,), span=(0, 4 * 10**12))}, bytes(8)), "bytes more"),
    "one offset": (raw({"x": entry(span=(8,))}, bytes(8)), "bytes"),
    "offsets the wrong way": (raw({"x": entry(span=(8, 0))}, bytes(8)), "bytes"),
    "overlap": (raw({"x": entry(), "y": entry(span=(4, 12))}, bytes(12)), "begin where"),
    "the same place": (raw({"x": entry(), "y": entry()}, bytes(8)), "begin where"),
    "a gap": (raw({"x": entry(), "y": entry(span=(9, 17))}, bytes(17)), "begin where"),
    "more numbers than told of": (raw({"x": entry()}, bytes(9)), "9 bytes"),
    "said twice": (raw(b'{"x": {}, "x": {}}'), "twice"),
}


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_head_is_refused(tmp_path, content, reason):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        read(tmp_path / "x")


def test_a_bool_is_yes_or_no(tmp_path):
    (tmp_path / "x").write_bytes(raw({"x": entry("BOOL", (2,), (0, 2))}, b"\x01\x02"))
    with pytest.raises(ValueError, match="yes and no"):
        read(tmp_path / "x")


def test_a_file_that_shrinks_while_it_is_read_is_noticed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(raw({"x": entry(shape=(10**6,), span=(0, 4 * 10**6))}, bytes(4 * 10**6)))
    with open(path, "rb") as file:
        head = read_head(file)
        os.truncate(path, 10**6)
        with pytest.raises(ValueError, match="end is missing"):
            read_tensors(file, head)


@pytest.mark.parametrize(
    "text", ["null", '{"a": [1, -2.5e-300, "\\ud800", {"b": [[]]}]}', '"[[[{{{"', '["\\\\", "\\"["]']
)
def test_json_is_read_as_it_is(text):
    assert parse(text) == json.loads(text)


BAD_JSON = {
    "nan": ("[NaN]", "NaN"),
    "infinity": ("-Infinity", "Infinity"),
    "overflow": ("1e999", "digits"),
    "digits": ("1" * 10**6, "digits"),
    "decimals": ("0." + "1" * 10**6, "digits"),
    "twice": ('{"a": {"b": 1, "b": 1}}', "twice"),
    "open": ("[1", "JSON"),
    "deep": ("[" * 100_000 + "]" * 100_000, "deeply"),
    "deep and closed": ('{"":' * 500 + "0" + "}" * 500, "deeply"),
    "parts": (f"[{'0,' * MOST_PARTS}0]", "parts"),
}


@pytest.mark.parametrize(("text", "reason"), BAD_JSON.values(), ids=BAD_JSON)
def test_json_that_goes_too_far_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse(text)
