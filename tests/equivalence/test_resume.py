"""A fit that was killed goes on from its last checkpoint to the very same model."""

import random
import shutil
import signal
import time

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.data import CSV, Arrays
from cavity.datasets import make_waveform
from tests.searches import N_ROWS, make_small
from tests.tables import mixed_table, write_csv
from tests.workers import results, run, start

N = 240
COMMON = {"n_inducing": 8, "random_state": 0, "tol": 0.0, "checkpoint_seconds": 0.0}
CASES = {
    "sep": {"method": "sep", "batch_size": 20, "max_epochs": 12},
    "ep": {"method": "ep", "batch_size": 20, "max_epochs": 12},
    "power ep": {"method": "ep", "alpha": 0.5, "batch_size": 20, "max_epochs": 12},
    "vi": {"method": "vi", "batch_size": 20, "max_epochs": 8},
    "plain vi": {"method": "vi", "optimizer": "paper", "batch_size": 20, "max_epochs": 8, "calibrate": False},
    "full ep": {"method": "ep", "batch_size": None, "max_epochs": 40, "calibrate": False},
    "adaptive": {"method": "sep", "optimizer": "paper", "batch_size": None, "max_epochs": 40, "calibrate": False},
    "gfitc": {"method": "gfitc", "max_epochs": 8, "calibrate": False},
    "folds": {"method": "ep", "batch_size": None, "max_epochs": 12, "calibrate": 2},
}
LONG = {"max_epochs": 3000, "checkpoint_seconds": 0.2}  # a minute or more
CASES |= {f"long {name}": CASES[name] | LONG for name in ("sep", "ep")}
SHORT = [name for name in CASES if not name.startswith("long")]
MATTERS = ("mean", "cov", "Z", "noise", "log_z", "sharpness", "epochs")


def rows():
    return make_waveform(N, random_state=1)


def fitted(name, folder, source=False, resume=True):
    """What matters of a fit that goes on where it was."""
    X, y = rows()
    model = GPClassifier(**(COMMON | CASES[name]), checkpoint=folder)
    model = model.fit(Arrays(X, y, lanes=3), resume=resume) if source else model.fit(X, y, resume=resume)
    q = model.posterior_
    found = (q.mean, q.cov, model.inducing_points_, model.noise_, model.log_marginal_likelihood_, model.sharpness_)
    return dict(zip(MATTERS, (*found, model.n_iter_), strict=True))


def killed(name, folder, seed, kills, size=1, source=False):
    """The same, by processes that are killed again and again; how often they were, and the results."""
    done, drawn = 0, random.Random(seed)
    work = folder / "work"
    work.mkdir(parents=True)
    while True:
        before = set(folder.glob("kept/*.safetensors"))
        processes = start(fitted, size, work, name, str(folder / "kept"), source)
        if done < kills:
            while set(folder.glob("kept/*.safetensors")) <= before and processes[0].poll() is None:
                time.sleep(0.02)  # until training is under way
            time.sleep(drawn.uniform(0.0, 1.5))
            victim = drawn.randrange(size)
            if all(process.poll() is None for process in processes):
                processes[victim].send_signal(signal.SIGKILL)
                done += 1
        codes = [process.wait(timeout=900) for process in processes]
        if codes == [0] * size:
            return done, results(work, size)


def same_bits(one, other):
    return all(np.array_equal(one[what], other[what]) for what in MATTERS)


@pytest.mark.parametrize("name", SHORT)
def test_a_fit_that_stops_half_way_goes_on_to_the_same_model(name, tmp_path, monkeypatch):
    expected = fitted(name, str(tmp_path / "whole"))
    stop_after(monkeypatch, 7)
    with pytest.raises(KeyboardInterrupt):
        fitted(name, str(tmp_path / "torn"))
    monkeypatch.undo()
    assert same_bits(fitted(name, str(tmp_path / "torn")), expected)


