# SPDX-License-Identifier: Apache-2.0
# The commands of the project; `make help` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
# Two at a time, but for labs: what is asked there within a time may need both cores.
TWO := --jobs 2 --output-sync --no-print-directory
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header \
	--universal --python-version 3.11 pyproject.toml

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: .venv/.ready ## Make .venv with everything that the other commands need

.venv/.ready: requirements/dev.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements/dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

check: setup ## Format, lint, types, layers, spelling, generated files
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell src tests docs native charts examples README.md ARCHITECTURE.md CONTRIBUTING.md STYLE.md
	$(BIN)/python -m tests.golden.regenerate --check

fix: setup ## Mend what can be mended by itself
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

fast: setup ## Unit, scenario, contract and architecture tests: no cluster
	$(MAKE) $(TWO) fast-stories fast-parts

fast-stories: setup
	$(BIN)/pytest -q tests/scenario

fast-parts: setup
	$(BIN)/pytest -q $(addprefix tests/,unit architecture native contract chart)

programs: setup ## Build Kubernetes and what else the lab runs (once)
	$(BIN)/python -m gpudeck.lab.toolchain

# In two parts, lest the lab of the first stays up beside the others.
lab-test: setup ## The end-to-end tests in the lab
	$(BIN)/pytest -q tests/lab/ampere --timeout 900
	$(BIN)/pytest -q tests/lab --ignore tests/lab/ampere --timeout 900

qemu-packages: setup
	$(BIN)/python -m tests.qemu.packages

qemu-test: qemu-packages ## Memory limits of shares on a kernel with cgroup version 2 (as root: apt)
	$(BIN)/pytest -q tests/qemu

test: setup programs ## Everything that guards the project, each once
	$(MAKE) $(TWO) check fast-stories fast-parts qemu-test
	$(MAKE) lab-test

test-skew: setup ## Tests of the API against the oldest Kubernetes, 1.34 (builds its API server once)
	programs=$$(nice $(BIN)/python -m gpudeck.lab.toolchain oldest) && \
	  GPUDECK_TOOLCHAIN_BIN=$$programs \
	  $(BIN)/pytest -q $(addprefix tests/contract/,api chart cli controller dra kube)

soak: setup ## The end-to-end tests, long (an hour of kills), and the controller at 5,000 nodes
	GPUDECK_SOAK=1 $(BIN)/pytest -q tests/lab --timeout 7200
	$(BIN)/python -m benchmarks.scale --nodes 5000 --no-record

lab: setup ## Start a lab with two GPU nodes and print its kubeconfig
	$(BIN)/gpudeck lab up && $(BIN)/gpudeck lab install && $(BIN)/gpudeck lab kubeconfig

demo: setup ## From nothing to a pod with a GPU, shown step by step
	$(BIN)/python -m gpudeck.lab.demo

golden: programs ## Write all generated files anew (stubs, CRDs, reference pages, renderings)
	$(BIN)/python -m tests.golden.regenerate
	$(BIN)/python -m tests.chart.rendering

bench: setup ## Run the benchmarks and record their figures in benchmarks/
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.node
	$(BIN)/python -m benchmarks.partitioning

lock: setup ## Pin the newest versions of the dependencies, by hash
	$(PYTHON) -m venv .venv/lock && .venv/lock/bin/pip install --quiet uv
	.venv/lock/bin/$(subst $(BIN)/,,$(LOCK)) -o requirements/product.lock
	.venv/lock/bin/$(subst $(BIN)/,,$(LOCK)) --all-extras -o requirements/dev.lock

.PHONY: help setup check fix fast fast-stories fast-parts programs lab-test qemu-packages qemu-test test test-skew soak lab demo golden bench lock
