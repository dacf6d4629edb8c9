"""Checkpoint files: what goes in comes out, and no accident loses what was saved."""

import errno
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from cavity.files import tensor_file as tensorfile
from cavity.training import checkpoint
from cavity.training.checkpoint import CheckpointError, Checkpoints, check_same, differences

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
]


def tensors(step=0):
    return {"w": torch.arange(6.0).reshape(2, 3) + step, "n": torch.tensor(step)}


def same_bits(a, b):
    raw_a, raw_b = (x.reshape(-1).view(torch.uint8) for x in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(raw_a, raw_b)


def saved_at(folder, *steps, keep=9, parts=1):
    """A folder with a checkpoint at each of the steps."""
    checkpoints = Checkpoints(folder, keep=keep)
    for step in steps:
        for part in reversed(range(parts)):
            checkpoints.save(step, tensors(step), {"step": step}, part=part, parts=parts)
    return checkpoints


def file_of(folder, step, part=0, parts=1):
    return folder / f"step-{step:012d}.part-{part}-of-{parts}.safetensors"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# --- What goes in comes out ---


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 4)], ids=str)
def test_tensors_come_back_to_the_bit(tmp_path, dtype, shape):
    draw = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8, generator=torch.manual_seed(0))
    x = (draw % 2).bool()[..., 0] if dtype is torch.bool else draw.view(dtype)[..., 0]
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": x}, {})
    assert same_bits(checkpoints.latest().load(0)["x"], x)


def test_special_numbers_come_back_to_the_bit(tmp_path):
    x = torch.tensor([math.nan, -math.nan, math.inf, -math.inf, -0.0, 5e-324], dtype=torch.float64)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": x}, {})
    assert same_bits(checkpoints.latest().load(0)["x"], x)


def test_views_and_tensors_that_share_memory_or_need_gradients_are_saved(tmp_path):
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    given = {"x": x, "again": x, "row": x[1], "columns": x.T, "conj": torch.tensor([1 + 2j]).conj()}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, given, {})
    found = checkpoints.latest().load(0)
    assert set(found) == set(given)
    assert all(torch.equal(found[name], given[name]) for name in given)


def test_loaded_tensors_are_copies(tmp_path):
    saved = saved_at(tmp_path, 1).latest()
    first = saved.load(0)
    first["w"] += 1
    assert torch.equal(saved.load(0)["w"], tensors(1)["w"])
    file_of(tmp_path, 1).write_bytes(b"")
    assert torch.equal(first["w"], tensors(1)["w"] + 1)


def test_meta_comes_back(tmp_path):
    meta = {"a": {"b": [1, 2.5, None, True, "é\n\ud800"], "big": 2**127}, "low": -math.inf, "high": math.inf, "e": {}}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {}, meta | {"nan": math.nan, "third": 1 / 3})
    found = checkpoints.latest().meta()
    assert math.isnan(found.pop("nan"))
    assert found == meta | {"third": 1 / 3}


