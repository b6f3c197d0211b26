# Every target makes and updates its own .venv; `make` alone lists them. Needs Python 3.11 to 3.13 and PyPI, nothing else.
#   make test PYTHON=python3.13     another interpreter, in a .venv-3.13 of its own

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
unexport PYTHONDONTWRITEBYTECODE # else each of the processes of tests and demos compiles all that it imports

ifeq ($(origin PYTHON),command line)
VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
else
VENV := .venv
endif
BIN := $(VENV)/bin
RUN := $(BIN)/python

WORKERS ?= 2
TEST_WORKERS ?= $(shell echo $$(( ($(WORKERS) * 3 + 1) / 2 )))
EVENTS ?= 20M
FUZZ_SECONDS ?= 60
PACKAGE ?= raft
SLICE ?= 1/7
ARGS ?=
# What failed beside other tests, for want of a processor perhaps, runs once more, alone. The first failure is final.
AGAIN = { test $$? -eq 1 && printf '\n== again, alone: what failed above\n' && \
  $(RUN) -m pytest --last-failed --last-failed-no-failures none --maxfail 1 $(ARGS); }
comma := ,

.PHONY: help demo demo-controllers demo-raft test campaigns check fix sim sim-controllers sim-brokers failovers interop bench bench-raft bench-remoting bench-controller bench-broker bench-analysis fuzz mutants \
        mutants-controllers mutants-brokers mutants-machine powercut coverage figures constraints clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1	/' | expand -t 20

demo: $(VENV)/.demo ## a whole cluster of real processes: masters killed, stopped, their disks stalled, and nothing acknowledged lost
	$(RUN) -m harness.demo $(ARGS)

demo-controllers: $(VENV)/.demo ## real controllers and sixty simulated brokers: many masters killed at once
	$(RUN) -m harness.demo.controllers $(ARGS)

demo-raft: $(VENV)/.demo ## three real processes, a leader killed again and again, nothing acknowledged lost
	$(RUN) docs/examples/demo.py $(ARGS)

test: $(VENV)/.dev ## all tests, on half as many processes again as WORKERS: some only wait for servers
	$(RUN) -m pytest -n $(TEST_WORKERS) --dist worksteal $(ARGS) || $(AGAIN)

campaigns: $(VENV)/.dev ## the tests that take longest: scenarios of real processes, ours and Java's, and a cluster of Spark
	$(RUN) -m pytest -m campaign $(ARGS)

check: $(VENV)/.dev ## lint, types, layers, figures; writes nothing
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(RUN) -m benchmarks.structure --check

fix: $(VENV)/.dev ## apply the linter's safe fixes, write the generated parts of the reference
	$(BIN)/ruff check --fix .
	$(RUN) docs/generate.py

sim: $(VENV)/.dev ## simulate seeded clusters under every fault for EVENTS events, invariants after each
	$(RUN) -m raft.sim --events $(EVENTS) --jobs $(WORKERS) $(ARGS)

interop: $(VENV)/.demo ## scenarios with real Java peers; says `not run` where Java or Maven is missing
	$(RUN) -m harness.scenarios.interop $(ARGS)

sim-controllers: $(VENV)/.dev ## controllers and the real broker cores under every fault for EVENTS events
	$(RUN) -m harness.simulation.controllers --events $(EVENTS) --jobs $(WORKERS) $(ARGS)

sim-brokers: $(VENV)/.dev ## the real broker cores under kills, power cuts and cut links for EVENTS events
	$(RUN) -m harness.simulation.brokers --events $(EVENTS) --jobs $(WORKERS) $(ARGS)

failovers: $(VENV)/.demo ## hundreds of failovers of real processes: kills, cut links, stalled and full disks, everything at once
	$(RUN) -m harness.scenarios.failovers $(ARGS)

bench: bench-raft bench-remoting bench-controller bench-broker bench-analysis ## every benchmark
	$(RUN) -m benchmarks.simulator $(ARGS)

bench-raft: $(VENV)/.bench ## raft beside the floor, PySyncObj and, where Go is found, hashicorp/raft and dragonboat
	$(RUN) -m benchmarks.raft $(ARGS)

bench-remoting: $(VENV)/.bench ## the codec, and echo requests over one connection
	$(RUN) -m benchmarks.remoting $(ARGS)

