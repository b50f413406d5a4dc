# Everything a person or CI does here. `make` alone lists it. Nothing needs to be installed by hand beyond what
# `make doctor` names: the environment comes from uv.lock, the lab's parts from package registries into a cache.

SHELL := /bin/sh
.DEFAULT_GOAL := help
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
UV_VERSION := 0.13.9
UV := $(CACHE)/tidegate-lab/uv-$(UV_VERSION)/bin/uv
PYTHON := .venv/bin/python
# The interpreter of the machine, never a downloaded one.
export UV_PYTHON_DOWNLOADS := never
export UV_PYTHON := 3.11
# Tests start dozens of interpreters; where compiled code may not be kept, each would compile all its libraries again.
unexport PYTHONDONTWRITEBYTECODE
# Types of unchanged files are not worked out again by each new checkout: a minute of a processor.
export MYPY_CACHE_DIR ?= $(CACHE)/tidegate-lab/mypy

##@ Use
.PHONY: demo
demo: setup ## Play the main job on a real Kafka, Prometheus and Kubernetes API, and report its usage (DEMO=quick: a short run; KAFKA=4.4-kraft: without ZooKeeper)
	$(PYTHON) -m demo

.PHONY: setup
setup: .venv/.locked ## Make the locked Python environment in .venv

.PHONY: console-walk
console-walk: setup ## Walk the console in a browser while the quick demo plays, and take its pictures (DEMO=full: the whole one)
	$(PYTHON) -m tools.console_walk

.PHONY: console-picture
console-picture: setup ## Make README's moving picture of the console, and its still, while the example's evening plays in it
	$(PYTHON) -m tools.console_picture

.PHONY: console-states
console-states: setup ## Take pictures of the console in each of its states, in light and dark, wide and narrow, into out/console-states/
	mkdir -p out/console-states
	CONSOLE_PICTURES=out/console-states $(PYTHON) -m pytest tests/integration/console/test_pages.py -k "each_state or sideways" $(PYTEST)

.PHONY: image
image: setup ## Build the container image and its bill of materials into out/image/, without a container engine
	$(PYTHON) -m image $(if $(REVISION),--revision $(REVISION))

.PHONY: image-rollup
image-rollup: setup ## Build the image of rollup Jobs, with Java and Spark, into out/image/ (the first time takes minutes)
	$(PYTHON) -m image --rollup $(if $(REVISION),--revision $(REVISION))

.PHONY: image-console
image-console: setup ## Build the console's image, with its web server, into out/image/
	$(PYTHON) -m image --console $(if $(REVISION),--revision $(REVISION))

.PHONY: image-forwarder
image-forwarder: setup ## Build the image of delay queues' forwarders, with Kafka's C client, into out/image/
	$(PYTHON) -m image --forwarder $(if $(REVISION),--revision $(REVISION))

.PHONY: doctor
doctor: ## List what this machine lacks, and the command that installs it
	python3 -m lab doctor

##@ Test
# Tests on real parts wait most of the time, so several kinds of them run at once, each in a process with parts of its
# own, the longest first. Tests without real parts never wait, so they take what the others leave.
KINDS := operators brokers throttling kraft
INTEGRATION := integration-forwarder integration-replicas integration-kraft integration-throttling integration-takeovers integration-operators integration-rollup integration-rest integration-brokers integration-kubernetes integration-console
AT_ONCE := 8

.PHONY: test
test: setup ## Set everything up and run the tests, those on real parts too (those of `make test-long` not)
	$(PYTHON) -m lab doctor --quiet
	$(PYTHON) -m lab prepare
	@$(MAKE) --no-print-directory --keep-going --jobs=$(AT_ONCE) --output-sync=target test-unit $(INTEGRATION)

.PHONY: test-unit
test-unit: setup ## Run the tests that need no real parts (three minutes alone)
	nice -n 8 $(PYTHON) -m pytest -o testpaths=tests/unit -m "not integration" -n auto --maxprocesses=4 $(PYTEST)

.PHONY: test-integration
test-integration: setup ## Run the tests on real ZooKeeper, Kafka, Prometheus and Kubernetes API
	$(PYTHON) -m lab prepare
	@$(MAKE) --no-print-directory --keep-going --jobs=$(AT_ONCE) --output-sync=target $(INTEGRATION)

