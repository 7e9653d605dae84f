# shellcheck shell=bash
# Shared shell helpers of tools/setup, tools/test, tools/demo and .ci/run. Source it from bash,
# after `set -euo pipefail`:
#
#   source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
#
# It defines specd_root (the repository) and the functions below, and changes nothing else: it does
# not change the directory and prints nothing.

specd_root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"

# Colour is for people: only on a terminal, and not where NO_COLOR asks for none.
if [[ -t 1 && -z "${NO_COLOR:-}" && "${TERM:-dumb}" != dumb ]]; then
  specd_bold=$'\e[1m' specd_green=$'\e[32m' specd_red=$'\e[31m' specd_plain=$'\e[0m'
else
  specd_bold='' specd_green='' specd_red='' specd_plain=''
fi

# heading TEXT: opens a stage of a longer run.
heading() { printf '\n%s== %s%s\n' "${specd_bold}" "$*" "${specd_plain}"; }

# good TEXT: the line that says that something has worked.
good() { printf '%s%s%s\n' "${specd_green}" "$*" "${specd_plain}"; }

# die TEXT...: one line per argument on stderr, then exit status 1.
die() {
  printf '%serror:%s %s\n' "${specd_red}" "${specd_plain}" "$1" >&2
  shift
  if (($# > 0)); then
    printf '       %s\n' "$@" >&2
  fi
  exit 1
}

# elapsed SECONDS: "8 s", "3 min 05 s".
elapsed() {
  if (($1 < 60)); then
    printf '%d s' "$1"
  else
    printf '%d min %02d s' $(($1 / 60)) $(($1 % 60))
  fi
}

# print_usage FILE: the comment block at the head of a script is its --help text, so that the two
# cannot drift apart.
print_usage() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$1"; }

# configure PRESET [CMAKE-ARGUMENT...] and run_ctest PRESET [CTEST-ARGUMENT...]: presets are looked for
# in the working directory, so these and build go to the repository.
configure() (cd -- "${specd_root}" && cmake --preset "$@")
run_ctest() (cd -- "${specd_root}" && ctest --preset "$@")

# build PRESET [BUILD-ARGUMENT...]: a build that failed because memory ran out says so, and how to
# build with less.
build() (
  cd -- "${specd_root}"
  local log status=0
  log="$(mktemp)"
  trap 'rm -f -- "${log}"' EXIT
  run_with_log "${log}" cmake --build --preset "$@" || status="$?"
  if ((status != 0)) && out_of_memory "${log}"; then
    die "memory ran out: the system killed a compiler" \
      "A build with one compiler at a time needs less:" \
      "CMAKE_BUILD_PARALLEL_LEVEL=1 tools/${0##*/}"
  fi
  exit "${status}"
)

# run_with_log LOG COMMAND...: a command that writes to a terminal goes on seeing one, so that ninja
# keeps its progress on one line.
run_with_log() {
  local log="$1"
  shift
  if [[ -t 1 ]] && command -v script >/dev/null; then
    SHELL=/bin/bash script --quiet --return --command "$(printf '%q ' "$@")" "${log}"
  else
    "$@" 2>&1 | tee -- "${log}"
  fi
}

# out_of_memory LOG: how gcc, its linker, nvcc and clang report a child that the kernel has killed, and
# how gcc reports that it was refused memory.
out_of_memory() {
  local killed="Killed signal terminated program|terminated with signal 9|died due to signal 9"
  local refused="out of memory allocating|virtual memory exhausted"
  grep -qE "${killed}|unable to execute command: Killed|${refused}" -- "$1"
}
