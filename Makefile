# All set-up goes into .venv, created when absent.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# slow tests: the longest files first, so that those side by side end at about the same time
JOBS ?= 2
LONG := flow/test_promises federation/test_attacks fuzz/test_readers federation/test_kills
SLOW := $(sort $(patsubst tests/%.py,%,$(shell grep -rl --include='test_*.py' 'mark\.slow' tests)))
SOURCES := $(shell find Makefile pyproject.toml constraints.txt README.md benchmarks deploy docs examples src tests -type f ! -name '*.pyc')

.DEFAULT_GOAL := help
.PHONY: help demo test slow bench federation check docs package clean
# set-up leaves compiling to the first import, which must then be able to keep what it compiled
unexport PYTHONDONTWRITEBYTECODE

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("rofl needs Python 3.11 or newer; try: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## a first look, about a minute: plain FedAvg against rofl, 40 % of the labels wrong
	$(BIN)/rofl demo

test: $(READY)  ## all tests but the slow ones
	$(BIN)/python -m pytest -n 2 --dist worksteal

slow: $(READY)  ## the figures that the README promises, every fault of a federation, distribution, containers: an hour or more
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,networks,release,simulation]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps timm
	@$(MAKE) --no-print-directory --keep-going --jobs=$(JOBS) $(patsubst %,build/slow/%.passed,$(LONG) $(filter-out $(LONG),$(SLOW)))
	@echo "All $(words $(SLOW)) files passed; their logs are in build/slow."

# One file of slow tests. What passed is not run again before a source changes, so that `make slow` goes on where it was stopped.
build/slow/%.passed: tests/%.py $(SOURCES)
	@mkdir -p $(@D)
	@$(BIN)/python -m pytest -q -m slow $< --durations=0 > build/slow/$*.log 2>&1; code=$$?; \
	echo "$* $$(tail -n 1 build/slow/$*.log)"; grep -E '^(FAILED|ERROR|SKIPPED)' build/slow/$*.log; \
	test $$code = 0 && touch $@

bench: $(READY)  ## six measurements of speed, into benchmarks/results.md: 20 minutes of a quiet machine
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,simulation]'
	$(BIN)/python -m benchmarks.speed

federation: $(READY)  ## five sites with keys and masks on this machine, one killed and one poisoned on the way: about five minutes
	$(BIN)/python benchmarks/federation.py

check: $(READY)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## run every command and snippet that the documents show, then build guide and reference into build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	$(BIN)/python -m pytest tests/flow/test_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

package: $(READY)  ## wheel and sdist into dist, checked; lint of the files for containers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,release]'
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml deploy/compose.data.yaml
	$(BIN)/kubernetes-validate --strict deploy/kubernetes/coordinator.yaml

clean:  ## remove .venv and caches; runs/ stays
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
