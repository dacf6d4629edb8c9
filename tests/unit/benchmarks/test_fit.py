import os

import numpy as np

from benchmarks import fit
from benchmarks.fit import fit_once
from benchmarks.measure import in_child
from benchmarks.predict import predict_once
from benchmarks.problems import Options, Size
from cavity.fitting.settings import PAPER_STEPS

SIZE = Size(3, 4, 6, 5)


def test_the_memory_of_a_child_is_its_own():
    """A process starts with the mark of its parent by getrusage; what the parent holds must not count."""
    held = np.ones(2**27)
    record = in_child(predict_once, "cavity", SIZE, "cpu", device="cpu")
    assert 50 < record["peak_memory_mib"] < held.nbytes // 2**20
    assert record["rows_per_second"] > 0


def test_a_fit_is_scored_on_other_rows(monkeypatch):
    monkeypatch.setitem(PAPER_STEPS, "sep", 40)
    record = fit_once("waveform", "sep", 60, 6, "cpu")
    assert (record["rows"], record["M"], record["iterations"]) == (60, 6, 40)
    assert 0.2 < record["nll"] < 1.0986
    assert record["seconds"] > 0


def test_vehicle_is_fitted_where_the_data_folder_has_it(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(fit, "in_child", lambda work, *arguments, device: asked.append(arguments) or {})
    if "CAVITY_DATA" in os.environ:
        list(fit.measure(Options()))
        assert [a[:4] for a in asked if a[0] == "vehicle"] == [("vehicle", m, None, 76) for m in fit.METHODS]
        assert [len(part) for part in fit._split("vehicle", None)] == [761, 761, 85, 85]
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path))
    asked.clear()
    skipped = [record["skipped"] for record in fit.measure(Options()) if record]
    assert len(skipped) == len(fit.METHODS)
    assert "vehicle.npz is not in" in skipped[0]
    assert {a[0] for a in asked} == {"waveform"}
