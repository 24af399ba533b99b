#!/usr/bin/env bash
# Runs the Spark tests on several PySpark versions, each in an environment of its own below build/matrix, and prints
# one line for each.  Arguments: the versions.  Needs some GiB of disk and, for each version, as long as `make test-spark`.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/check_environment.sh python)
failed=0
results=()
for version in "$@"; do
    environment=build/matrix/$version
    mkdir -p build/matrix
    grep -vE '^pyspark(-client)?==' constraints.txt >"build/matrix/constraints-$version.txt"
    echo "pyspark==$version" >>"build/matrix/constraints-$version.txt"
    if [ ! -e "$environment/.ready" ]; then
        echo "setting up PySpark $version"
        "$python" -m venv "$environment" &&
            "$environment/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt pip &&
            "$environment/bin/python" -m pip install -q --disable-pip-version-check -c "build/matrix/constraints-$version.txt" \
                --build-constraint constraints.txt -e ".[spark]" --group tests --group notebooks &&
            touch "$environment/.ready" || { failed=1; results+=("PySpark $version: could not be set up"); continue; }
    fi
    pages=()
    case "$version" in 4.0.* | 4.1.*) pages=(--ignore=tests/docs) ;; esac # the pages are about PySpark 4.2 and later
    PYSPARK_PYTHON=$PWD/$environment/bin/python PYSPARK_DRIVER_PYTHON=$PWD/$environment/bin/python \
        SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1} \
        "$environment/bin/python" -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -p no:randomly -m spark --ignore=tests/tables "${pages[@]}" \
        -W ignore::pytest.PytestUnraisableExceptionWarning tests ${ARGS:-} 2>&1 | tee "build/matrix/$version.txt"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
    results+=("PySpark $version: $(tail -1 "build/matrix/$version.txt")")
done
printf '%s\n' "${results[@]}"
exit "$failed"
