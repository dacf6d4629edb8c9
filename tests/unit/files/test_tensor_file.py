"""Safetensors files: atomic writes, and reads that check sizes first."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from cavity.files import tensor_file as tensorfile
from cavity.files.tensor_file import (
    DTYPES,
    MAX_HEADER,
    digest,
    read_header,
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
        metadata, header = read_header(file)
        return metadata, read_tensors(file, header)


# --- Writing ---


def test_what_is_saved_is_read_here_and_by_the_library(tmp_path):
    path = tmp_path / "x.safetensors"
    save(path, tensors(), {"text": "words"}, tmp_path / "aside")
    metadata, found = read(path)
    assert metadata == {"text": "words"}
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


@pytest.mark.parametrize("number", tensorfile.DISK_FULL)
def test_a_full_disk_is_known(number):
    assert tensorfile.is_full(OSError(number, "full"))
    assert tensorfile.is_full(RuntimeError(f"I/O error: full (os error {number})"))
    assert not tensorfile.is_full(OSError(2, "no such file"))


# --- Reading ---

BROKEN = {
    "empty": (b"", "does not start"),
    "short": (b"\x08\x00\x00", "does not start"),
    "a length and no more": (bytes(8), "does not start"),
    "header cut": (raw({"x": entry()})[:-3], "invalid header length"),
    "header longer than the file": (raw({}, length=1000), "invalid header length"),
    "header of petabytes": (raw({}, length=2**52), "does not start"),
    "header beyond the limit": (raw({}, b"x" * 10, length=MAX_HEADER + 1), "does not start"),
    "not JSON": (raw(b"hello, world"), "JSON"),
    "not text": (raw(b"\xff\xfe\xfd"), "UTF-8"),
    "a list": (raw([]), "sequence"),
    "texts that are none": (raw({"__metadata__": {"a": 1}}), "expected a string"),
    "no texts": (raw({"__metadata__": [1]}), "expected a map"),
    "metadata twice": (raw(b'{"__metadata__": {"a": "1"}, "__metadata__": {"a": "2"}}'), "duplicate"),
    "an entry that is none": (raw({"x": 3}), "integer `3`"),
    "an empty entry": (raw({"x": {}}), "missing field"),
    "dtype": (raw({"x": entry("F128")}, bytes(8)), "F128"),
    "dtype of another kind": (raw({"x": entry("BF16", (4,))}, bytes(8)), "x has the unsupported dtype BF16"),
    "dtype that is a list": (raw({"x": entry() | {"dtype": ["F32"]}}, bytes(8)), "sequence"),
    "negative shape": (raw({"x": entry(shape=(-2, -1))}, bytes(8)), "integer `-2`"),
    "fractional shape": (raw({"x": entry(shape=(2.0,))}, bytes(8)), "floating point"),
    "true shape": (raw({"x": entry(shape=(True, 2))}, bytes(8)), "boolean"),
    "too many axes": (raw({"x": entry(shape=(1,) * 99 + (2,))}, bytes(8)), "x has an invalid shape"),
    "a shape beyond any file": (raw({"x": entry(shape=(10**12, 10**12), span=(0, 8))}, bytes(8)), "overflow"),
    "an empty shape beyond any file": (raw({"x": entry(shape=(0, 10**30), span=(0, 0))}), "expected usize"),
    "an empty shape that is huge": (raw({"x": entry(shape=(0, 10**18), span=(0, 0))}), "x has an invalid shape"),
    "a shape that is larger than its bytes": (raw({"x": entry(shape=(10**12,))}, bytes(8)), "invalid shape"),
    "bytes that are not there": (raw({"x": entry(shape=(10**12,), span=(0, 4 * 10**12))}, bytes(8)), "not fully"),
    "one offset": (raw({"x": entry(span=(8,))}, bytes(8)), "invalid length 1"),
    "offsets the wrong way": (raw({"x": entry(span=(8, 0))}, bytes(8)), "invalid offset"),
    "overlap": (raw({"x": entry(), "y": entry(span=(4, 12))}, bytes(12)), "invalid offset"),
    "the same place": (raw({"x": entry(), "y": entry()}, bytes(8)), "invalid offset"),
    "a gap": (raw({"x": entry(), "y": entry(span=(9, 17))}, bytes(17)), "invalid offset"),
    "more bytes than tensors": (raw({"x": entry()}, bytes(9)), "not fully covered"),
}


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN)
def test_an_invalid_header_raises(tmp_path, content, reason):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        read(tmp_path / "x")


def test_a_bool_is_yes_or_no(tmp_path):
    (tmp_path / "x").write_bytes(raw({"x": entry("BOOL", (2,), (0, 2))}, b"\x01\x02"))
    with pytest.raises(ValueError, match="only booleans"):
        read(tmp_path / "x")


def test_a_file_that_shrinks_while_it_is_read_is_noticed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(raw({"x": entry(shape=(10**6,), span=(0, 4 * 10**6))}, bytes(4 * 10**6)))
    with open(path, "rb") as file:
        _, header = read_header(file)
        os.truncate(path, 10**6)
        with pytest.raises(ValueError, match="truncated"):
            read_tensors(file, header)
