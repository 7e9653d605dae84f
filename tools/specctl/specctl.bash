# Completion of specctl for bash: commands, flags, and the request ids that run.
_specctl() {
  local commands="sessions list show abort abort-all drain trace doctor stats top metrics describe"
  local word="${COMP_WORDS[COMP_CWORD]}" command="" i
  COMPREPLY=()
  # Bash parts flags at "=" and ":", so not every word without a dash is a command.
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ " $commands " == *" ${COMP_WORDS[i]} "* ]] && { command="${COMP_WORDS[i]}"; break; }
  done
  if [[ $word == -* ]]; then
    local flags="--help --version"
    case "$command" in
      list) flags+=" --specd= --json --ids" ;;
      show | abort) flags+=" --specd= --json --stream=" ;;
      sessions | abort-all | trace | doctor) flags+=" --specd= --json" ;;
      drain) flags+=" --specd= --json --wait=false" ;;
      stats) flags+=" --counters= --json" ;;
      top) flags+=" --counters= --json --interval= --count=" ;;
      metrics) flags+=" --counters=" ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null
  elif [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  elif [[ $command == show || $command == abort ]]; then
    # A flag that names the daemon is passed on.
    local flags=() line="${COMP_LINE:0:COMP_POINT}"
    [[ $line =~ --specd=([^[:space:]]+) ]] && flags=("--specd=${BASH_REMATCH[1]}")
    local id
    while IFS= read -r id; do
      [[ $id == "$word"* ]] && COMPREPLY+=("$(printf '%q' "$id")")
    done < <("${COMP_WORDS[0]}" list --ids "${flags[@]}" 2> /dev/null)
  fi
  return 0
}
complete -F _specctl specctl
