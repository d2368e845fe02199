# Two commands: `make demo` and `make test`. Each sets up .venv by itself; a second call reuses it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: demo test lint types docs package clean
demo: $(STAMP)
	$(BIN)/exhume demo --out out/demo

# Types are checked beside the tests: both leave a core idle for a while. Byte code is kept even where the environment
# forbids it: tests start processes, and each of them would compile the package again.
test: export PYTHONDONTWRITEBYTECODE =
test: $(STAMP) lint
	@$(BIN)/mypy & types=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2; tests=$$?; \
	wait $$types && exit $$tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Before a release: build both archives, install the wheel into an empty environment, and run the demo from it.
package: $(STAMP)
	rm -rf dist out/package
	$(BIN)/python -m hatchling build --directory dist
	$(PYTHON) -m venv out/package/venv
	out/package/venv/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	cd out/package && venv/bin/exhume demo --out demo

# The constraints pin everything the tests ran with, so nothing is left to resolve. Two installations run side by side,
# as compiling byte code takes most of the time of each; the check at the end finds a pin that is missing.
FIRST := ^(torch|sympy|networkx|scipy|scikit-image)==
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	grep -E '$(FIRST)' constraints.txt > .venv/first.txt
	grep -vE '$(FIRST)' constraints.txt > .venv/rest.txt
	@$(BIN)/python -m pip install --quiet --no-deps -r .venv/first.txt & first=$$!; \
	$(BIN)/python -m pip install --quiet --no-deps -r .venv/rest.txt && wait $$first
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $@

clean:
	rm -rf .venv out site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
