# `make quickstart`: from nothing to a leaderboard. `make test`: from nothing to all checks passed. `make test-all`: the
# slow tests too (an hour or two).

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin

.PHONY: quickstart test test-all lint install clean

quickstart: install
	$(BIN)/mtlscale run quickstart

test: install lint
	$(BIN)/python -m pytest

test-all: install lint
	$(BIN)/python -m pytest -n 0 -m ''

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'mtlscale needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 ...'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) outputs build *.egg-info
