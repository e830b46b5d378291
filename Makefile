# Every target sets up what it needs; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Tests start hundreds of Python processes: without compiled files each of them would compile the whole SDK again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo pipeline check lint types fast format test tests test-rest test-all nightly pythons constraints coverage soak soak-kafka soak-server kafka bench dist docs clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

install: $(INSTALLED) ## Make .venv with everything for development

# Without --no-compile pip compiles every module of every package; Python compiles those that are imported.
$(INSTALLED): pyproject.toml constraints-dev.txt hatch_build.py sinksdk/topics/kafka/_messages.c sinksdk/values/_json.c sinksdk/values/_avro.c connectors/s3_archiver/formats/_datums.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "sinksdk needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --no-compile --editable '.[all]' --group dev --constraint constraints-dev.txt
	@touch $@

demo: install ## See it work: archive real records to S3, with a rebalance in the middle
	$(BIN)/python -m examples.demo

pipeline: install ## Run files -> topic -> Avro on S3, and compare; OPTIONS='--follow'
	$(BIN)/python -m examples.pipeline $(OPTIONS)

# Each tier is a choice of tests by their markers, which pyproject.toml defines and docs/contributing/tests.md explains.
FAST := not slow and not spark and not extended
TEST := not extended and not nightly
REST := extended and not nightly
TEST_ALL := not nightly

JOBS ?= 2
PYTEST = $(BIN)/pytest --numprocesses $(JOBS) --dist loadgroup --no-loadscope-reorder
FOLDERS := property_tests examples tests
check: install ## Lint, types, import rules, fast tests; before every commit (2 minutes)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint types fast

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

fast:
	$(PYTEST) -q -p no:schemathesis -m '$(FAST)' --ignore tests/integration --ignore tests/kafka tests

format: install ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

SPARK_ARCHIVE := $(VENV)/spark.jsa
$(SPARK_ARCHIVE): $(INSTALLED)
	$(BIN)/python -m tests.helpers.spark_archive $@

# Slow tests wait for most of their time: there are more processes than cores.
test tests: JOBS := 4
test-rest test-all nightly coverage: JOBS := 3
test: install ## Lint, types, and each fact once: Spark, Kafka, S3, a browser, a kill of each kind (10 minutes)
	@$(MAKE) --no-print-directory --jobs 2 lint types tests

tests: $(SPARK_ARCHIVE)
	$(PYTEST) --durations 30 -m '$(TEST)' $(FOLDERS)

test-rest: install $(SPARK_ARCHIVE) ## What test-all runs and test does not: other parameters, backends and formats, random schedules
	$(PYTEST) --durations 30 -m '$(REST)' $(FOLDERS)

test-all: test test-rest ## All tests but the nightly ones (half an hour)

# Ten thousand schedules are one test.
nightly: install $(SPARK_ARCHIVE) ## Every test at full depth: all kills, all positions, 10,000 schedules of each kind, long pipelines
	SINKSDK_TEST_DEPTH=nightly $(PYTEST) --timeout 1800 --durations 30 $(FOLDERS)
	@$(MAKE) --no-print-directory pythons

pythons: install ## Run the fast tests on each of Python 3.11 to 3.13 that is there, and name those that are not
	.ci/pythons

NEWEST := build/newest
constraints: ## Renew constraints-dev.txt with the newest versions that pyproject.toml allows; PYTHON=python3.11
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/pip install --quiet --upgrade 'pip>=25.1'
	SINKSDK_BUILD=pure $(NEWEST)/bin/pip install --quiet --no-compile --editable '.[all]' --group dev
	sed '/^#/!d' constraints-dev.txt > $(NEWEST)/constraints
	$(NEWEST)/bin/pip freeze --exclude-editable >> $(NEWEST)/constraints
	mv $(NEWEST)/constraints constraints-dev.txt

TIER ?= test
COVERED := sinksdk/model sinksdk/engine sinksdk/store sinksdk/control sinksdk/runtime sinksdk/worker connectors/s3_archiver
coverage: install $(SPARK_ARCHIVE) ## Lines of model, engine, store, control, runtime, worker and archiver that make test runs; TIER=test-all
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses $(JOBS) --dist loadgroup --no-loadscope-reorder \
		-m '$(if $(filter test-all,$(TIER)),$(TEST_ALL),$(TEST))' $(FOLDERS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --show-missing
	@for room in $(COVERED); do \
		echo "$$($(BIN)/coverage report --include "$$room/*" --format total) % of $$room"; \
	done

soak: install ## Simulate crashes, zombies and lost answers until stopped (Ctrl-C); SOURCES=1 those of a source
	$(BIN)/python -m property_tests.simulation $(if $(SOURCES),--sources)

MINUTES ?= 5
soak-kafka: install ## Kill broker, drivers, executors and workers for MINUTES=5, then compare
	$(BIN)/python -m property_tests.soak_kafka --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

soak-server: install ## A server with 20 connectors: S3, Kafka and its store go away and come back, it is killed; then compare. FREEZES=10: 30 connectors, the broker is frozen
	$(BIN)/python -m property_tests.soak_server $(if $(FREEZES),--freezes $(FREEZES))

kafka: install ## Run a Kafka broker on 127.0.0.1:9092 until Ctrl-C (jars through Maven)
	$(BIN)/python -m tests.kafka.broker

bench: install ## Measure, in one table of ratios
	$(BIN)/python -m benchmarks

# On Linux auditwheel tags the compiled wheel with the oldest glibc whose symbols it needs (manylinux); an index refuses
# wheels tagged linux_*. Elsewhere the platform's own tag is what an index takes.
dist: install ## Build into dist/: source distribution, compiled wheel of this platform, pure wheel for all others
	rm -rf dist build/dist
	$(BIN)/hatchling build --target sdist
	SINKSDK_BUILD=compiled $(BIN)/pip wheel --quiet --no-deps --wheel-dir build/dist dist/*.tar.gz
	SINKSDK_BUILD=pure $(BIN)/pip wheel --quiet --no-deps --no-cache-dir --wheel-dir dist dist/*.tar.gz
	if [ "$$(uname)" = Linux ]; then PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --wheel-dir dist build/dist/*.whl; \
		else cp build/dist/*.whl dist; fi
	$(BIN)/twine check --strict dist/*

docs: install ## Build the documentation into site/
	$(BIN)/python docs/generate.py
	$(BIN)/zensical build --strict --clean

clean: ## Remove what the other targets made
	rm -rf $(VENV) site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
