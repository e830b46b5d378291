# Every target sets up what it needs; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo pipeline check format test soak soak-kafka kafka bench docs clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

install: $(INSTALLED) ## Make .venv with everything for development

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "sinksdk needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable '.[all]' --group dev
	@touch $@

demo: install ## See it work: archive real records to S3, with a rebalance in the middle
	$(BIN)/sinksdk demo

pipeline: install ## Run files -> topic -> Avro on S3, and compare; OPTIONS='--follow'
	$(BIN)/python -m examples.pipeline $(OPTIONS)

JOBS ?= 2
check: install ## Lint, types, import rules, fast tests (minutes; before every commit); JOBS=2 files at a time
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q --numprocesses $(JOBS) --dist loadfile -m 'not slow and not spark' tests
	$(BIN)/pytest -qq --collect-only property_tests examples >/dev/null

format: install ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: install ## All tests: Spark, servers, crashes, property tests (half an hour); JOBS=2 files at a time
	$(BIN)/pytest --numprocesses $(JOBS) --dist loadfile --durations 30 tests property_tests examples

soak: install ## Simulate crashes, zombies and lost answers until stopped (Ctrl-C); SOURCES=1 those of a source
	$(BIN)/python -m property_tests.simulation $(if $(SOURCES),--sources)

MINUTES ?= 5
soak-kafka: install ## Kill broker, drivers, executors and workers for MINUTES=5, then compare
	$(BIN)/python -m property_tests.soak_kafka --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

kafka: install ## Run a Kafka broker on 127.0.0.1:9092 until Ctrl-C (jars through Maven)
	$(BIN)/python -m tests.kafka.broker

bench: install ## Measure, in one table of ratios
	$(BIN)/python -m benchmarks

docs: install ## Build the documentation into site/
	$(BIN)/python docs/generate.py
	$(BIN)/zensical build --strict --clean

clean: ## Remove what the other targets made
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
