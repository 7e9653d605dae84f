#!/usr/bin/env python3
"""no_spills: runs a compiler of CUDA files, and fails if a hot function keeps registers in memory.

ptxas knows -warn-spills for whole files only. A file has functions that run once for a row beside
functions that run for every byte of it. If the compiler is given FILE, ptxas must report on each
named function, for every architecture, without a stack frame or a spill. The flag -Xptxas=-v makes
ptxas report. This program compiles other files without a check.

  no_spills.py FILE NAME [NAME ...] -- COMPILER [ARGUMENT ...]

Exit status: that of the compiler. If it is 0, then 1 if a named function spills or is missing. 2
for wrong usage, or if FILE is compiled without the flag.
"""

import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '.*' for '(\w+)'")
FUNCTION = re.compile(r"Function properties for (\S+)")
FIGURES = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def findings_of(text, names):
    """Returns the faults of the named functions, as lines. `text` is the output of ptxas."""
    findings, seen, architectures = [], set(), set()
    architecture = function = ""
    for line in text.splitlines():
        if found := ENTRY.search(line):
            architecture = found[1]
            architectures.add(architecture)
        elif found := FUNCTION.search(line):
            # A mangled name has its length before it; an entry's line may have it in quotes.
            function = next((name for name in names if f"{len(name)}{name}" in found[1]), "")
        elif (found := FIGURES.search(line)) and function:
            seen.add((function, architecture))
            if any(int(figure) for figure in found.groups()):
                findings.append(f"{function} for {architecture}: {found[0]}; it must have none")
            function = ""
    if not architectures:
        findings.append("ptxas has compiled no kernel")
    findings += [f"{name} for {architecture}: ptxas does not tell of it; was it inlined or renamed?"
                 for architecture in sorted(architectures) for name in names
                 if (name, architecture) not in seen]
    return findings


def main(arguments):
    split = arguments.index("--") if "--" in arguments else 0
    if split < 2 or split == len(arguments) - 1:
        print(__doc__, file=sys.stderr)
        return 2
    file, names, command = arguments[0], arguments[1:split], arguments[split + 1:]
    if file not in command:
        return subprocess.run(command).returncode
    if "-Xptxas=-v" not in command:
        print(f"no_spills: error: {file} is compiled without -Xptxas=-v, so nobody would see a spill",
              file=sys.stderr)
        return 2
    compiled = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    told = [line for line in compiled.stderr.splitlines(keepends=True)
            if not line.startswith("ptxas info") and not FIGURES.search(line)]
    sys.stderr.write("".join(told))
    if compiled.returncode != 0:
        return compiled.returncode
    findings = findings_of(compiled.stderr, names)
    for finding in findings:
        print(f"no_spills: error: {finding}", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
