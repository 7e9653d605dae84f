#!/usr/bin/env python3
"""Breaks the kernels' PTX in one place at a time, and expects the suite "gpu" over it to notice.

Usage: mutants_test.py PROGRAM FOLDER ARCH [--all]

PROGRAM is specd_ptx_gpu_test and FOLDER holds the .ptx files for ARCH (80 or 90). A mutant loses a
barrier of a block or of a warp, a release or an acquire, or the wait of an early launch. Or it reaches
its block alone, or has another mask at a shuffle, a vote or a reduction. A case has to fail: a case that
does not end and a module that the machine cannot load are misses. The mutants of the list below run in
CI; --all tries every place of every rule, and prints what was missed.
"""

import re
import sys

import ptx_suite

# What is broken: the lines, and what they become. A mask without lane 0 or without the last lane.
RULES = {
    "barrier of a block": (r"^\s*bar\.sync\s+0;$", lambda line: ""),
    "barrier of a warp": (r"^\s*bar\.warp\.sync\s+-1;$", lambda line: ""),
    "release and acquire": (r"atom\.acq_rel\.gpu", lambda line: line.replace("acq_rel", "relaxed")),
    "acquire alone": (r"atom\.acq_rel\.gpu", lambda line: line.replace("acq_rel", "acquire")),
    "release alone": (r"atom\.acq_rel\.gpu", lambda line: line.replace("acq_rel", "release")),
    "scope of an arrival": (r"atom\.acq_rel\.gpu", lambda line: line.replace(".gpu", ".cta")),
    "scope of a count": (r"atom\.relaxed\.gpu\.add", lambda line: line.replace(".gpu", ".cta")),
    "barrier of a cluster": (r"^\s*barrier\.cluster\.wait;$", lambda line: ""),
    "wait for the launch before": (r"^\s*griddepcontrol\.wait;$", lambda line: ""),
    "mask of a shuffle": (r"shfl\.sync", lambda line: re.sub(r", [^,]*;$", ", 65535;", line)),
    "mask of a vote": (r"vote\.sync", lambda line: re.sub(r", [^,]*;$", ", -2;", line)),
    "mask of a reduction": (r"redux\.sync", lambda line: re.sub(r", [^,]*;$", ", -2;", line)),
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
        ("scope of an arrival", "round_kernel", 0, EVERY_TILE),
        ("scope of a count", "round_kernel", 0, EVERY_TILE),
        ("mask of a shuffle", "round_kernel", 0, EVERY_TILE),
        ("mask of a vote", "round_kernel", 0, EVERY_TILE),
        ("mask of a reduction", "round_kernel", 0, EVERY_TILE),
    ],
    "90": [
        ("barrier of a cluster", "deferred_kernel", 0, EVERY_TILE),
        ("barrier of a block", "deferred_kernel", 0, EVERY_TILE),
        ("wait for the launch before", "deferred_kernel", 0, EVERY_TILE),
        ("wait for the launch before", "residual_kernel", 0, EVERY_TILE),
    ],
}


class Mutants:
    def __init__(self, suite):
        self.suite = suite
        self.left = {}

    def places(self, rule, kernel, cases):
        """The lines of a rule that these cases run. Without a mutant the cases have to pass."""
        name = kernel + ".ptx"
        if cases not in self.left:
            self.left[cases] = self.suite.lines_left(cases)
        pattern = re.compile(RULES[rule][0])
        return [number for number, line in enumerate(self.suite.lines[name], 1)
                if pattern.search(line) and number not in self.left[cases][name]]

    def is_noticed(self, rule, kernel, number, cases):
        name = kernel + ".ptx"
        lines = list(self.suite.lines[name])
        lines[number - 1] = RULES[rule][1](lines[number - 1])
        code, output = self.suite.run_changed(name, lines, cases)
        is_noticed = code is not None and code != 0 and not ptx_suite.is_refused(output)
        how = ptx_suite.reason_of(output) or {None: "no end", 0: "same answers"}.get(code, "other answers")
        print("noticed" if is_noticed else "MISSED ", rule, f"{name}:{number}", how[:200], flush=True)
        return is_noticed


def main():
    program, folder, arch = sys.argv[1:4]
    mutants = Mutants(ptx_suite.Suite(program, folder, arch))
    missed = 0
    if "--all" in sys.argv:
        cases = "*"
        for rule in RULES:
            for name in mutants.suite.lines:
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
