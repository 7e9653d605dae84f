"""tools/gpu_check without a GPU: what `run` concludes from what programs say."""

import json
import pathlib
import subprocess
import sys
import unittest

from gpu_check_measurements import (DAEMON, DAEMON_TABLE, PEERS, PEERS_TABLE, TIMINGS,
                                    TIMINGS_TABLE)
from gpu_check_support import (ATTACH, DAEMON_CHECKS, MEASURES, NO_DEVICE, PASSES, PATIENCE_S,
                               SANITIZED, SANITIZER_PASSES, SHARED, SOURCE, StandInTest)


class RunTest(StandInTest):
    def test_everything_passes(self):
        self.program(self.sanitizer, SANITIZER_PASSES)
        process, results = self.run_bundle("--sanitizer", environment=self.path)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        self.assertEqual(results["result"], "pass")
        self.assertEqual(results["version"], "1.2.3 abc")
        self.assertEqual(results["machine"]["devices"],
                         [{"name": 'NVIDIA "Quoted" \\Card', "uuid": "GPU-1234"}])
        self.assertEqual(results["machine"]["compute_sanitizer"], str(self.sanitizer))
        self.assertEqual(
            [check["name"] for check in results["checks"]],
            ["devices", "alpha, or: one", "beta", "timings"] +
            [f"compute-sanitizer {tool}"
             for tool in ("memcheck", "racecheck", "synccheck", "initcheck",
                          "memcheck of imported memory", "memcheck of the daemon")] +
            ["attach words", "attach many", "daemon rounds", "daemon round_time",
             "attach under MPS", "daemon under MPS", "peers"])
        self.assertEqual(self.statuses(results), ["pass"] * (4 + SANITIZED) + SHARED)
        self.assertEqual(results["checks"][11]["detail"], "32 held up another")
        self.assertEqual(results["checks"][1]["detail"], "compared 12 answers")

    def test_the_modes_of_the_devices_are_facts(self):
        smi = self.sanitizer.parent / "nvidia-smi"
        # Two devices; the first is called like the field.
        says = """case "$1" in --query-gpu=*) echo "${1#*=}"; echo Default;; esac"""
        for text, expected in ((says, ("compute_mode, Default", "mig.mode.current, Default")),
                               ("echo 'NVIDIA-SMI has failed'; exit 9", (None, None))):
            self.program(smi, text)
            machine = self.run_bundle("--no-sanitizer", environment=self.path)[1]["machine"]
            self.assertEqual((machine["compute_mode"], machine["mig_mode"]), expected)

    def test_no_device(self):
        self.program(self.facts, NO_DEVICE)
        process, results = self.run_bundle()
        self.assertEqual(process.returncode, 3)
        self.assertEqual(results["result"], "no device")
        self.assertEqual(self.statuses(results), ["skipped"])
        self.assertIn("the driver shows no device", results["checks"][0]["detail"])

    def test_programs_that_do_not_start_are_no_missing_device(self):
        self.program(self.facts, "echo \"version 'GLIBC_9.9' not found\" >&2; exit 1")
        process, results = self.run_bundle()
        self.assertEqual(process.returncode, 1)
        self.assertEqual(self.statuses(results), ["fail"])
        self.assertIn("GLIBC_9.9", results["checks"][0]["detail"])

    def test_a_case_that_fails_hangs_or_does_not_run(self):
        for name, text, expected in (
                ("differs", "echo 'x.cc: ERROR: CHECK'; echo '  logged: 3 differ'; exit 1",
                 "3 differ"),
                ("throws", "echo 'x.cc: ERROR: test case THREW: bad_alloc'; exit 1", "bad_alloc"),
                ("crashes", "echo segmentation; kill -SEGV $$", "segmentation"),
                ("passes and then crashes", f"{PASSES} exit 134", "Status: SUCCESS"),
                ("hangs", "exec sleep 100", "did not end within 1 s"),
                ("no such case", "echo '[doctest] test cases: 0 | 0 passed | 0 failed |'",
                 "0 passed")):
            with self.subTest(name):
                self.program(self.tests, f'case "$*" in *=beta*) {text};; esac\n{PASSES}')
                if name == "no such case":
                    self.program(
                        self.tests,
                        f'case "$*" in *=beta*) {text}; exit 0;; esac\n{PASSES}')
                process, results = self.run_bundle("--no-sanitizer", "--limit_s=1")
                self.assertEqual(process.returncode, 1)
                self.assertEqual(results["result"], "fail")
                self.assertEqual(self.statuses(results),
                                 ["pass", "pass", "fail", "pass"] + ["skipped"] * SANITIZED + SHARED)
                self.assertIn(expected, results["checks"][2]["detail"])

    # Bug: a device without room for any of the rows passed, with "compared 0 answers".
    def test_a_case_says_what_it_has_not_compared(self):
        no_room = "not compared: the device has no 12 bytes left for rows of 4-byte elements"
        small = no_room.replace("4-byte", "2-byte")
        compared = "compared 40 answers"
        for name, said, status in (
                ("nothing", (no_room, small, "compared 0 answers"), "skipped"),
                ("some", (no_room, small, no_room, compared), "pass"),
                ("all", (compared,), "pass"),
                ("left out", ("not compared: it is quick",), "skipped")):
            with self.subTest(name):
                lines = "".join(f"echo 'cuda_rows_test.cc:9: MESSAGE: {text}'\n" for text in said)
                passes = "echo '[doctest] test cases: 1 | 1 passed | 0 failed |'"
                self.program(self.tests, f'case "$*" in *=beta*) {lines}{passes}; exit ;; esac\n{PASSES}')
                process, results = self.run_bundle("--no-sanitizer")
                self.assertEqual(process.returncode, 0)
                self.assertEqual(results["result"], "pass")
                self.assertEqual(self.statuses(results)[:4], ["pass", "pass", status, "pass"])
                self.assertEqual(results["checks"][2]["detail"], "; ".join(dict.fromkeys(said)))

    def test_timings(self):
        for arguments, asked in (((), "gpu --json --quick"),
                                 (("--quick",), "gpu --json --quick --seconds=0.05"),
                                 (("--timings",), "gpu --json")):
            process, results = self.run_bundle("--no-sanitizer", *arguments)
            self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
            self.assertEqual(results["checks"][3]["detail"], "2 measurements in timings.jsonl")
            lines = (self.folder / "out/timings.jsonl").read_text().splitlines()
            self.assertEqual([json.loads(line)["case"] for line in lines], ["greedy", "token"])
            self.assertEqual(json.loads(lines[0])["arguments"], asked)

    def test_no_case_at_all(self):
        self.program(self.tests, "echo 'cannot execute' >&2; exit 126")
        process, results = self.run_bundle("--no-sanitizer")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(self.statuses(results), ["pass", "fail", "pass"] + ["skipped"] * SANITIZED + SHARED)
        self.assertIn("cannot execute", (self.folder / "out/log.txt").read_text())

    def test_an_attach_check_that_fails_or_says_nothing(self):
        for name, text, expected in (
                ("fails", "printf 'fail\\tround 3 does not come through\\n'; exit 1",
                 "round 3 does not come through"),
                ("has no device", "echo 'error: no device' >&2; exit 3", "error: no device"),
                ("says pass and fails", "printf 'pass\\t\\n'; exit 1", "pass"),
                ("says nothing", "exit 0", "no output"),
                ("hangs", "exec sleep 100", "did not end within 1 s")):
            with self.subTest(name):
                self.program(self.attach, f'case "$*" in *--check*many*) {text};; esac\n{ATTACH}')
                process, results = self.run_bundle("--no-sanitizer", "--limit_s=1")
                self.assertEqual(process.returncode, 1)
                self.assertEqual(self.statuses(results)[-7:], ["pass", "fail"] + SHARED[2:])
                self.assertIn(expected, results["checks"][-6]["detail"])
        self.program(self.attach, "exit 127")
        process, results = self.run_bundle("--no-sanitizer")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(self.statuses(results)[-6:], ["fail"] + SHARED[2:])

    def test_figures_of_a_check_that_fails_are_kept_in_the_log_alone(self):
        for name, end in (("fails", "printf 'fail\\tround 3 gives token 7\\n'; exit 1"),
                          ("crashes", "exit 134"),
                          ("crashes behind its result", "printf 'observed\\tsome\\n'; exit 134")):
            with self.subTest(name):
                self.program(self.daemon_checks, f"""
case "$*" in *--check*round_time*) cat <<'E'
{DAEMON}E
{end} ;; esac
{DAEMON_CHECKS}""")
                process, results = self.run_bundle("--no-sanitizer")  # which looks for daemon.jsonl
                self.assertEqual(process.returncode, 1)
                self.assertEqual(self.statuses(results)[-4], "fail")
                out = self.folder / "out"
                self.assertNotIn("## Rounds of the daemon", (out / "results.md").read_text())
                self.assertIn(DAEMON, (out / "log.txt").read_text())

    def test_daemon_checks_get_the_bundles_daemon_and_a_folder_that_goes(self):
        for arguments, rounds in (((), "500"), (("--quick",), "100")):
            results = self.run_bundle("--no-sanitizer", *arguments)[1]
            said = results["checks"][-5]["detail"]
            self.assertIn(f"--daemon {self.bundle}/bin/specd ", said)
            self.assertIn(f" --rounds {rounds} ", said)
            folder = pathlib.Path(said.split("--folder ")[1].split(" --rounds")[0])
            self.assertTrue(folder.is_absolute())
            self.assertFalse(folder.exists())

    def test_a_temporary_folder_that_is_too_long_for_sockets_is_not_used(self):
        self.program(self.sanitizer.parent / "nvidia-cuda-mps-control", "exit 0")
        for length, is_used in ((60, True), (61, False)):
            temporary = self.folder / ("x" * (length - len(str(self.folder)) - 1))
            temporary.mkdir()
            process, results = self.run_bundle("--no-sanitizer", environment={
                **self.path, "TMPDIR": str(temporary)})
            self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
            said = [check["detail"] for check in results["checks"]
                    if check["name"].startswith("daemon rounds")]
            parent = str(temporary) if is_used else "/tm" "p"
            self.assertIn(f"--folder {parent}/specd-daemon.", said[0])
            self.assertIn(f"pipes: {parent}/specd-mps.", said[1])
            self.assertEqual("TMPDIR has 61 bytes" in process.stderr, not is_used)

    def test_mps_is_started_with_pipes_of_its_own_and_ended(self):
        control = self.sanitizer.parent / "nvidia-cuda-mps-control"
        log = self.folder / "mps.log"
        self.program(control, f"""
echo "$CUDA_MPS_PIPE_DIRECTORY" >> '{log}'
test "$1" = -d || cat >> '{log}'
""")
        process, results = self.run_bundle("--no-sanitizer", environment=self.path)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        shared = ["attach words", "attach many", "daemon rounds", "daemon round_time"]
        self.assertEqual([check["name"] for check in results["checks"][-9:]],
                         shared + [f"{name} under MPS" for name in shared] + ["peers"])
        pipe, same, said = log.read_text().splitlines()
        self.assertEqual((pipe, said), (same, "quit"))
        self.assertFalse(pathlib.Path(pipe).exists())
        for without, under in ((-9, -5), (-7, -3)):
            self.assertTrue(results["checks"][without]["detail"].endswith("pipes: "))
            self.assertTrue(results["checks"][under]["detail"].endswith(pipe))
        lines = (self.folder / "out/daemon.jsonl").read_text().splitlines()
        self.assertEqual(len(lines), 2)
        self.program(control, "echo 'an MPS of another user'; exit 1")
        process, results = self.run_bundle("--no-sanitizer", environment=self.path)
        self.assertEqual(process.returncode, 0)
        for check in results["checks"][-3:-1]:
            self.assertIn("another user", check["detail"])
        process, results = self.run_bundle("--no-sanitizer", "--no-mps", environment=self.path)
        for check in results["checks"][-3:-1]:
            self.assertIn("--no-mps", check["detail"])

    def test_peers_are_observed_skipped_or_fail(self):
        python = self.sanitizer.parent / "python3"
        for code, status in ((0, "observed"), (3, "skipped"), (1, "fail")):
            self.program(python, f"echo 'error: its last line'; exit {code}")
            process, results = self.run_bundle("--no-sanitizer", environment=self.path)
            self.assertEqual(process.returncode, 1 if status == "fail" else 0)
            self.assertEqual(self.statuses(results)[-1], status)
            self.assertIn("its last line", results["checks"][-1]["detail"])
        process, results = self.run_bundle("--no-sanitizer", "--no-peers", environment=self.path)
        self.assertIn("--no-peers", results["checks"][-1]["detail"])

    def test_peers_are_asked_for_as_much_as_timings(self):
        python = self.sanitizer.parent / "python3"
        self.program(python, 'shift 4; echo "asked for $*"')
        for arguments, asked in (((), "asked for --quick"),
                                 (("--quick",), "asked for --quick --repeats=10"),
                                 (("--timings",), "asked for ")):
            results = self.run_bundle("--no-sanitizer", *arguments, environment=self.path)[1]
            self.assertEqual(results["checks"][-1]["detail"].strip(), asked.strip())

    def test_measurements_are_tables_in_results_md(self):
        self.program(self.bench, f"cat <<'E'\n{TIMINGS}E\n")
        self.program(self.sanitizer.parent / "python3", f"cat > \"$4\" <<'E'\n{PEERS}E\n")
        self.program(self.daemon_checks, f"""
case "$*" in *round_time*) cat <<'E'
{DAEMON}E
printf 'observed\\tsome\\n'; exit ;; esac
{DAEMON_CHECKS}""")
        process, results = self.run_bundle("--no-sanitizer", environment=self.path,
                                           peers_measure=True)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        text = (self.folder / "out/results.md").read_text()
        self.assertNotIn("\x1b", text)
        timings, rest = text.split("## Timings")[1].split("## Rounds of the daemon")
        daemon, peers = rest.split("## Peers")
        self.assertEqual([line for line in timings.splitlines() if line.startswith("|")],
                         TIMINGS_TABLE.splitlines())
        self.assertEqual([line for line in daemon.splitlines() if line.startswith("|")],
                         DAEMON_TABLE.splitlines())
        self.assertEqual([line for line in peers.splitlines() if line.startswith("|")],
                         PEERS_TABLE.splitlines())
        # The next run does not take the measurements of an earlier one.
        self.run_bundle("--no-sanitizer", "--no-peers", environment=self.path)
        self.assertEqual((self.folder / "out/daemon.jsonl").read_text(), DAEMON)

    def test_without_measurements_there_are_no_tables(self):
        self.run_bundle("--no-sanitizer", "--no-peers")
        text = (self.folder / "out/results.md").read_text()
        self.assertIn("## Timings", text)
        self.assertNotIn("## Peers", text)
        self.program(self.facts, NO_DEVICE)
        self.run_bundle("--no-sanitizer", "--no-peers")
        self.assertNotIn("## ", (self.folder / "out/results.md").read_text())

    def test_peers_say_what_they_miss(self):
        modules = self.folder / "modules"
        modules.mkdir()
        command = [sys.executable, "-B", SOURCE / "tools/gpu_check/peers.py", "--out",
                   self.folder / "peers.json"]
        for text, expected in (("raise ImportError('libcudart.so is missing')",
                                "torch cannot be imported (torch: ImportError: libcudart.so"),
                               ("__version__ = '9'\nclass cuda:\n    is_available = lambda: False\n",
                                "torch 9 sees no CUDA device")):
            (modules / "torch.py").write_text(text)
            process = subprocess.run(command, env={"PYTHONPATH": str(modules)}, text=True,
                                     capture_output=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(process.returncode, 3, process.stderr)
            self.assertIn(expected, process.stdout.splitlines()[-1])
            self.assertFalse((self.folder / "peers.json").exists())
        for arguments in (["--vocab=0"], ["--batch=1,x"], ["--dtype=fp8"], ["--draft=2000000"]):
            process = subprocess.run([*command, *arguments], text=True, capture_output=True,
                                     timeout=PATIENCE_S, check=False)
            self.assertEqual(process.returncode, 2, arguments)

    def test_a_runpath_becomes_an_rpath(self):
        (self.folder / "main.c").write_text("int main(void) { return 7; }\n")
        program, change = self.folder / "main", SOURCE / "tools/gpu_check/rpath.py"

        def links(*options):
            subprocess.run(["cc", self.folder / "main.c", "-o", program, *options], check=True,
                           timeout=PATIENCE_S)

        def changes(path=program):
            return subprocess.run([sys.executable, change, path], text=True, capture_output=True,
                                  timeout=PATIENCE_S, check=False)

        links("-Wl,--enable-new-dtags,-rpath,$ORIGIN/../x")
        before = program.read_bytes()
        for _ in range(2):  # of one that has an RPATH already it changes nothing
            self.assertEqual((changes().returncode, changes().stderr), (0, ""))
            said = subprocess.run(["readelf", "-d", program], text=True, capture_output=True,
                                  timeout=PATIENCE_S, check=True).stdout
            self.assertRegex(said, r"\(RPATH\) .*\[\$ORIGIN/\.\./x\]")
            self.assertNotIn("(RUNPATH)", said)
        after = program.read_bytes()
        self.assertEqual(sum(a != b for a, b in zip(before, after)), 1)
        self.assertEqual(len(before), len(after))
        self.assertEqual(subprocess.run([program], timeout=PATIENCE_S, check=False).returncode, 7)
        links()
        for path, why in ((program, "has neither RUNPATH nor RPATH"), (change, "is no ELF file")):
            self.assertEqual(changes(path).returncode, 1)
            self.assertIn(f"{path}: {why}", changes(path).stderr)

    def test_arguments(self):
        for arguments in (["--nonsense"], ["--out"], ["--limit_s=0"], ["--limit_s", "soon"]):
            process = subprocess.run([self.bundle / "run", *arguments], capture_output=True,
                                     text=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(process.returncode, 2, arguments)
            self.assertIn("--help", process.stderr)
        text = subprocess.run([self.bundle / "run", "--help"], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=True).stdout
        self.assertIn("Examples:", text)
        outside = subprocess.run([SOURCE / "tools/gpu_check/run"], capture_output=True, text=True,
                                 timeout=PATIENCE_S, check=False)
        self.assertEqual(outside.returncode, 2)
        self.assertIn("tools/gpu_check/make", outside.stderr)


if __name__ == "__main__":
    unittest.main()