@pytest.mark.parametrize("name", ["sep", "ep", "vi"])
def test_so_does_one_that_reads_a_source(name, tmp_path, monkeypatch):
    expected = fitted(name, str(tmp_path / "whole"), source=True)
    stop_after(monkeypatch, 25)
    with pytest.raises(KeyboardInterrupt):
        fitted(name, str(tmp_path / "torn"), source=True)
    monkeypatch.undo()
    assert same_bits(fitted(name, str(tmp_path / "torn"), source=True), expected)


@pytest.mark.filterwarnings("ignore:X has columns that are left out")
def test_so_does_one_with_categories_and_gaps(tmp_path, monkeypatch):
    """The levels are found again, in the same order; another level is other data."""

    def fit(name, table):
        path = tmp_path / "rows"
        shutil.rmtree(path, ignore_errors=True)
        source = CSV(write_csv(table, path), target="label")
        model = GPClassifier("sep", **COMMON, batch_size=20, max_epochs=4, checkpoint=tmp_path / name)
        return model.fit(source, resume=True)

    table = mixed_table(N)
    expected = fit("whole", table)
    stop_after(monkeypatch, 25)
    with pytest.raises(KeyboardInterrupt):
        fit("torn", table)
    monkeypatch.undo()
    found = fit("torn", table)
    for one, other in zip(
        (found.posterior_.mean, found.posterior_.cov), (expected.posterior_.mean, expected.posterior_.cov), strict=True
    ):
        assert np.array_equal(one, other)
    assert found._schema == expected._schema
    with pytest.raises(ValueError, match=r"data\.levels"):
        fit("torn", table.replace({"red": "rot"}))


@pytest.mark.parametrize("way", ["batches", "source", "ep"])
def test_so_does_one_that_begins_with_a_search(way, tmp_path, monkeypatch):
    """It is made again, whatever the time; EP at fixed inducing points writes no checkpoints, and begins again."""
    make_small(monkeypatch)
    X, y = make_waveform(N_ROWS["ep" if way == "ep" else "batches"], random_state=1)

    def fit(name, **changes):
        given = (Arrays(X, y, lanes=3),) if way == "source" else (X, y)
        settings = {"random_state": 0, "checkpoint_seconds": 0.0, "checkpoint": tmp_path / name} | changes
        return GPClassifier(**settings).fit(*given, resume=True)

    expected = fit("whole")
    if way != "ep":
        with pytest.MonkeyPatch.context() as patch:
            stop_after(patch, 7)
            with pytest.raises(KeyboardInterrupt):
                fit("torn")
        assert list((tmp_path / "torn").iterdir())
    found = fit("torn")
    for name in ("sharpness_", "log_marginal_likelihood_", "n_iter_"):
        assert getattr(found, name) == getattr(expected, name)
    assert np.array_equal(found.predict_log_proba(X), expected.predict_log_proba(X))
    assert [record["event"] for record in found.history_] == [record["event"] for record in expected.history_]


def stop_after(monkeypatch, saves):
    """Interrupt training in the step after so many checkpoints."""
    from cavity.training.loop import Trainer

    evaluate, count = Trainer.evaluate, [0]

    def counted(self, *args):
        count[0] += 1
        if count[0] > saves:
            raise KeyboardInterrupt
        return evaluate(self, *args)

    monkeypatch.setattr(Trainer, "evaluate", counted)


