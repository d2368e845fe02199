# Two commands: `make demo` and `make test`. Each sets up .venv by itself; a second call reuses it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: demo test lint types docs clean
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
	$(BIN)/python -m pip install --quiet --no-deps -e .
	$(BIN)/python -m pip check
	touch $@

clean:
	rm -rf .venv out site .pytest_cache .mypy_cache .ruff_cache .hypothesis
