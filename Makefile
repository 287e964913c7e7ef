# Every target sets itself up from python3 and a package index; nothing is installed outside .venv and the user's cache.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# two workers more than cores: tests on a control plane wait more than they compute
JOBS ?= $(shell $(PYTHON) -c "import os; print(len(os.sched_getaffinity(0)) + 2 if hasattr(os, 'sched_getaffinity') else 'auto')")
# a worker without tests takes some of another one's; tests/dealing.py gives each of them long ones first
WORKERS = -n $(JOBS) --dist worksteal
# bytecode may be kept: to rewrite the assertions of all tests is half of what each worker does before its first test
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help venv lock demo test test-fast test-deep check types rules format crds integrations mechanisms reference pictures controlplane browser bench chaos mutants

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: ## install a local .venv from uv.lock
	@$(PYTHON) tools/environment.py

lock: ## bring uv.lock up to date with pyproject.toml
	@$(PYTHON) tools/environment.py --lock

demo: venv ## a simulated cluster with kqueue on it, and a story of jobs
	@$(BIN)/kqueue demo $(ARGS)

test: venv ## all tests: unit, simulation, integration (sandbox, and the real control plane if it can be built)
	@$(BIN)/python tools/controlplane.py --if-possible
	@$(BIN)/python tools/browser.py --if-possible
	@$(PYTEST) $(WORKERS) $(ARGS)

test-fast: venv ## the inner loop, under a minute: unit tests and a few seeds of the simulation
	@KQUEUE_SIM_SEEDS=$${KQUEUE_SIM_SEEDS:-0-3} KQUEUE_REFERENCE_CASES=$${KQUEUE_REFERENCE_CASES:-500} \
		$(PYTEST) $(WORKERS) -q -m "not controlplane and not browser and not slow" tests/unit tests/sim $(ARGS)

test-deep: venv ## tens of minutes: 20,000 placements of each kind against the reference, and 128 seeds of the simulation of each kind, a lost lease at every turn, gangs with a controller killed at every write
	@KQUEUE_GANG_WRITES=$${KQUEUE_GANG_WRITES:-1-} KQUEUE_SIM_TURNS=$${KQUEUE_SIM_TURNS:-all} KQUEUE_SIM_SEEDS=$${KQUEUE_SIM_SEEDS:-0-127,179,1016,1039} KQUEUE_REFERENCE_CASES=$${KQUEUE_REFERENCE_CASES:-20000} KQUEUE_JOINT_WORLDS=$${KQUEUE_JOINT_WORLDS:-2000} KQUEUE_KEPT_EVENTS=$${KQUEUE_KEPT_EVENTS:-10000} KQUEUE_SETTLED_ROUNDS=$${KQUEUE_SETTLED_ROUNDS:-10000} \
		$(PYTEST) $(WORKERS) -q tests/unit/core/test_topology_reference.py tests/unit/core/joint/test_never_worse.py tests/unit/core/joint/test_kept.py tests/unit/core/joint/test_migration.py tests/sim \
		tests/integration/test_gang_dialects.py $(ARGS)
	@$(BIN)/python tools/controlplane.py --storage --if-possible
	@KQUEUE_SIM_TURNS=all $(PYTEST) $(WORKERS) -q -m "seldom_on_sandbox and not controlplane or seldom" tests/integration $(ARGS)

check: venv ## ruff, ruff format, mypy --strict (tests, too), import-linter, dead code, unused dependencies
	@$(MAKE) --no-print-directory -j2 types rules

types: # half of a check, on one core
	@$(BIN)/mypy

rules: # the other half
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/python tools/dead_code.py
	@$(BIN)/deptry --no-ansi kqueue webhooks

format: venv ## apply ruff's fixes and format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

crds: venv ## config/crd/*.yaml from kqueue/api
	@$(BIN)/python tools/crds.py

integrations: venv ## the matrix of docs/integrations.md from the marks of the tests
	@$(BIN)/python tools/integrations.py

mechanisms: venv ## docs/mechanisms.md from tools/mechanisms.toml and the marks of the tests
	@$(BIN)/python tools/mechanisms.py

reference: venv ## docs/reference from CRDs, names, configuration and commands; the chart's parts from kqueue/kinds.py
	@$(BIN)/python tools/reference.py
	@PYTHONPATH=. $(BIN)/python tools/chart_kinds.py

pictures: venv ## docs/pictures from the output of commands on the demo's cluster
	@$(BIN)/python tools/pictures.py

controlplane: venv ## build kube-apiserver, etcd, kwok and others into the user's cache
	@$(BIN)/python tools/controlplane.py

browser: venv ## install Chromium and axe-core for the tests of the page
	@$(BIN)/python tools/browser.py

bench: venv ## figures with their conditions and goals; ROWS= chooses, JSON=1 for programs
	@$(BIN)/python -m tests.bench $(if $(JSON),--json) $(if $(ROWS),'$(ROWS)')

chaos: venv ## tens of minutes: 200 losses of the leader on a real control plane under load; ARGS="--losses 20 --kinds kill,stop --seed 7"
	@$(BIN)/python tools/controlplane.py
	@$(BIN)/python -m tests.chaos $(ARGS)

mutants: venv ## minutes: small faults in the rooms that decide, one at a time; unit tests must notice each; ARGS="--seed 7 --count 40 --rooms core,state"
	@nice $(BIN)/python -m tests.mutants $(ARGS)
