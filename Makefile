# `make test` is all the set-up a fresh machine needs; a second call skips what is done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help setup run test test-slow lint format wheel bench clean
.DEFAULT_GOAL := help

help: ## show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ucb needs Python 3.11 or later; try: make PYTHON=python3.12 test"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "no virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/.test-installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[test]'
	@touch $@

$(VENV)/.lint-installed: $(VENV)/.test-installed
	$(PIP_INSTALL) -e '.[test,lint]'
	@touch $@

$(VENV)/.bench-installed: $(VENV)/.test-installed
	$(PIP_INSTALL) --no-deps bayesian-torch==0.5.0 blitz-bayesian-pytorch==0.2.8 torchbnn==1.2
	@touch $@

setup: $(VENV)/.test-installed ## make .venv and install the package with its test extra

run: $(VENV)/.test-installed ## learn 5-Split MNIST with UCB, about two minutes on 2 cores
	$(BIN)/ucb run mnist-5split --method ucb --out runs/mnist-5split-ucb-$$(date +%Y%m%d-%H%M%S)

test: $(VENV)/.test-installed ## the tests, under 10 minutes on 2 cores
	$(BIN)/python -m pytest -n auto

test-slow: $(VENV)/.test-installed ## the slow tests that need no GPU
	$(BIN)/python -m pytest -m 'slow and not gpu' || [ $$? -eq 5 ]  # 5: there are none

lint: $(VENV)/.lint-installed ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint-installed ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.test-installed ## build the wheel and import it from a clean environment
	rm -rf dist .venv-wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/ucb-*.whl
	cd dist && ../.venv-wheel/bin/python -m ucb --version
	cd dist && ../.venv-wheel/bin/python -c 'from ucb.bayes import kernels; from ucb.stream import load_mnist; print(kernels.status(), len(load_mnist().x_train))'
	rm -rf .venv-wheel

bench: $(VENV)/.bench-installed ## one training step beside other libraries, as in docs/performance.md
	$(BIN)/ucb bench --out results/bench/step-cpu.json
	UCB_KERNELS=off $(BIN)/ucb bench --out results/bench/step-cpu-without-compiler.json
	$(BIN)/python benchmarks/write_docs.py

clean: ## remove what make made
	rm -rf $(VENV) .venv-wheel dist build .mypy_cache .pytest_cache .ruff_cache