def test_each_part_has_its_own_tensors_and_meta(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for part in range(3):
        checkpoints.save(7, {"x": torch.tensor(part)}, {"part": part}, part=part, parts=3)
    saved = checkpoints.latest()
    assert (saved.step, saved.parts) == (7, 3)
    assert [(saved.load(part)["x"].item(), saved.meta(part)["part"]) for part in range(3)] == [(0, 0), (1, 1), (2, 2)]


def test_what_is_found_can_be_sent_to_other_processes(tmp_path):
    saved = pickle.loads(pickle.dumps(saved_at(tmp_path, 1).latest()))
    assert torch.equal(saved.load(0)["w"], tensors(1)["w"])


def test_files_can_be_read_by_those_the_folder_is_open_to(tmp_path):
    before = os.umask(0o027)
    try:
        saved_at(tmp_path, 1)
    finally:
        os.umask(before)
    assert file_of(tmp_path, 1).stat().st_mode & 0o777 == 0o640


# --- Which is the latest, and which are kept ---


def test_an_empty_folder_has_none(tmp_path):
    assert Checkpoints(tmp_path / "new" / "folder").latest() is None


def test_the_newest_are_kept(tmp_path):
    checkpoints = saved_at(tmp_path, 1, 2, 9, 10, 11, keep=2)
    assert names(tmp_path) == [file_of(tmp_path, step).name for step in (10, 11)]
    assert checkpoints.latest().step == 11


def test_a_step_saved_again_replaces_the_first(tmp_path):
    checkpoints = saved_at(tmp_path, 1)
    checkpoints.save(1, tensors(5), {})
    assert torch.equal(checkpoints.latest().load(0)["w"], tensors(5)["w"])


def test_a_checkpoint_that_lacks_a_part_is_not_taken(tmp_path):
    checkpoints = saved_at(tmp_path, 1, parts=2)
    checkpoints.save(2, tensors(), {}, part=0, parts=2)
    checkpoints.save(3, tensors(), {}, part=1, parts=2)
    checkpoints.save(4, tensors(), {}, part=0, parts=3)
    checkpoints.save(4, tensors(), {}, part=1, parts=2)
    assert checkpoints.latest().step == 1


def test_the_only_complete_checkpoint_stays_whatever_part_0_does(tmp_path):
    checkpoints = saved_at(tmp_path, 1, keep=1, parts=2)
    for step in (2, 3, 4):
        checkpoints.save(step, tensors(step), {}, part=0, parts=2)
    assert checkpoints.latest().step == 1
    checkpoints.save(4, tensors(4), {}, part=1, parts=2)
    assert checkpoints.latest().step == 4


def test_parts_that_were_never_completed_are_removed_in_the_end(tmp_path):
    Checkpoints(tmp_path).save(1, tensors(), {}, part=1, parts=2)
    saved_at(tmp_path, 2, 3, keep=1)
    assert names(tmp_path) == [file_of(tmp_path, 3).name]


def test_nothing_newer_is_removed(tmp_path):
    checkpoints = saved_at(tmp_path, 100, 200, 300, 5, keep=1)
    assert names(tmp_path) == [file_of(tmp_path, step).name for step in (5, 300)]
    assert checkpoints.latest().step == 300


def test_old_temporary_files_are_removed_but_not_those_in_use(tmp_path):
    saved_at(tmp_path, 0, 1)
    for step in (1, 2, 3):
        left = tmp_path / f"{file_of(tmp_path, step, 1, 2).name}.tmp"
        left.mkdir()
        (left / "half").write_bytes(b"x")
    saved_at(tmp_path, 2)
    complete = [file_of(tmp_path, step).name for step in (0, 1, 2)]
    assert names(tmp_path) == [*complete, f"{file_of(tmp_path, 2, 1, 2).name}.tmp", left.name]


def test_files_of_others_are_left_alone(tmp_path):
    for name in ("step-1.txt", "notes.md", "step-000000000001.part-0-of-1.safetensors.bak"):
        (tmp_path / name).write_text("mine")
    before = names(tmp_path)
    saved_at(tmp_path, 8, 9, keep=1).clear()
    assert names(tmp_path) == before


def test_clear_removes_what_is_newer(tmp_path):
    checkpoints = saved_at(tmp_path, 1, 2, 3, parts=2)
    (tmp_path / f"{file_of(tmp_path, 4).name}.tmp").mkdir()
    checkpoints.clear(after=2)
    assert checkpoints.latest().step == 2
    assert len(names(tmp_path)) == 4
    checkpoints.clear()
    assert names(tmp_path) == []


@pytest.mark.parametrize(("step", "part", "parts"), [(-1, 0, 1), (0, 1, 1), (0, -1, 1), (0, 0, 0)])
def test_numbers_that_make_no_sense_are_refused(tmp_path, step, part, parts):
    with pytest.raises(ValueError, match=f"step={step}, part={part}, parts={parts}"):
        Checkpoints(tmp_path).save(step, {}, {}, part=part, parts=parts)


def test_keeping_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`keep` must be at least 1, got 0"):
        Checkpoints(tmp_path, keep=0)


def test_a_dtype_that_files_cannot_hold_is_refused(tmp_path):
    with pytest.raises(TypeError, match="complex128"):
        Checkpoints(tmp_path).save(1, {"x": torch.zeros(2, dtype=torch.complex128)}, {})
    assert names(tmp_path) == []


# --- Damage ---


@pytest.mark.parametrize("length", [0, 1, 8, 60, -1])
@pytest.mark.parametrize("part", [0, 1])
def test_a_truncated_file_is_passed_over(tmp_path, length, part):
    checkpoints = saved_at(tmp_path, 1, 2, parts=2)
    path = file_of(tmp_path, 2, part, 2)
    path.write_bytes(path.read_bytes()[:length])
    saved = checkpoints.latest()
    assert saved.step == 1
    assert len(saved.skipped) == 1
    assert path.name in saved.skipped[0]


def test_a_flipped_bit_anywhere_is_noticed(tmp_path):
    checkpoints = saved_at(tmp_path, 1, 2)
    path = file_of(tmp_path, 2)
    whole = path.read_bytes()
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ (1 << i % 8)]) + whole[i + 1 :])
        saved = checkpoints.latest()
        assert saved.step == 1, i
        assert path.name in saved.skipped[0]
    path.write_bytes(whole)
    assert checkpoints.latest().step == 2


