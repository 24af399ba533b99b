# Every command of this project has its name here.  `make help` lists them.

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PYTEST := $(PY) -m pytest
# `exec`: a signal to make reaches the ladder, which ends what it started.
LADDER := exec $(PY) -m tests.ladder
# What reads the source of the project, and runs in `make lint`.
SOURCE_TESTS := tests/test_architecture.py tests/test_definitions.py tests/docs/test_words.py tests/ladder/test_clocks.py
ORACLE_VERSIONS := 5.3.3 4.9.8
PYTHON_VERSIONS := 3.11 3.12 3.13 3.14
PYSPARK_VERSIONS := 4.0.5 4.1.4 4.2.1 4.3.0
ORACLES := $(ORACLE_VERSIONS:%=tests/oracle/target/%/classpath.txt)
NEWEST_ORACLE := tests/oracle/target/5.5.1/classpath.txt
# The newest releases of either line whose broker Maven Central has.
BROKERS := $(patsubst %,tests/oracle/target/broker-%/classpath.txt,5.5.1 5.3.3 4.9.7)

# `make test ARGS=…` counts; what a shell happens to export under these names does not.
OURS := ARGS PART N EXAMPLES ONLY DEMO_ARGS
$(foreach name,$(OURS),$(if $(filter environment,$(origin $(name))),$(eval $(name) :=)))
unexport PYTEST_ADDOPTS PYTEST_PLUGINS

# Not empty where an environment is set up, and the interpreter that it links to is gone, as on another machine.
GONE := $(if $(wildcard $(READY)),$(shell $(VENV)/bin/python -c '' >/dev/null 2>&1 || echo interpreter-gone))

# Spark's workers run the same Python, not the first one on PATH; and a machine whose name does not resolve can run Spark.
export PYSPARK_PYTHON := $(CURDIR)/$(PY)
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(PY)
export SPARK_LOCAL_IP ?= 127.0.0.1

# Prints nothing when the tool is there, else stops make with the one line that says what to install.
need = $(if $(filter no,$(shell scripts/check_environment.sh $(1) >/dev/null 2>&1 || echo no)),$(error rmqstore $(shell scripts/check_environment.sh $(1) 2>&1)))

.DEFAULT_GOAL := help
.PHONY: interpreter-gone help setup demo test deep test-unit test-stores test-spark test-java test-matrix lint format options docs conformance test-tables test-sail bench bench-kafka bench-sail figures mutation flips crash sim teeth soak wheel test-pythons release clean

help:  ## this list
	@echo "rmqstore: read RocketMQ stores with Spark.  Try \`make demo\` first."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## a virtual environment in .venv, with everything pinned

interpreter-gone:
	@echo "the Python that $(VENV) was set up with is gone: remove $(VENV) and run \`make setup\`" >&2; exit 1

$(READY): pyproject.toml constraints.txt $(GONE)
	$(call need,python)
	@echo "setting up $(VENV) (a few minutes the first time: Spark is large)"
	@$$(scripts/check_environment.sh python) -m venv $(VENV)
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt pip
	@$(PY) -m pip install -q -c constraints.txt --build-constraint constraints.txt -e ".[spark]" --group tests --group notebooks --group lint --group docs
	@touch $@

demo: $(READY)  ## the main job on a real broker's store: counts, SQL, backlog, one order's history, Parquet
	$(call need,java)
	@$(PY) -m jobs.demo $(DEMO_ARGS)

test: $(READY)  ## what is quick and certain: 8 to 20 minutes; ARGS goes to pytest, here and below
	$(call need,java)
	@$(LADDER) quick -- $(ARGS)

test-unit: $(READY)  ## of it the parts one by one, one minute to two
	@$(LADDER) unit -- $(ARGS)

test-stores: $(READY)  ## of it whole stores: RocketMQ's own, damaged ones, crashes and failing disks
	@$(LADDER) stores -- $(ARGS)

test-spark: $(READY)  ## of it the tests that start Spark, two files at a time
	$(call need,java)
	@$(LADDER) spark -- $(ARGS)

deep: $(READY)  ## everything, hours; PART="conformance host" takes some, `make deep PART=?` lists them
	@set -f; $(LADDER) --keep build/deep.json $(or $(PART),deep) -- $(ARGS)

test-matrix: $(READY)  ## the Spark tests on PySpark 4.0, 4.1, 4.2 and 4.3, each in its own environment (half an hour)
	$(call need,java)
	@scripts/test_matrix.sh $(PYSPARK_VERSIONS)

tests/tables/target/jars.txt: tests/tables/pom.xml
	$(call need,java)
	$(call need,mvn)
	@echo "fetching the libraries of Delta and Iceberg tables"
	@mvn -q -B -f tests/tables/pom.xml initialize
	@touch $@

test-tables: $(READY) tests/tables/target/jars.txt  ## the job that appends to Delta and Iceberg tables, with their libraries (Maven)
	@scripts/test_tables.sh $(ARGS)

test-sail: $(READY)  ## batch reads in Sail, a Spark Connect server without a JVM: the rows of all golden stores
	@scripts/test_sail.sh $(ARGS)

lint: $(READY)  ## format, lint, types, import map, budgets and words, changing nothing
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy & types=$$!; $(PYTEST) -q -n 2 -m source $(SOURCE_TESTS); tests=$$?; wait $$types && exit $$tests

