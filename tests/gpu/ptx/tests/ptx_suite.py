"""A Suite is specd_ptx_gpu_test with a folder of PTX, for programs that break the PTX."""

import collections
import os
import pathlib
import re
import subprocess
import tempfile


# The schedule and the registers of ptx.gpu_80, so that a score is that of the test.
SCHEDULE = {"SPECD_PTX_SEED": "1", "SPECD_PTX_POISON": "1"}
# How the machine refuses a module: file, line, opcode and what is wrong with it, and no kernel.
_NOT_KNOWN = re.compile(r"[^;]*\.ptx:\d+: [^;]*$")


class Suite:
    """The lines of the folder's files, by name, and runs of the suite "gpu" over them."""

    def __init__(self, program, folder, arch):
        self.program, self.folder, self.arch = str(program), pathlib.Path(folder).resolve(), arch
        self.lines = {path.name: path.read_text().split("\n")
                      for path in sorted(self.folder.glob("*.ptx"))}

    def cases(self):
        listed = subprocess.run([self.program, "--list-test-cases", "--test-suite=gpu"], text=True,
                                capture_output=True, check=True).stdout
        return [line for line in listed.splitlines() if line.startswith("CUDA")]

    def run(self, cases, folder=None, coverage=None, seconds=600):
        """(exit status or None if it did not end, output) of the quick cases that match."""
        environment = dict(os.environ, **SCHEDULE, SPECD_PTX_FOLDER=str(folder or self.folder),
                           SPECD_PTX_ARCH=self.arch, SPECD_REQUIRE_GPU="1", SPECD_GPU_QUICK="1")
        if coverage:
            environment["SPECD_PTX_COVERAGE"] = str(coverage)
        command = [self.program, "--abort-after=1", "--test-suite=gpu", "--test-case=" + cases]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True,
                                  errors="replace", timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr

    def run_changed(self, name, lines, cases, seconds=600):
        """The same with other lines in one file."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for other in self.lines:
                if other != name:
                    (folder / other).symlink_to(self.folder / other)
            (folder / name).write_text("\n".join(lines))
            return self.run(cases, folder, None, seconds)

    def lines_left(self, cases):
        """The lines of statements that these cases do not run, by file. Without a mutant they pass."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "coverage"
            code, output = self.run(cases, None, path)
            if code != 0:
                raise SystemExit(f"the suite fails without a mutant:\n{output}")
            return _read_left(path)


def pattern_of(case):
    """What matches the case alone, as doctest takes patterns."""
    return case.replace(",", r"\,")


def reason_of(output):
    """What the machine says, or nothing."""
    found = re.search(r"^ptx: (.*)$", output, re.MULTILINE)
    return found[1] if found else ""


def is_refused(output):
    """Whether the machine could not load a module."""
    return _NOT_KNOWN.match(reason_of(output)) is not None


def _read_left(path):
    left = collections.defaultdict(set)
    for line in path.read_text().splitlines():
        head, _, ranges = line.partition("; not:")
        numbers = left[head.split()[0]]
        for item in ranges.split():
            first, _, last = item.partition("-")
            numbers.update(range(int(first), int(last or first) + 1))
    return left
