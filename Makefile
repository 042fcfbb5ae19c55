# Two commands for newcomers: `make demo` and `make test`.  Both make .venv when it is
# missing and install what they need, pinned by constraints.txt, and no more.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check bench-quick clean

demo: $(VENV)/.train
	$(BIN)/drv demo $(ARGS)

test: $(VENV)/.dev check
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

bench-quick: $(VENV)/.dev
	$(BIN)/python benchmarks/env_step.py --quick

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "drv-env needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.train: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing the packages that the trainers need into $(VENV) (a few minutes the first time)"
	$(INSTALL) --editable '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing the packages that the tests need into $(VENV) (a few minutes the first time)"
	$(INSTALL) --editable '.[train,dev]'
	@touch $(VENV)/.train $@

clean:
	rm -rf $(VENV) runs build dist *.egg-info
