#!/usr/bin/env python3
"""Prints which share of each kernel's PTX lines the quick suite "gpu" ran, and fails below 90 %.

Usage: coverage_test.py FOLDER COVERAGE [COVERAGE ...]

FOLDER holds the .ptx files of one architecture. Each COVERAGE is what a run of the suite wrote to
SPECD_PTX_COVERAGE; a line counts if one of them ran it. The file `unreachable` beside this program
lists functions, or the lines of functions that are left, which no round can reach, and why. They do
not count. An entry that names nothing, or a function that ran after all, is an error.
"""

import os
import re
import sys

LEAST = 0.9
HERE = os.path.dirname(os.path.abspath(__file__))
FUNCTION = re.compile(r"^(?:\.visible |\.weak )*\.(?:func|entry)\b")
STATEMENT = re.compile(r"^\s*(?:\{\s*)?(?:@!?%p\d+\s+)?[a-z][\w.:]*[\s;]")


def ranges(text):
    numbers = set()
    for item in text.split():
        first, _, last = item.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


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
    """(mangled name, first line, last line) of each function with a body."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    found, name, first = [], None, 0
    for number, line in enumerate(lines, 1):
        if FUNCTION.match(line):
            name = " ".join(lines[number - 1:number + 3])
        elif line == "{":
            first = number
        elif line == "}" and name is not None:
            found.append((name, first, number))
            name = None
    return found


def num_statements(path, first, last):
    """Without the return that ends a body, which is none of its lines in a coverage."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")[first:last]
    return sum(STATEMENT.match(line) is not None for line in lines) - 1


def read_entries():
    """(kernel's file without .ptx, words of the function's name, whole or rest, reason)"""
    with open(os.path.join(HERE, "unreachable"), encoding="utf-8") as file:
        text = "".join(line for line in file if not line.startswith("#"))
    for block in text.split("\n\n"):
        if block.strip():
            head, _, reason = block.strip().partition("\n")
            kernel, kind, *words = head.split()
            if kind not in ("whole", "rest") or not words or not reason:
                sys.exit(f"unreachable: {head!r}: write KERNEL whole|rest WORD ..., and the reason below")
            yield kernel, kind, words


def apply(entry, kernels, folder):
    """Takes the entry's lines out of its kernel. Returns what is wrong with the entry, or nothing."""
    file, kind, words = entry
    path = os.path.join(folder, file + ".ptx")
    matching = [kernel for kernel in kernels if kernel.file == file + ".ptx"]
    named = [(first, last) for name, first, last in (functions_of(path) if matching else [])
             if all(f"{len(word)}{word}" in name for word in words)]
    if not named:
        return "names nothing"
    for kernel in matching:
        for first, last in named:
            left = {line for line in kernel.left if first <= line <= last}
            kernel.left -= left
            kernel.num_unreachable += len(left)
            if not left:
                return "names lines that have all run"
            if kind == "whole" and len(left) < num_statements(path, first, last):
                return "ran after all"
    return None


def main():
    folder, paths = sys.argv[1], sys.argv[2:]
    if not paths:
        sys.exit(__doc__)
    kernels = {}
    for path in paths:
        read_coverage(path, kernels)
    kernels = list(kernels.values())
    wrong = [f"{' '.join([entry[0], entry[1], *entry[2]])}: {why}" for entry in read_entries()
             if (why := apply(entry, kernels, folder))]
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
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
