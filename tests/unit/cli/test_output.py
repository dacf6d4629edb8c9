"""What is printed where, how errors end, commands imported on demand, progress through rows."""

import json
import subprocess
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner

from cavity.cli import SUMMARIES, main, output
from cavity.cli.output import Commands, Output, row_progress
from cavity.runtime.launcher import is_main_process
from cavity.training.checkpoint import CheckpointError
from tests.clock import Clock


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
    out = Output(as_json=False)
    out.print("result")
    out.note("careful")
    out.result(a=1)
    assert capsys.readouterr() == ("result\n", "careful\n")


def test_machines_get_one_object_with_the_notes(capsys):
    printer = Output(as_json=True)
    printer.print("result")
    printer.note("careful")
    printer.result(a=np.float64("nan"), b=np.int64(3), c=[float("inf"), 0.5])
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": None, "b": 3, "c": [None, 0.5], "notes": ["careful"]}
    assert out.count("\n") == 1
    assert err == "careful\n"


def test_quiet_leaves_only_json(capsys):
    for as_json in (False, True):
        printer = Output(as_json, quiet=True)
        printer.print("result")
        printer.note("careful")
        printer.result(a=1)
    out, err = capsys.readouterr()
    assert json.loads(out)["a"] == 1
    assert err == ""


def test_of_several_processes_one_speaks(monkeypatch, capsys):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    assert not is_main_process()
    printer = Output(as_json=True)
    printer.note("careful")
    printer.result(a=1)
    assert capsys.readouterr() == ("", "")
    assert Output(as_json=True, distributed=False).is_main
    monkeypatch.setenv("RANK", "0")
    assert is_main_process()


def test_a_rank_of_another_launcher_speaks_for_itself(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert Output(as_json=True).is_main
    assert not Output(as_json=True, distributed=True).is_main


# --- Commands imported on demand ---

HEAVY = "sorted({'torch', 'sklearn', 'pyarrow', 'scipy', 'matplotlib'} & set(sys.modules))"


def imported(code):
    """The heavy modules that are imported after the code has run."""
    text = f"import sys\n{code}\nprint({HEAVY}, file=sys.stderr)"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stderr.strip()


def test_help_and_the_definition_of_fit_import_nothing_heavy():
    assert imported("from cavity.cli import main\nmain(['--help'], standalone_mode=False)") == "[]"
    assert imported("import cavity.cli.fit, cavity.cli.predict, cavity.cli.report, cavity.cli.demo") == "[]"


def test_reading_a_table_imports_no_torch(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n1,a\n2,b\n")
    code = f"from cavity.data import CSV, read_all; read_all(CSV({str(tmp_path / 'rows.csv')!r}, 'y'))"
    assert imported("import cavity.data") == "[]"
    assert imported(code) == "['pyarrow']"


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_command_listed_is_there(name):
    found = main.get_command(click.Context(main), name)
    assert found.name == name
    assert found.help


# --- Progress ---


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(output, "time", found)
    return found


def test_a_log_has_a_line_each_half_minute(clock, capsys):
    with row_progress("predict", 1000, quiet=False) as done:
        for _ in range(10):
            clock.now += 20.0
            done(100)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert lines[0] == "predict: 200 of 1,000 rows, 0:40 elapsed, 2:40 remaining"


def test_rows_that_nobody_has_counted_have_no_time_remaining(clock, capsys):
    with row_progress("predict", None, quiet=False) as done:
        clock.now += 40.0
        done(100)
    assert capsys.readouterr().err == "predict: 100 rows, 0:40 elapsed\n"


def test_a_terminal_has_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(output, "BAR_DELAY", 0.0)
    with row_progress("predict", 1000, quiet=False) as done:
        done(500)
    assert "0.00/1.00k" in capsys.readouterr().err


def test_quiet_shows_no_progress(clock, capsys):
    with row_progress("predict", 1000, quiet=True) as done:
        clock.now += 100.0
        done(500)
    assert capsys.readouterr().err == ""
