#!/bin/sh
# check_environment.sh python|java|mvn|chromium
# Prints the path of a usable tool, or one line that says what to install (standard error, exit status 1).
# Respects PYTHON, JAVA_HOME and CHROMIUM.  Runs in any POSIX shell, since nothing is set up yet when it is called.

fail() {
    echo "$1" >&2
    exit 1
}

python_is_usable() {
    # ensurepip is asked for because some distributions ship Python without what `python -m venv` needs.
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
        if command -v "$candidate" >/dev/null 2>&1 && python_is_usable "$candidate"; then
            command -v "$candidate"
            exit 0
        fi
    done
    found=$("${PYTHON:-python3}" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
    fail "needs Python 3.11 or newer with its venv module (found: ${found:-none}); install python3.11+ and python3-venv, or set PYTHON=/path/to/python"
}

find_java() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\)\.*\([0-9]*\).*/\1 \2/p' | head -n 1)
    # shellcheck disable=SC2086  # two words on purpose
    set -- ${version:-0 0}
    major=$1
    [ "$major" = 1 ] && major=$2   # Java 8 and older call themselves 1.8
    where=${JAVA_HOME:+ in JAVA_HOME=$JAVA_HOME}
    [ "$major" = 0 ] && fail "needs Java 17 or newer for Spark (found: none$where); install a JDK 17 or 21, or set JAVA_HOME"
    [ "$major" -ge 17 ] || fail "needs Java 17 or newer for Spark (found: Java $major$where); install a JDK 17 or 21, or set JAVA_HOME"
    command -v "$java"
}

find_mvn() {
    command -v mvn >/dev/null 2>&1 || fail "needs Maven 3 for the conformance tests (found: none); install maven"
    javac=${JAVA_HOME:+$JAVA_HOME/bin/}javac
    command -v "$javac" >/dev/null 2>&1 || fail "needs a JDK for the conformance tests (found: no javac); install a JDK 17 or 21, or set JAVA_HOME"
    command -v mvn
}

find_chromium() {
    for candidate in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
        if command -v "$candidate" >/dev/null 2>&1; then
            command -v "$candidate"
            exit 0
        fi
    done
    fail "needs Chromium for the browser tests (found: ${CHROMIUM:+nothing at }${CHROMIUM:-none}); install chromium, or set CHROMIUM=/path/to/chromium"
}

case ${1:-} in
    python) find_python ;;
    java) find_java ;;
    mvn) find_mvn ;;
    chromium) find_chromium ;;
    *) fail "usage: check_environment.sh python|java|mvn|chromium" ;;
esac
