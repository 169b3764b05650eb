# What to do with this checkout; `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
MAKEFLAGS += --no-print-directory

# A Python from 3.11 to 3.13; empty: `python3` if it is one, else the newest that tools/find-python finds.
PYTHON ?=
VENV := .venv
UV_VENV := .venv-uv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
# Setuptools leaves it where Airflow would find the package, and its plug-in, a second time: an error in its UI.
EGG_INFO := include/eventbridge_airflow.egg-info

# A task is a process. Where Python may keep no bytecode, each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

export EVENTS ?= 60000
PAIRS ?= 10000000
DOCUMENTS ?= 1000000
SCHEDULES ?= 1000
SPARK_SCHEDULES ?= 20
DELIVERIES ?= 100000
PENDING ?= 1000000
DAYS ?= 30
# How many processes of `make test` have the tests of services, which wait more than they compute.
WAITING ?= 3
# Tests that compute and hear no clock. They have what all others, which wait now and then, leave of the processors.
COMPUTING := $(filter-out %_jsonata.py,$(wildcard tests/generative/test_*.py)) \
  $(filter-out %/test_kernel_forks.py %/test_reference_cost.py %/test_kernel_rooms.py,$(wildcard tests/unit/matching/test_*.py)) \
  tests/unit/policy tests/unit/matching/pattern tests/unit/transform/test_native_transforms.py

