#!/bin/sh
# run_test.sh PYTHON: runs engine_test.py with the environment of `setup`, or says that there is none.
if ! [ -x "$1" ]; then
  echo "skipped engine.transformers: torch and transformers are not installed; run tools/engines/transformers/setup"
  exit 77
fi
exec "$1" "$(dirname -- "$0")/engine_test.py"
