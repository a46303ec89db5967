# rlscaler: `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What runs the demo and the cluster needs no torch: two stamps of one environment, the second includes the first.
DEMO_STAMP := $(VENV)/.demo
STAMP := $(VENV)/.installed
TORCH ?= cuda
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

PATTERN ?= daily
DURATION ?= 300
INTERVAL ?= 15
SEED ?= 1
OUT ?= results/demo-$(PATTERN)
ENV ?= sim
MODEL ?=
CONFIG ?=
FOR ?=
HISTORY ?=
ARGS ?=
RL_OPTIONS = --env $(ENV) $(if $(CONFIG),--config $(CONFIG)) $(ARGS)
FOR_OPTIONS = $(if $(FOR),--for $(FOR)) $(if $(HISTORY),--history $(HISTORY))
MODEL_OPTION = $(if $(MODEL),--model $(MODEL))
ifdef DEBUG
export RLSCALER_DEBUG := 1
endif

.DEFAULT_GOAL := help

##@ General

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9_-]+:.*##/ {printf "  \033[36m%-20s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: install
install: $(STAMP) ## Create .venv with everything pinned in requirements/lock.txt (TORCH=cpu: torch without CUDA, from TORCH_INDEX)

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: install it, or name it with PYTHON="; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

UV_INSTALL = VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install
EDITABLE = $(UV_INSTALL) --quiet --no-deps -e . -e dev

# Sizes: measured on Linux x86-64, with nothing in uv's cache.
$(DEMO_STAMP): requirements/demo.txt pyproject.toml dev/pyproject.toml | $(BIN)/uv
	@echo "installing requirements/demo.txt into $(VENV), without torch: 0.17 GB to download, 0.5 GB on disk"
	$(UV_INSTALL) --require-hashes -r requirements/demo.txt
	$(EDITABLE)
	touch $@

$(STAMP): requirements/lock.txt pyproject.toml dev/pyproject.toml | $(BIN)/uv
ifeq ($(TORCH),cpu)
	@echo "installing requirements/lock.txt into $(VENV), torch without CUDA from $(TORCH_INDEX): 0.5 GB to download beside torch"
	awk '/^[a-z]/ {keep = !/^(torch==|triton==|nvidia-|cuda-)/} keep' requirements/lock.txt | \
	  $(UV_INSTALL) --require-hashes --no-deps -r -
	$(UV_INSTALL) --no-deps --index-url $(TORCH_INDEX) "$$(grep -o '^torch==[0-9.]*' requirements/lock.txt)"
else
	@echo "installing requirements/lock.txt into $(VENV), torch with CUDA: 3.5 GB to download, 6.8 GB on disk (TORCH=cpu: without CUDA)"
	$(UV_INSTALL) --require-hashes -r requirements/lock.txt
endif
	$(EDITABLE)
	touch $(DEMO_STAMP) $@

SUBSET = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url -c requirements/lock.txt

.PHONY: lock
lock: | $(BIN)/uv ## Update requirements/ from both pyproject.toml: the lock, and parts of it for the demo and the images
	$(BIN)/uv pip compile --quiet --universal --all-extras --generate-hashes --no-emit-index-url \
	  -o requirements/lock.txt pyproject.toml dev/pyproject.toml
	$(SUBSET) --extra load --extra plot -o requirements/demo.txt pyproject.toml dev/pyproject.toml
	$(SUBSET) --extra keda --extra kafka -o requirements/operator.txt pyproject.toml
	$(SUBSET) --group service -o requirements/service.txt
	$(SUBSET) --group build -o requirements/build.txt

.PHONY: clean
clean: ## Remove .venv, caches of the tools and result folders (the built binaries stay: `rlscaler cluster clean`)
	rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis results site \
	  rl/training_* rl/tailoring_* rl/evaluation_* rl/comparison_*

##@ The main job

.PHONY: demo
demo: $(DEMO_STAMP) ## Two copies of a service under one load: the HPA beside rlscaler (PATTERN=daily|ramp|spike|periodic|random, DURATION, SEED, OUT)
	$(BIN)/rlscaler demo --pattern $(PATTERN) --duration $(DURATION) --interval $(INTERVAL) \
	  --seed $(SEED) --out $(OUT) $(ARGS)

.PHONY: demo-tenants
demo-tenants: $(DEMO_STAMP) ## Eight services share 16 GPUs: HPAs, no budget, weighted max-min (ARGS="--contender priority --duration 600")
	$(BIN)/rlscaler demo tenants $(ARGS)

