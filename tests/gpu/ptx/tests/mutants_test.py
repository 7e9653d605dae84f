#!/usr/bin/env python3
"""Takes a barrier, an order, a scope or a mask of the kernels' PTX away, and expects the suite "gpu" to fail.

Usage: mutants_test.py PROGRAM FOLDER ARCH [--each] [RULE ...]

PROGRAM is specd_ptx_gpu_test and FOLDER holds the .ptx files for ARCH (80 or 90). RULE is a word of the
rules to try; without one all are. A quick run looks for one place of each rule that is noticed, among a few:
in any kernel for masks, in every kernel for the others. With --each it tries every place.

A case has to fail: a case that does not end and a module that the machine cannot load are misses. A barrier
directly behind another is one place with it. --each explains a survivor by one of two rules:
- No case comes to the place: all of them pass with a trap there.
- The next barrier of the function, in front of it or behind it, is noticed. It orders the same accesses.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

SECONDS = 600
TRIES = 6
# What is broken: the lines, and what they become. A mask lacks lane 0, or the upper lanes.
RULES = {
    "barrier of a block": (r"^\s*bar\.sync\s+0;$", lambda line: ""),
    "barrier of a warp": (r"^\s*bar\.warp\.sync\s+-1;$", lambda line: ""),
    "barrier of a cluster": (r"^\s*barrier\.cluster\.wait;$", lambda line: ""),
    "wait for the launch before": (r"^\s*griddepcontrol\.wait;$", lambda line: ""),
    "release and acquire": (r"atom\.acq_rel\.gpu", lambda line: line.replace("acq_rel", "relaxed")),
    "acquire alone": (r"atom\.acq_rel\.gpu", lambda line: line.replace("acq_rel", "acquire")),
    "release alone": (r"atom\.acq_rel\.gpu", lambda line: line.replace("acq_rel", "release")),
    "scope of an arrival": (r"atom\.acq_rel\.gpu", lambda line: line.replace(".gpu", ".cta")),
    "scope of a count": (r"atom\.relaxed\.gpu\.add", lambda line: line.replace(".gpu", ".cta")),
    "mask of a shuffle": (r"shfl\.sync", lambda line: re.sub(r", [^,]*;$", ", 65535;", line)),
    "mask of a vote": (r"vote\.sync", lambda line: re.sub(r", [^,]*;$", ", -2;", line)),
    "mask of a reduction": (r"redux\.sync", lambda line: re.sub(r", [^,]*;$", ", -2;", line)),
}
# Cases that come to most of a kernel in a second or two.
ROUNDS = "CUDA rounds: every vocabulary*"
CASES = {
    "record_kernel": "CUDA rounds that are recorded: every*",
    "residual_kernel": "CUDA rounds: plain verification*,CUDA rounds: a residual that is empty,CUDA rounds: small ones*",
    "resolve_kernel": "CUDA resolves*",
    "transform_kernel": "CUDA transforms: every*",
}
# specd-bench gpu has a kernel that no round runs.
PROBES = ("read_kernel",)
# What touches registers and the lane's own memory alone.
_OWN = re.compile(r"^\s*(?!bar|ld\.(?!local|param)|st\.(?!local|param)|atom|red\.|call|bra|@|ret|trap|[{}])")
# How the machine refuses a module: file, line, opcode and what is wrong with it, and no kernel.
_NOT_KNOWN = re.compile(r"[^;]*\.ptx:\d+: [^;]*$")


class Suite:
    """The lines of the folder's files, by kernel, and runs of the suite "gpu" over them."""

    def __init__(self, program, folder, arch):
        self.program, self.folder, self.arch = program, pathlib.Path(folder).resolve(), arch
        self.lines = {path.stem: path.read_text().split("\n")
                      for path in sorted(self.folder.glob("*.ptx")) if path.stem not in PROBES}

    def fails(self, kernel, changes, cases=None):
        """How a case fails with other lines in the kernel's file: what the machine says. "" if none does, and None
        if a case does not end or the module is refused. Schedule and registers are those of ptx.gpu."""
        lines = list(self.lines[kernel])
        for number, line in changes.items():
            lines[number] = line
        with tempfile.TemporaryDirectory() as name:
            for path in self.folder.glob("*.ptx"):
                if path.stem != kernel:
                    (pathlib.Path(name) / path.name).symlink_to(path)
            (pathlib.Path(name) / f"{kernel}.ptx").write_text("\n".join(lines))
            environment = dict(os.environ, SPECD_PTX_SEED="1", SPECD_PTX_POISON="1", SPECD_PTX_FOLDER=name,
                               SPECD_PTX_ARCH=self.arch, SPECD_REQUIRE_GPU="1", SPECD_GPU_QUICK="1")
            command = [self.program, "--abort-after=1", "--test-suite=gpu",
                       "--test-case=" + (cases or CASES.get(kernel, ROUNDS))]
            try:
                done = subprocess.run(command, env=environment, capture_output=True, text=True,
                                      errors="replace", timeout=SECONDS, check=False)
            except subprocess.TimeoutExpired:
                return None
        if done.returncode == 0:
            return ""
        said = re.search(r"^ptx: (.*)$", done.stdout + done.stderr, re.MULTILINE)
        if said is None:
            return "other answers"
        return None if _NOT_KNOWN.match(said[1]) else said[1]


