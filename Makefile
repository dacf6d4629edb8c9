# make demo and make test need only Python 3.11 or newer and make; the rest is installed into .venv.

PYTHON ?= python3
WORKERS ?= 2

BIN := .venv/bin
READY := .venv/.ready
# The constraints file is named in every install: it holds torch, and so its size, where it was tested.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
# One thread per worker: two workers with a thread pool each would fight for the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile

.PHONY: help setup demo reproduce bench test check slow docs dist clean

help:
	@echo "make demo    fit scikit-learn's digits and show the results"
	@echo "make reproduce EXPERIMENT=uci   run an experiment of the paper; without EXPERIMENT, list them"
	@echo "make bench BENCHMARK=step       run a benchmark; without BENCHMARK, the standard ones"
	@echo "make test    lint, import rules and the tests"
	@echo "make check   the same, with format and types"
	@echo "make slow    the tests that take minutes"
	@echo "make docs    build the documentation into site/"
	@echo "make dist    build the wheel and the source archive into dist/"
	@echo "make clean   remove .venv, caches and builds"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("cavity needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12")'
	@echo "Setting up .venv (a few minutes the first time)"
	$(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) --editable '.[test,dev]'
	@touch $@

demo: $(READY)
	$(BIN)/cavity demo

reproduce: $(READY)
	$(BIN)/python -m experiments $(EXPERIMENT)

bench: $(READY)
	$(BIN)/python -m benchmarks $(BENCHMARK)

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(PYTEST)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST)

slow: $(READY)
	$(PYTEST) -m slow

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(READY)
	$(BIN)/python -m build

clean:
	rm -rf .venv build dist site demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
