# Needs Python >= 3.11 and make. `make demo` shows the loop, `make test` tests it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Where it is set, every process compiles all that it imports anew, and four times all tests.
export PYTHONDONTWRITEBYTECODE :=

V := .venv/bin
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11 python
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'

.PHONY: help setup demo test test-all nightly bench soak mutate lint types imports quick schemas chart lock docs wheel \
	release clean

help: ## What there is
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 15

setup: .venv/.ready ## Make or refresh the environment (.venv), from the lock file

# pip only brings uv, whose version and hashes stand in the lock file like all others.
.venv/.ready: requirements.lock pyproject.toml
	@python=; for each in $(PYTHONS); do $$each $(NEW_ENOUGH) >/dev/null 2>&1 && { python=$$each; break; }; done; \
	[ -n "$$python" ] || { echo "Python 3.11 or newer is needed; found $$(python3 --version 2>&1 | head -1)" >&2; exit 1; }; \
	$(V)/python $(NEW_ENOUGH) 2>/dev/null && $(V)/python -m pip --version >/dev/null 2>&1 || \
	{ rm -rf .venv && $$python -m venv .venv; } || \
	{ rm -rf .venv; echo "$$python has no venv module with pip: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > .venv/uv.txt
	@$(V)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/uv.txt
	@$(V)/uv pip sync --quiet --compile-bytecode --python $(V)/python --require-hashes requirements.lock
	@$(V)/uv pip install --quiet --python $(V)/python --no-deps --no-build-isolation --editable .
	@$(V)/python -m compileall -q -j 0 agents deploy generate schemas streams tests/testbed # once, not in each process of the tests
	@touch $@

demo: setup ## See the loop close; options as ARGS="--seconds 30 --plain"
	@$(V)/slacktide demo $(ARGS)

# Two processes compute and two wait, on a machine with two processors.
POOL := -n 4

test: setup ## The tests that need nothing but Python, in minutes; options for pytest as ARGS="-k quota"
	@$(V)/pytest $(if $(ARGS),$(ARGS),$(POOL) --ladder here)

test-all: setup ## Every test, after installing and building what they need (as root; says first what that is)
	@tests/testbed/setup all
	@$(V)/pytest $(if $(ARGS),$(ARGS),$(POOL))

nightly: setup ## All of test-all, with more examples, more seeds, and waits and outages in full
	@tests/testbed/setup all
	@HYPOTHESIS_PROFILE=nightly SLACKTIDE_NIGHTLY=1 SLACKTIDE_REQUIRE_ALL=1 $(V)/pytest $(if $(ARGS),$(ARGS),$(POOL))

bench: setup ## Print the figures that the project promises
	@$(V)/python bench $(ARGS)

soak: setup ## 15 minutes with light faults: fails on growth; ARGS="--minutes 60 --report FILE"
	@tests/testbed/setup kafka
	@PYTHONPATH=tests $(V)/python -m attack.soak $(ARGS)

mutate: setup ## Break decision modules and see whether tests complain: ARGS="memory_evict evict_tasks"
	@tests/mutation/run $(ARGS)

lint: setup ## ruff: rules and format; plain English in pages and names
	@code=0; $(V)/ruff check || code=1; $(V)/ruff format --check || code=1; \
	$(V)/python tests/structure/language.py || code=1; exit $$code

types: setup ## mypy, strict
	@$(V)/mypy

imports: setup ## import-linter: imports go one way
	@$(V)/lint-imports

quick: lint types ## Lint, types and pure tests, in minutes: needs no root, Java or Docker
	@HYPOTHESIS_PROFILE=few $(V)/pytest tests/pure -n 2 --dist worksteal -m "not exhaustive" $(ARGS)

schemas: setup ## Renew schemas, AsyncAPI, reference pages and the design's pictures from the code
	@$(V)/python -m generate.schemas
	@$(V)/python -m generate.reference
	@$(V)/python -m generate.pictures

chart: setup ## Renew the templates of deploy/chart from deploy/kubernetes (needs kubectl on the path, or Go)
	@command -v kubectl >/dev/null || tests/testbed/setup api
	@$(V)/python -m generate.chart $$(command -v kubectl || ls -t $${XDG_CACHE_HOME:-$$HOME/.cache}/slacktide/go/*/kubectl | head -1)

# No host of a registry gets into the file: it is whoever installs that says where from.
lock: setup ## Renew requirements.lock within what pyproject.toml allows
	@$(V)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --group dev \
		--no-annotate --no-header --no-emit-index-url --no-emit-find-links $(ARGS) \
		pyproject.toml -o requirements.lock

docs: setup ## Build the docs site into site/, strictly
	@$(V)/zensical build --strict --clean

wheel: setup ## Build the wheel into dist/
	@$(V)/python -m hatchling build -t wheel

release: setup ## Wheel, sdist, image (with Docker), CycloneDX SBOM and checksums of this commit, into dist/
	@.ci/release

clean: ## Remove the environment and everything built
	@rm -rf .venv dist build site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
