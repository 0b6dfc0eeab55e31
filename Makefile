# Needs Python >= 3.11 and make. `make demo` shows the loop, `make test` runs every rung this machine can.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

V := .venv/bin
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11 python
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'

.PHONY: help setup demo test e2e stack-test bench soak bench-cluster mutate lint types imports quick check schemas chart kafka \
	lock docs wheel release clean

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
	@touch $@

demo: setup ## See the loop close; options as ARGS="--seconds 30 --plain"
	@$(V)/slacktide demo $(ARGS)

# A node on an emulated processor answers in time only where nothing else runs.
ALONE := tests/cluster/v2 tests/cluster/numa

test: setup ## Every rung that this machine can run; options for pytest as ARGS="-k quota"
	@tests/testbed/setup
	@$(if $(ARGS),$(V)/pytest $(ARGS),$(V)/pytest -n 2 $(ALONE:%=--ignore=%); code=$$?; \
	for each in $(ALONE); do $(V)/pytest $$each || code=1; done; exit $$code)

e2e: setup ## Slacktide on a real Kubernetes node, waits and outages in full (as root; builds Kubernetes once)
	@tests/testbed/setup cluster
	@SLACKTIDE_E2E=1 $(V)/pytest tests/cluster/e2e $(ARGS)

stack-test: setup ## The stack in Docker: up, three workers, every restart, down (as root; builds compose once)
	@for each in kafka prometheus docker; do tests/testbed/setup $$each || exit 1; done
	@SLACKTIDE_REQUIRE_ALL=1 $(V)/pytest tests/stack $(ARGS)

bench: setup ## Print the figures that the project promises
	@$(V)/python bench $(ARGS)

soak: setup ## 15 minutes with light faults: fails on growth; ARGS="--minutes 60 --report FILE"
	@tests/testbed/setup kafka
	@PYTHONPATH=tests $(V)/python -m attack.soak $(ARGS)

bench-cluster: setup ## A thousand kwok nodes on a real API server; ARGS="--nodes 100"
	@tests/testbed/setup kwok
	@$(V)/python bench --only cluster $(ARGS)

mutate: setup ## Break decision modules and see whether tests complain: ARGS="memory_evict evict_tasks"
	@tests/mutation/run $(ARGS)

lint: setup ## ruff: rules and format; plain English in pages and names
	@code=0; $(V)/ruff check || code=1; $(V)/ruff format --check || code=1; \
	$(V)/python tests/structure/language.py || code=1; exit $$code

types: setup ## mypy, strict
	@$(V)/mypy

imports: setup ## import-linter: imports go one way
	@$(V)/lint-imports

quick: setup ## Lint, types and pure tests, in minutes: needs no root, Java or Docker
	@$(MAKE) --keep-going lint types
	@HYPOTHESIS_PROFILE=quick $(V)/pytest tests/pure -n 2 --dist worksteal -m "not exhaustive" $(ARGS)

check: lint types imports test ## All that CI runs

schemas: setup ## Renew schemas, AsyncAPI and the reference pages from messages, commands, metrics and alerts
	@$(V)/python -m generate.schemas
	@$(V)/python -m generate.reference

chart: setup ## Renew the templates of deploy/chart from deploy/kubernetes (needs kubectl)
	@$(V)/python -m generate.chart $$(command -v kubectl || echo $${XDG_CACHE_HOME:-$$HOME/.cache}/slacktide/cluster/bin/kubectl)

kafka: ## Fetch Apache Kafka's jars for the tests (needs Maven)
	@tests/testbed/setup kafka

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