@pytest.mark.parametrize(("old", "new"), [(b'"F32"', b'"I32"'), (b"[2,3]", b"[3,2]"), (b'"w"', b'"v"')])
def test_a_change_of_dtype_shape_or_name_is_noticed(tmp_path, old, new):
    checkpoints = saved_at(tmp_path, 1, 2)
    path = file_of(tmp_path, 2)
    assert path.read_bytes().count(old) == 1
    path.write_bytes(path.read_bytes().replace(old, new))
    assert checkpoints.latest().step == 1


def test_a_flipped_bit_is_noticed_by_load(tmp_path):
    saved = saved_at(tmp_path, 2).latest()
    path = file_of(tmp_path, 2)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointError, match=r"step-000000000002.*checksum"):
        saved.load(0)


def test_a_file_under_a_wrong_name_or_of_another_kind_or_format_is_passed_over(tmp_path, monkeypatch):
    checkpoints = saved_at(tmp_path, 1)
    file_of(tmp_path, 2).write_bytes(file_of(tmp_path, 1).read_bytes())
    save_file(tensors(), file_of(tmp_path, 3))
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    checkpoints.save(4, {}, {})
    monkeypatch.undo()
    saved = checkpoints.latest()
    assert saved.step == 1
    reasons = ("not of format 1", "not a checkpoint of cavity", "another name")
    assert all(reason in text for reason, text in zip(reasons, saved.skipped, strict=True))


def test_where_all_are_damaged_it_says_so(tmp_path):
    checkpoints = saved_at(tmp_path, 1, 2)
    for step in (1, 2):
        file_of(tmp_path, step).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"step-000000000002.*step-000000000001.*empty this one"):
        checkpoints.latest()


# --- A disk that is full, a folder that cannot be written ---


def raises(error):
    def call(*args, **kwargs):
        raise error

    return call


FULL_DISK = [
    (os, "fsync", OSError(errno.ENOSPC, "No space left on device")),
    (os, "replace", OSError(errno.ENOSPC, "No space left on device")),
    (os, "fsync", OSError(errno.EDQUOT, "Disk quota exceeded")),
    (tensorfile, "save_file", SafetensorError("Error while serializing: I/O error: full (os error 28)")),
]


