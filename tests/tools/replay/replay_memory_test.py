"""The memory of specd-replay does not grow with the trace: a trace of 2 GB and one of an eighth.

Usage: replay_memory_test.py [unittest arguments]

It prints a table of sizes, times and peaks (getrusage). A trace is a copy of
a small one, many times, because a real run of that length takes hours.
"""

import pathlib
import subprocess
import sys
import time
import unittest

from replay_support import REPLAY, Traces

COPIES = 16000
# What allocators keep may differ between two runs.
SLACK_KIB = 2048
BOUND_KIB = 32 * 1024
TIME = pathlib.Path("/usr/bin/time")


# A process begins with the peak of the one that it was forked from, so a small one starts the program.
LAUNCHER = """
import os, sys
process = os.spawnv(os.P_NOWAIT, sys.argv[2], sys.argv[2:])
status, usage = os.wait4(process, 0)[1:]
open(sys.argv[1], "w").write(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak(folder, *arguments):
    """Runs the program. Returns its peak in KiB, its seconds, and its number of lines."""
    report = folder / "peak"
    # The program of the Debian package "time" is smaller still.
    launcher = [TIME, "-f", "%M", "-o", report] if TIME.exists() else [
        sys.executable, "-I", "-S", "-c", LAUNCHER, report]
    begin = time.monotonic()
    with subprocess.Popen([*launcher, REPLAY, *arguments], stdout=subprocess.PIPE) as process:
        lines = sum(1 for _ in process.stdout)
    assert process.returncode == 0, arguments
    return int(report.read_text()), time.monotonic() - begin, lines


class Memory(Traces):
    def commands(self, name, path):
        rounds = 12 * int(COPIES if name == "long" else COPIES / 8)
        part = f"--rounds={rounds // 2}:{rounds // 2 + 200}"
        yield ("info", path)
        yield ("list", path)
        yield ("stats", path)
        yield ("stats", path, "--by=time")
        yield ("verify", path, part)
        yield ("cut", path, part, "-o", self.folder / f"{name}-part.mcap")
        yield ("cut", path, "-o", self.folder / f"{name}-all.mcap")

    def test_peaks(self):
        base = self.make("base", "rounds=12")
        peaks = {}
        print(f"{'trace':6} {'command':24} {'seconds':>8} {'peak MiB':>9} {'lines':>8}")
        for name, copies in (("short", COPIES // 8), ("long", COPIES)):
            path = self.stretch(base, name, copies)
            sizes = [p.stat().st_size for p in (path, path.with_suffix(".rows"))]
            print(f"{name}: {sizes[0] / 1e9:.2f} GB of records, {sizes[1] / 1e9:.2f} GB of rows, "
                  f"{12 * copies} rounds, {7 * copies} sequences")
            if name == "long":
                self.assertGreater(sum(sizes), 2e9)
            for arguments in self.commands(name, path):
                what = " ".join(a for a in (arguments[0], *arguments[2:]) if isinstance(a, str))
                kib, seconds, lines = peak(self.folder, *arguments)
                peaks[name, len([key for key in peaks if key[0] == name])] = (what, kib)
                print(f"{name:6} {what:24} {seconds:8.1f} {kib / 1024:9.1f} {lines:8}", flush=True)
                for written in self.folder.glob(f"{name}-*"):
                    written.unlink()
        for (name, i), (what, kib) in peaks.items():
            if name == "long":
                with self.subTest(what):
                    self.assertLess(kib, peaks["short", i][1] + SLACK_KIB)
                    self.assertLess(kib, BOUND_KIB)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    unittest.main()
