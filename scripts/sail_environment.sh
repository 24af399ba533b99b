#!/usr/bin/env bash
# Prints the directory of an environment with Sail and the newest PySpark client that it takes, below build/sail; makes it
# when it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."
sail=0.7.2 client=4.1.4
environment=build/sail/$sail
if [ ! -e "$environment/.ready" ]; then
    python=$(scripts/check_environment.sh python)
    echo "setting up Sail $sail with PySpark $client" >&2
    mkdir -p build/sail
    grep -vE '^(pyspark(-client)?|pysail)==' constraints.txt >build/sail/constraints.txt
    echo "pyspark==$client" >>build/sail/constraints.txt
    "$python" -m venv "$environment"
    "$environment/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt pip
    "$environment/bin/python" -m pip install -q --disable-pip-version-check -c build/sail/constraints.txt \
        --build-constraint constraints.txt "pysail==$sail" -e . "pyspark[connect]==$client" pytest hypothesis
    touch "$environment/.ready"
fi
echo "$environment"