.PHONY: demo-vertical
demo-vertical: $(DEMO_STAMP) ## Sizes of pods beside their number: template, VPA, rlscaler (ARGS="--reward performance --steps 36")
	$(BIN)/rlscaler demo vertical $(ARGS)

.PHONY: demo-kafka
demo-kafka: $(DEMO_STAMP) ## Consumers of a topic under a spike: the HPA on CPU, and a policy on the lag (ARGS="--protocol consumer")
	$(BIN)/rlscaler demo kafka $(ARGS)

.PHONY: demo-llm
demo-llm: $(STAMP) ## Emulated vLLM servers whose mix drifts and surges: KEDA on the queue, and a policy in tokens (ARGS="--contender keda-in-flight")
	$(BIN)/rlscaler demo llm $(ARGS)

.PHONY: cluster-up
cluster-up: $(DEMO_STAMP) ## Start a local control plane (built once into the user cache)
	$(BIN)/rlscaler cluster up $(ARGS)

.PHONY: cluster-down
cluster-down: $(DEMO_STAMP) ## Stop it
	$(BIN)/rlscaler cluster down $(ARGS)

.PHONY: e2e-packages
e2e-packages: $(DEMO_STAMP) ## Install what the real node and the images need from the distribution (apt-get, root)
	$(BIN)/rlscaler cluster packages --install

.PHONY: images
images: $(DEMO_STAMP) ## Build the container images here, without Docker and registry (root; Debian: make e2e-packages)
	$(BIN)/rlscaler cluster images

E2E_OUT ?= results/e2e

.PHONY: e2e
e2e: $(DEMO_STAMP) images ## Images and charts on a real node: four patterns, rlscaler beside the HPA, upgrade, dead leader, uninstall (root)
	$(BIN)/rlscaler e2e --out $(E2E_OUT) $(ARGS)

.PHONY: e2e-test
e2e-test: $(STAMP) ## The tests that need the real node (root)
	$(BIN)/pytest tests/e2e tests/chart/test_images.py -m e2e $(ARGS)

# Nothing of .venv is used: the clone makes its own.
.PHONY: newcomer
newcomer: ## Every command of README, quick start and guides in a fresh clone with an empty home (ARGS="--reuse ~/.cache/rlscaler")
	@$(PYTHON) -m tests.newcomer --python $(PYTHON) $(ARGS)

.PHONY: newcomer-root
newcomer-root: ## Those that need root or longer than half an hour: the real node, `make test` (root)
	@$(PYTHON) -m tests.newcomer --root --python $(PYTHON) $(ARGS)

##@ Learning

.PHONY: install-rl-deps
install-rl-deps: install ## The same environment: one lock file serves training and operator

.PHONY: rl-test
rl-test: $(STAMP) ## Tests of everything that learning is made of, the simulator's included
	$(BIN)/pytest $(addprefix tests/unit/,decision simulation workloads baselines tuning training evaluation \
	  service_tuning live) tests/simulator tests/property

.PHONY: rl-tune
rl-tune: $(STAMP) ## Tune every contender on the tune parts; what is tuned already is kept
	$(BIN)/rlscaler tune $(ARGS)

# The bundled network is made of five seeds; any choice of one's own trains one network.
TRAIN_SEEDS = $(if $(FOR)$(CONFIG)$(ARGS)$(filter-out sim,$(ENV)),,--seeds 1,2,3,4,5)

.PHONY: rl-train
rl-train: $(STAMP) ## Train as the bundled network was: five seeds made into one (ARGS="--seed 1": one; CONFIG, ENV), or FOR=policy.yaml HISTORY=load.csv
	$(BIN)/rlscaler train $(FOR_OPTIONS) $(MODEL_OPTION) $(TRAIN_SEEDS) $(RL_OPTIONS)

.PHONY: rl-publish
rl-publish: $(STAMP) ## Put the policy of FOLDER= into a ConfigMap (ARGS="--apply --name chat-policy")
	@$(if $(FOLDER),,echo "rl-publish: name the folder that make rl-train FOR= left, with FOLDER=" >&2; exit 2)
	@$(BIN)/rlscaler publish $(FOLDER) $(ARGS)

