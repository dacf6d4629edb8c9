"""What is printed where, how errors end, and files that are whole or not there."""

import json

import click
import numpy as np
import pytest
from click.testing import CliRunner

from cavity.cli.output import Commands, Output, is_first
from cavity.training.checkpoint import CheckpointError


@click.group(cls=Commands)
def group():
    pass


def ending(error):
    """How a command that raises this ends."""

    @group.command("raises")
    def raises():
        raise error

    return CliRunner().invoke(group, ["raises"])


@pytest.mark.parametrize(
    "error", [ValueError("a\n  b"), TypeError("a b"), ImportError("a b"), CheckpointError("a b"), OSError("a b")]
)
def test_an_error_is_one_line_and_ends_with_one(error):
    found = ending(error)
    assert (found.exit_code, found.stdout, found.stderr) == (1, "", "Error: a b\n")


def test_a_file_that_the_system_refuses_is_named():
    assert ending(PermissionError(13, "Permission denied", "rows.csv")).stderr == "Error: rows.csv: Permission denied\n"


def test_an_interrupt_ends_with_130():
    found = ending(KeyboardInterrupt())
    assert (found.exit_code, found.stdout, found.stderr) == (130, "", "stopped\n")


def test_what_is_a_fault_of_ours_is_not_hidden():
    assert isinstance(ending(KeyError("oops")).exception, KeyError)


def test_people_read_stdout_and_notes_go_to_stderr(capsys):
    output = Output(as_json=False)
    output.tell("result")
    output.note("careful")
    output.result(a=1)
    assert capsys.readouterr() == ("result\n", "careful\n")


def test_machines_get_one_object_with_the_notes(capsys):
    output = Output(as_json=True)
    output.tell("result")
    output.note("careful")
    output.result(a=np.float64("nan"), b=np.int64(3), c=[float("inf"), 0.5])
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": None, "b": 3, "c": [None, 0.5], "notes": ["careful"]}
    assert out.count("\n") == 1
    assert err == "careful\n"


def test_quiet_leaves_only_json(capsys):
    for as_json in (False, True):
        output = Output(as_json, quiet=True)
        output.tell("result")
        output.note("careful")
        output.result(a=1)
    out, err = capsys.readouterr()
    assert json.loads(out)["a"] == 1
    assert err == ""


def test_of_several_processes_one_speaks(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert not is_first()
    output = Output(as_json=True)
    output.note("careful")
    output.result(a=1)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("RANK", "0")
    assert is_first()
