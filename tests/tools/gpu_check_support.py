"""Stand-ins for the programs of a tools/gpu_check bundle, and how its tests run one."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["SPECD_SOURCE"])
PATIENCE_S = 120

FACTS = """printf 'device\\t0\\tNVIDIA "Quoted" \\\\Card\\tGPU-1234\\n'"""
NO_DEVICE = """printf 'none\\tthe driver shows no device\\n'; exit 3"""
# As doctest does it: a comma in the name of a test is escaped, or it names two of which none exists.
PASSES = """
case "$*" in
  *--list-test-cases*) printf '[doctest] listing\\n===\\nalpha, or: one\\nbeta\\n===\\n' ;;
  *--test-case=alpha,*) printf '[doctest] test cases:  0 |  0 passed | 0 failed |\\n' ;;
  *) printf 'MESSAGE: compared 12 answers\\n[doctest] test cases:  1 |  1 passed | 0 failed |\\n'
     printf '[doctest] Status: SUCCESS!\\n' ;;
esac
"""
ATTACH = """
case "$*" in
  *--list*) printf 'words\\tthat they hand over\\nmany\\thow many\\n' ;;
  *imported_read*) printf 'pass\\tsums\\n' ;;
  *words*) printf 'pass\\t20 rounds, pipes: %s\\n' "$CUDA_MPS_PIPE_DIRECTORY" ;;
  *) echo 'noise'; printf 'observed\\t32 held up another\\n' ;;
esac
"""
DAEMON_CHECKS = """
case "$*" in
  *--list*) printf 'rounds\\tthe right ids\\nround_time\\twhat it takes\\n' ;;
  *round_time*) echo '{"road":"stream","median_us":31.5}'; printf 'observed\\t31.5 us\\n' ;;
  *) printf 'pass\\t%s, pipes: %s\\n' "$*" "$CUDA_MPS_PIPE_DIRECTORY" ;;
esac
"""
# The lines of the checks of two processes, which come last; there is neither MPS nor torch.
SHARED = ["pass", "observed"] * 2 + ["skipped"] * 3
MEASURES = """printf '{"case":"greedy","arguments":"%s"}\\n{"case":"token"}\\n' "$*"; echo noise >&2"""
SANITIZED = 6  # runs of compute-sanitizer
SANITIZER_PASSES = """
while [ "${1#-}" != "$1" ]; do shift 2; done
"$@" && [ -n "$SPECD_GPU_QUICK" ] && [ -n "$SPECD_REQUIRE_GPU" ] &&
  printf '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\\n'
"""


class GpuCheckTest(unittest.TestCase):
    run_patience_s = PATIENCE_S

    def setUp(self):
        # A space in the path, because a bundle may lie anywhere.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="specd gpu-check-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.bundle = self.folder / "gpu_check"
        # A python3 without packages, whether this machine has torch or not.
        plain = self.folder / "plain"
        self.program(plain / "python3", 'exec /usr/bin/python3 -S "$@"')
        self.plain = {"PATH": f"{plain}:/usr/bin:/bin"}

    def program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def run_bundle(self, *arguments, environment=None, peers_measure=False):
        """Runs it with nothing of this environment, and returns the process and its results. Whether
        there is a peers.json is the caller's to know: it is peers.py that writes it."""
        out = self.folder / "out"
        process = subprocess.run(
            [self.bundle / "run", "--out", out, *arguments], env=environment or self.plain, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=self.run_patience_s, check=False)
        results = out / "results.json"
        self.assertTrue(results.exists(), process.stdout + process.stderr)
        self.assertNotIn("\x1b", process.stdout + process.stderr)
        results = json.loads(results.read_text())
        timed = any(check["name"] == "timings" for check in results["checks"])
        daemon_timed = any(
            check["name"].startswith("daemon round_time") and check["status"] == "observed"
            for check in results["checks"])
        self.assertEqual(sorted(file.name for file in out.iterdir()),
                         ["daemon.jsonl"] * daemon_timed + ["log.txt"] +
                         ["peers.json"] * peers_measure + ["results.json", "results.md"] +
                         ["timings.jsonl"] * timed)
        for check in results["checks"]:
            self.assertEqual(sorted(check), ["detail", "name", "seconds", "status"])
            self.assertIn(f"| {check['name']} | {check['status']} |",
                          (out / "results.md").read_text())
        return process, results


class StandInTest(GpuCheckTest):
    """A bundle whose programs are stand-ins, so that every outcome can be had."""

    def setUp(self):
        super().setUp()
        self.bundle.mkdir()
        shutil.copy(SOURCE / "tools/gpu_check/run", self.bundle)
        (self.bundle / "share").mkdir()
        for script in ("lib.sh", "gpu_check/results.sh", "gpu_check/sanitizer.sh"):
            shutil.copy(SOURCE / "tools" / script, self.bundle / "share")
        (self.bundle / "VERSION").write_text("1.2.3 abc\nglibc 2.36\n")
        self.facts = self.bundle / "bin/specd-gpu-facts"
        self.tests = self.bundle / "bin/specd_kernels_test"
        self.sanitizer = self.folder / "tools/compute-sanitizer"
        self.program(self.facts, FACTS)
        self.program(self.tests, PASSES)
        self.attach = self.bundle / "bin/specd-gpu-attach"
        self.program(self.attach, ATTACH)
        self.daemon_checks = self.bundle / "bin/specd-gpu-daemon"
        self.program(self.daemon_checks, DAEMON_CHECKS)
        for name in ("peers.py", "peers_samplers.py", "peers_specd.py"):
            shutil.copy(SOURCE / "tools/gpu_check" / name, self.bundle / "share")
        self.bench = self.bundle / "bin/specd-bench"
        self.program(self.bench, MEASURES)
        self.path = {"PATH": f"{self.sanitizer.parent}:{self.plain['PATH']}"}

    def statuses(self, results):
        return [check["status"] for check in results["checks"]]
