# `make quickstart`: from nothing to a leaderboard. `make test`: from nothing to all tests passed. `make lint`: style,
# types and import rules. `make test-all`: the slow tests, too. `make docs`: the site, below build/site.

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin

# Tests start a thousand processes; each would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-all test-core lint docs install clean

quickstart: install
	$(BIN)/mtlscale run quickstart

test: install
	$(BIN)/python -m pytest

test-all: install
	$(BIN)/python -m pytest -m ''

# The core alone: a copy without the families of neural architecture search and reinforcement learning, the experiments
# that name their components, and the tests of the whole repository's pages.
FAMILIES := aaspc|darts|e2rnas|cell_network|metaworld|sac|soft_modules|scripted_expert|random_actions
PAGES := tests/(house/|test_docs|test_site|test_readme|test_citations|test_project_files)

test-core: install
	rm -rf build/core
	mkdir -p build/core
	git ls-files | grep -vE '^((mtlscale|tests)/(nas|rl)/|$(PAGES))' | tar -c -T - | tar -x -C build/core
	grep -rlwE '$(FAMILIES)' build/core/experiments | xargs rm
	cd build/core && PYTHONPATH=$$PWD $(abspath $(BIN))/python -m pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'build/site/index.html; with the search: $(BIN)/mkdocs serve'

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'mtlscale needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 ...'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) outputs build *.egg-info
