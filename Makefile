# Two commands for newcomers: `make demo` and `make test`.  Both make .venv when it is
# missing and install what they need, pinned by constraints.txt, and no more.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLER := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALL := $(INSTALLER) --constraint constraints.txt

.PHONY: demo test check test-oldest test-adapters extras bench-quick clean

demo: $(VENV)/.train
	$(BIN)/drv demo $(ARGS)

test: $(VENV)/.dev check
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

# The environment on the oldest gymnasium it promises to run on.
test-oldest: $(VENV)/.dev
	$(INSTALLER) --no-deps --upgrade --target $(VENV)/oldest gymnasium==1.2.2
	PYTHONPATH=$(CURDIR)/$(VENV)/oldest $(BIN)/python -m pytest -m "not slow" tests/env $(ARGS)

# The adapters against the real TRL and verifiers, in an environment of their own.
test-adapters: .venv-adapters/.made
	.venv-adapters/bin/python -m pytest tests/adapters $(ARGS)

.venv-adapters/.made: pyproject.toml constraints.txt tests/adapters/requirements.txt
	$(PYTHON) -m venv .venv-adapters
	.venv-adapters/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --requirement tests/adapters/requirements.txt --editable '.[train]'
	@touch $@

# Every extra that a machine without a GPU can resolve; openrlhf's needs CUDA to build.
extras: $(VENV)/.train
	for extra in train dev ray vllm; do \
		echo "resolving drv-env[$$extra]"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run ".[$$extra]" || exit 1; \
	done

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
