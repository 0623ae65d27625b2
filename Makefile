# make demo: see it work.  make test: every test.  make check: what must be green before a commit lands.
PYTHON ?= python3
VENV   ?= .venv
LLAMA_SERVER ?= llama-server
WORKERS ?= 3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test test-kernels test-slow family mutants test-local-llm soak bench format format-check lint types check clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

install: $(STAMP) ## create .venv and install everything into it

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "selfcompact needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## an agent compacts itself from a cell (no API key needed)
	@$(BIN)/selfcompact demo

test: $(STAMP) ## every test but the slow ones
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not local_llm"

test-kernels: $(STAMP) ## the kernel tests against every supported ipykernel, each in its own environment
	$(BIN)/python -m tests.kernel.matrix $(VENV)/kernels

test-slow: $(STAMP) ## the slow tests
	$(BIN)/python -m pytest -m slow

family: $(STAMP) ## install the session family's own program, which the slow tests read our logs with (needs the network)
	$(BIN)/python -m tests.log.family

mutants: $(STAMP) ## break the product in each known way and see that a test notices (three minutes)
	$(BIN)/python -m tests.mutants $(NAMES)

bench: $(STAMP) ## the measurements of docs/benchmarks.md
	$(BIN)/python -m benchmarks engine
	$(BIN)/python -m benchmarks background
	$(BIN)/python -m benchmarks conformance
	$(BIN)/python -m benchmarks log
	$(BIN)/python -m benchmarks bridge
	$(BIN)/python -m benchmarks kernel --parts 1
	$(BIN)/python -m benchmarks weight

test-local-llm: $(STAMP) ## against llama.cpp: make test-local-llm MODEL=file.gguf [LLAMA_SERVER=llama-server]
	@test -f "$(MODEL)" || { echo "name a model file: make test-local-llm MODEL=/path/to/file.gguf" >&2; exit 2; }
	LOCAL_LLM_MODEL="$(MODEL)" LOCAL_LLM_SERVER="$(LLAMA_SERVER)" $(BIN)/python -m pytest -m local_llm tests/models/test_local_llm.py

soak: $(STAMP) ## 10,000 random interleavings of a session (some minutes)
	INTERLEAVINGS=10000 $(BIN)/python -m pytest -m slow tests/session/test_interleavings.py

format: $(STAMP) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: $(STAMP)
	$(BIN)/ruff format --check .

lint: $(STAMP) ## ruff
	$(BIN)/ruff check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

check: format-check lint types test ## format, lint, types, tests

clean: ## remove what make made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
