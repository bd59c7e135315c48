# Every target does its own set-up: Python 3.11, make, a C compiler and a package registry are enough.
PYTHON ?= python3
PART ?=
NODES ?= 3
STEPS ?= 100000
HISTORIES ?= 5000
ONLY ?=
SEED ?= 1
MINUTES ?= 30

VENV := .venv/bin/python
CHECKED := $(wildcard src tests tools benchmarks examples/policies setup.py)

.DEFAULT_GOAL := help
.PHONY: help run check test bench cluster lint format soak device-check kill-rounds mutants manifests reference golden house lock clean setup-run setup-dev compiled binaries browser dashboard image storm screenshots

help:
	@echo "make run               run the examples, then serve a demo organisation; prints its address"
	@echo "make check             lint, then the fast tests (no processes, no API server), interpreted; 3 minutes at most"
	@echo "make test              lint, then the test suite interpreted and compiled, and on a real control plane"
	@echo "make bench [PART=x]    build compiled, run the benchmarks (or one part)"
	@echo "make cluster [NODES=n] a real Kubernetes control plane on loopback; prints its KUBECONFIG"
	@echo "make image             build the image without a registry, and run the controller from it (root; buildah, mmdebstrap)"
	@echo "make lint              ruff, mypy --strict, import-linter, no import cycles"
	@echo "make format            let ruff rewrite the sources"
	@echo "make soak [STEPS=n] [HISTORIES=n] [SEED=n]   long seeded runs: reference model, random worlds, rebuilt quota trees"
	@echo "make device-check      the check of a GPU machine, all stages, with fakes where there is no GPU"
	@echo "make kill-rounds       kill client, shim, server and agent of running jobs, 100 times; the books must hold"
	@echo "make storm [MINUTES=n] [SEED=n]   attacks, odd pods, lost leaders, restarts and throttling together, on a control plane"
	@echo "make mutants [ONLY=engine/] [SEED=n]   plant faults in a copy of the sources; the narrow tests must notice each"
	@echo "make manifests         write deploy/ and the chart's templates anew from the code"
	@echo "make reference         write docs/cli.md, docs/api.md and docs/reasons.md from the code"
	@echo "make golden            write tests/golden from the code and show what changed of API, journals, metrics, CLI"
	@echo "make dashboard         build the dashboard from web/ (needs Node); what is built is committed"
	@echo "make screenshots       take the pictures of docs/images from the demo organisation"
	@echo "make house             figures of the code base: sizes of modules and functions, repeated class names"
	@echo "make lock              pin the newest dependencies, with hashes"
	@echo "make clean             remove .venv and everything built"

run: setup-run
	@mkdir -p build
	.venv/bin/bursar test -v examples
	@echo "A GPU server of your own, with real jobs: docs/tasks/gpu-server.md"
	.venv/bin/bursar serve --demo --data build/demo.db

check: lint
	PYTHONPATH=src BURSAR_EXPECT=interpreted $(VENV) -m pytest -q -n 2 -m "not slow" --ignore=tests/cluster --ignore=tests/dashboard

test: lint compiled binaries browser
	$(VENV) tools/run_suite.py

bench: compiled
	PYTHONPATH=build/compiled $(VENV) -m benchmarks $(PART)

cluster: setup-dev
	$(VENV) -m tests.cluster.controlplane $(NODES)

image: setup-dev binaries
	PYTHONPATH=src:. $(VENV) tools/image.py

storm: compiled binaries
	PYTHONPATH=build/compiled:. $(VENV) -m tests.cluster.robustness.storm --minutes $(MINUTES) --seed $(SEED)

soak: compiled
	PYTHONPATH=build/compiled $(VENV) -m tests.soak --steps $(STEPS) --seed $(SEED)
	PYTHONPATH=build/compiled:. $(VENV) -m tests.all_policies --steps $(STEPS) --seed $(SEED)
	PYTHONPATH=build/compiled:. $(VENV) -m tests.pool_rebuilds --histories $(HISTORIES) --seed $(SEED)

device-check: setup-dev
	PYTHONPATH=src $(VENV) -m tests.device.machine_check $(if $(wildcard /proc/driver/nvidia/version),,--fake)

kill-rounds: setup-dev
	PYTHONPATH=src:. $(VENV) -m tests.local.kill_rounds

mutants: setup-dev
	nice $(VENV) tools/mutants.py --seed $(SEED) $(ONLY)

lint: setup-dev
	$(VENV) -m ruff check $(CHECKED)
	$(VENV) -m ruff format --check $(CHECKED)
	$(VENV) -m mypy --strict $(CHECKED)
	PYTHONPATH=src .venv/bin/lint-imports --no-cache --no-logo
	$(VENV) tools/check_house.py cycles classes sizes

format: setup-dev
	$(VENV) -m ruff check --fix $(CHECKED)
	$(VENV) -m ruff format $(CHECKED)

manifests: setup-dev
	PYTHONPATH=src $(VENV) -m bursar.kube.admission
	PYTHONPATH=src $(VENV) tools/manifests.py

reference: setup-dev
	PYTHONPATH=src $(VENV) tools/reference.py

golden: setup-dev
	PYTHONPATH=src:. $(VENV) tools/golden.py

dashboard:
	cd web && npm ci --no-audit --no-fund && npx tsc --noEmit && node build.mjs

screenshots: browser
	BURSAR_SCREENSHOTS=1 PYTHONPATH=src $(VENV) -m pytest -q tests/dashboard/test_screenshots.py

house: setup-dev
	@$(VENV) tools/house.py

lock: setup-dev
	$(VENV) tools/lock.py

clean:
	rm -rf .venv build dist web/node_modules src/*.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

setup-run:
	@$(PYTHON) tools/ensure_venv.py run

setup-dev:
	@$(PYTHON) tools/ensure_venv.py dev

compiled: setup-dev
	@$(VENV) tools/build_compiled.py

binaries: setup-dev
	$(VENV) -m tests.cluster.controlplane build

browser: setup-dev
	@$(VENV) tools/ensure_browser.py
