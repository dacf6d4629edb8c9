"""What is imported when: starting must be light."""

import subprocess
import sys

import pytest

HEAVY = ("pyarrow", "matplotlib", "scipy.optimize", "cavity.report", "onnx")


def loaded(code, before=""):
    """The modules that `code` loads in a new process, beyond those of `before`."""
    script = f"import sys\n{before}\nknown = set(sys.modules)\n{code}\nprint(*set(sys.modules) - known)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded("import cavity") & {*HEAVY, "torch", "sklearn", "scipy", "numpy"}


def test_the_classifier_loads_neither_files_nor_plots_nor_the_report():
    """Beyond what scikit-learn and torch load themselves, such as scipy.optimize."""
    found = loaded("from cavity import GPClassifier", before="import sklearn.utils.validation, torch")
    assert "cavity.classifier" in found
    assert not found & {*HEAVY, "cavity.plot", "cavity.export", "cavity.files.model_file"}


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_loads_neither_torch_nor_scikit_learn(words):
    code = f"from cavity.cli import main\ntry:\n    main({words!r})\nexcept SystemExit:\n    pass"
    assert not loaded(code) & {*HEAVY, "torch", "sklearn", "numpy"}


def test_sources_load_no_arrow_before_a_file_is_read():
    assert not loaded("import cavity.data\ncavity.data.Arrays") & {"pyarrow", "matplotlib"}


def test_unknown_names_are_refused():
    import cavity

    with pytest.raises(AttributeError, match="no attribute 'GPRegressor'"):
        cavity.GPRegressor  # noqa: B018
