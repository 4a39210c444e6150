# make demo          train on the example data, run the model in LAMMPS, check the numbers
# make test          lint, types, import rules, documentation, tests (not the slow ones, not those for a GPU)
# make example-data  compute examples/data again (about an hour)
# make docs          the documentation, docs/_build/html/index.html
# make install       .venv with everything, the plugin compiled; the other targets call it
# PYTHON=python3.12 picks the interpreter, TORCH=torch==2.14.1 another torch.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PLUGIN := CMakeLists.txt $(wildcard lammps_plugin/*.cpp lammps_plugin/*.h lammps_plugin/CMakeLists.txt)

.PHONY: install test lint pytest demo docs example-data clean

# Everything below runs one after the other: two pips must not write one environment.
.NOTPARALLEL:

install: $(VENV)/plugin.stamp

$(VENV)/constraints.txt: constraints.txt
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10), "FlashCart needs Python 3.10 or newer: make PYTHON=python3.12"'
	$(PYTHON) -m venv $(VENV)
	@# Another torch brings its own triton, so both pins go.
	if [ "$(TORCH)" = "torch==2.13.0" ]; then cp constraints.txt $@.new; else grep -vE '^(torch|triton)==' constraints.txt > $@.new; fi
	mv $@.new $@

$(VENV)/packages.stamp: $(VENV)/constraints.txt pyproject.toml
	$(PIP) install -q -c $(VENV)/constraints.txt scikit-build-core pybind11 cmake ninja packaging lammps mpich "$(TORCH)"
	touch $@

# Editable: Python files are live, the compiled plugin lies in the environment.
$(VENV)/plugin.stamp: $(VENV)/packages.stamp $(PLUGIN)
	$(PIP) install -q -c $(VENV)/constraints.txt --no-build-isolation --editable '.[lammps,plots,docs,dev]'
	$(BIN)/flashcart-lammps path
	touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror lammps_plugin/*.cpp lammps_plugin/*.h
	$(BIN)/mypy
	$(BIN)/lint-imports

# One thread unless told otherwise: threads that wait for each other make a busy machine many times slower.
pytest: install
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -m "not slow and not gpu"

# Lint and documentation first: they take seconds.
test: lint docs
	$(MAKE) --no-print-directory pytest

demo: install
	$(BIN)/python examples/demo.py

docs: install
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

$(VENV)/example-data.stamp: $(VENV)/plugin.stamp
	$(PIP) install -q -c $(VENV)/constraints.txt --no-build-isolation --editable '.[example-data]'
	touch $@

example-data: $(VENV)/example-data.stamp
	$(BIN)/python examples/data/make_water.py
	$(BIN)/python examples/data/make_crystal.py

clean:
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
