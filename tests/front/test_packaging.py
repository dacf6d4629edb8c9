"""The package as others get it: what it declares, and that both archives install and work in a clean environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import cavity

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {"gpu", "onnx", "report", "bench", "rivals", "integrations", "docs", "test", "dev"}
TRY_IT = """
import numpy as np, cavity
from sklearn.datasets import load_iris
X, y = load_iris(return_X_y=True)
clf = cavity.GPClassifier(max_epochs=5, calibrate=False, random_state=0).fit(X, y)
clf.save("iris.cavity")
assert np.array_equal(cavity.load("iris.cavity").predict_proba(X), clf.predict_proba(X))
clf.report(X, y).save("report.html")
"""


def run(*command: str | Path, where: Path) -> str:
    ours = ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL")  # what the test run itself was started with
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run([str(part) for part in command], cwd=where, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def names_in(archive: Path) -> list[str]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.namelist()
    with tarfile.open(archive) as source:
        return source.getnames()


def test_the_version_is_the_same_everywhere() -> None:
    assert version("cavity") == cavity.__version__
    assert f"version: {cavity.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_the_extras_are_there() -> None:
    assert set(PROJECT["optional-dependencies"]) == EXTRAS


def test_every_bound_of_a_dependency_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    bounds = re.findall(r'"[A-Za-z][\w\-\[\]]*[<>=]=?[\d.,<>=]+".*', text)
    assert len(bounds) > 20
    assert [line for line in bounds if "#" not in line] == []


def test_the_wheel_holds_the_package_only() -> None:
    """Neither experiments nor benchmarks, and nothing of the package imports them."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/cavity"]}
    for path in sorted((ROOT / "src").rglob("*.py")):
        assert not re.search(r"^\s*(?:from|import) (?:experiments|benchmarks)\b", path.read_text(), re.MULTILINE), path


# --- The set-up of `make` ---

spec = spec_from_file_location("setup_env", ROOT / "tools" / "setup_env.py")
setup_env = module_from_spec(spec)
spec.loader.exec_module(setup_env)
PINNED = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]


def planned(target: str, folder: Path, *options: str) -> str:
    return run("make", "--dry-run", *options, target, where=folder)


