#!/usr/bin/env bash
# Runs the unit tests on several Pythons, each in an environment of its own below build/pythons, and prints one line for
# each.  Arguments: versions, such as 3.12.  One that is not on PATH is looked for among pyenv's; one that is nowhere is
# said, and makes the run fail only if there was no other.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
tried=0
results=()

find_python() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$candidate" -c "import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

for version in "$@"; do
    python=$(find_python "$version") || { results+=("Python $version: not on this machine"); continue; }
    tried=1
    environment=build/pythons/$version
    mkdir -p build/pythons
    if [ ! -e "$environment/.ready" ]; then
        echo "setting up Python $version"
        "$python" -m venv "$environment" &&
            "$environment/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt pip &&
            "$environment/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt \
                --build-constraint constraints.txt -e ".[spark]" --group tests --group notebooks &&
            touch "$environment/.ready" || { failed=1; results+=("Python $version: could not be set up"); continue; }
    fi
    make --no-print-directory test-unit PY="$environment/bin/python" READY= ARGS="${ARGS:-}" 2>&1 | tee "build/pythons/$version.txt"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
    results+=("Python $("$python" -c 'import platform; print(platform.python_version())'): $(grep -E " (passed|failed)" "build/pythons/$version.txt" | tail -1)")
done
printf '%s\n' "${results[@]}"
[ "$tried" = 1 ] || failed=1
exit "$failed"
