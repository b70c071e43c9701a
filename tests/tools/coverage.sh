#!/usr/bin/env bash
# Line and branch coverage of host and functions by all tests (or those given), every worker process included:
#   tests/tools/coverage.sh [OPTIONS AND PATHS FOR PYTEST]
# The report is printed; COVERAGE_JSON=FILE writes it as JSON too, COVERAGE_REPORT=FILE as text. PYTHON names the Python.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# `fork`, `subprocess` and `_exit` go on measuring in the hosts, forkservers and workers that tests start.
cat > "$folder/rc" << END
[run]
branch = true
parallel = true
patch = subprocess, fork, _exit
sigterm = true
source = host,functions
data_file = $folder/data
concurrency = thread
END
status=0
"$python" -m coverage run --rcfile="$folder/rc" -m pytest -q "$@" || status=$?
"$python" -m coverage combine --rcfile="$folder/rc" --quiet
[ -z "${COVERAGE_JSON:-}" ] || "$python" -m coverage json --rcfile="$folder/rc" --quiet -o "$COVERAGE_JSON"
"$python" -m coverage report --rcfile="$folder/rc" --skip-covered | tee ${COVERAGE_REPORT:+"$COVERAGE_REPORT"}
exit $status
