# Everything happens in .venv, which follows pyproject.toml: no verb needs another one run first.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
COMPILED := build/installed
# A file of tests stays in one process, with what it started; ARGS="-n 0" runs all in one.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help venv demo test check test-compiled bench accuracy exactness test-engines format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## watch the gateway hold a rate, on emulated engines (ARGS="--help" for options)
	@$(BIN)/tidegate demo $(ARGS)

test: $(VENV)/.dev ## run the tests, a real llama.cpp among them (ARGS="tests/policy -k queue" to choose)
	@$(PYTEST) $(ARGS)

check: $(VENV)/.dev ## everything CI checks: lint, format, types, imports, tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) $(ARGS)

# tests/sim/test_run_cost.py counts lines of Python, which compiled modules do not execute.
test-compiled: $(COMPILED)/.made ## test the hot modules as C extensions (needs gcc and python3-dev)
	@TIDEGATE_COMPILE=1 PYTHONPATH=$(COMPILED) $(PYTEST) \
	  tests/test_compiled.py tests/core tests/policy tests/sim tests/net tests/gateway \
	  --ignore tests/sim/test_run_cost.py $(ARGS)

bench: $(COMPILED)/.made ## measure the gateway, compiled, beside its peers (ARGS="--help" for options)
	@$(BIN)/python -m benchmarks --compiled $(COMPILED) $(ARGS)

accuracy: $(VENV)/.dev ## replay recorded runs of real vLLM, and write how far off the simulator is into docs/
	@$(BIN)/python -m accuracy $(ARGS)

test-engines: $(VENV)/.dev ## test against real llama.cpp and real vLLM (first time: minutes and 2 GB)
	@$(BIN)/python -m pytest tests/engines -m "engine or vllm" $(ARGS)

exactness: $(VENV)/.dev ## simulate queues that theory knows, and write how near it comes into docs/ (minutes)
	@$(BIN)/python -m exactness $(ARGS)

format: $(VENV)/.dev ## put the code into the form that check wants
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean: ## remove all that these verbs made, installed engines too
	@rm -rf $(VENV) .engines build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests benchmarks accuracy exactness -name __pycache__ -type d -prune -exec rm -rf {} +

venv: $(VENV)/.dev

# Beside the editable install, not in its place: tests and benchmarks put it first in PYTHONPATH.
$(COMPILED)/.made: $(VENV)/.dev pyproject.toml hatch_build.py $(shell find src -name '*.py')
	@echo 'Compiling the hot modules of tidegate (about a minute and a half)'
	@rm -rf $(COMPILED)
	@TIDEGATE_COMPILE=1 $(PIP) install --no-deps --target $(COMPILED) .
	@touch $@

# Debian ships Python without ensurepip unless python3-venv is installed; a pip outside does as well.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'tidegate needs Python 3.11 or newer; name one: make PYTHON=python3.12' >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	  $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	  $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip -qq --python $(BIN)/python install pip; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'Installing python3-venv, which this Python needs to make a virtual environment'; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qqy python3-venv >/dev/null \
	    && $(PYTHON) -m venv $(VENV); \
	else \
	  echo 'This Python can make no virtual environment yet. Run: apt-get install -y python3-venv' >&2; exit 1; \
	fi
	@touch $@

# What the gateway needs to run, and no more, so that the demo starts soon.
$(VENV)/.runtime: pyproject.toml $(VENV)/.created
	@echo 'Installing tidegate into $(VENV)'
	@$(PIP) install --editable .
	@touch $@

# Dependency groups need pip 25.1.
$(VENV)/.dev: pyproject.toml $(VENV)/.created
	@echo 'Installing tidegate and its development tools into $(VENV)'
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install --editable . --group dev
	@touch $(VENV)/.runtime $@
