"""Under torchrun: a rank that dies ends the job, and a restart goes on from the last checkpoint."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.datasets import make_waveform
from tests.workers import ROOT, start

SETTINGS = {"method": "ep", "n_inducing": 8, "batch_size": 20, "max_epochs": 12, "tol": 0.0, "random_state": 0}
SCRIPT = """
import os, signal, sys
import numpy as np
from cavity import GPClassifier
from cavity.datasets import make_waveform
from cavity.training.checkpoint import Checkpointer

folder, is_first = sys.argv[1], os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
save, count = Checkpointer.save, [0]

def dies(self, *args):
    save(self, *args)
    count[0] += 1
    if is_first and os.environ["RANK"] == "1" and count[0] == 4:
        os.kill(os.getpid(), signal.SIGKILL)

Checkpointer.save = dies
X, y = make_waveform(240, random_state=1)
model = GPClassifier(**{settings}, checkpoint=folder, checkpoint_seconds=0.0).fit(X, y, resume=True)
np.save(f"{{folder}}/mean-{{os.environ['RANK']}}-{{is_first}}.npy", model.posterior_.mean)
"""


def long_fit(folder):
    settings = SETTINGS | {"max_epochs": 10**6, "checkpoint": folder, "checkpoint_seconds": 0.0}
    GPClassifier(**settings).fit(*make_waveform(240, random_state=1))


def test_the_others_end_with_an_error_when_a_rank_dies(tmp_path):
    processes = start(long_fit, 2, tmp_path, str(tmp_path / "kept"))
    until = time.monotonic() + 120
    while not list(tmp_path.glob("kept/*.safetensors")) and time.monotonic() < until:
        time.sleep(0.1)
    assert [process.poll() for process in processes] == [None, None]
    processes[1].send_signal(signal.SIGKILL)
    assert processes[1].wait(timeout=60) == -signal.SIGKILL
    assert processes[0].wait(timeout=60) not in (0, -signal.SIGKILL)


def test_a_restart_goes_on_from_the_last_checkpoint(tmp_path):
    script, folder = tmp_path / "train.py", tmp_path / "kept"
    script.write_text(SCRIPT.format(settings=SETTINGS))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "--max-restarts", "1", str(script), str(folder)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    expected = GPClassifier(**SETTINGS).fit(*make_waveform(240, random_state=1)).posterior_.mean
    written = sorted(path.name for path in Path(folder).glob("mean-*.npy"))
    assert written == ["mean-0-False.npy", "mean-1-False.npy"]  # of the second attempt
    for name in written:
        np.testing.assert_allclose(np.load(folder / name), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [2])
def test_predictions_are_shared_out(size, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    from tests.workers import run

    counts = run(predict_all, size, tmp_path, str(tmp_path / "out"))
    assert sum(counts) == 240
    assert min(counts) > 0
    model, X = trained()
    table = pq.read_table(tmp_path / "out")
    found = np.column_stack([table[f"p_{label}"].to_numpy() for label in model.classes_])
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=0, atol=1e-12)
    assert table["prediction"].to_pylist() == model.predict(X).tolist()


def trained():
    X, y = make_waveform(240, random_state=1)
    return GPClassifier(n_inducing=8, max_epochs=3, calibrate=False, random_state=0).fit(X, y), X


def predict_all(folder):
    from cavity.data import Arrays

    model, X = trained()
    return model.predict_to(Arrays(X, None, lanes=3), folder)
