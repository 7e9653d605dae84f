"""The daemon's checks of tools/gpu_check over the pretended GPU: the daemon's program and engines are
real processes, and `run` plays them as in the bundle. Then with one thing broken at a time."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from gpu_check_support import GpuCheckTest, PATIENCE_S, SANITIZER_PASSES, StandInTest

CHECKS = pathlib.Path(os.environ["SPECD_GPU_DAEMON_FAKE"])
DAEMON = pathlib.Path(os.environ["SPECD_DAEMON_FAKE"])
NAMES = ["rounds", "pair", "host_waits", "engine_killed", "late_engine", "late_daemon",
         "daemon_killed", "daemon_replaced", "round_time"]


def processes_of(folder):
    """The processes that have the folder in their command line, by id."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue  # it has ended
    return found


def left_of(folder, patience_s):
    """Those that are left when they had that long to end."""
    deadline = time.monotonic() + patience_s
    while processes_of(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    return processes_of(folder)


class DaemonTest(GpuCheckTest):
    def play(self, name, fault="", *arguments, daemon=DAEMON):
        """Plays one check, and returns its status and detail. Nothing of it is left."""
        process = subprocess.run(
            [CHECKS, "--check", name, "--daemon", daemon, "--folder", self.folder, "--rounds", "40",
             *arguments], env={"SPECD_FAKE_FAULT": fault}, text=True, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(process.stderr, "")
        self.assertEqual(list(self.folder.glob("check.*")), [])
        *before, last = process.stdout.splitlines()
        self.figures = [json.loads(line) for line in before if line.startswith("{")]
        status, detail = last.split("\t")
        self.assertEqual(process.returncode, 1 if status == "fail" else 0, process.stdout)
        if fault != "outlives":
            # A process of another program ends later.
            self.assertEqual(left_of(self.folder, 0 if daemon == DAEMON else PATIENCE_S), [])
        return status, detail

    def fails(self, name, fault, expected, *arguments, daemon=DAEMON):
        with self.subTest(name, fault=fault):
            status, detail = self.play(name, fault, *arguments, daemon=daemon)
            self.assertEqual(status, "fail", detail)
            self.assertRegex(detail, expected)

    def test_a_wrong_answer_is_seen_on_every_road(self):
        for name in ("rounds", "pair", "host_waits", "round_time", "engine_killed", "late_engine",
                     "daemon_killed"):
            self.fails(name, "answer", "sequence 0 gives token .* instead of")

    def test_next_tokens_that_are_not_on_the_device_are_missed(self):
        for name in ("rounds", "host_waits"):
            self.fails(name, "next_token", "finds next token 0 instead of")

    def test_a_stream_that_does_not_wait_is_seen(self):
        # Rows of the round before, or none yet.
        before = "passed round .* before the answer|gives token 63 instead|accepts 1 drafts instead of 2"
        for name in ("rounds", "pair", "late_engine"):
            self.fails(name, "no_wait", before)
        self.fails("host_waits", "no_host_wait", "does not come to 'ok'", "--patience_ms", "5000")

    def test_an_engine_that_breaks_the_device_or_the_daemon_is_seen_by_the_other(self):
        self.fails("engine_killed", "close", "has status 5|ended")
        for name in ("engine_killed", "late_engine"):
            self.fails(name, "stuck", "does not come to '(round |ok)", "--patience_ms", "5000")

    # A daemon that crashed looks the same to an engine: what tells is what it says and its status.
    def test_a_daemon_whose_device_fails_says_why_and_asks_to_be_restarted(self):
        log, ended = self.folder / "log", self.folder / "ended"
        daemon = self.folder / "daemon"
        self.program(daemon, f"""
{{ '{DAEMON}' "$@"; echo $? > '{ended}'; }} 2>&1 | tee -p '{log}'
""")
        # The first round under way is answered so; the daemon may end before it is polled.
        self.fails("rounds", "device", "has status 5|is shutting down and takes no new rounds|the daemon is gone",
                   daemon=daemon)
        self.assertEqual(ended.read_text(), "70\n")
        self.assertIn("the cuda device failed, so this process ends and has to be restarted: "
                      "the device has failed\n", log.read_text())

    def test_a_daemon_that_writes_when_it_is_too_late_is_seen(self):
        self.fails("late_daemon", "early_next_token", "written over the engine's own next tokens")

    def test_a_daemon_that_is_not_stopped_or_killed_is_none(self):
        for name, expected in (("late_daemon", "a stopped daemon has answered"),
                               ("daemon_killed", "a dead daemon has|the stream does not wait")):
            self.fails(name, "outlives", expected)
            for process in processes_of(self.folder):
                os.kill(process, signal.SIGKILL)

    def test_a_device_whose_streams_have_no_memory_operations(self):
        lacks = "CUDA streams of this device have no memory operations"
        for name in ("rounds", "pair", "engine_killed", "late_engine", "daemon_replaced"):
            with self.subTest(name):
                status, detail = self.play(name, "no_stream_words")
                self.assertEqual(status, "skipped")
                self.assertIn(lacks, detail)
        self.assertEqual(self.play("host_waits", "no_stream_words")[0], "pass")
        # Cases that do not need them are timed, and the others are named.
        status, detail = self.play("round_time", "no_stream_words")
        self.assertEqual(status, "observed", detail)
        self.assertRegex(detail, "on a stream, host waits: median .*; without stream: " + lacks)
        self.assertEqual([figure["road"] for figure in self.figures],
                         ["submit"] * 2 + ["stream, host waits"] * 2)

    def test_a_folder_that_is_too_long_for_a_socket_is_named(self):
        long = self.folder / ("long" * 25)
        long.mkdir()
        status, detail = self.play("rounds", "", "--folder", long)
        self.assertEqual(status, "fail")
        self.assertRegex(detail, "the path has .* bytes, and a socket's path has at most 107; choose a shorter one")

    def test_a_daemon_that_does_not_start(self):
        for daemon, expected in ((self.folder / "none", "cannot be started"),
                                 (pathlib.Path("/bin/false"), "the daemon ends: no output")):
            status, detail = self.play("rounds", daemon=daemon)
            self.assertEqual(status, "fail")
            self.assertIn(expected, detail)

    def test_arguments(self):
        for arguments in (["--nonsense"], ["--check"], ["--check", "no such check"], []):
            process = subprocess.run([CHECKS, *arguments], capture_output=True, text=True,
                                     timeout=PATIENCE_S, check=False)
            self.assertEqual(process.returncode, 2, arguments)
            self.assertIn("--help", process.stderr)
        for option in ("--rounds", "--patience_ms"):
            for value in ("0", "many", "-1", ""):
                status, detail = self.play("rounds", "", option, value)
                self.assertEqual((status, f"{option}={value} " in detail), ("fail", True), detail)
        listed = subprocess.run([CHECKS, "--list"], capture_output=True, text=True,
                                timeout=PATIENCE_S, check=True).stdout
        self.assertEqual([line.split("\t")[0] for line in listed.splitlines()], NAMES)


class RunDaemonTest(StandInTest):
    """`run` with the programs of the daemon's checks in place of their stand-ins."""

    run_patience_s = 500  # all of them, with MPS and without

    def setUp(self):
        super().setUp()
        for program, path in ((CHECKS, self.daemon_checks), (DAEMON, self.bundle / "bin/specd")):
            path.unlink(missing_ok=True)
            shutil.copy(program, path)

    def daemon_checks_of(self, results):
        return {check["name"]: check for check in results["checks"]
                if check["name"].startswith("daemon ")}

    def test_the_daemon_with_and_without_mps(self):
        # The pretended device is shared through MPS where there are pipes.
        self.program(self.sanitizer.parent / "nvidia-cuda-mps-control", "exit 0")
        # It only starts what it is given, so that this shows that the check takes what it is asked.
        self.program(self.sanitizer, SANITIZER_PASSES)
        process, results = self.run_bundle("--quick", "--no-peers", environment=self.path)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        self.assertIn(("compute-sanitizer memcheck of the daemon", "pass"),
                      [(check["name"], check["status"]) for check in results["checks"]])
        checks = self.daemon_checks_of(results)
        self.assertEqual(list(checks), [f"daemon {name}{suffix}" for suffix in ("", " under MPS")
                                        for name in NAMES])
        for name, check in checks.items():
            expected = "observed" if "round_time" in name else "pass"
            self.assertEqual(check["status"], expected, check)
        lines = [json.loads(line)
                 for line in (self.folder / "out/daemon.jsonl").read_text().splitlines()]
        roads = ["submit", "stream"] * 2 + ["stream, host waits"] * 2
        self.assertEqual([line["road"] for line in lines], roads * 2)
        self.assertEqual([line["sharing"] for line in lines], ["time-sliced"] * 6 + ["MPS"] * 6)
        for line in lines:
            self.assertGreater(line["median_us"], 0)
            self.assertGreaterEqual(line["p99_us"], line["median_us"])
            self.assertEqual(line["rounds"], 100)
        self.assertEqual(processes_of(self.bundle), [])

    def test_a_check_that_is_out_of_time_leaves_no_process(self):
        temporary = self.folder / "t"
        temporary.mkdir()
        environment = {"SPECD_FAKE_FAULT": "stuck", "TMPDIR": str(temporary)}
        process, results = self.run_bundle("--quick", "--no-sanitizer", "--no-peers", "--no-mps",
                                           "--limit_s=2", environment=environment)
        self.assertEqual(process.returncode, 1)
        checks = self.daemon_checks_of(results)
        self.assertEqual(list(checks), [f"daemon {name}" for name in NAMES] + ["daemon under MPS"])
        self.assertEqual(checks["daemon rounds"]["status"], "fail")
        self.assertIn("did not end within 2 s", checks["daemon rounds"]["detail"])
        self.assertEqual(list(temporary.iterdir()), [])
        # The kernel kills them when their parent is gone.
        self.assertEqual(left_of(self.bundle, PATIENCE_S), [])

    def test_the_longest_temporary_folder_that_is_used_has_room_for_sockets(self):
        longest = self.folder / ("x" * (60 - len(str(self.folder)) - 1))
        longest.mkdir()
        process, results = self.run_bundle("--quick", "--no-sanitizer", "--no-peers", "--no-mps",
                                           environment={"TMPDIR": str(longest)})
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        self.assertNotIn("TMPDIR", process.stderr)
        self.assertEqual(self.daemon_checks_of(results)["daemon rounds"]["status"], "pass")
        self.assertEqual(list(longest.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
