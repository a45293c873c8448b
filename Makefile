# make run      start a broker on 127.0.0.1:9092 with its data in ./data        (ARGS="--set num.partitions=3")
# make test     everything in tests/ and compat-tests/                          (ARGS="-k produce -x", WORKERS=0 for one process)
# make check    what to run all the time: style, types, layers, unit tests
# make help     the rest

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench
SPARK := $(VENV)/.installed-spark
JARS := .cache/jars/.gathered
SPARK_JARS := .cache/spark-jars/.gathered
CLIENTS := .cache/clients/.gathered
REGISTRY := .cache/registry/.gathered
ARGS ?=

# The tests start hundreds of interpreters: each would compile everything anew if it may not keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install run test gather check chaos simulate lint types layers jars clients registry spark spark-jars system bench docs clean
.DEFAULT_GOAL := help

help:
	@echo "make install  make the environment in $(VENV), with what development needs"
	@echo "make run      start a broker on 127.0.0.1:9092 with its data in ./data"
	@echo "make test     run everything in tests/ and compat-tests/, after installing what they need"
	@echo "make check    style, types, layers and the unit tests: the inner loop"
	@echo "make chaos    break a cluster on purpose, for MINUTES=10, and check that nothing acknowledged is lost"
	@echo "make simulate run SEEDS=100 whole clusters on a simulated clock, network and disk (FROM=1 NODES=3 FAULTS=disk,network)"
	@echo "make lint     check style            make types   check types         make layers  check imports"
	@echo "make bench    measure beside Apache Kafka"
	@echo "make jars     gather Apache Kafka's jars, for the Java cases and the benchmarks"
	@echo "make spark    what the pipeline needs: PySpark in $(VENV), and its jars in .cache/spark-jars"
	@echo "make docs     make docs/config.md and docs/metrics.md    make clean   remove what was built (not $(VENV), not ./data)"

# The environment. A stamp per set of extras, so that a second run goes straight to work, and `make run` on a new machine
# fetches only what a broker needs. editable_mode=compat: a plain path entry, which a start does not pay 20 ms for.
$(PY):
	@tools/make-venv $(VENV)

$(RUN): pyproject.toml constraints.txt | $(PY)
	@echo "Installing what the broker needs into $(VENV) …"
	@$(PIP) --config-settings editable_mode=compat -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(PY)
	@echo "Installing what development needs into $(VENV) …"
	@$(PIP) --config-settings editable_mode=compat -e '.[dev,spark]'
	@touch $(RUN) $(SPARK) $@

$(BENCH): pyproject.toml constraints.txt | $(PY)
	@echo "Installing what the benchmarks need into $(VENV) …"
	@$(PIP) --config-settings editable_mode=compat -e '.[dev,spark,bench]'
	@touch $(RUN) $(DEV) $(SPARK) $@

$(SPARK): pyproject.toml constraints.txt | $(PY)
	@echo "Installing what the pipeline needs into $(VENV) …"
	@$(PIP) --config-settings editable_mode=compat -e '.[spark]'
	@touch $(RUN) $@

install: $(DEV)

# exec: the broker takes the shell's place, so Ctrl-C and a kill reach it and nothing is left behind.
run: $(RUN)
	@exec $(VENV)/bin/tidemark start --config config/single.yaml $(ARGS)

# Most tests wait more than they compute, so there are more workers than cores. conftest.py says which run together.
WORKERS ?= 5
test: $(DEV) gather
	@$(PY) -m pytest -n $(WORKERS) tests compat-tests $(ARGS)

# What the tests need beside the environment, one after the other: Maven does not like company.
gather: $(DEV) system
	@$(MAKE) --no-print-directory jars || echo "Going on without Apache Kafka's jars: the Java cases will fail." >&2
	@$(MAKE) --no-print-directory spark-jars || echo "Going on without Spark's jars: the Spark cases will fail." >&2
	@$(MAKE) --no-print-directory registry || echo "Going on without a schema registry: its cases will fail." >&2
	@$(MAKE) --no-print-directory clients || echo "Going on without clients of other versions: their cases will fail." >&2

# Without Java, Spark, Docker, wheels, pytest in pytest, commands that are typed at brokers in processes of their own or by the
# thousand, and what takes long by its nature: soaking, the worst requests, simulations by the hundred. Of random histories,
# examples and flipped bits, a few. That layers are kept is among the tests.
NOT_UNIT := pipeline test_docker.py storage/test_dump_log_segments.py \
	storage/test_kafka_directories.py tidemark/test_installed.py tidemark/test_pytest_plugin.py \
	cli/test_documented_commands.py cli/test_end_to_end.py cli/test_secure_configs.py cli/test_hostile_arguments.py \
	broker/server/test_soak.py broker/server/test_worst_requests.py broker/server/test_requests_near_the_limits.py \
	broker/handlers/produce/test_worst_batches.py \
	raft/test_simulation.py raft/test_planted_bugs.py \
	simulation/test_seeds.py simulation/test_planted_cluster_bugs.py
check: lint types
	@TIDEMARK_HISTORIES=80 $(PY) -m pytest -n 4 tests $(NOT_UNIT:%=--ignore=tests/%) $(ARGS)

# A cluster under load while its nodes are killed, stopped, cut off and restarted, for as long as you like.
MINUTES ?= 10
chaos: $(DEV)
	@$(PY) compat-tests/cluster/chaos.py --minutes $(MINUTES) $(ARGS)

# Whole clusters on a simulated clock, network and disk. A failing seed prints the command that replays it. PLANTED=all looks
# for the bugs that are put in on purpose.
SEEDS ?= 100
FROM ?= 1
NODES ?= 3
FAULTS ?= crash,power,network,disk,damage,clock
JOBS ?= 2
simulate: $(DEV)
	@PYTHONPATH=tests/simulation $(PY) -m cluster_simulation $(if $(PLANTED),--planted $(PLANTED)) --seeds $(SEEDS) --from $(FROM) --nodes $(NODES) --faults $(FAULTS) --jobs $(JOBS) $(ARGS)

lint: $(DEV)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: $(DEV)
	@$(PY) -m mypy

layers: $(DEV)
	@$(VENV)/bin/lint-imports

# What tests need beside Python: kcat, Java 17, Maven, Prometheus.
system:
	@tools/install-system-tools

jars: $(JARS)

$(JARS): compat-tests/java/pom.xml | system
	@tools/gather-jars .cache/jars
	@touch $@

# Clients of other versions than the ones in $(VENV).
clients: $(CLIENTS)

$(CLIENTS): compat-tests/versions/pom.xml compat-tests/versions/python-clients.txt | $(PY) system
	@tools/gather-clients $(@D)
	@touch $@

# A schema registry, which keeps its schemas in a broker of ours.
registry: $(REGISTRY)

$(REGISTRY): tools/gather-registry | system
	@tools/gather-registry $(@D)
	@touch $@

# The pipeline downloads nothing when it runs: all of it is fetched here.
spark: $(SPARK) spark-jars

spark-jars: $(SPARK_JARS)

$(SPARK_JARS): pipeline/pom.xml | system
	@rm -rf $(@D)
	@tools/gather-jars $(@D) pipeline/pom.xml
	@touch $@

bench: $(BENCH) system $(JARS) $(SPARK_JARS)
	@$(PY) -m bench $(ARGS)

docs: $(RUN)
	@$(PY) -m tidemark.broker.config.docs > docs/config.md
	@$(PY) -m tidemark.broker.metrics.docs > docs/metrics.md

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache/jars .cache/spark-jars .cache/clients .cache/registry
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
