# make demo   set up, start the engine on the default model, play the incident
# make test   set up, all tests that need no GPU and no peer
# make check  format, lint, types, import rules, unit tests; rewrites nothing
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Everything that is fetched or converted stays below the clone: removing the clone removes it all.
export ENGINECTL_CACHE_DIR ?= $(CURDIR)/.cache/enginectl

.PHONY: help setup demo test check fix unit model docs bench interop clean

help:
	@sed -n 's/^# //p' $(MAKEFILE_LIST) | head -3

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}: make PYTHON=python3.12 ...")'
	@echo "setting up $(VENV) (torch is the large part) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "the venv module is missing: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[engine,dev]'
	@touch $@

model: setup
	@$(BIN)/python -m engine.model.fetch

demo: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/demo.py

test: setup model
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -n 2 --dist loadfile -m "not interop and not gpu"

unit: setup
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -n 2 --dist loadfile -m "not e2e and not model and not fault and not thread and not interop and not gpu"

check: setup
	@$(BIN)/ruff format --check --quiet . || { echo "format: make fix"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(MAKE) --no-print-directory unit

fix: setup
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

# make interop   against a real vLLM, whose venv (3.4 GB) it builds once, or the one that ENGINECTL_INTEROP_VENV names;
#                half an hour on two cores, not part of CI
interop: setup model
	@PEER=$$(PYTHON=$(PYTHON) sh tests/interop/make_venv.sh) && \
	OMP_NUM_THREADS=1 ENGINECTL_INTEROP_VENV="$$PEER" $(BIN)/python -m pytest tests/interop -m interop -vv -rP --durations=5

docs: setup
	@$(BIN)/python -m tools.generate

clean:
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache
