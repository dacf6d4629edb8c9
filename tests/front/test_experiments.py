"""`python -m experiments`: every experiment at its smallest size, and what is committed of the full ones."""

import json
import pickle
import re
import shutil
import tomllib
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.records import append, read
from cavity.fitting.settings import PAPER_STEPS
from experiments.__main__ import CLAIM_FAILED, main
from experiments.experiment import NAMES, Verdict, matching_records, overview, read_config, write_results
from experiments.runner import missing

pytest.importorskip("matplotlib", reason="experiments draw")

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PAGE = Path(__file__).parents[2] / "docs" / "reproduction.md"
PICTURE = re.compile(r"^!\[.*\]\(([\w-]+)\.png\)$", re.M)
README = Path(__file__).parents[2] / "README.md"
VERDICT = re.compile(r"^\| .* \| (?:paper|ours) \| (?:yes|\*\*no\*\*) \| .* \|$", re.M)


EVERY = pytest.mark.parametrize("name", NAMES)


class Here(ProcessPoolExecutor):
    """In place of several processes: the same work in this one, its arguments and results as if they had traveled."""

    def __init__(self, n_processes, context, initializer, initargs):
        self._processes = {}

    def submit(self, work, *arguments):
        future = Future()
        try:
            work, arguments = pickle.loads(pickle.dumps((work, arguments)))
            future.set_result(pickle.loads(pickle.dumps(work(*arguments))))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        pass


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch, tmp_path):
    """Nor a cache of the user, nor anything fetched."""

    def fetched(name, home):
        raise AssertionError(f"{name} was to be fetched")

    monkeypatch.delenv("CAVITY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("cavity.datasets._fetch", fetched)


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr("experiments.runner.ProcessPoolExecutor", Here)


@pytest.fixture
def short(monkeypatch):
    """A few steps a fit are enough to see that everything runs."""
    monkeypatch.setattr("cavity.fitting.settings.EPOCHS", 20)
    for method in PAPER_STEPS:
        monkeypatch.setitem(PAPER_STEPS, method, 20)


@pytest.fixture
def no_fits(monkeypatch):
    """Not one is allowed."""

    def refuse(*args, **kwargs):
        raise AssertionError("a fit was to be made")

    monkeypatch.setattr("experiments.runner.ProcessPoolExecutor", refuse)


def call(name, *arguments, folder=EXPERIMENTS):
    return CliRunner().invoke(main, [name, "--folder", str(folder), *map(str, arguments)])


def run(name, *arguments, **where):
    found = call(name, *arguments, **where)
    assert found.exit_code == 0, f"{found.output}\n{found.exception!r}"
    return found


def refused(name, *arguments, **where):
    """What is said where something is amiss, and no more than that."""
    found = call(name, *arguments, **where)
    assert found.exit_code == 1
    assert isinstance(found.exception, SystemExit), found.exception
    assert "Error: " in found.output
    return found.output


def pictures(name):
    """Those that the experiment's README shows."""
    return PICTURE.findall((EXPERIMENTS / name / "README.md").read_text())


def within(page, mark):
    """What stands between two marks, of which there is one pair."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->\n"
    assert page.count(begin) == page.count(end) == 1, f"{mark}: a pair of marks is needed"
    return page.partition(begin)[2].partition(end)[0]


def without_links(rows, name):
    """Rows of the page of all claims as in the README of their experiment."""
    return [row.replace(f"| [{name}](../experiments/{name}/README.md) ", "") for row in rows]


# --- At smoke size ---


@EVERY
def test_an_experiment_runs_without_data_and_is_not_run_twice(name, here, short, tmp_path, monkeypatch):
    out = tmp_path / "out"
    said = f"Results: {out}\n"
    assert run(name, "--smoke", "--out", out).stdout == said  # and no verdict: a smoke size is not judged

    config = read_config(EXPERIMENTS / name, smoke=True)
    records = read(out / "results.jsonl")
    assert len(records) == len(missing(name, config, {}, tmp_path / "none")) > 0
    for record in records:
        assert {"seed", "when", "commit", "processor", "threads", "cavity", "torch", "numpy"} <= set(record)
        assert isinstance(record["seed"], int)
    assert missing(name, config, {}, out) == []

    text = (out / "results.md").read_text()
    assert "| " in text
    assert "holds" not in text
    assert pictures(name)
    for picture in pictures(name):
        assert (out / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / f"{picture}.svg").read_text()

    before = (out / "results.jsonl").read_bytes()
    monkeypatch.setattr("experiments.runner.ProcessPoolExecutor", None)  # no fit can be made
    assert run(name, "--smoke", "--out", out).output == said
    assert (out / "results.jsonl").read_bytes() == before
    assert (out / "results.md").read_text() == text


def test_several_processes(tmp_path):
    """Real ones, each with its share of the cores."""
    shown = run("sep_toy", "--smoke", "--jobs", 2, "--out", tmp_path)
    records = read(tmp_path / "results.jsonl")
    assert len(records) == len(missing("sep_toy", read_config(EXPERIMENTS / "sep_toy", True), {}, tmp_path / "none"))
    assert f"{len(records)} of {len(records)} fits" in shown.stderr


@pytest.mark.parametrize(("name", "options", "expected"), [("tables", [], 1), ("tables", ["--jobs", 3], 3)])
def test_fits_whose_times_are_compared_run_one_at_a_time(name, options, expected, tmp_path, monkeypatch):
    """Unless the user asks for more."""
    asked = []
    monkeypatch.setattr("experiments.__main__.run_missing", lambda name, jobs, out, n, threads: asked.append(n))
    call(name, "--out", tmp_path, *options)
    assert asked == [expected]


def test_some_of_the_fits_and_then_the_others(here, tmp_path):
    run("sep_toy", "--smoke", "--only", "method=ep", "--only", "family=probit", "--out", tmp_path)
    some = read(tmp_path / "results.jsonl")
    assert {(record["method"], record["family"]) for record in some} == {("ep", "probit")}
    run("sep_toy", "--smoke", "--out", tmp_path)
    both = read(tmp_path / "results.jsonl")
    assert both[: len(some)] == some
    assert {(record["method"], record["family"]) for record in both} > {("ep", "probit")}


def test_show_makes_no_fit(no_fits, tmp_path):
    config = read_config(EXPERIMENTS / "sep_toy", smoke=True)
    made = {"converged": True, "sweeps": 3, "mean": 0.1, "variance": 1.0, "log_z": -1.0, "exact_mean": 0.1,
            "exact_variance": 1.0, "exact_log_z": -1.0, "kl": 0.0, "kl_best": 0.0}  # fmt: skip
    for job in missing("sep_toy", config, {}, tmp_path)[:4]:
        append(tmp_path / "results.jsonl", job | made)
    run("sep_toy", "--smoke", "--show", "--out", tmp_path)
    assert (tmp_path / "results.md").exists()
    assert len(read(tmp_path / "results.jsonl")) == 4


def test_smoke_sizes_go_to_build(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("sep_toy", "--smoke", "--only", "family=probit")
    assert (tmp_path / "build/experiments/sep_toy/results.md").exists()


def test_full_sizes_go_into_the_readme_and_the_page_of_all(here, tmp_path):
    """Tables between the marks of the one, a line for every claim in both."""
    folder, page = tmp_path / "experiments" / "sep_toy", tmp_path / "docs" / "reproduction.md"
    shutil.copytree(EXPERIMENTS / "sep_toy", folder, ignore=shutil.ignore_patterns("results*"))
    config = (folder / "config.toml").read_text().partition("[smoke]")[0]
    (folder / "config.toml").write_text(
        config.replace("[5, 20, 80]", "[5]").replace("repetitions = 50", "repetitions = 2") + "[smoke]\n"
    )
    page.parent.mkdir()
    for file in (page, tmp_path / "README.md"):
        file.write_text("before\n<!-- claims -->\nold\n<!-- /claims -->\nafter\n")
    shown = call("sep_toy", folder=tmp_path / "experiments")
    text, claims = (folder / "results.md").read_text(), within(page.read_text(), "claims")
    assert within((folder / "README.md").read_text(), "results") == text
    assert page.read_text() == f"before\n<!-- claims -->\n{claims}<!-- /claims -->\nafter\n"
    assert without_links(VERDICT.findall(claims), "sep_toy") == VERDICT.findall(text)
    counts = claims.partition("\n")[0]
    assert counts == within((tmp_path / "README.md").read_text(), "claims").partition("\n")[0]
    assert counts.startswith(f"Of {len(VERDICT.findall(text))} claims, ")
    assert len(VERDICT.findall(text)) == len(re.findall("^(?:holds|DOES NOT HOLD): ", shown.stdout, re.M)) > 0
    assert shown.exit_code == (CLAIM_FAILED if "DOES NOT HOLD" in shown.stdout else 0)


# --- The exit code tells whether the claims hold ---


@pytest.fixture
def judged(no_fits, tmp_path, monkeypatch):
    """Call `--show` on made-up verdicts and on records of some or all fits."""

    def show(holds, complete=True):
        verdicts = [Verdict("one", True, "1"), Verdict("other", holds, "2")]
        monkeypatch.setattr("experiments.__main__.write_results", lambda *args, judge: verdicts)
        jobs = missing("sep_toy", read_config(EXPERIMENTS / "sep_toy", False), {}, tmp_path)
        for job in jobs if complete else jobs[1:]:
            append(tmp_path / "results.jsonl", job)
        return call("sep-toy", "--show", "--out", tmp_path)

    return show


def test_claims_that_hold_exit_with_zero(judged):
    shown = judged(holds=True)
    assert (shown.exit_code, "preliminary" in shown.output) == (0, False)


def test_a_claim_that_does_not_hold_has_an_exit_code_of_its_own(judged):
    shown = judged(holds=False)
    assert shown.exit_code == CLAIM_FAILED == 3
    assert "holds: one (1)\nDOES NOT HOLD: other (2)\n" in shown.stdout


def test_claims_are_not_judged_before_all_fits_are_made(judged):
    shown = judged(holds=False, complete=False)
    assert shown.exit_code == 0
    assert "DOES NOT HOLD: other (2)" in shown.stdout
    assert "1 fits have no record yet, so these verdicts are preliminary." in shown.stdout


def test_the_exit_code_is_documented():
    texts = [CliRunner().invoke(main, ["--help"]).output, (EXPERIMENTS / "README.md").read_text()]
    for text in texts:
        assert re.search(r"\b3\b[^.]*?claim\s+does\s+not\s+hold", text)


# --- What is amiss is said ---


def test_without_a_name_the_experiments_are_listed():
    shown = CliRunner().invoke(main, [])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()] == list(NAMES)
    assert "Eight UCI sets" in shown.output


def test_hyphens_are_accepted_in_names(no_fits, tmp_path):
    names = [refused(name, "--smoke", "--show", "--out", tmp_path) for name in ("satellite-time", "satellite_time")]
    assert names[0] == names[1]


def test_an_unknown_experiment():
    found = call("mnsit")
    assert found.exit_code == 2
    assert "'mnist'" in found.output


@pytest.mark.parametrize("name", ["uci", "sep_toy"])
def test_an_unknown_name_after_only(name, no_fits, tmp_path):
    said = refused(name, "--smoke", "--only", "color=red", "--out", tmp_path)
    assert "--only color=" in said
    assert "fits have" in said
    assert "method" in said
    assert list(tmp_path.iterdir()) == []


def test_only_needs_values(no_fits, tmp_path):
    said = refused("uci", "--smoke", "--only", "method", "--out", tmp_path)
    assert "--only must be NAME=VALUES, such as method=ep,sep, got 'method'" in said


def test_a_value_that_no_fit_has(no_fits, tmp_path):
    said = refused("uci", "--smoke", "--only", "method=sepp", "--out", tmp_path)
    assert "sepp" in said


ONE = ["--only", "method=sep", "--only", "split=0", "--only", "inducing=0.1"]


@pytest.mark.parametrize(
    ("name", "only", "file"),
    [
        ("uci", ["--only", "data_set=glass", *ONE], "glass.npz"),
        ("uci", ["--only", "data_set=svmguide2", *ONE], "svmguide2.npz"),
        ("satellite_time", ["--only", "method=sep", "--only", "split=0", "--only", "inducing=4"], "satellite.npz"),
        ("airline", ["--only", "method=linear"], "airline_2008_jan_apr.parquet"),
    ],
)
def test_a_data_folder_without_the_data(name, only, file, here, tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("CAVITY_DATA", str(empty))
    said = refused(name, *only, "--out", tmp_path / "out")
    assert f"{file} is not in {empty}" in said
    assert "Set CAVITY_DATA" in said
    assert not (tmp_path / "out" / "results.jsonl").exists()


def test_rows_without_the_authors_splits(here, tmp_path):
    """Wine comes with scikit-learn, but not in the authors' order."""
    said = refused("uci", "--only", "data_set=wine", *ONE, "--out", tmp_path)
    assert "The authors' splits of 'wine' are in uci_splits.npz" in said
    assert "Set CAVITY_DATA to that folder" in said


def test_no_experiments_here(tmp_path, no_fits):
    said = refused("uci", folder=tmp_path)
    assert "config.toml does not exist" in said
    assert "--folder" in said


def test_nothing_to_show_yet(tmp_path, no_fits):
    assert "Run the experiment first" in refused("uci", "--smoke", "--show", "--out", tmp_path)


def test_a_readme_without_a_place_for_results(here, tmp_path):
    (tmp_path / "README.md").write_text("# No marks\n")
    said = refused("sep_toy", "--smoke", "--only", "family=probit", "--out", tmp_path)
    assert "<!-- results -->" in said
    assert (tmp_path / "README.md").read_text() == "# No marks\n"


# --- What is committed ---


@EVERY
def test_an_experiment_has_its_settings_and_a_place_for_its_results(name):
    page, config = (EXPERIMENTS / name / "README.md").read_text(), (EXPERIMENTS / name / "config.toml").read_text()
    within(page, "results")
    assert f"| [{name}](../experiments/{name}/README.md) |" in PAGE.read_text().partition("<!-- claims -->")[0]
    assert f"python -m experiments {name}" in page
    settings = tomllib.loads(config)
    assert settings["smoke"]
    assert set(settings["smoke"]) <= set(settings)  # smaller, not other


@EVERY
def test_jobs_hold_all_that_matters_and_differ(name):
    """At both sizes: the same entries in the same order, a seed among them, no two alike; as JSON they come back."""
    for smoke in (True, False):
        jobs = missing(name, read_config(EXPERIMENTS / name, smoke), {}, EXPERIMENTS / "none")
        assert len({tuple(job) for job in jobs}) == 1
        assert "seed" in jobs[0]
        assert len({str(job) for job in jobs}) == len(jobs)
        assert json.loads(json.dumps(jobs)) == jobs


@EVERY
def test_pages_say_what_the_records_say(name, tmp_path, monkeypatch):
    """Tables and verdicts of the README, and the verdicts on the page of all, made again from the records."""
    folder = EXPERIMENTS / name
    page, config = (folder / "README.md").read_text(), read_config(folder, smoke=False)
    if not matching_records(name, config, folder):
        assert within(page, "results").strip() == "", "results of no record"
        pytest.skip("not run yet")
    monkeypatch.setattr("experiments.experiment.save", lambda picture, path: None)
    for file in ("README.md", "results.jsonl"):
        shutil.copy(folder / file, tmp_path)
    write_results(name, config, folder, tmp_path)
    assert (tmp_path / "README.md").read_text() == page
    text = (tmp_path / "results.md").read_text()
    assert text == (folder / "results.md").read_text()
    listed = VERDICT.findall(within(PAGE.read_text(), "claims"))
    assert without_links([row for row in listed if f"[{name}]" in row], name) == VERDICT.findall(text) != []
    for picture in pictures(name):
        assert (folder / f"{picture}.png").exists()
        assert (folder / f"{picture}.svg").exists()


def test_the_claims_that_do_not_hold_are_listed_beside_those_that_do():
    """In the README of the repository by experiment, in the documentation one by one; both count the same claims."""
    counts, by_experiment, every_claim = overview(EXPERIMENTS)
    assert within(README.read_text(), "claims") == f"{counts}\n\n{by_experiment}\n"
    assert within(PAGE.read_text(), "claims") == f"{counts}\n\n{every_claim}\n"
    results = "".join((EXPERIMENTS / name / "results.md").read_text() for name in NAMES)
    verdicts = VERDICT.findall(results)
    failed = [row for row in verdicts if "| **no** |" in row]
    assert counts.startswith(f"Of {len(verdicts)} claims, {len(verdicts) - len(failed)} hold and {len(failed)} do not:")
    for row in failed:
        assert row.split(" | ")[0].removeprefix("| ") in by_experiment


def test_the_readme_says_how_far_the_defaults_are_from_blind():
    """Beside the number of cells: how many sets have no test row that the choice has not used."""
    number = re.search(r"\| (\d+ of \d+), \d+ more if rounded;", (EXPERIMENTS / "uci" / "results.md").read_text())[1]
    overlap = within((EXPERIMENTS / "defaults" / "README.md").read_text(), "overlap")
    n_used = sum(row.split(" | ")[3] == "100%" for row in overlap.splitlines()[2:])
    words = {6: "six of the eight"}
    for page in (README, PAGE, EXPERIMENTS / "uci" / "README.md", PAGE.with_name("defaults.md")):
        text = " ".join(page.read_text().split())
        assert "splits share rows" in text
        assert re.search(rf"[Oo]n {words[n_used]} (?:UCI )?sets,? (?:it|the choice|every test row)", text), page
    assert f"{number} are at or below" in README.read_text()
