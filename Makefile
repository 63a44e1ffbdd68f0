# `make demo` and `make test` need only Python 3.11+ and PyPI. Both create and use .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --constraint constraints.txt

.PHONY: demo test minimum coverage stress lint format docs bench bench-check clean

demo: $(VENV)/.installed  ## compare the majority class, MLP, GCN and the three GFGN levels on the embedded graph
	$(BIN)/gfgn compare

test: $(VENV)/.installed-dev  ## all tests, one process per core, at most four
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal $(ARGS)

# OVERRIDE is for a machine that cannot install the oldest version: `make minimum OVERRIDE=torch==2.13.0`. It has been
# run with that one only: torch 2.11 and 2.12 are unrun.
MINIMUM := .venv-minimum
QUICK ?= tests/golden tests/cli tests/estimator tests/data tests/runs tests/nn/test_conv.py tests/train/test_loop.py
minimum:  ## the quick part of the tests with the oldest versions that pyproject.toml allows, in .venv-minimum
	$(PYTHON) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet uv
	echo "$(OVERRIDE)" > $(MINIMUM)/override.txt
	$(MINIMUM)/bin/uv pip install --python $(MINIMUM)/bin/python --resolution lowest-direct \
		--override $(MINIMUM)/override.txt --editable '.[dev]'
	$(MINIMUM)/bin/python -m pytest --numprocesses auto --maxprocesses 4 $(QUICK) $(ARGS)

coverage: $(VENV)/.installed-dev  ## which lines of src/gfgn the tests run
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest --numprocesses auto --maxprocesses 4 $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered

stress: $(VENV)/.installed-dev  ## the stress suite with 20 times the cases of `make test`
	GFGN_STRESS=$${GFGN_STRESS:-20} $(BIN)/python -m pytest -m stress --numprocesses auto --maxprocesses 4 $(ARGS)

lint: $(VENV)/.installed-dev  ## formatting, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-dev  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.installed-dev  ## measure speed and memory on this machine, into benchmarks/results/
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-check: $(VENV)/.installed-dev  ## compare speed relative to peers with the committed ratios: no GPU, a few minutes
	$(BIN)/python benchmarks/check.py $(ARGS)

clean:
	rm -rf $(VENV) $(MINIMUM) site build dist gfgn-report

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("gfgn needs Python 3.11 or newer, got " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing gfgn into $(VENV) (PyTorch is large: a few minutes the first time)"
	$(INSTALL) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the dependencies of tests and documentation"
	$(INSTALL) --editable '.[dev,docs]'
	touch $@