format: $(READY)  ## put the code into the format that lint wants
	@$(PY) -m ruff check -q --fix-only .
	@$(PY) -m ruff format .

options: $(READY)  ## write docs/options.md, the list of all options, from the tables in the code
	@$(PY) -m tests.option_page

docs: $(READY)  ## these pages for a browser, in build/docs; warnings are errors
	@$(PY) -m sphinx -q -W --keep-going -c docs -d build/doctrees . build/docs
	@echo build/docs/index.html

tests/oracle/target/%/classpath.txt: tests/oracle/pom.xml $(wildcard tests/oracle/src/*.java)
	$(call need,java)
	$(call need,mvn)
	@echo "building the oracle on RocketMQ $*"
	@mvn -q -B -f tests/oracle/pom.xml -Drmq=$* process-classes
	@touch $@

tests/oracle/target/broker-%/classpath.txt: tests/oracle/broker/pom-%.xml $(wildcard tests/oracle/broker/*.java) tests/oracle/broker/build_client.sh
	$(call need,java)
	$(call need,mvn)
	@echo "building the client of a whole broker of RocketMQ $*"
	@tests/oracle/broker/build_client.sh $* $(@D)

test-java: $(READY) $(ORACLES)  ## the same stores by RocketMQ's own store code, without a broker, two minutes (needs Maven)
	$(call need,java)
	$(call need,mvn)
	@$(PYTEST) -q -n 2 --dist loadfile -m "java and not deep" tests/conformance $(ARGS)

conformance: $(READY) $(ORACLES) $(NEWEST_ORACLE) $(BROKERS)  ## compare with RocketMQ's own Java code, 4.9.8 to 5.5.1, and real brokers (needs Maven)
	$(call need,java)
	$(call need,mvn)
	@$(PYTEST) -q -n 2 --dist loadfile tests/conformance $(ARGS)

bench: $(READY)  ## figures of this machine, as ratios within one run (minutes, a few GiB of disk)
	$(call need,java)
	@$(PY) -m bench $(ARGS)

bench-kafka: $(READY)  ## long: Spark's Kafka source beside ours, same messages, one node here (Maven, 10 minutes, 4 GiB)
	$(call need,java)
	$(call need,mvn)
	@$(PY) -m bench.bench_kafka $(ARGS)

bench-sail: $(READY)  ## CPU a row in Sail beside Spark, for some column sets of 2.5 M messages (5 minutes)
	$(call need,java)
	@sail=$$(scripts/sail_environment.sh) && $(PY) -m bench.bench_sail $$sail/bin/python $(ARGS)

figures: $(READY)  ## keep the figures of the last `make bench` and `make bench-kafka`, and write docs/figures.md from them
	@$(PY) -m bench.figures_page --keep

mutation: $(READY)  ## damage store files at random for long; EXAMPLES=20000 says how often a test
	@RMQSTORE_MUTATION_EXAMPLES=$(or $(EXAMPLES),20000) $(PYTEST) -q -n 2 -m mutation tests $(ARGS)

flips: $(READY)  ## turn every bit of a small store over, one at a time: what is noticed, with and without CRC property (minutes)
	@$(PY) -m tests.mutation.flipped_bits

crash: $(READY)  ## crashes and kills for long; N=20 tries so many times as much
	@RMQSTORE_MUST_MOUNT=1 RMQSTORE_SWEEPS=whole RMQSTORE_CRASH_ROUNDS=$(or $(N),20) $(PYTEST) -q -n 2 tests/crash tests/store/test_interrupts.py tests/store/test_small_disk.py tests/store/test_slips_machine.py \
	    tests/dledger/test_entry_store.py tests/deletions/test_failures.py $(ARGS)

sim: $(READY)  ## a master and a slave over a network and disks that fail; N=10000 says how many seeds
	@RMQSTORE_SIM_SEEDS=$(or $(N),10000) $(PYTEST) -q -n 2 tests/replication/test_simulation.py $(ARGS)

teeth: $(READY)  ## do the tests notice faults?  Plants each of a list into a copy; ONLY='regex' takes some (minutes)
	@RMQSTORE_SWEEPS=whole $(PYTEST) -q -n 2 -m teeth tests/crash
	@$(PY) -m tests.teeth --only '$(ONLY)' $(ARGS)

soak: $(READY)  ## streams with random kills and restarts for long; N=200 says how many restarts
	$(call need,java)
	@RMQSTORE_SOAK_ROUNDS=$(or $(N),200) $(PYTEST) -q tests/soak $(ARGS)

wheel: $(READY)  ## build the wheel into dist/
	@rm -f dist/rmqstore-*.whl
	@$(PY) -m build --wheel --no-isolation --outdir dist . >/dev/null
	@ls dist/rmqstore-*.whl

test-pythons: $(READY)  ## the unit tests on Python 3.11 to 3.14, each that is here in its own environment (minutes)
	@scripts/test_pythons.sh $(PYTHON_VERSIONS)

release:  ## what would be published, into dist/: sdist and wheel built twice and compared, twine check, an SBOM
	@scripts/build_release.sh

clean:  ## remove what was built, except .venv
	@rm -rf build dist tests/oracle/target tests/tables/target bench/kafka/target examples/make/target .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
