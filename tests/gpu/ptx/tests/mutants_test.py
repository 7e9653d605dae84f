#!/usr/bin/env python3
"""Breaks the kernels' PTX in one place at a time, and expects the suite "gpu" over it to notice.

Usage: mutants_test.py PROGRAM FOLDER ARCH [--all]

PROGRAM is specd_ptx_gpu_test and FOLDER holds the .ptx files for ARCH (80 or 90). A mutant loses a
barrier of a block or of a warp, loses a release or an acquire, or has another mask at a shuffle. The
mutants of the list below run in CI; --all tries every place of every rule, and prints what was missed.
"""

import os
import re
import subprocess
import sys
import tempfile

# What is broken: the lines, and what they become. A mask without lane 0 or without the last lane.
RULES = {
    "barrier of a block": (r"^\s*bar\.sync\s+0;$", lambda line: ""),
    "barrier of a warp": (r"^\s*bar\.warp\.sync\s+-1;$", lambda line: ""),
    "release and acquire": (r"atom\.acq_rel\.gpu", lambda line: line.replace("acq_rel", "relaxed")),
    "acquire alone": (r"atom\.acq_rel\.gpu", lambda line: line.replace("acq_rel", "acquire")),
    "release alone": (r"atom\.acq_rel\.gpu", lambda line: line.replace("acq_rel", "release")),
    "barrier of a cluster": (r"^\s*barrier\.cluster\.wait;$", lambda line: ""),
    "mask of a shuffle": (r"shfl\.sync", lambda line: re.sub(r", [^,]*;$", ", 65535;", line)),
    "mask of a vote": (r"vote\.sync", lambda line: re.sub(r", [^,]*;$", ", -2;", line)),
}
# The rule, the kernel, which of the places that the suite runs, and the cases that run it.
EVERY_TILE = "CUDA rounds: every vocabulary and element type"
IN_CI = {
    "80": [
        ("barrier of a block", "round_kernel", 0, EVERY_TILE),
        ("barrier of a block", "transform_kernel", 2, "CUDA transforms*"),
        ("barrier of a warp", "round_kernel", 1, EVERY_TILE),
        ("barrier of a warp", "round_kernel", 3, EVERY_TILE),
        ("release and acquire", "round_kernel", 0, EVERY_TILE),
        ("acquire alone", "round_kernel", 0, EVERY_TILE),
        ("release alone", "round_kernel", 0, EVERY_TILE),
        ("mask of a shuffle", "round_kernel", 0, EVERY_TILE),
        ("mask of a vote", "round_kernel", 0, EVERY_TILE),
    ],
    "90": [
        ("barrier of a cluster", "deferred_kernel", 0, EVERY_TILE),
        ("barrier of a block", "deferred_kernel", 0, EVERY_TILE),
    ],
}


def run(program, folder, arch, cases, coverage=None):
    environment = dict(os.environ, SPECD_PTX_FOLDER=folder, SPECD_PTX_ARCH=arch, SPECD_REQUIRE_GPU="1",
                       SPECD_GPU_QUICK="1")
    if coverage:
        environment["SPECD_PTX_COVERAGE"] = coverage
    done = subprocess.run([program, "--test-suite=gpu", "--test-case=" + cases], env=environment,
                          capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


def lines_left(coverage):
    """The lines that have not run, by file."""
    left = {}
    with open(coverage, encoding="utf-8") as file:
        for line in file:
            ranges = line.partition("; not:")[2].split()
            numbers = left.setdefault(line.split()[0], set())
            for item in ranges:
                first, _, last = item.partition("-")
                numbers.update(range(int(first), int(last or first) + 1))
    return left


class Mutants:
    def __init__(self, program, folder, arch):
        self.program, self.folder, self.arch = program, folder, arch
        self.texts = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".ptx"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.texts[name] = file.read().split("\n")
        self.left = {}

    def run_with(self, changed, cases, coverage=None):
        """Runs the cases over the texts, of which `changed` has some anew."""
        with tempfile.TemporaryDirectory() as folder:
            for name in self.texts:
                if name in changed:
                    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                        file.write("\n".join(changed[name]))
                else:
                    os.symlink(os.path.join(self.folder, name), os.path.join(folder, name))
            return run(self.program, folder, self.arch, cases, coverage)

    def places(self, rule, kernel, cases):
        """The lines of a rule that these cases run. Without a mutant the cases have to pass."""
        name = kernel + ".ptx"
        if cases not in self.left:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "coverage")
                code, output = self.run_with({name: self.texts[name]}, cases, path)
                if code != 0:
                    sys.exit(f"the suite fails without a mutant:\n{output}")
                self.left[cases] = lines_left(path)
        pattern = re.compile(RULES[rule][0])
        return [number for number, line in enumerate(self.texts[name], 1)
                if pattern.search(line) and number not in self.left[cases].get(name, set())]

    def is_noticed(self, rule, kernel, number, cases):
        name = kernel + ".ptx"
        lines = list(self.texts[name])
        lines[number - 1] = RULES[rule][1](lines[number - 1])
        code, output = self.run_with({name: lines}, cases)
        reason = re.search(r"^ptx: (.*)$", output, re.MULTILINE)
        print("noticed" if code != 0 else "MISSED ", rule, f"{name}:{number}",
              (reason.group(1) if reason else "other answers" if code else "")[:200], flush=True)
        return code != 0


def main():
    program, folder, arch = sys.argv[1:4]
    mutants = Mutants(program, os.path.abspath(folder), arch)
    missed = 0
    if "--all" in sys.argv:
        cases = "*"
        for rule in RULES:
            for name in mutants.texts:
                kernel = name[:-len(".ptx")]
                for number in mutants.places(rule, kernel, cases):
                    missed += not mutants.is_noticed(rule, kernel, number, cases)
    else:
        for rule, kernel, index, cases in IN_CI[arch]:
            places = mutants.places(rule, kernel, cases)
            if index >= len(places):
                sys.exit(f"{kernel} has {len(places)} places that run for: {rule}")
            missed += not mutants.is_noticed(rule, kernel, places[index], cases)
    sys.exit(f"{missed} mutants were missed" if missed else 0)


if __name__ == "__main__":
    main()