.PHONY: rl-evaluate
rl-evaluate: $(STAMP) ## Evaluate a policy (MODEL= folder, .zip or .onnx; the newest training by default)
	$(BIN)/rlscaler evaluate $(MODEL_OPTION) $(RL_OPTIONS)

.PHONY: rl-compare
rl-compare: $(STAMP) ## Compare a policy with the other autoscalers (MODEL=)
	$(BIN)/rlscaler compare $(MODEL_OPTION) $(RL_OPTIONS)

KIND ?= transfer

.PHONY: days
days: $(STAMP) ## Whole days of real load for policies and autoscalers (KIND=transfer|own, ARGS="--days 2")
	$(BIN)/rlscaler days --kind $(KIND) $(if $(MODEL),--model $(MODEL)) $(ARGS)

.PHONY: rl-full-pipeline
rl-full-pipeline: rl-test rl-train rl-evaluate rl-compare ## Test, train, evaluate, compare

##@ Placement

POLICY ?= EE
NODES ?= 100

.PHONY: scheduler-train
scheduler-train: $(STAMP) ## Train a network that scores nodes (POLICY=EE|LB|EL|GPU, ARGS="--lifetimes --seed 1")
	$(BIN)/rlscaler scheduler train $(POLICY) --out results/scheduler-$(POLICY) $(ARGS)

.PHONY: scheduler-compare
scheduler-compare: $(STAMP) ## Compare it with every rule on clusters that no training can reach (POLICY, ARGS="--lifetimes --nodes 100")
	$(BIN)/rlscaler scheduler compare $(POLICY) --model-dir results/scheduler-$(POLICY) \
	  --out results/scheduler-compare-$(POLICY) $(ARGS)

.PHONY: streams-train
streams-train: $(STAMP) ## Train a network for the consumers of a Kafka topic (ARGS="--seed 2 --out rl/streams_2")
	$(BIN)/rlscaler streams train --out rl/streams $(ARGS)

.PHONY: tenants-compare
tenants-compare: $(STAMP) ## Services that share a pool of GPUs: no budget beside each arbiter (ARGS="--tenants 25 --tightness 0.8")
	$(BIN)/rlscaler tenants compare $(ARGS)

.PHONY: tenants-train
tenants-train: $(STAMP) ## Train agents that share a pool, and its arbiter (ARGS="--epochs 100 --seed 1 --arbiter-alone")
	$(BIN)/rlscaler tenants train $(ARGS)

.PHONY: tenants-evaluate
tenants-evaluate: $(STAMP) ## Play them beside every other way to share a pool, on loads of no training (MODEL=, ARGS="--pools 32")
	$(BIN)/rlscaler tenants evaluate $(MODEL_OPTION) $(ARGS)

STUDY ?= lambda

.PHONY: tenants-study
tenants-study: $(STAMP) ## Vary one thing (STUDY=lambda|shaping|roles|attention|information|tenants, ARGS="--seeds 5 --epochs 30")
	$(BIN)/rlscaler tenants study $(STUDY) $(ARGS)

.PHONY: demo-scheduler
demo-scheduler: $(DEMO_STAMP) ## Pods that come and go on NODES=100 nodes: kube-scheduler's default beside the policy EL
	$(BIN)/rlscaler scheduler test2 --nodes $(NODES) --every 1 --wait 5 --out results/scheduler $(ARGS)

##@ Development

.PHONY: release-dry
release-dry: $(STAMP) ## A release as far as it goes here: wheel into an empty environment, charts packaged and rendered
	$(BIN)/rlscaler cluster build helm
	dev/release/dry.sh results/release $(BIN)

.PHONY: generate
generate: $(STAMP) ## Regenerate crds/ and the charts' files from the code, and the readers of KEDA's protocol and ONNX
	$(BIN)/rlscaler crd generate
	$(BIN)/rlscaler chart generate
	cd operator && $(abspath $(BIN))/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. \
	  rlscaler_operator/keda/external_scaler.proto
	cd core && $(abspath $(BIN))/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. \
	  rlscaler_core/decision/onnx_subset.proto

.PHONY: format
format: $(STAMP) ## Format and fix what ruff can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: lint
lint: $(STAMP) ## Lint, types, layers, drift of generated files, size of the source tree
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/rlscaler crd check
	$(BIN)/rlscaler chart check
	$(BIN)/rlscaler structure check

.PHONY: docs
docs: $(STAMP) ## Build the documentation, reference pages first, into site/; a dead link fails it (ARGS="-d FOLDER")
	$(BIN)/rlscaler docs generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

