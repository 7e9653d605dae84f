#!/usr/bin/env python3
"""Prints which share of each kernel's PTX lines runs of the suite "gpu" reached, and fails below 90 %.

Usage: coverage_test.py FOLDER [--beside OTHER] COVERAGE [COVERAGE ...]

FOLDER holds the .ptx files of one architecture. Each COVERAGE is what a run of the suite wrote to
SPECD_PTX_COVERAGE; a line counts if one of them ran it. OTHER holds the files of an architecture whose
lines are counted elsewhere: functions that are the same there do not count here.

The file `unreachable` beside this program lists functions, or the lines of functions that are left,
which no round can reach, and why. They do not count. An entry that names nothing, a function that
ran after all, or more lines left than the entry says, is an error.
"""

import collections
import os
import re
import sys

LEAST = 0.9
HERE = os.path.dirname(os.path.abspath(__file__))
FUNCTION = re.compile(r"^(?:\.visible |\.weak )*\.(?:func|entry)\b")
STATEMENT = re.compile(r"^\s*(?:\{\s*)?(?:@!?%p\d+\s+)?[a-z][\w.:]*[\s;]")
# Kernels of specd-bench gpu, which the suite does not run. ptx.counts does.
PROBES = ("read_kernel.ptx", "weights_kernel.ptx")
# What nvcc numbers through a file.
NUMBERED = re.compile(r"\$L__\w+|prototype_\d+|callseq \d+, \d+")


def ranges(text):
    numbers = set()
    for item in text.split():
        first, _, last = item.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


class Function:
    """A function with a body: its mangled name, its text, and the lines between its braces."""

    def __init__(self, name, first, lines):
        self.name, self.first, self.last = name, first, first + len(lines)
        self.text = NUMBERED.sub("", "\n".join(lines))
        # Without the return that ends a body, which is none of its lines in a coverage.
        self.num_statements = sum(STATEMENT.match(line) is not None for line in lines) - 1

    def lines_of(self, lines):
        return {line for line in lines if self.first <= line <= self.last}


class Kernel:
    """A kernel with the functions that it may call."""

    def __init__(self, file, name, num_lines, left):
        self.file, self.name, self.num_lines, self.left = file, name, num_lines, left
        self.num_unreachable = 0

    def word(self):
        found = re.search(r"\d+((?:Run|Fetch|Take|End|Resolve|Transform|Read|Sum)\w*?Kernel)", self.name)
        return found[1] if found else self.name


def read_coverage(path, kernels):
    with open(path, encoding="utf-8") as file:
        for line in file:
            head, _, left = line.partition("; not:")
            name, mangled, num_lines = re.match(r"(\S+) (\S+): \d+ of (\d+) lines ran", head).groups()
            known = kernels.setdefault((name, mangled),
                                       Kernel(name, mangled, int(num_lines), ranges(left)))
            known.left &= ranges(left)


def functions_of(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    found, name, first = [], None, 0
    for number, line in enumerate(lines, 1):
        if FUNCTION.match(line):
            name = re.search(r"_Z\w+", " ".join(lines[number - 1:number + 3]))[0]
        elif line == "{":
            first = number
        elif line == "}" and name is not None:
            found.append(Function(name, first, lines[first:number - 1]))
            name = None
    return found


def keep_only(kernel, functions):
    """Counts the lines of these functions alone."""
    kernel.num_lines = sum(function.num_statements for function in functions)
    kernel.left = set().union(*(function.lines_of(kernel.left) for function in functions))


def read_entries():
    """(kernel's file, whole or rest, words of the function's name)"""
    with open(os.path.join(HERE, "unreachable"), encoding="utf-8") as file:
        text = "".join(line for line in file if not line.startswith("#"))
    for block in text.split("\n\n"):
        if block.strip():
            head, _, reason = block.strip().partition("\n")
            kernel, kind, *words = head.split()
            most = None
            if kind == "rest" and words and words[0].isdecimal():
                most = int(words.pop(0))
            if kind not in ("whole", "rest") or (kind == "rest") != (most is not None) or not words or not reason:
                sys.exit(f"unreachable: {head!r}: write KERNEL whole WORD ... or KERNEL rest LINES WORD ..., "
                         f"and the reason below")
            yield Entry(kernel + ".ptx", kind, most, words)


Entry = collections.namedtuple("Entry", "file kind most words")


def names(words, function):
    return all(f"{len(word)}{word}" in function.name for word in words)


def apply(entry, kernels, functions, counted):
    """Takes the entry's lines out of its kernel. Returns what is wrong with the entry, or nothing."""
    file, kind, most, words = entry
    if not any(names(words, function) for function in functions.get(file, [])):
        return "names nothing"
    num_left = 0
    for kernel in kernels:
        for function in counted.get(file, []) if kernel.file == file else []:
            if not names(words, function):
                continue
            left = function.lines_of(kernel.left)
            num_left += len(left)
            kernel.left -= left
            kernel.num_unreachable += len(left)
            if not left:
                return "names lines that have all run"
            if kind == "whole" and len(left) < function.num_statements:
                return "ran after all"
    # The lines of another architecture's functions are fewer.
    if most is not None and counted is functions and num_left > most:
        return f"has {num_left} lines left"
    return None


def main():
    folder, *paths = sys.argv[1:] or [""]
    other = None
    if paths[:1] == ["--beside"]:
        other, *paths = paths[1:]
    if not paths:
        sys.exit(__doc__)
    kernels = {}
    for path in paths:
        read_coverage(path, kernels)
    kernels = [kernel for kernel in kernels.values() if kernel.file not in PROBES]
    functions = {kernel.file: functions_of(os.path.join(folder, kernel.file)) for kernel in kernels}
    counted = functions
    if other is not None:
        known = {file: {function.name: function.text for function in functions_of(os.path.join(other, file))}
                 for file in functions}
        counted = {file: [function for function in of_file if known[file].get(function.name) != function.text]
                   for file, of_file in functions.items()}
        kernels = [kernel for kernel in kernels if counted[kernel.file]]
        for kernel in kernels:
            keep_only(kernel, counted[kernel.file])
    wrong = [f"{entry.file} {entry.kind} {entry.most or ''} {' '.join(entry.words)}: {why}" for entry in read_entries()
             if (why := apply(entry, kernels, functions, counted))]
    print(f"{'kernel':<22} {'lines':>8} {'ran':>8} {'unreachable':>12} {'share':>8}")
    for kernel in kernels:
        reachable = kernel.num_lines - kernel.num_unreachable
        ran = reachable - len(kernel.left)
        share = ran / reachable
        print(f"{kernel.word():<22} {kernel.num_lines:>8} {ran:>8} {kernel.num_unreachable:>12} "
              f"{100 * share:>6.1f} %")
        if share < LEAST:
            wrong.append(f"{kernel.word()}: {100 * share:.1f} % of the lines that can be reached ran; "
                         f"{100 * LEAST:.0f} % have to")
    for finding in wrong:
        print("coverage:", finding)
    sys.exit(1 if wrong or not kernels else 0)


if __name__ == "__main__":
    main()
