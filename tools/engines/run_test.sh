#!/bin/sh
# run_test.sh PYTHON PACKAGE TEST: runs a test with a Python that can import a package, or says why it cannot.
if ! [ -x "$1" ]; then
  echo "skipped: there is no $1; the README of the test's folder says how to make the environment"
  exit 77
fi
if ! why=$("$1" -c "import $2" 2>&1); then
  echo "skipped: $1 cannot import $2: $(printf '%s\n' "$why" | tail -n 1)"
  exit 77
fi
exec "$1" "$3"
