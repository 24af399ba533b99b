#!/usr/bin/env bash
# Runs the tests of jobs/topic_to_table.py, and of tables that a sync wrote, with the libraries of tests/tables/pom.xml,
# on the newest Spark for which Maven Central has both: it is older than the environment's, so it has an environment of
# its own, below build/tables.
# Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
version=4.1.4
environment=build/tables/$version-lake
if [ ! -e "$environment/.ready" ]; then
    python=$(scripts/check_environment.sh python)
    echo "setting up PySpark $version for the tests of tables"
    mkdir -p build/tables
    grep -vE '^pyspark(-client)?==' constraints.txt >"build/tables/constraints.txt"
    echo "pyspark==$version" >>build/tables/constraints.txt
    "$python" -m venv "$environment"
    "$environment/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt pip
    "$environment/bin/python" -m pip install -q --disable-pip-version-check -c build/tables/constraints.txt \
        --build-constraint constraints.txt -e ".[spark,iceberg,delta]" pytest chispa hypothesis
    touch "$environment/.ready"
fi
# Spark's sockets are closed by the end of the process, which pytest of this Python calls a warning.
PYSPARK_PYTHON=$PWD/$environment/bin/python PYSPARK_DRIVER_PYTHON=$PWD/$environment/bin/python \
    SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1} \
    "$environment/bin/python" -m pytest -q -W ignore::pytest.PytestUnraisableExceptionWarning tests/tables "$@"