def test_the_demo_installs_less_than_the_tests(tmp_path: Path) -> None:
    """What is installed for one target is not installed again for the next."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/setup_env.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    install = "python3 tools/setup_env.py"
    demo, test, slow = (planned(target, tmp_path) for target in ("demo", "test", "slow"))
    assert f"{install}\n" in demo
    assert "test,dev" not in demo
    assert demo.endswith("cavity demo\n")
    assert f"{install}\n" in test
    assert f"{install} test,dev\n" in test
    assert "integrations" not in test
    assert f"{install} test,dev,integrations\n" in slow
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.demo").touch()
    assert "setup_env" not in planned("demo", tmp_path)
    assert planned("test", tmp_path).count("setup_env") == 1
    (tmp_path / ".venv/.ready").touch()
    assert "setup_env" not in planned("test", tmp_path)


def test_the_extras_of_the_set_up_exist() -> None:
    asked = re.findall(r"^\t.* tools/setup_env\.py ([\w,]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert asked == ["test,dev", "test,dev,integrations"]
    assert {extra for extras in asked for extra in extras.split(",")} <= EXTRAS


def test_the_demo_needs_none_of_the_extras() -> None:
    """No development tool, no other data frame and no plotting library is a dependency of the package itself."""
    core = {re.split(r"[<>=\[]", need)[0] for need in PROJECT["dependencies"]}
    assert core.isdisjoint(
        {"mypy", "playwright", "polars", "pandas", "mkdocs-material", "matplotlib", "onnx", "pytest"}
    )


@pytest.mark.parametrize(("system", "has_gpu"), [("Linux", True), ("Linux", False), ("Darwin", False)])
def test_where_torch_comes_from(system: str, has_gpu: bool) -> None:
    """CUDA comes only with a GPU or where nothing else can be had, and never without its size."""
    sources = setup_env.torch_sources(PINNED, system, has_gpu)
    from_cpu_index = [setup_env.CPU_INDEX in source.arguments for source in sources]
    assert from_cpu_index == {("Linux", False): [True, False]}.get((system, has_gpu), [False])
    if from_cpu_index[0]:
        assert f"torch=={PINNED}+cpu" in sources[0].arguments  # no other build can be meant
        assert "Ctrl-C" in sources[1].announcement
    if system == "Linux":
        assert "CUDA" in sources[-1].announcement
        assert setup_env.CUDA_SIZE in sources[-1].announcement


class FakePip:
    """In place of programs: records what is run and printed, in order; some requirements cannot be installed."""

    def __init__(self, capsys, found="", refused=()):
        self.capsys, self.found, self.refused, self.events = capsys, found, refused, []

    def run(self, command, **options):
        self.events += [line for line in self.capsys.readouterr().out.splitlines() if line]
        if "pip" not in command:
            return subprocess.CompletedProcess(command, 0, self.found, "")
        self.events.append(command[-1])
        return subprocess.CompletedProcess(command, int(command[-1] in self.refused))


@pytest.fixture
def set_up(monkeypatch, tmp_path, capsys):
    """Set up a machine without a GPU; return what happened."""

    def act(extras="", **options):
        fake = FakePip(capsys, **options)
        monkeypatch.chdir(tmp_path)
        (tmp_path / "constraints.txt").write_text(f"numpy==2\ntorch=={PINNED}\ntorchx==1\n")
        monkeypatch.setattr(setup_env.subprocess, "run", fake.run)
        monkeypatch.setattr(setup_env.platform, "system", lambda: "Linux")
        monkeypatch.setattr(setup_env.shutil, "which", lambda name: None)
        setup_env.main(extras)
        return fake.events

    return act


def test_a_machine_without_a_gpu_gets_the_cpu_build(set_up) -> None:
    events = set_up()
    assert events[-3:-1] == [f"torch=={PINNED}+cpu", "== 3 of 3: cavity and the packages that it needs"]
    assert events[-1] == "."
    assert f"torch=={PINNED}" not in events


def test_a_download_of_cuda_is_announced_first(set_up) -> None:
    events = set_up(refused=[f"torch=={PINNED}+cpu"])
    (announced,) = [i for i, event in enumerate(events) if setup_env.CUDA_SIZE in event]
    assert "Ctrl-C" in events[announced + 1]
    assert announced < events.index(f"torch=={PINNED}")


def test_an_installed_torch_is_kept(set_up) -> None:
    events = set_up("test,dev", found=f"{PINNED}\n")
    assert [event for event in events if not event.startswith("==")] == [".[test,dev]"]


def test_no_torch_at_all(set_up) -> None:
    with pytest.raises(SystemExit, match=r"torch .* could not be installed"):
        set_up(refused=[f"torch=={PINNED}+cpu", f"torch=={PINNED}"])


def test_an_old_python_is_refused_before_anything_is_made(set_up, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(setup_env.sys, "version_info", (3, 10, 4))
    with pytest.raises(SystemExit, match=r"cavity needs Python 3\.11 or newer"):
        set_up()
    assert [path.name for path in tmp_path.iterdir()] == ["constraints.txt"]


# --- The archives ---


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_an_archive_installs_and_works(kind: str, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", f"--{kind}", "--outdir", tmp_path, ROOT, where=tmp_path)
    (archive,) = tmp_path.glob("cavity-*")
    names = names_in(archive)
    for wanted in ("cavity/py.typed", "cavity/report/assets/report.css", "cavity/report/assets/report.js"):
        assert any(name.endswith(wanted) for name in names), wanted
    if kind == "wheel":  # experiments and benchmarks are for a clone
        folders = {name.partition("/")[0] for name in names}
        assert folders == {"cavity", f"cavity-{cavity.__version__}.dist-info"}
    venv.create(tmp_path / "clean", with_pip=True)
    pip = tmp_path / "clean/bin/pip"
    run(pip, "install", "--quiet", "--constraint", ROOT / "constraints.txt", archive, where=tmp_path)
    run(tmp_path / "clean/bin/python", "-W", "error", "-c", TRY_IT, where=tmp_path)
    assert cavity.__version__ in run(tmp_path / "clean/bin/cavity", "--version", where=tmp_path)
    run(tmp_path / "clean/bin/cavity", "demo", "--files", tmp_path, where=tmp_path)
    assert (tmp_path / "digits-train.csv").stat().st_size > 100_000