@pytest.mark.parametrize(("where", "name", "error"), FULL_DISK)
def test_a_full_disk_leaves_the_last_good_one(tmp_path, monkeypatch, where, name, error):
    checkpoints = saved_at(tmp_path, 3, 4)
    before = names(tmp_path)
    monkeypatch.setattr(where, name, raises(error))
    with pytest.raises(
        CheckpointError, match=r"step 5 cannot be saved.*disk is full.*of step 4, is untouched"
    ) as caught:
        checkpoints.save(5, tensors(), {})
    assert str(tmp_path) in str(caught.value)
    assert names(tmp_path) == before
    monkeypatch.undo()
    checkpoints.save(5, tensors(5), {})
    assert checkpoints.latest().step == 5


def test_a_write_that_stops_half_way_leaves_the_last_good_one(tmp_path):
    resource = pytest.importorskip("resource")
    checkpoints = saved_at(tmp_path, 4)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(CheckpointError) as caught:
            checkpoints.save(5, {"x": torch.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "of step 4, is untouched" in str(caught.value)
    assert names(tmp_path) == [file_of(tmp_path, 4).name]


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    checkpoints = saved_at(tmp_path, 4)
    monkeypatch.setattr(os, "fsync", raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(5, tensors(), {})
    assert names(tmp_path) == [file_of(tmp_path, 4).name]


def test_a_file_in_place_of_the_folder_is_refused_at_once(tmp_path):
    path = tmp_path / "taken"
    path.write_text("mine")
    for folder in (path, path / "below"):
        with pytest.raises(CheckpointError, match=r"taken.*use another folder.*No checkpoint exists yet"):
            Checkpoints(folder)
    assert path.read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused_at_once(tmp_path):
    saved_at(tmp_path, 4)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CheckpointError, match=r"Make the folder writable.*of step 4, is untouched"):
            Checkpoints(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_that_takes_no_file_is_refused_at_once(tmp_path, monkeypatch):
    saved_at(tmp_path, 4)
    denied = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(checkpoint.tempfile, "TemporaryFile", raises(denied))
    with pytest.raises(CheckpointError, match=r"Permission denied.*Make the folder writable.*of step 4, is untouched"):
        Checkpoints(tmp_path)


def test_a_folder_that_has_gone_is_said_to_have_gone(tmp_path):
    checkpoints = Checkpoints(tmp_path / "runs")
    (tmp_path / "runs").rmdir()
    with pytest.raises(CheckpointError, match=r"runs.*step 1 cannot be saved.*No checkpoint exists yet"):
        checkpoints.save(1, tensors(), {})


def test_trying_the_folder_leaves_nothing_there(tmp_path):
    Checkpoints(tmp_path)
    assert names(tmp_path) == []


# --- Kill -9 ---

# One process that forks the others, so that the imports are paid once.
PRELUDE = """
import os, random, shutil, signal, sys, time, torch
from cavity.files import atomic
from cavity.files import tensor_file as tensorfile
from cavity.training import checkpoint
from cavity.training.checkpoint import Checkpoints

folder, parts, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)

def save(checkpoints, step, part):
    checkpoints.save(step, {"x": torch.full((size,), step)}, {"step": step}, part=part, parts=parts)

def fork(work, *args):
    child = os.fork()
    if child == 0:
        try:
            work(*args)
        finally:
            os._exit(1)
    return child

def check(at_least):
    saved = Checkpoints(folder).latest()
    found = -1 if saved is None else saved.step
    assert found >= at_least, (found, at_least)
    for part in range(parts if saved else 0):
        assert saved.skipped == []
        assert saved.meta(part) == {"step": found}
        assert (saved.load(part)["x"] == found).all()
    return found
"""

AT_RANDOM = """
def write(part, start, pipe):
    checkpoints = Checkpoints(folder, keep=2)
    for step in range(start, start + 10_000):
        save(checkpoints, step, part)
        os.write(pipe, b"%d\\n" % step)

def said(reader, writer):
    os.close(writer)
    with os.fdopen(reader) as lines:
        return max([int(line) for line in lines if line.endswith("\\n")], default=-1)

random.seed(0)
last = -1
for _ in range(20):
    pipes = [os.pipe() for _ in range(parts)]
    children = [fork(write, part, last + 1, pipes[part][1]) for part in range(parts)]
    time.sleep(random.uniform(0, 0.15))
    for child in random.sample(children, parts):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    last = check(max(last, min(said(*pipe) for pipe in pipes)))
"""

AT_EVERY_LINE = """
def trace(frame, event, value):
    global lines
    lines -= event == "line"
    if lines < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    files = checkpoint.__file__, tensorfile.__file__, atomic.__file__, shutil.__file__
    return trace if frame.f_code.co_filename in files else None

def write(step):
    checkpoints = Checkpoints(folder, keep=1)
    sys.settrace(trace)
    save(checkpoints, step, 0)
    sys.settrace(None)
    os._exit(0)

step, total, status = 0, 0, None
while status != 0:
    save(Checkpoints(folder, keep=1), step, 0)
    lines = total
    status = os.waitpid(fork(write, step + 1), 0)[1]
    assert status in (0, signal.SIGKILL), status
    check(step + (status == 0))
    step, total = step + 2, total + 1
assert total > 50, total
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(("script", "parts", "size"), [(AT_RANDOM, 2, 10**6), (AT_EVERY_LINE, 1, 9)])
def test_a_kill_loses_nothing_that_was_saved(tmp_path, script, parts, size):
    command = [sys.executable, "-c", PRELUDE + script, str(tmp_path), str(parts), str(size)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    checkpoints = Checkpoints(tmp_path, keep=1)
    assert checkpoints.latest().step > 0
    for part in reversed(range(parts)):
        checkpoints.save(1_000_000, tensors(), {}, part=part, parts=parts)
    assert names(tmp_path) == [file_of(tmp_path, 1_000_000, part, parts).name for part in range(parts)]


# --- Other settings, other data ---


def test_equal_dicts_do_not_differ():
    one = {"a": {"b": (1, 2.0), "c": math.nan}, "d": [{"e": None}], "f": math.inf}
    other = {"f": math.inf, "d": [{"e": None}], "a": {"c": math.nan, "b": [1.0, 2]}}
    assert differences(one, other) == []


def test_differences_are_named_with_both_values():
    old = {"settings": {"n_inducing": 100, "gone": 1, "same": 0}, "classes": ["a", "b"], "rows": 7, "tol": None}
    new = {"settings": {"n_inducing": 200, "same": 0, "new": "x"}, "classes": ["a", "c"], "rows": [7], "tol": math.nan}
    assert differences(old, new) == [
        "settings.n_inducing: 100 in the checkpoint, 200 now",
        "settings.gone: 1 in the checkpoint, absent now",
        'settings.new: absent in the checkpoint, "x" now',
        'classes[1]: "b" in the checkpoint, "c" now',
        "rows: 7 in the checkpoint, [7] now",
        "tol: null in the checkpoint, NaN now",
    ]


def test_long_values_are_cut():
    (line,) = differences({"a": list(range(1000))}, {"a": 1})
    assert len(line) < 100


def test_a_checkpoint_of_the_same_settings_is_taken_and_another_refused(tmp_path):
    saved = saved_at(tmp_path, 5).latest()
    check_same(saved.meta(), {"step": 5}, str(saved))
    with pytest.raises(
        ValueError, match=r"step: 5 in the checkpoint, 6 now\n.*another folder, or empty this one"
    ) as caught:
        check_same(saved.meta(), {"step": 6}, str(saved))
    assert f"step 5 in {tmp_path}" in str(caught.value)


def test_of_many_differences_the_first_ten_are_shown():
    old = {str(i): i for i in range(25)}
    with pytest.raises(ValueError, match="and 15 more") as caught:
        check_same(old, {}, "The checkpoint")
    assert str(caught.value).count("absent now") == 10
    assert "9: 9 in" in str(caught.value)


def test_the_example_of_the_name_holds(tmp_path):
    saved_at(tmp_path, 1234)
    assert Path(names(tmp_path)[0]) == Path("step-000000001234.part-0-of-1.safetensors")
