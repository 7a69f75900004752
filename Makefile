# `make quickstart`: from nothing to a leaderboard. `make test`: from nothing to all tests passed. `make lint`: style,
# types, import rules, workflows, shell scripts and the image's file. `make test-all`: the slow tests, too. `make docs`:
# the site, below build/site. `make dist`: what is released, below dist.

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
COMMA := ,

# Tests start a thousand processes; each would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-all test-core test-extra test-newest test-lowest lint docs dist install clean

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

# One extra alone, or none, in an environment of its own: make test-extra EXTRA=onnx
TESTS_none := tests/solvers tests/balancing tests/metrics tests/records tests/cli/test_listing.py
TESTS_vectors := tests/pipelines/test_word_vectors.py
TESTS_cluster := tests/cluster tests/execution/test_submit.py
TESTS_mat := tests/pipelines/test_nyuv2.py
TESTS_text := tests/pipelines/test_pretrained_texts.py tests/pipelines/test_token_features.py tests/encoders/test_pretrained.py
TESTS_backbones := tests/pipelines/test_backbones.py tests/pipelines/test_domain_folders.py
TESTS_rl := tests/rl
TESTS_nas := tests/nas
TESTS_onnx := tests/inference/test_onnx.py
TESTS_tensorboard := tests/tracking/test_sinks.py
TESTS_wandb := tests/tracking/test_sinks.py
TESTS_docs := tests/test_site.py
ALONE := build/extras/$(EXTRA)

test-extra:
	@test -n '$(TESTS_$(EXTRA))' || { echo 'EXTRA is one of: $(patsubst TESTS_%,%,$(filter TESTS_%,$(.VARIABLES)))'; exit 1; }
	$(PYTHON) -m venv --clear $(ALONE)
	$(ALONE)/bin/python -m pip install --quiet --constraint constraints.txt \
	  --editable '.[test$(addprefix $(COMMA),$(filter-out none,$(EXTRA)))]'
	$(ALONE)/bin/mtlscale run quickstart --fast --home $(ALONE)/home
	$(ALONE)/bin/python -m pytest $(TESTS_$(EXTRA))

# The newest releases that the ranges of pyproject.toml allow, and the lowest ones, each in an environment of its own:
# make test-lowest TESTS='tests/solvers tests/balancing'
TESTS :=

test-newest:
	$(PYTHON) -m venv --clear build/newest
	build/newest/bin/python -m pip install --quiet --upgrade --editable '.[dev]'
	build/newest/bin/python -m pytest $(TESTS)

# uv, since pip tries versions for an hour here; tools of checks (dev, docs) are left free.
LOWEST := $(foreach extra,test vectors mat text backbones cluster nas rl onnx tensorboard wandb,--extra $(extra))

test-lowest:
	$(PYTHON) -m venv --clear build/lowest
	build/lowest/bin/python -m pip install --quiet uv
	build/lowest/bin/uv pip compile --quiet --resolution lowest-direct $(LOWEST) pyproject.toml -o build/lowest/constraints.txt
	VIRTUAL_ENV=build/lowest build/lowest/bin/uv pip install --quiet --constraint build/lowest/constraints.txt --editable '.[dev]'
	build/lowest/bin/python -m pytest $(TESTS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/actionlint -shellcheck $(BIN)/shellcheck
	$(BIN)/shellcheck .ci/run cluster/slurm.sh cluster/slurm_array.sh
	$(BIN)/hadolint cluster/Containerfile

docs: install
	$(BIN)/python docs/site/stage.py build/pages
	PYTHONPATH=docs/site $(BIN)/zensical build --strict
	@echo 'build/site/index.html; with the search: python -m http.server --directory build/site'

dist: install
	rm -rf build/lib dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'mtlscale needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 ...'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) outputs build *.egg-info
