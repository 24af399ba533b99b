#!/usr/bin/env bash
# Runs the tests of the source in Sail, in the environment of sail_environment.sh.  The zone is the one that Sail gives to
# instants.  Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=$(scripts/sail_environment.sh)
TZ=UTC "$environment/bin/python" -m pytest -q tests/sail "$@"
