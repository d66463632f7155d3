# make demo, docs, test, test-fast, test-portable, test-ray, fuzz, check, format, clean; each makes .venv itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
READY_FOR_TESTS := $(VENV)/.installed-dev
READY_FOR_DOCS := $(VENV)/.installed-docs
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt

# compiled modules are kept, whatever the environment says: tests start some hundred processes
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo docs test test-fast test-portable test-ray fuzz check format clean

help:
	@sed -n '1s/^# //p' Makefile

demo: $(READY)
	GOMP_SPINCOUNT=$${GOMP_SPINCOUNT:-1000} $(BIN)/python examples/demo.py

# the documentation site, build/site/index.html; what is wrong with a link or an equation is an error
docs: $(READY_FOR_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "Built build/site/index.html"

# in the order of the files: xdist's own puts long files with few tests last
test: check docs
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# unit tests, without a compiler and without training: a few minutes on two cores
test-fast: $(READY_FOR_TESTS)
	CXX=there-is-no-compiler-here $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

# as other machines would run them; LEGS="avx2 clang" runs some of them
test-portable: $(READY_FOR_TESTS)
	$(BIN)/python tests/helpers/portable.py $(LEGS)

# Ray is an extra of 215 MB, and its tests are skipped where it is not installed
test-ray: $(READY_FOR_TESTS)
	$(PIP) --editable '.[ray]'
	$(BIN)/python -m pytest tests/experiments/test_ray_pool.py

# the long form of tests/fuzz; at most MINUTES, from SEED on, failures to OUT
MINUTES ?= 60
SEED ?= 1
OUT ?= runs/fuzz.jsonl
fuzz: $(READY_FOR_TESTS)
	$(BIN)/python tests/fuzz/long.py --minutes $(MINUTES) --seed $(SEED) --out $(OUT)

check: $(READY_FOR_TESTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY_FOR_TESTS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# not compiled but when imported: that of all that flair brings took longer than all the rest
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "flair-nas needs Python 3.10 or newer, this is %d.%d; run: make PYTHON=/path/to/python3" % v[:2])'
	@echo "Setting up $(VENV): Flair, PyTorch and what they need, a minute or more, 1.4 GB"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(PIP) --editable .
	touch $@

# tests need more: linter, types, pytest
$(READY_FOR_TESTS): $(READY)
	$(PIP) --editable '.[dev]'
	touch $@

# the site needs more: its generator, and MathML of TeX
$(READY_FOR_DOCS): $(READY)
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
