#!/bin/sh
# run_test.sh TORCH_PYTHON GGUF_PYTHON: runs engine_test.py, or says what is missing.
if ! [ -x "$1" ]; then
  echo "skipped engine.llama_cpp: torch, which trains the models, is not installed; run tools/engines/transformers/setup"
  exit 77
fi
if ! [ -x "$2" ]; then
  echo "skipped engine.llama_cpp: gguf is not installed; see tools/engines/llama_cpp/README.md, \"Run it\""
  exit 77
fi
exec "$1" "$(dirname -- "$0")/engine_test.py" "$2"
