# What gpu_check/run writes down: results.json, results.md, and a line for each check on the terminal.
# Sourced by it. Of its variables these are read here: out, quick, terminal, result, sanitizer,
# version, version_json, machine, machine_json; devices and statuses are also its own.
# shellcheck shell=bash disable=SC2034,SC2154

date="$(date -u +%Y-%m-%dT%H:%M:%SZ)"
declare -a devices=() statuses=() json_rows=() markdown_rows=()

driver_version() {
  nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p ||
    sed -n 's/.*Module *\([0-9.]*\).*/\1/p' /proc/driver/nvidia/version 2>/dev/null || true
}

# The newest CUDA that the driver can run.
cuda_version() { nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p' || true; }

# device_modes FIELD: what nvidia-smi says of it for each device, or nothing.
device_modes() {
  local said
  if said="$(nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null)"; then
    printf '%s\n' "${said}" | paste -sd, | sed 's/,/, /g'
  fi
}

# What the machine is, as "key<tab>value" lines, for people and for JSON.
machine_facts() {
  printf 'kernel\t%s\n' "$(uname -sr)"
  printf 'cpu\t%s\n' "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | sed -n 1p)"
  printf 'glibc\t%s\n' "$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //' || true)"
  printf 'driver\t%s\n' "$(driver_version)"
  printf 'cuda\t%s\n' "$(cuda_version)"
  # In exclusive mode a second process gets no context; parts of MIG share no memory.
  printf 'compute_mode\t%s\n' "$(device_modes compute_mode)"
  printf 'mig_mode\t%s\n' "$(device_modes mig.mode.current)"
  printf 'compute_sanitizer\t%s\n' "${sanitizer}"
}

# The same as the lines of a JSON object.
machine_to_json() {
  local key value
  while IFS=$'\t' read -r key value; do
    if [[ -n "${value}" ]]; then value="$(json "${value}")"; else value=null; fi
    printf '    "%s": %s,\n' "${key}" "${value}"
  done <<<"${machine}"
}

# json TEXT: the text as a JSON string; what is not printable ASCII is dropped.
json() {
  printf '%s\n' "$1" | LC_ALL=C tr -cd '\11\12\40-\176' |
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' |
    awk 'BEGIN { printf "\"" } NR > 1 { printf "\\n" } { printf "%s", $0 } END { printf "\"" }'
}

print_json() {
  local value separator=""
  printf '{\n  "version": %s,\n  "date": "%s",\n  "result": "%s",\n  "quick": %s,\n' \
    "${version_json}" "${date}" "${result}" "$( ((quick)) && printf true || printf false)"
  printf '  "machine": {\n%s\n    "devices": [' "${machine_json}"
  for value in ${devices[@]+"${devices[@]}"}; do
    printf '%s\n      {"name": %s, "uuid": %s}' "${separator}" \
      "$(json "${value%$'\t'*}")" "$(json "${value#*$'\t'}")"
    separator=','
  done
  printf ']\n  },\n  "checks": ['
  separator=""
  for value in "${json_rows[@]}"; do
    printf '%s\n    %s' "${separator}" "${value}"
    separator=','
  done
  printf '\n  ]\n}\n'
}

# print_table TITLE=FIELD...: a Markdown table of the JSON objects on stdin that have a line of their
# own and the first two fields; its columns are as wide as they need to be, text on the left.
print_table() {
  awk -v columns="$(printf '%s\n' "$@")" '
    function value_of(line, column, at) {
      at = index(line, "\"" name[column] "\":")
      if (at == 0) return ""
      line = substr(line, at + length(name[column]) + 3)
      sub(/^ */, "", line)
      if (line !~ /^"/) {
        sub(/[,}].*/, "", line)
        return line
      }
      is_text[column] = 1
      line = substr(line, 2)
      sub(/".*/, "", line)
      return line
    }
    function cell(text, column) {
      return sprintf(" %" (is_text[column] ? "-" : "") width[column] "s |", text)
    }
    function rule(column, dashes) {
      dashes = sprintf("%" width[column] "s", "")
      gsub(/ /, "-", dashes)
      return is_text[column] ? " " dashes " |" : " " substr(dashes, 2) ": |"
    }
    BEGIN {
      num_columns = split(columns, part, "\n")
      for (c = 1; c <= num_columns; ++c) {
        title[c] = substr(part[c], 1, index(part[c], "=") - 1)
        name[c] = substr(part[c], index(part[c], "=") + 1)
        width[c] = length(title[c]) > 3 ? length(title[c]) : 3
      }
    }
    index($0, "\"" name[1] "\":") && index($0, "\"" name[2] "\":") {
      ++num_rows
      for (c = 1; c <= num_columns; ++c) {
        text[num_rows, c] = value_of($0, c)
        if (length(text[num_rows, c]) > width[c]) width[c] = length(text[num_rows, c])
      }
    }
    END {
      line = rules = "|"
      for (c = 1; c <= num_columns; ++c) {
        line = line cell(title[c], c)
        rules = rules rule(c)
      }
      print line "\n" rules
      for (r = 1; r <= num_rows; ++r) {
        line = "|"
        for (c = 1; c <= num_columns; ++c) line = line cell(text[r, c], c)
        print line
      }
    }'
}

# What was timed, as far as anything was. K and V: draft tokens of a sequence, and ids of the
# vocabulary.
print_measurements() {
  if [[ -s "${out}/timings.jsonl" ]]; then
    printf '\n## Timings\n\nus: a round. base: a read of the same rows, in the same '
    printf 'replay.\nTargets are upper bounds, of us or of ratio.\n\n'
    print_table case=case us=median 'base us=base_median' base=ratio_of ratio=ratio \
      'target ratio=target' 'target us=target_us' met=met \
      B=batch K=draft V=vocab dtype=dtype checked=checked <"${out}/timings.jsonl"
  fi
  if [[ -s "${out}/daemon.jsonl" ]]; then
    printf '\n## Rounds of the daemon\n\nus: from the call that submits to the answer, as the engine '
    printf 'sees it.\n\n'
    print_table road=road 'median us=median_us' 'p99 us=p99_us' sharing=sharing B=batch K=draft \
      V=vocab dtype=dtype rounds=rounds <"${out}/daemon.jsonl"
  fi
  if [[ -s "${out}/peers.json" ]]; then
    printf '\n## Peers\n\nus: a round over the same tensors. ratio: to the peer of specd under of. '
    printf 'Targets are lower bounds.\n\n'
    print_table peer=peer us=median_us ratio=ratio of=ratio_of target=target met=met B=batch \
      K=draft V=vocab dtype=dtype state=state graph=graph accepted=mean_accepted \
      expected=expected_accepted checked=checked <"${out}/peers.json"
  fi
}

print_markdown() {
  local key value
  printf '# gpu_check: %s\n\n- specd %s, %s\n' "${result}" "${version}" "${date}"
  for value in ${devices[@]+"${devices[@]}"}; do
    printf -- '- device: %s\n' "${value/$'\t'/, }"
  done
  while IFS=$'\t' read -r key value; do
    printf -- '- %s: %s\n' "${key//_/-}" "${value:-not found}"
  done <<<"${machine}"
  printf '\n| check | status | seconds | detail |\n| --- | --- | --- | --- |\n'
  printf '%s\n' "${markdown_rows[@]}"
  print_measurements
}

write_results() {
  print_json >"${out}/results.json.new"
  mv -f -- "${out}/results.json.new" "${out}/results.json"
  print_markdown >"${out}/results.md"
}

# record NAME STATUS SECONDS DETAIL
record() {
  local colour="${specd_bold}" line="${4%%$'\n'*}"
  statuses+=("$2")
  json_rows+=("$(printf '{"name": %s, "status": "%s", "seconds": %s, "detail": %s}' \
    "$(json "$1")" "$2" "$3" "$(json "$4")")")
  markdown_rows+=("| $1 | $2 | $3 | ${line//|/,} |")
  case "$2" in
    pass) colour="${specd_green}" ;;
    fail) colour="${specd_red}" ;;
  esac
  if ((terminal)); then printf '\r\e[K'; fi
  printf '  %s%-7s%s %7s s  %-66s  %s\n' "${colour}" "$2" "${specd_plain}" "$3" "$1" "${line}"
  write_results
}