# Throttling reads figures of the last seconds, so its scrapes come first when the processor is busy.
BEHIND := nice -n 4
# Usage rollups need no part that others have, and others need not load Spark's libraries; the console's pages need a
# browser.
ROLLUP := tests/integration/rollup
CONSOLE := tests/integration/console
# Forwarders wait for what is due, most of the time, on brokers of their own, and those that are killed wait for the ends
# of sessions, on others.
FORWARDER := tests/integration/forwarder
TAKEOVERS := $(addprefix $(FORWARDER)/test_,broker_deaths.py chaos.py full_disk.py kills.py members.py)
ON_PARTS := tests/integration --ignore=$(ROLLUP) --ignore=$(CONSOLE) --ignore=$(FORWARDER)
OPERATORS := tests/integration/operator
# Most of these need a Kubernetes API and nothing else.
KUBERNETES := $(addprefix tests/integration/,chart gitops kube release resources)
OF_NO_KIND := integration and not long and not replicas $(KINDS:%=and not %)
integration-throttling: BEHIND :=
.PHONY: $(INTEGRATION)
$(KINDS:%=integration-%): integration-%: setup
	$(BEHIND) $(PYTHON) -m pytest $(ON_PARTS) -m "$* and not long" $(PYTEST)
# Operators that mostly wait share a process, those on a Kafka without ZooKeeper too.
integration-kraft: ON_PARTS += --ignore=$(OPERATORS)
integration-replicas: setup
	$(BEHIND) $(PYTHON) -m pytest $(OPERATORS) -m "(replicas or kraft) and not long" $(PYTEST)
integration-rollup: setup
	$(BEHIND) $(PYTHON) -m pytest $(ROLLUP) -m "not long" $(PYTEST)
integration-forwarder: setup
	$(BEHIND) $(PYTHON) -m pytest $(FORWARDER) $(TAKEOVERS:%=--ignore=%) -m "not long" $(PYTEST)
integration-takeovers: setup
	$(BEHIND) $(PYTHON) -m pytest $(TAKEOVERS) -m "not long" $(PYTEST)
integration-console: setup
	$(BEHIND) $(PYTHON) -m pytest $(CONSOLE) -m "not long" $(PYTEST)
integration-kubernetes: setup
	$(BEHIND) $(PYTHON) -m pytest $(KUBERNETES) -m "$(OF_NO_KIND)" $(PYTEST)
integration-rest: setup
	$(BEHIND) $(PYTHON) -m pytest $(ON_PARTS) $(KUBERNETES:%=--ignore=%) -m "$(OF_NO_KIND)" $(PYTEST)

# Each has its promise tested by a shorter one in `make test`, on one kind of Kafka or in virtual time.
.PHONY: test-long
test-long: setup ## Run the tests that take minutes each: a migration to KRaft, kills, a rival, replicas that come and go (root)
	$(PYTHON) -m lab prepare
	$(PYTHON) -m pytest tests/integration -m long -n 4 --dist loadfile $(PYTEST)
	$(PYTHON) -m pytest tests/unit -k "not bad_days" -n auto --maxprocesses=4 --hypothesis-profile=thorough $(PYTEST)

.PHONY: test-kafka
test-kafka: setup ## Run what every version of Kafka must pass on one of them (KAFKA=4.4-kraft; any other name lists them)
	$(PYTHON) -m tests.kafka_versions "$(KAFKA)" $(PYTEST)

.PHONY: compatibility
compatibility: setup ## Take the results of test-kafka into docs/, README's line and docs/compatibility.md
	$(PYTHON) -m tools.compatibility --take

.PHONY: simulate
simulate: setup ## Play days full of faults with the whole operator in virtual time (SEED=1 SEEDS=200; one seed prints its steps)
	$(PYTHON) -m tests.simulation --seed $(or $(SEED),1) --seeds $(or $(SEEDS),$(if $(SEED),1,200)) --jobs $(or $(JOBS),1) \
	  $(if $(WITHOUT),--without $(WITHOUT)) $(SIMULATE)

.PHONY: kraft-kills
kraft-kills: setup ## Kill operator, broker, controller and ledger's leader on a Kafka without ZooKeeper while contracts change (KILLS=50 SEED=<number>)
	$(PYTHON) -m lab prepare
	KRAFT_KILLS=$(or $(KILLS),50) KRAFT_KILLS_SEED=$(SEED) $(PYTHON) -m pytest tests/integration/operator/test_kraft_kills.py -s $(PYTEST)

.PHONY: kraft-stops
kraft-stops: setup ## Stop the writing replica in the middle of batches until another one has taken over, on a Kafka without ZooKeeper (STOPS=50 SEED=<number>)
	$(PYTHON) -m lab prepare
	KRAFT_STOPS=$(or $(STOPS),50) KRAFT_STOPS_SEED=$(SEED) $(PYTHON) -m pytest tests/integration/operator/test_kraft_stops.py -s $(PYTEST)

