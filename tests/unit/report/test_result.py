"""The report as an object: shown in a notebook, printed, saved."""

import os
from html import unescape
from pathlib import Path

import pytest

from cavity.report.result import Report
from tests.unit.report import made_up


@pytest.fixture
def report():
    return Report(made_up.small())


def test_it_is_saved_as_one_file_of_utf8(report, tmp_path):
    path = report.save(tmp_path / "report.html")
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == report.html
    assert report.html.startswith("<!doctype html>\n<html")
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_name_will_do_for_a_path(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert report.save("report.html") == Path("report.html")
    assert os.listdir(tmp_path) == ["report.html"]


def test_an_old_file_stays_whole_until_the_new_one_is_there(report, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*args):
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="no space left"):
            report.save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]
    report.save(path)
    assert path.read_text(encoding="utf-8") == report.html


def test_a_folder_that_is_missing_is_named(report, tmp_path):
    with pytest.raises(
        ValueError, match=r"path='.*none/report.html' lies in a folder that does not exist; make '.*none' first"
    ):
        report.save(tmp_path / "none" / "report.html")


def test_a_folder_is_no_file(report, tmp_path):
    with pytest.raises(ValueError, match="is a folder; the name of a file is needed"):
        report.save(tmp_path)


def test_a_notebook_shows_it_in_a_frame_of_its_own(report):
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert shown.count("<") == 2  # nothing of the page is outside of the attribute
    assert 'sandbox="allow-scripts"' in shown
    inside = unescape(shown.split('srcdoc="')[1].split('" sandbox')[0])
    assert inside == report.html


def test_its_text_is_a_headline_and_a_table():
    lines = repr(Report(made_up.digits())).splitlines()
    assert lines[0] == "Handwritten digits"
    assert lines[1].startswith("96.9\u202f% right on 450 rows; its probabilities")
    assert lines[3].split() == ["error", "NLL", "Brier", "calibration", "error"]
    assert lines[4].startswith("this model  ")
    assert "∞ (0.200 to ∞)" in lines[7]
    assert lines[-1] == "warning: Class 7 comes more often than its probabilities say."