bench-controller: $(VENV)/.bench ## the controller beside the Java one, where Java is found
	$(RUN) -m benchmarks.controller $(ARGS)

bench-broker: $(VENV)/.bench ## brokers beside the Java ones under the same Java client, and the gap when a master is killed
	$(RUN) -m benchmarks.broker $(ARGS)

bench-analysis: $(VENV)/.dev ## reading logs with Spark, beside JSON lines and Parquet; says `not run` without Java 17
	$(RUN) -m benchmarks.analysis $(ARGS)

fuzz: $(VENV)/.fuzz ## coverage-guided fuzzing of every decoder, FUZZ_SECONDS for each
	$(RUN) -m fuzz --seconds $(FUZZ_SECONDS) --jobs $(WORKERS) $(ARGS)

mutants: $(VENV)/.dev ## remove each guard in turn: its named tests must turn red
	$(RUN) -m tests.raft.bugs.run_mutants --jobs $(WORKERS) $(ARGS)

mutants-controllers: $(VENV)/.dev ## plant bugs in controllers and brokers: simulation or a test must notice each
	$(RUN) -m tests.harness.simulation.controllers.run_mutants --jobs $(WORKERS) $(ARGS)

mutants-brokers: $(VENV)/.dev ## plant bugs in the brokers' cores: a property of their simulation or a test must notice each
	$(RUN) -m tests.harness.simulation.brokers.run_mutants --jobs $(WORKERS) $(ARGS)

mutants-machine: $(VENV)/.mutation ## let a machine change the cores of PACKAGE everywhere (SLICE=1/7: a part of them): a quick test must notice each
	$(RUN) -m tests.mutation --package $(PACKAGE) --slice $(SLICE) --jobs $(WORKERS) $(ARGS)

powercut: $(VENV)/.dev ## a thousand power cuts: nothing acknowledged may be lost, unless sync=never
	$(RUN) -m tests.powercut $(ARGS)

coverage: $(VENV)/.dev ## lines and branches of each module that its package's tests run; red if fewer than it was
	$(RUN) -m tests.coverage --jobs $(WORKERS) $(ARGS)

figures: $(VENV)/.dev ## count the structure of the tree: asserts, names, maps, tests, large classes; red if one got worse
	$(RUN) -m benchmarks.structure $(ARGS)

constraints: $(VENV)/.created ## pin the newest of everything that `make` installs
	rm -rf .venv-newest && $(RUN) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --upgrade pip
	.venv-newest/bin/python -m pip install --quiet -e ./raft -e '.[metrics,otlp,demo,analysis,client-compression]' \
	  --group dev --group bench --group fuzz --group mutation
	{ grep '^#' constraints.txt; .venv-newest/bin/python -m pip list --format=freeze --exclude-editable \
	  --exclude setuptools; } >constraints.new && mv constraints.new constraints.txt

clean: ## remove environments and caches
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .bench .coverage-data

# --- environments: one stamp per group of requirements, redone when a pyproject or a pin changes ------------------------

PIP = $(RUN) -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt
SETTINGS := pyproject.toml raft/pyproject.toml constraints.txt

$(VENV)/.created:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
	    "$$python" -m venv $(VENV); break; fi; done
	@test -x $(RUN) || { echo "Python 3.11 to 3.13 is needed, and none was found; name one: make PYTHON=..." >&2; exit 1; }
	$(RUN) -m pip install --quiet --upgrade --constraint constraints.txt pip
	@touch $@

$(VENV)/.demo: $(VENV)/.created $(SETTINGS)
	$(PIP) -e ./raft -e '.[demo$(if $(shell command -v java),$(comma)analysis)]' # the report needs Java
	@touch $@

$(VENV)/.dev: $(VENV)/.created $(SETTINGS)
	$(PIP) -e ./raft -e '.[metrics,otlp,demo,analysis,client-compression]' --group dev
	@touch $@

$(VENV)/.bench: $(VENV)/.created $(SETTINGS)
	$(PIP) -e ./raft -e . --group bench
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev $(SETTINGS)
	$(PIP) --group fuzz
	@touch $@

$(VENV)/.mutation: $(VENV)/.dev $(SETTINGS)
	$(PIP) --group mutation
	@touch $@
