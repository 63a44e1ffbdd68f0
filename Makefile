# `make demo` and `make test` need only Python 3.11+ and PyPI. Both create and use .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --constraint constraints.txt

.PHONY: demo test stress lint format docs bench bench-check clean

demo: $(VENV)/.installed  ## compare the majority class, MLP, GCN and the three GFGN levels on the embedded graph
	$(BIN)/gfgn compare

test: $(VENV)/.installed-dev  ## all tests, one process per core, at most four
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal $(ARGS)

stress: $(VENV)/.installed-dev  ## the stress suite with 20 times the cases of `make test`
	GFGN_STRESS=$${GFGN_STRESS:-20} $(BIN)/python -m pytest -m stress --numprocesses auto --maxprocesses 4 $(ARGS)

lint: $(VENV)/.installed-dev  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

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
	rm -rf $(VENV) site build dist gfgn-report

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