def places_of(rule, lines):
    """The lines to change together, for each place of a rule."""
    pattern, change = RULES[rule]
    places = []
    for number, line in enumerate(lines):
        if not re.search(pattern, line):
            continue
        is_behind = "barrier" in rule and places and all(
            _OWN.match(between) for between in lines[max(places[-1]) + 1:number])
        if not is_behind:
            places.append({})
        places[-1][number] = change(line)
    return places


def explain(suite, kernel, places, at):
    """Why a mutant of places[at] survives, or nothing."""
    place, lines = places[at], suite.lines[kernel]
    if suite.fails(kernel, {min(place): "\ttrap;"}, "*") == "":
        return "no case comes there"
    if any(place.values()):
        return ""  # no barrier
    for other in places[max(at - 1, 0):at] + places[at + 1:at + 2]:
        first, last = sorted((min(place), min(other)))
        if "}" not in lines[first:last] and (suite.fails(kernel, other) or suite.fails(kernel, other, "*")):
            return f"the barrier of line {min(other) + 1} orders the same"
    return ""


def try_each(suite, kernel, places):
    """The number of misses among all places."""
    num_missed = 0
    for at, place in enumerate(places):
        how = suite.fails(kernel, place)
        if how == "":
            how = suite.fails(kernel, place, "*")
        outcome = "noticed"
        if not how:
            how = explain(suite, kernel, places, at) if how == "" else ""
            outcome = "explained" if how else "MISSED"
        num_missed += outcome == "MISSED"
        print(f"{outcome:<10}{kernel}.ptx:{min(place) + 1}: {how[:160]}", flush=True)
    return num_missed


def try_some(suite, kernel, places):
    """Whether one of a few places is not noticed, as a number."""
    middle = len(places) // 3  # the first barrier of a kernel is easily missed
    for place in (places[middle:] + places[:middle])[::len(places) // TRIES + 1]:
        how = suite.fails(kernel, place)
        if how:
            print(f"noticed   {kernel}.ptx:{min(place) + 1}: {how[:160]}", flush=True)
            return 0
    print(f"MISSED    {kernel}.ptx", flush=True)
    return 1


def main():
    program, folder, arch, *words = sys.argv[1:]
    suite = Suite(program, folder, arch)
    try_places = try_each if "--each" in words else try_some
    rules = [rule for rule in RULES if all(word == "--each" for word in words)
             or any(word in rule for word in words)]
    # Without a mutant the cases pass; and a module that the machine does not know is not noticed.
    kernel = "fetch_kernel"
    cases = {CASES.get(name, ROUNDS) for name, lines in suite.lines.items()
             if any(places_of(rule, lines) for rule in rules)}
    if suite.fails(kernel, {}, ",".join(cases)) != "":
        sys.exit("the suite fails without a mutant")
    if suite.fails(kernel, {suite.lines[kernel].index("\tret;"): "\tbar.frob 0;"}) is not None:
        sys.exit("a module that the machine does not know counts as noticed")
    num_missed = num_tried = 0
    for rule in rules:
        print(rule, flush=True)
        is_everywhere = try_places is try_each or not rule.startswith("mask")
        for kernel, lines in suite.lines.items():
            places = places_of(rule, lines)
            if not places:
                continue
            num_tried += 1
            num_missed += try_places(suite, kernel, places)
            if not is_everywhere and num_missed == 0:
                break
    print(f"{num_missed} missed")
    sys.exit(1 if num_missed or not num_tried else 0)


if __name__ == "__main__":
    main()
