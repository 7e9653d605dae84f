# What gpu_check/run plays under compute-sanitizer. Sourced by it, behind results.sh, over its
# variables and functions.
# shellcheck shell=bash disable=SC2034,SC2154

# Prints where compute-sanitizer is, or nothing.
find_sanitizer() {
  local candidate
  if command -v compute-sanitizer; then return; fi
  for candidate in "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/bin /usr/local/cuda-*/bin \
    /opt/cuda/bin; do
    if [[ -x "${candidate}/compute-sanitizer" ]]; then
      printf '%s\n' "${candidate}/compute-sanitizer"
      return
    fi
  done
}

# sanitized NAME TOOL PASSED COMMAND...: the command under that tool; it prints PASSED, a pattern,
# where it is content itself, or a line that says why it was skipped.
sanitized() {
  local tool="$2" passed="$3" is_clean=0
  local pattern='SUMMARY: 0 (errors|hazards)' unclean='SUMMARY: [1-9]'
  current="compute-sanitizer $1"
  if [[ -z "${sanitizer}" ]]; then
    case "${sanitizer_mode}" in
      off) record "${current}" skipped 0.0 "left out by --no-sanitizer" ;;
      auto) record "${current}" skipped 0.0 "compute-sanitizer was not found" ;;
      *) record "${current}" fail 0.0 "compute-sanitizer was not found, but --sanitizer" ;;
    esac
    return
  fi
  timed env SPECD_GPU_QUICK=1 "${sanitizer}" --tool "${tool}" --error-exitcode 99 "${@:4}"
  # Of several processes each may have a summary of its own.
  if ((code == 0)) && grep -qE "${pattern}" "${out}/check.log" &&
    ! grep -qE "${unclean}" "${out}/check.log"; then
    is_clean=1
  fi
  if ((is_clean)) && grep -qE "${passed}" "${out}/check.log"; then
    record "${current}" pass "${took}" "$(grep -m 1 -oE "${pattern}" "${out}/check.log")"
  elif ((is_clean)) && grep -q $'^skipped\t' "${out}/check.log"; then
    record "${current}" skipped "${took}" "$(sed -n 's/^skipped\t//p' "${out}/check.log")"
  elif [[ "${sanitizer_mode}" == auto ]] && grep -q 'Device not supported' "${out}/check.log"; then
    record "${current}" skipped "${took}" "compute-sanitizer does not support this device here"
  else
    record "${current}" fail "${took}" "$(why_failed \
      '^=========.*(Invalid|Uninit|hazard|Barrier|Error:)' '^fail' "${unclean}" '^========= .*SUMMARY' 'ERROR:')"
  fi
}

check_with_sanitizer() {
  local tool
  for tool in memcheck racecheck synccheck initcheck; do
    sanitized "${tool}" "${tool}" 'Status: SUCCESS' \
      "${tests}" --test-suite=gpu --no-colors --no-path-filenames
  done
  # Of the two processes the importer alone: what ends the other one is no error of its kernels.
  sanitized "memcheck of imported memory" memcheck $'^pass\t' \
    --target-processes application-only "${attach}" --check imported_read
  check_daemon_with_sanitizer
}

# The daemon's process, whose kernels read rows that an engine's process owns and write its next
# tokens. It is a child of the check, so children are tracked, but of all processes this one alone,
# by its name: a clean summary cannot be an engine's, and the tool fails where nothing that it
# tracks calls CUDA. memcheck alone: racecheck and synccheck look at what the threads of a block
# share, which the same kernels do over the suite `gpu`; and initcheck cannot know what another
# process has written. Few rounds, but each place that drafts are right up to comes up, and a step
# may take as long as the whole check: the tool makes everything slow, and no figure is taken.
check_daemon_with_sanitizer() {
  local patience_ms=$((limit_s * 1000)) patience_ms_max=3600000
  if ((patience_ms > patience_ms_max)); then patience_ms="${patience_ms_max}"; fi
  make_daemon_folder
  sanitized "memcheck of the daemon" memcheck $'^pass\t' \
    --target-processes all --target-processes-filter "${daemon##*/}" --require-cuda-init yes \
    --launch-timeout "${limit_s}" "${daemon_checks}" --daemon "${daemon}" \
    --folder "${daemon_folder}" --rounds 16 --patience_ms "${patience_ms}" --check rounds
  remove_daemon_folder
}