.PHONY: help setup wheel docs demo up down clean-up env up-production smoke-production test test-python test-deep test-s3 services check screenshots oracle fix bench-latency bench-match \
  bench-push bench-isolation bench-retry-lane bench-many-rules bench-batch bench-looking bench-page bench-why \
  bench-watcher bench-replay bench-api bench-telemetry bench-backtest bench-fairness bench-sources \
  bench-end-to-end bench-streaming bench-batches bench-targets requirements

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/' \
	  | while IFS=$$'\t' read -r name what; do printf '  \033[1m%-16s\033[0m %s\n' "$$name" "$$what"; done

setup: $(COMPILED) ## create .venv from requirements.txt, unless it is up to date

$(INSTALLED): requirements.txt pyproject.toml
	@if [ -x $(BIN)/python ]; then python=$(BIN)/python; else python=$$(tools/find-python $(PYTHON)); fi
	java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"
	release=$$("$$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' || true)
	[ "$${release:-0}" -ge 17 ] || {
	  echo "Java 17 or later is missing: sudo apt-get install -y openjdk-17-jre-headless"; exit 1; }
	uv=$$(command -v uv || true)
	if [ -z "$$uv" ] || ! "$$uv" --version >/dev/null 2>&1; then
	  [ -x $(UV_VENV)/bin/uv ] || { "$$python" -m venv $(UV_VENV) && $(UV_VENV)/bin/python -m pip install -q uv; } || {
	    echo "uv cannot be installed: sudo apt-get install -y python3-venv, or https://docs.astral.sh/uv"; exit 1; }
	  uv=$(UV_VENV)/bin/uv
	fi
	[ -x $(BIN)/python ] || "$$uv" venv -q -p "$$python" $(VENV)
	"$$uv" pip install -p $(BIN)/python --require-hashes -r requirements.txt
	"$$uv" pip install -q -p $(BIN)/python --no-deps -e .
	rm -rf $(EGG_INFO)
	touch $@

# What is compiled is kept by the times of these files; without this the first events after a change would wait for it.
$(COMPILED): $(INSTALLED) $(wildcard $(addprefix include/eventbridge/,matching/scan/*.py matching/kernel/*.py transform/kernel/*.py))
	@$(BIN)/eventbridge compile
	touch $@

# setuptools packs what an earlier build left in build/, files that have been removed since too.
wheel: setup ## build the wheel, into dist/
	@rm -rf build
	trap 'rm -rf build $(EGG_INFO)' EXIT
	$(BIN)/python -c "from setuptools.build_meta import build_wheel as build; print('dist/' + build('dist'))" | tail -1

docs: $(INSTALLED) ## build the documentation site into .site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 exec $(BIN)/mkdocs build --strict --quiet

demo: setup ## deliver EVENTS flights (60000, or all) through Airflow and Spark, and prove that none is lost; STORE=s3, LEDGER=postgresql, BUS=kafka|rocketmq, MODE=streaming
	@exec $(BIN)/python -m demo.run

up: setup ## start Airflow, Spark and the receiver, with the data of the last run; prints URL, user and password
	@exec $(BIN)/python -m demo.up

env: ## write .env for docker-compose.yaml, with random passwords; never overwrites it
	@exec python3 -m demo.production.env

up-production: setup ## run every service of docker-compose.yaml natively until Ctrl-C; WORKERS=8, SCHEDULERS=2
	@PYTHONPATH=tests:. exec $(BIN)/python -m demo.production.run

smoke-production: EVENTS = 10000
smoke-production: setup ## deliver EVENTS flights (10000) by those services, kill workers and Spark's master meanwhile, and prove that none is lost
	@PYTHONPATH=tests:. exec $(BIN)/python -m demo.production.run --smoke $(EVENTS)

down: ## stop what `make up` started and keep its data
	@[ -x $(BIN)/python ] || { echo "Nothing was running."; exit 0; }
	exec $(BIN)/python -m demo.down

clean-up: ## remove the ledger, archive, rules and Airflow database of `make up`, and the files of the last demo
	@[ -x $(BIN)/python ] || { echo "Nothing to remove."; exit 0; }
	exec $(BIN)/python -m demo.clean_up

# What tests write lies in memory, where nobody waits for a disk; on the disk where there is less than 8 GB of it.
test: setup ## every test: the fast ones, the crash matrix, the others, several at a time; beside them those that only compute
	@free=$$(df --output=avail /dev/shm 2>/dev/null | tail -1 || true)
	if [ "$${free:-0}" -gt 8000000 ]; then
	  TMPDIR=$$(mktemp -d /dev/shm/tests-XXXXXX)
	else
	  TMPDIR=$$(mktemp -d)
	fi
	export TMPDIR
	chmod 755 "$$TMPDIR"  # a server that refuses root is run as nobody
	computing=""
	trap 'kill $$computing 2>/dev/null || true; wait; rm -rf "$$TMPDIR"' EXIT
	several="$(BIN)/pytest -q -o tmp_path_retention_policy=failed --durations 25 --durations-min 20"
	nice -n 19 $$several --timeout 1800 $(COMPUTING) > "$$TMPDIR/computing.txt" 2>&1 &
	computing=$$!
	$(if $(OTHER_PYTHON),,$$several -n 2 --dist loadfile tests/unit $(addprefix --ignore ,$(COMPUTING)))
	$(if $(CHECKED),,$$several tests/architecture)
	$$several -n 2 --dist worksteal tests/faults
	failed=0
	$$several -n $(WAITING) --dist loadfile --no-loadscope-reorder --ignore tests/unit --ignore tests/architecture \
	  --ignore tests/faults $(addprefix --ignore ,$(COMPUTING)) || failed=$$?
	wait $$computing || failed=$$?
	cat "$$TMPDIR/computing.txt"
	exit $$failed

# What only computes depends on the version through Numba alone, and the tests of the whole matcher compile all of it.
test-python: setup ## the unit tests, the tour of README.md and the page of the first rule, for another version: make test-python VENV=.venv-other PYTHON=python3.13
	@$(BIN)/python --version
	$(BIN)/pytest -q -n 2 --dist loadfile tests/unit \
	  $(addprefix --ignore ,$(filter-out %/test_kernel_matcher.py,$(COMPUTING)))
	$(BIN)/pytest -q tests/docs/tour.py

services: setup ## fetch the real servers that tests start, into .services and .s3proxy; tests fetch what they need themselves
	@PYTHONPATH=tests:. exec $(BIN)/python -m services.fill

test-s3: setup ## the tests of store and target, and a batch of 50,000 events, on each of two S3 servers that are fetched, one built by Go: 10 minutes
	@PYTHONPATH=tests exec $(BIN)/python -m s3proxy.deep

test-deep: setup ## test-s3, smoke-production with 100,000 flights, 10 million random pairs, a million damaged documents, every pair of kills, 1,000 random stories of faults, PostgreSQL and ordered targets killed at more calls, the models of deliveries, order and JSONata with 5,000 examples, Schemathesis with 300 calls of each route, the page in an Airflow with FAB, the commands of docs/howto/install.md, the tour of README.md with the wheel on each Python, the demo's rules on every service of docker-compose.yaml, handovers, a backlog of a streaming runner, the demo on Kafka and RocketMQ, spark-submit part by part, every benchmark at a small size, the stages in both modes
	@PYTHONPATH=tests $(BIN)/python -m generative.deep --pairs $(PAIRS) --documents $(DOCUMENTS)
	PYTHONPATH=tests $(BIN)/python -m generative.deep --pairs 500000 --documents 20000 --guard end
	PYTHONPATH=tests $(BIN)/python -m generative.deep --pairs 500000 --documents 20000 --guard beginning
	PYTHONPATH=tests $(BIN)/python -m faults.deep --schedules $(SCHEDULES) --spark-schedules $(SPARK_SCHEDULES)
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest -q --timeout 0 tests/generative/test_delivery_model.py \
	  tests/generative/test_order_model.py tests/generative/test_generated_jsonata.py \
	  tests/faults/test_order_is_kept.py tests/faults/test_stages_die_on_postgresql.py \
	  tests/pipeline/sending/test_order_survives.py tests/api/test_openapi.py
	PYTHONPATH=tests:. $(BIN)/python -m demo.production.run --smoke 100000
	PYTHONPATH=tests $(BIN)/python -m s3proxy.deep
	$(BIN)/pytest -q -s tests/end_to_end/deep_page_with_fab.py tests/end_to_end/deep_streaming_handover.py tests/end_to_end/deep_backlog.py \
	  tests/end_to_end/deep_idle_runs.py tests/end_to_end/deep_demo_on_brokers.py \
	  tests/end_to_end/deep_production_shape.py tests/end_to_end/deep_install_page.py \
	  tests/spark/deep_spark_connect.py tests/spark/deep_spark_submit.py tests/benchmarks/deep_small_benchmarks.py \
	  tests/docs/deep_wheel_tour.py
	for mode in batch streaming; do
	  EVENTBRIDGE_TEST_MODE=$$mode $(BIN)/pytest -q tests/pipeline
	done

check: $(INSTALLED) ## format, lint, types, layers, architecture
	@$(BIN)/mypy --strict -p eventbridge &
	types=$$!
	trap 'kill $$types 2>/dev/null || true' EXIT
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python tests/architecture/size.py
	$(BIN)/pytest -q tests/architecture
	wait $$types

screenshots: setup ## take the pictures of docs/images again, of Airflow's pages in a real browser; needs Chromium
	@TEST_SCREENSHOTS=docs/images exec $(BIN)/pytest -q tests/end_to_end/test_operators_use_airflow.py tests/api/deep_pictures.py

oracle: setup ## compare 200,000 generated results with AWS Event Ruler's; ORACLE="--seed 7" for others; needs a JDK and Maven
	@PYTHONPATH=tests exec $(BIN)/python -m oracle.compare $(ORACLE)

fix: setup ## fix what formatter and linter can fix
	@$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-latency: setup ## publish to delivered at one event a second, for a minute
	@exec $(BIN)/python -m benchmarks.bench_latency

bench-match: setup ## how fast events are matched, beside Event Ruler: ten minutes, or QUICK=1; needs a JDK and Maven
	@PYTHONPATH=tests exec $(BIN)/python -m benchmarks.match

bench-push: setup ## deliveries a CPU-second of one push, beside aiohttp and httpx
	@exec $(BIN)/python -m benchmarks.bench_push --deliveries $(DELIVERIES)

bench-targets: setup ## events a CPU-second to Delta, Iceberg, S3, PostgreSQL, Airflow and a pull queue, beside the client library alone writing the same rows
	@PYTHONPATH=tests exec $(BIN)/python -m benchmarks.bench_targets $(ARGS)

bench-telemetry: setup ## what OpenTelemetry at 1 % sampling costs of route and push: pairs of batches with and without
	@exec $(BIN)/python -m benchmarks.bench_telemetry

bench-api: setup ## events a CPU-second that the HTTP API publishes in batches of 100, beside a bare FastAPI echo
	@exec $(BIN)/python -m benchmarks.bench_api

bench-isolation: setup ## what a dead, a slow and a flapping target cost seven others; push's memory with a million pending
	@exec $(BIN)/python -m benchmarks.bench_isolation --pending $(PENDING) $(if $(AIRFLOW),--airflow)

bench-retry-lane: setup ## how late pending deliveries are taken up, what a look costs, how fast a backlog drains
	@exec $(BIN)/python -m benchmarks.bench_retry_lane

bench-streaming: setup ## milliseconds, CPU, batches and files of streaming mode, batch mode beside it, from 1 to 9,000 events/s
	@exec $(BIN)/python -m benchmarks.bench_streaming $(if $(AIRFLOW),--airflow)

bench-batches: setup ## the peak of memory of a streaming task after 1,000 batches, and after 10,000
	@exec $(BIN)/python -m benchmarks.bench_batches

bench-many-rules: setup ## what a delivery costs, push to commit, with 10, 1,000 and 10,000 rules, a target each
	@exec $(BIN)/python -m benchmarks.bench_many_rules

bench-batch: setup ## CPU and memory of each stage of a batch of 500,000 events, and of one of a million deliveries
	@exec $(BIN)/python -m benchmarks.bench_batch

bench-replay: setup ## what a replay costs live traffic beside it, how fast it is, and what it reads of the archive
	@exec $(BIN)/python -m benchmarks.bench_replay $(ARGS)

bench-sources: setup ## what it costs to land a broker's backlog in the store, beside reading it alone
	@PYTHONPATH=tests exec $(BIN)/python -m benchmarks.bench_sources

bench-end-to-end: setup ## a broker's backlog of 2,000,000 events through Airflow to a file, beside landing alone
	@PYTHONPATH=tests exec $(BIN)/python -m benchmarks.bench_end_to_end

bench-backtest: setup ## what a backtest of ten million events costs beside reading and matching them
	@exec $(BIN)/python -m benchmarks.bench_backtest $(ARGS)

bench-fairness: setup ## what low work gets beside high, a quiet topic beside a hot one, how soon operators' words hold
	@exec $(BIN)/python -m benchmarks.bench_fairness $(ARGS)

bench-looking: setup ## CPU time of `status`, `audit` and others that only look, beside the import of their libraries
	@exec $(BIN)/python -m benchmarks.bench_looking

bench-page: setup ## how long each page takes over a month of a tenth of 1,000,000 events a day and 10,000 rules; DAYS=30
	@exec $(BIN)/python -m benchmarks.bench_page --days $(DAYS)

bench-why: setup ## how long `why` takes over a month of a tenth of 1,000,000 events a day, and what its index costs
	@exec $(BIN)/python -m benchmarks.bench_why

bench-watcher: setup ## what a look for due deliveries costs while none, a thousand and a million rows are due
	@exec $(BIN)/python -m benchmarks.bench_watcher

requirements: ## pin pyproject.toml's packages again in requirements.txt, for every Python from 3.11
	@PATH="$$PATH:$(UV_VENV)/bin"
	UV_CUSTOM_COMPILE_COMMAND="make requirements" uv pip compile -q pyproject.toml -p 3.11 --universal --generate-hashes \
	  --all-extras --group demo --group test --group check --group docs --group bench -o requirements.txt