.PHONY: soak
soak: setup ## Nine brokers and two replicas for hours with a kill every few minutes, in pieces of 80 minutes (HOURS=8 KAFKA=4.4-kraft SEED=<number> SOAK=--fresh)
	$(PYTHON) -m lab prepare
	LAB_KAFKA=$(or $(KAFKA),4.4-kraft) $(PYTHON) -m tests.soak --hours $(or $(HOURS),1) --seed $(or $(SEED),1) $(SOAK)

.PHONY: move-kills
move-kills: setup ## Kill operator, broker, controller and the tool while partitions move under throttles (KILLS=100 SEED=<number>)
	$(PYTHON) -m lab prepare
	MOVE_KILLS=$(or $(KILLS),100) MOVE_KILLS_SEED=$(SEED) $(PYTHON) -m pytest tests/integration/operator/test_move_kills.py -k kills_during -s $(PYTEST)

.PHONY: test-transports
test-transports: setup ## Read history from Prometheus 3 and Thanos, and play a store's life in GCS and Azure emulators (compiles them once, minutes)
	PROMETHEUS=3 $(PYTHON) -m pytest $(ROLLUP)/test_transports.py $(ROLLUP)/test_encrypted_history.py $(PYTEST)
	$(PYTHON) -m pytest $(ROLLUP)/with_object_stores.py $(PYTEST)
	$(PYTHON) -m pytest $(ROLLUP)/with_thanos.py $(PYTEST)

.PHONY: store-kills
store-kills: setup ## Kill a process that publishes into S3, again and again (KILLS=100 SEED=<number>)
	STORE_KILLS=$(or $(KILLS),100) STORE_KILLS_SEED=$(SEED) $(PYTHON) -m pytest $(ROLLUP)/test_object_stores.py -k killed --timeout=3600 -s $(PYTEST)

.PHONY: test-argo
test-argo: setup ## Run the health scripts and Applications through Argo CD's own code (compiles a part of it once, minutes)
	$(PYTHON) -m pytest tests/integration/gitops/with_argo_cd.py $(PYTEST)

.PHONY: test-crds
test-crds: setup ## Put the CRDs, every example and wrong objects to the admission code of Kubernetes 1.30, 1.32 and 1.34 (compiles it once, minutes)
	$(PYTHON) -m pytest tests/integration/resources/with_admission_code.py $(PYTEST)

.PHONY: test-focus
test-focus: setup ## Put the FOCUS file of a usage report to the published validator (from PyPI, in an environment of its own)
	UV="$(UV)" $(PYTHON) -m pytest tests/integration/rollup/with_focus_validator.py $(PYTEST)

.PHONY: image-check
image-check: setup ## Build the image twice from nothing, compare, and start what is in it (root)
	$(PYTHON) -m image --twice
	$(PYTHON) -m image --smoke

.PHONY: e2e
e2e: setup ## Play the scenarios with Pods on a real cluster: kind, or KUBECONFIG=<file> (root; LAB=kind: not on it)
	$(PYTHON) -m lab doctor --quiet
	@# Before any test, whose time would be up long before a Kubernetes is compiled.
	$(PYTHON) -m lab prepare $(or $(LAB),$(if $(KUBECONFIG),,kind))
	$(PYTHON) -m pytest e2e $(PYTEST)

.PHONY: walk
walk: setup ## Paste docs/kind.md line by line in an empty home directory: at most 3 minutes from an empty kind to an enforced quota (root)
	$(PYTHON) -m lab prepare kind
	$(PYTHON) -m pytest e2e/walked_pages.py -s $(PYTEST)

.PHONY: walk-tutorials
walk-tutorials: setup ## Paste three tutorials line by line in an empty home directory, on real parts, and compare what they show (root, minutes)
	$(PYTHON) -m lab prepare
	$(PYTHON) -m pytest tests/integration/commands/walked_tutorials.py -s $(PYTEST)

.PHONY: walk-guide
walk-guide: setup ## Type README and the user guide as printed, in a fresh clone on real parts, and time the first episode in a browser (root, minutes)
	$(PYTHON) -m lab prepare
	$(PYTHON) -m pytest tests/integration/commands/walked_guide.py -s $(PYTEST)

