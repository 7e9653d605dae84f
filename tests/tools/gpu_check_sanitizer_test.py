"""tools/gpu_check under compute-sanitizer without a GPU: what `run` asks of it, and concludes."""

import pathlib
import shutil
import unittest

from gpu_check_support import (ATTACH, DAEMON_CHECKS, SANITIZED, SANITIZER_PASSES, SHARED,
                               StandInTest)


class SanitizerTest(StandInTest):
    def test_what_the_sanitizer_finds(self):
        for name, text, expected, detail in (
                ("an error", "echo '========= Invalid __global__ write'; exit 99", "fail",
                 "Invalid __global__ write"),
                ("a summary with errors and status 0",
                 SANITIZER_PASSES.replace("0 hazards", "10 hazards"), "fail", "10 hazards"),
                ("a clean summary and status 99", SANITIZER_PASSES + "exit 99", "fail",
                 "0 hazards"),
                ("tests that failed", "exit 1", "fail", "exit status 1"),
                ("no summary", SANITIZER_PASSES.replace("SUMMARY", "END"), "fail", "END"),
                ("an unknown device", "echo '========= Error: Device not supported'; exit 1",
                 "skipped", "does not support")):
            with self.subTest(name):
                self.program(self.sanitizer, text)
                process, results = self.run_bundle(environment=self.path)
                self.assertEqual(process.returncode, 1 if expected == "fail" else 0)
                self.assertEqual(self.statuses(results), ["pass"] * 4 + [expected] * SANITIZED + SHARED)
                self.assertIn(detail, results["checks"][7]["detail"])

    def test_memory_of_another_process_under_the_sanitizer(self):
        arguments = self.folder / "arguments"
        self.program(self.sanitizer, f"echo \"$*\" >> '{arguments}'\n{SANITIZER_PASSES}")
        for name, text, expected, detail in (
                ("passes", "printf 'pass\\tsums\\n'", "pass", "0 hazards"),
                ("fails", "printf 'fail\\tit sums 3\\n========= SUMMARY: 0 errors\\n'; exit 1",
                 "fail", "sums 3"),
                ("passes nothing", "printf 'observed\\tpass\\n'", "fail", "0 hazards")):
            with self.subTest(name):
                self.program(self.attach,
                             f'case "$*" in *imported_read*) {text}; exit;; esac\n{ATTACH}')
                results = self.run_bundle(environment=self.path)[1]
                self.assertEqual(self.statuses(results), ["pass"] * 8 + [expected, "pass"] + SHARED)
                self.assertIn(detail, results["checks"][8]["detail"])
        self.assertIn("--target-processes application-only", arguments.read_text().splitlines()[4])

    def test_the_daemon_under_the_sanitizer(self):
        arguments = self.folder / "arguments"
        unclean = SANITIZER_PASSES + "printf '========= ERROR SUMMARY: 3 errors\\n'"
        # Bug: a clean summary of the engine's process was taken for the daemon's. As the tool does it:
        # a process of another name is not tracked, and a run without one that is tracked is an error.
        engine_alone = f"""
case "$*" in *"--target-processes-filter specd "*)
  while [ "${{1#-}}" != "$1" ]; do shift 2; done
  "$@"
  echo '========= Error: Target application terminated before first instrumented API call'
  exit 255 ;;
esac
{SANITIZER_PASSES}"""
        for name, sanitizer, text, expected, detail in (
                ("passes", SANITIZER_PASSES, "printf 'pass\\t16 rounds\\n'", "pass", "0 hazards"),
                ("fails", SANITIZER_PASSES,
                 "printf 'fail\\tround 3 gives token 7\\n========= SUMMARY: 0 errors\\n'; exit 1",
                 "fail", "round 3 gives token 7"),
                ("is not looked at", engine_alone, "printf 'pass\\t16 rounds\\n'", "fail",
                 "before first instrumented API call"),
                ("has errors in one process", unclean, "printf 'pass\\t16 rounds\\n'", "fail",
                 "3 errors"),
                ("is skipped", SANITIZER_PASSES, "printf 'skipped\\tno memory operations\\n'",
                 "skipped", "no memory operations"),
                ("is skipped with errors", unclean, "printf 'skipped\\tno operations\\n'", "fail",
                 "3 errors"),
                ("measures", SANITIZER_PASSES, "printf 'observed\\tpass\\n'", "fail",
                 "0 hazards")):
            with self.subTest(name):
                arguments.unlink(missing_ok=True)
                daemon_alone = f'case "$*" in *specd-gpu-daemon*) ;; *) {SANITIZER_PASSES}\nexit ;; esac'
                self.program(self.sanitizer,
                             f"echo \"$*\" >> '{arguments}'\n{daemon_alone}\n{sanitizer}")
                self.program(self.daemon_checks,
                             f'case "$*" in *patience*rounds*) {text}; exit;; esac\n{DAEMON_CHECKS}')
                results = self.run_bundle("--limit_s=70", environment=self.path)[1]
                self.assertEqual(self.statuses(results), ["pass"] * 9 + [expected] + SHARED)
                self.assertEqual(results["checks"][9]["name"],
                                 "compute-sanitizer memcheck of the daemon")
                self.assertIn(detail, results["checks"][9]["detail"])
                # The daemon is the check's child; a step may take as long as the whole check.
                asked = arguments.read_text().splitlines()[-1]
                for expected_argument in ("--tool memcheck", "--target-processes all",
                                          "--target-processes-filter specd ", "--require-cuda-init yes",
                                          f"{self.daemon_checks} ", f"--daemon {self.bundle}/bin/specd ",
                                          "--patience_ms 70000", "--check rounds"):
                    self.assertIn(expected_argument, asked)
                folder = pathlib.Path(asked.split("--folder ")[1].split(" --rounds")[0])
                self.assertFalse(folder.exists())
        self.run_bundle("--limit_s=99999", environment=self.path)
        self.assertIn("--patience_ms 3600000 ", arguments.read_text().splitlines()[-1])

    def test_a_sanitizer_that_must_be_there(self):
        path = {"PATH": "/usr/bin:/bin", "CUDA_HOME": str(self.folder)}
        if shutil.which("compute-sanitizer", path="/usr/local/cuda/bin:/usr/bin:/bin"):
            self.skipTest("this machine has one")
        process, results = self.run_bundle("--sanitizer", environment=path)
        self.assertEqual(process.returncode, 1)
        self.assertEqual(self.statuses(results), ["pass"] * 4 + ["fail"] * SANITIZED + SHARED)


if __name__ == "__main__":
    unittest.main()