# Two tiers. `make test` runs what a change needs to know at once: it is the tests that take less than two seconds of CPU, and
# a few on the real API server. `make test-full` runs everything. Tests without a cluster use every core. Tests with one
# mostly wait for it, so that several clusters run side by side; a load test needs the machine to itself. A worker that
# crashes ends the run, since xdist would wait for its tests for ever. A test that hangs fails after ten minutes with the
# stacks of its threads.
NO_HANGING := --timeout 600
PARALLEL := -n logical --dist worksteal --max-worker-restart 0 $(NO_HANGING)
CLUSTERS ?= 5
ON_CLUSTERS = -n $(CLUSTERS) --dist loadfile --max-worker-restart 0 $(NO_HANGING)
WITHOUT_CLUSTER := tests/unit tests/property tests/simulator

.PHONY: test
test: lint ## Lint, types, the fast tests, and a first policy on the real API server: minutes (README's second command)
	$(BIN)/rlscaler cluster build
	$(BIN)/pytest $(PARALLEL) -m "not slow and not long and not chaos and not e2e" $(WITHOUT_CLUSTER)
	$(BIN)/pytest $(NO_HANGING) -m smoke tests/cluster

.PHONY: test-slow
test-slow: $(STAMP) docs ## What `make test` leaves out: slow tests, links of the documentation, load, clusters, faults, charts
	$(BIN)/rlscaler cluster build
	$(BIN)/pytest $(PARALLEL) -m "slow and not long and not chaos and not e2e" $(WITHOUT_CLUSTER)
	$(BIN)/pytest $(NO_HANGING) tests/load
	$(BIN)/pytest $(ON_CLUSTERS) tests/cluster tests/chaos tests/chart

.PHONY: test-full
test-full: test test-slow ## Everything that CI runs

.PHONY: test-long
test-long: $(STAMP) ## Tests of minutes whose promise a quicker one tests as well: days, trainings and migrations at full length
	$(BIN)/rlscaler cluster build
	$(BIN)/pytest -m long $(PARALLEL) tests/unit tests/property
	$(BIN)/pytest -m long $(ON_CLUSTERS) tests/cluster

.PHONY: test-unit
test-unit: $(STAMP) ## Unit, property and simulator tests of both tiers: no cluster
	$(BIN)/pytest $(PARALLEL) $(WITHOUT_CLUSTER)

.PHONY: test-cluster
test-cluster: $(STAMP) ## Tests on a real API server, CLUSTERS=5 at a time
	$(BIN)/pytest $(NO_HANGING) tests/load
	$(BIN)/pytest $(ON_CLUSTERS) tests/cluster

# Counting lines takes 43 % more CPU time on Python 3.11, so it is no part of `make test`; CI runs it in a job of its own, on a
# Python that has sys.monitoring.
.PHONY: coverage
coverage: export PYTEST_ADDOPTS := --cov --cov-report=term
coverage: test-unit ## The tests of test-unit, with a table of how much of each file they run

.PHONY: chaos
chaos: $(STAMP) ## Every fault on a real control plane: survived, time to recover, lowest replicas seen against allowed; and of training
	$(BIN)/rlscaler cluster build
	$(BIN)/pytest tests/chaos -m "" $(ARGS)
	$(BIN)/pytest tests/unit/training/test_distributed.py -m "" $(ARGS)

.PHONY: chart-test
chart-test: $(STAMP) ## The Helm charts: lint, rendering, schema, and everything on a real API server
	$(BIN)/rlscaler cluster build helm kubectl
	$(BIN)/pytest tests/chart $(ARGS)

BENCHMARKS = arbiter decision fit_waiting rl_speed simulator tick
# The others need a cluster of minutes: their first lines say how they are called.

.PHONY: bench
bench: $(STAMP) ## Run the benchmarks; each writes JSON to results/benchmarks/
	mkdir -p results/benchmarks
	for name in $(BENCHMARKS); do echo "== $$name"; \
	  $(BIN)/python benchmarks/$$name.py --out results/benchmarks/$$name.json || exit 1; done

.PHONY: bench-scale
bench-scale: $(STAMP) ## Reaction and standing cost beside the HPA and KEDA (ARGS="--policies 1,100,1000 --contenders rlscaler,keda")
	$(BIN)/python -m benchmarks.scale $(ARGS)