.PHONY: walk-strimzi
walk-strimzi: setup ## Paste README's install block and the tutorial beside Strimzi in an empty home directory, on kind with a stand-in for Strimzi (root)
	$(PYTHON) -m lab prepare kind
	$(PYTHON) -m pytest e2e/walked_strimzi.py -s $(PYTEST)

.PHONY: check
check: setup ## Lint, types, import rules, budgets, generated files up to date, and the site of docs/
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports --no-cache
	$(PYTHON) -m tools.house --static
	$(PYTHON) -m tools.generate --check
	$(PYTHON) -m tools.argocd_health --check
	$(PYTHON) -m tools.imports_table --check
	$(PYTHON) -m tools.compatibility --check
	@$(MAKE) --no-print-directory docs

.PHONY: docs
docs: setup ## Build the site of docs/ into out/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

.PHONY: audit
audit: setup ## Ask OSV about every locked package, and every Debian package and jar of the images that were built
	$(PYTHON) -m tools.audit

##@ Change
.PHONY: generate
generate: setup ## Write every generated file again (crds/, docs/, charts/, deploy/argocd/)
	$(PYTHON) -m tools.generate
	$(PYTHON) -m tools.argocd_health
	$(PYTHON) -m tools.imports_table
	$(PYTHON) -m tools.compatibility

.PHONY: demo-pictures
demo-pictures: setup ## Take the pictures of docs/ out of the report of the last demo (REPORT=<file>; read the difference)
	$(PYTHON) -m tools.demo_pictures $(REPORT)

.PHONY: goldens
goldens: setup ## Write the texts of messages to tests/goldens/ again; read the difference
	rm -f tests/goldens/*.txt
	WRITE_GOLDENS=1 $(PYTHON) -m pytest tests/unit -m golden

.PHONY: chart-goldens
chart-goldens: setup ## Write what the chart renders to the goldens again; read the difference
	WRITE_GOLDENS=1 $(PYTHON) -m pytest tests/integration/chart/test_rendering.py -k golden

.PHONY: kustomize-base
kustomize-base: setup ## Write deploy/kustomize/ again, from crds/ and from what the chart renders
	$(PYTHON) -m tools.kustomize_base

.PHONY: format
format: setup ## Format the code
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

##@ Measure
.PHONY: bench
bench: setup ## Measure, and write docs/benchmarks.md with this machine's description
	$(PYTHON) -m bench

.PHONY: house
house: setup ## Measure sizes, imports, words and three costs against tools/budgets.toml (HOUSE=--static: sources only)
	$(PYTHON) -m tools.house $(HOUSE)

##@ Release
RELEASE = $(PYTHON) -m tools.release make $(if $(DRY_RUN),--dry-run) $(if $(REGISTRY),--registry "$(REGISTRY)") $(if $(SIGNING_KEY_FILE),--key "$(SIGNING_KEY_FILE)") $(if $(SIGNING_KEY_PASSWORD_FILE),--key-password "$(SIGNING_KEY_PASSWORD_FILE)") $(if $(filter no,$(ROLLUP)),--no-rollup)
.PHONY: release
release: setup ## Make, sign, push and verify a release (REGISTRY=<host/folder>, SIGNING_KEY_FILE=<file or pipe>; DRY_RUN=1: on loopback)
	$(RELEASE)

.PHONY: release-build
release-build: setup ## Build what is released and list its digests, without a key (REGISTRY=<host/folder>)
	$(RELEASE) --only build

.PHONY: release-publish
release-publish: setup ## Sign, push and verify what `make release-build` built, and build nothing (as release)
	$(RELEASE) --only publish

.PHONY: release-check
release-check: setup ## Make a release on loopback, and install its chart, manifests and wheel on kind from there (root)
	$(PYTHON) -m lab prepare kind
	$(PYTHON) -m tools.release make --dry-run --on-kind $(if $(filter no,$(ROLLUP)),--no-rollup)

.PHONY: release-prepare
release-prepare: setup ## Set the version everywhere and date the changelog's section (VERSION=0.2.0)
	$(PYTHON) -m tools.release prepare "$(VERSION)"

##@ Help
.PHONY: help
help: ## List these commands
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	tools/bootstrap-uv "$(CACHE)/tidegate-lab/uv-$(UV_VERSION)" $(UV_VERSION)

# What is installed beside the operator's own packages; a job that holds a key takes none of it.
EXTRAS := --extra dev --extra rollup --extra console --extra tracing --group docs
.venv/.locked: $(UV) uv.lock pyproject.toml
	$(UV) sync --quiet --frozen $(EXTRAS)
	@touch $@
