# make demo and make test need only Python 3.11 or newer and make; the rest is installed into .venv, as far as the target
# needs it. tools/setup_env.py installs, with the versions in constraints.txt.

PYTHON ?= python3
WORKERS ?= 2

BIN := .venv/bin
# Files that mark what is installed: what the demo needs, the tests and tools on top, and what only slow tests need.
DEMO := .venv/.demo
READY := .venv/.ready
SLOW := .venv/.slow
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

$(DEMO): pyproject.toml constraints.txt tools/setup_env.py
	$(PYTHON) tools/setup_env.py
	@touch $@

$(READY): $(DEMO)
	$(PYTHON) tools/setup_env.py test,dev
	@touch $@

$(SLOW): $(READY)
	$(PYTHON) tools/setup_env.py test,dev,integrations
	@touch $@

demo: $(DEMO)
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

slow: $(SLOW)
	$(PYTEST) -m slow

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(READY)
	$(BIN)/python -m build

clean:
	rm -rf .venv build dist site demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
