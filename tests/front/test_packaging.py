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
from pathlib import Path

import pytest

import cavity

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {"gpu", "onnx", "report", "bench", "integrations", "docs", "test", "dev"}
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
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
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