def test_a_fit_that_is_done_is_not_trained_again(tmp_path, monkeypatch):
    expected = fitted("sep", str(tmp_path))
    stop_after(monkeypatch, 0)
    assert same_bits(fitted("sep", str(tmp_path)), expected)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(name, folder):
    """The message of a fit that does not resume, before any training."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 0)
        with pytest.raises(ValueError, match="resume=True") as error:
            fitted(name, folder, resume=False)
    return str(error.value)


@pytest.mark.parametrize("is_done", [True, False])
def test_without_resume_the_checkpoints_of_an_earlier_run_are_kept(is_done, tmp_path, monkeypatch):
    if is_done:
        fitted("folds", str(tmp_path))
        for path in tmp_path.glob("step-*"):  # those of the folds alone count too
            path.unlink()
    else:
        until("sep", str(tmp_path), False, 7)
    before = contents(tmp_path)
    message = refused("folds", str(tmp_path))
    assert str(tmp_path) in message
    assert "--resume" in message
    assert "another folder" in message
    assert contents(tmp_path) == before


def test_all_processes_refuse_alike(tmp_path):
    fitted("sep", str(tmp_path / "kept"))
    before = contents(tmp_path / "kept")
    first, second = run(refused, 2, tmp_path / "work", "sep", str(tmp_path / "kept"))
    assert first == second
    assert contents(tmp_path / "kept") == before


def test_a_folder_with_other_files_can_be_used(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-000000000007.part-0-of-1.safetensors.tmp").write_text("half")
    fitted("sep", str(tmp_path), resume=False)
    assert (tmp_path / "notes.txt").exists()


def test_a_seed_that_was_left_open_is_that_of_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setitem(COMMON, "random_state", None)
    expected = fitted("sep", str(tmp_path))
    assert same_bits(fitted("sep", str(tmp_path)), expected)


def test_other_settings_are_refused_by_name(tmp_path, monkeypatch):
    fitted("sep", str(tmp_path))
    monkeypatch.setitem(COMMON, "n_inducing", 9)
    with pytest.raises(ValueError, match=r"settings.n_inducing: 8 in the checkpoint, 9 now"):
        fitted("sep", str(tmp_path))


def test_other_rows_are_refused_by_name(tmp_path, monkeypatch):
    fitted("sep", str(tmp_path))
    X, y = rows()
    X[0, 0] += 1.0
    monkeypatch.setattr("tests.equivalence.test_resume.rows", lambda: (X, y))
    with pytest.raises(ValueError, match=r"data.digest"):
        fitted("sep", str(tmp_path))


def test_resume_needs_a_folder():
    with pytest.raises(ValueError, match="checkpoint='folder'"):
        GPClassifier().fit(*rows(), resume=True)


def test_killed_with_no_warning(tmp_path):
    expected = fitted("ep", str(tmp_path / "whole"))
    _, (found,) = killed("ep", tmp_path / "torn", 0, kills=2)
    assert same_bits(found, expected)


@pytest.mark.parametrize(
    ("before", "after", "source"),
    [(1, 2, True), pytest.param(2, 1, False, marks=pytest.mark.slow)],
    ids=["source", "array"],
)
def test_another_number_of_processes_can_go_on(before, after, source, tmp_path):
    """EP's sites change hands with the rows."""
    expected = run(fitted, 1, tmp_path / "whole", "ep", str(tmp_path / "kept-whole"), source)[0]
    run(until, before, tmp_path / "first", "ep", str(tmp_path / "kept"), source, 30)
    for found in run(fitted, after, tmp_path / "second", "ep", str(tmp_path / "kept"), source):
        for what in MATTERS:
            np.testing.assert_allclose(found[what], expected[what], rtol=1e-9, atol=1e-9, err_msg=what)


def until(name, folder, source, saves):
    """Train up to some step."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, saves)
        with pytest.raises(KeyboardInterrupt):
            fitted(name, folder, source)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", ["sep", "ep"])
def test_twenty_kills(name, size, tmp_path):
    """Of the only process, or of one of two; both must end, and go on."""
    expected = run(fitted, 1, tmp_path / "whole", f"long {name}", str(tmp_path / "kept"))[0]
    done, found = killed(f"long {name}", tmp_path / "torn", 0, kills=20, size=size)
    assert done == 20
    for one in found:
        for what in MATTERS:
            if size == 1:
                assert np.array_equal(one[what], expected[what])
            np.testing.assert_allclose(one[what], expected[what], rtol=1e-9, atol=1e-9, err_msg=what)
