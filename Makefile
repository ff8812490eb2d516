# `make test` is all the set-up a fresh machine needs; a second call skips what is done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip --disable-pip-version-check --quiet
# No source distribution is taken: what builds it would be neither pinned nor checked.
INSTALL_HASHED := $(PIP) install --only-binary :all: --require-hashes -r
INSTALL_TORCH := $(PIP) install --only-binary :all: -c requirements/torch.txt torch
# Nothing is fetched: pip ends with an error where the files above lack something that the package needs.
INSTALL_OURS := $(PIP) install --no-index --no-build-isolation

.PHONY: help setup run test test-slow lint format wheel bench lock clean
.DEFAULT_GOAL := help

help: ## show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ucb needs Python 3.11 or later; try: make PYTHON=python3.12 test"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "no virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/.installed: pyproject.toml requirements/dev.txt requirements/torch.txt | $(BIN)/python
	$(BIN)/python $(INSTALL_HASHED) requirements/dev.txt
	$(BIN)/python $(INSTALL_TORCH)
	$(BIN)/python $(INSTALL_OURS) -e '.[test,lint]'
	@touch $@

$(VENV)/.bench-installed: requirements/bench.txt $(VENV)/.installed
	$(BIN)/python $(INSTALL_HASHED) requirements/bench.txt --no-deps
	@touch $@

setup: $(VENV)/.installed ## make .venv and install the package with what tests and checks need

run: $(VENV)/.installed ## learn 5-Split MNIST with UCB, about two minutes on 2 cores
	$(BIN)/ucb run mnist-5split --method ucb --out runs/mnist-5split-ucb-$$(date +%Y%m%d-%H%M%S)

test: $(VENV)/.installed ## the tests, under 10 minutes on 2 cores
	$(BIN)/python -m pytest -n auto

test-slow: $(VENV)/.installed ## the slow tests that need no GPU
	$(BIN)/python -m pytest -m 'slow and not gpu' || [ $$? -eq 5 ]  # 5: there are none

lint: $(VENV)/.installed ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.installed ## build the wheel and import it from a clean environment
	rm -rf dist .venv-wheel
	$(BIN)/python $(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python $(INSTALL_HASHED) requirements/run.txt
	.venv-wheel/bin/python $(INSTALL_TORCH)
	.venv-wheel/bin/python $(INSTALL_OURS) dist/ucb-*.whl
	cd dist && ../.venv-wheel/bin/python -m ucb --version
	cd dist && ../.venv-wheel/bin/python -c 'from ucb import kernels; from ucb.data.streams import load_mnist; print(kernels.status(), len(load_mnist().x_train))'
	rm -rf .venv-wheel

bench: $(VENV)/.bench-installed ## one training step beside other libraries, as in docs/performance.md
	$(BIN)/python benchmarks/peers.py --out results/bench/step-cpu.json
	UCB_KERNELS=off $(BIN)/python benchmarks/peers.py --out results/bench/step-cpu-without-compiler.json
	$(BIN)/python -m tools.docs

lock: ## write requirements/*.txt from pyproject.toml; LOCK=--upgrade takes the newest of everything
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python $(INSTALL_HASHED) requirements/lock.txt
	.venv-lock/bin/python requirements/lock.py $(LOCK)
	rm -rf .venv-lock

clean: ## remove what make made
	rm -rf $(VENV) .venv-wheel .venv-lock dist build .mypy_cache .pytest_cache .ruff_cache
