# All that is needed beforehand is make and Python 3.11 or later: `make test` does the rest.

PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
INSTALLED := .venv/.installed

# The tests and the benchmark start the tool a few thousand times: compiled once, it starts in half the time.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help .venv demo test prove bench lint format clean

help: ## list the targets (the default)
	@awk -F ':.*## ' '/^[.a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv: $(INSTALLED) ## set up .venv; every target below does so by itself

$(INSTALLED): pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "migrator needs Python 3.11 or later; $(PYTHON) is older or cannot be run." >&2; \
		echo "Name another one: make PYTHON=/path/to/python3 ..." >&2; \
		exit 1; }
	@echo "Setting up .venv; this takes a minute."
	@"$(PYTHON)" -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(INSTALLED) ## the whole story on a server of its own
	@$(BIN)/migrator demo $(ARGS)

test: $(INSTALLED) ## the tests; choose with ARGS="-k ledger"
	@$(BIN)/python -m pytest -n 2 -m "not prove" $(ARGS)

prove: $(INSTALLED) ## the numbers in full, printed as they come; takes long
	@$(BIN)/python -m pytest -p no:xdist -m prove --timeout=3600 -s $(ARGS)

bench: $(INSTALLED) ## speed, side by side in one run
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[chart]'
	@$(BIN)/python -m tests.bench $(ARGS)

lint: $(INSTALLED) ## style, types, and the direction of imports
	@failed=0; \
	for check in "ruff check" "ruff format --check" "mypy" "lint-imports --no-logo"; do \
		$(BIN)/$$check || failed=1; \
	done; \
	exit $$failed

format: $(INSTALLED) ## put style right where a tool can
	@$(BIN)/ruff check --quiet --fix-only
	@$(BIN)/ruff format

clean: ## remove .venv, caches and builds
	@rm -rf .venv build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
