"""A Case is a case of the suite "gpu" with the lines that it runs and its time; an Order says which
cases to try first on a mutant.

Measuring the cases takes as long as the suite, so `measure` keeps what it finds in a file. The file
serves as long as the program and the PTX are the same.
"""

import collections
import hashlib
import json
import pathlib
import time

import ptx_suite


class Case:
    """A case, its time without a mutant, and the lines that it does not run, by file."""

    def __init__(self, name, seconds, left):
        self.name, self.seconds, self.left = name, seconds, left
        self.pattern = ptx_suite.pattern_of(name)

    def runs(self, file, line):
        return line not in self.left.get(file, ())


def measure(suite, path):
    """The cases of the suite, from the file at `path` if that was written for the same suite."""
    path, digest = pathlib.Path(path), _digest(suite)
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["suite"] == digest:
            return [Case(case["name"], case["seconds"],
                         {file: set(lines) for file, lines in case["left"].items()})
                    for case in kept["cases"]]
    cases = []
    for name in suite.cases():
        began = time.monotonic()
        left = suite.lines_left(ptx_suite.pattern_of(name))
        cases.append(Case(name, time.monotonic() - began, left))
    path.write_text(json.dumps({"suite": digest, "cases": [
        {"name": case.name, "seconds": case.seconds,
         "left": {file: sorted(lines) for file, lines in case.left.items()}} for case in cases]}))
    return cases


def _digest(suite):
    digest = hashlib.sha256(pathlib.Path(suite.program).read_bytes())
    for name, lines in suite.lines.items():
        digest.update(f"{name}\0{len(lines)}\0".encode() + "\n".join(lines).encode())
    return digest.hexdigest()


class Order:
    """The cases that run a mutant's line, by the chance that one notices the mutant in a second: a
    case that noticed more mutants of the file comes earlier, and so does a quicker one."""

    def __init__(self, cases):
        self._cases, self._noticed = cases, collections.Counter()

    def note(self, file, name):
        self._noticed[file, name] += 1

    def cases_for(self, mutant):
        able = [case for case in self._cases if case.runs(mutant.path, mutant.line)]
        return sorted(able, key=lambda case: case.seconds / (1 + self._noticed[mutant.path, case.name]))
