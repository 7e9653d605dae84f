"""specd-replay on traces of device rounds, by slot and inside a CUDA graph, beside a trace of the CPU.

The device is the one that tests/daemon/client emulates: the processor's own code on its blocks. Its
tests leave their traces here. Bug that this would catch: `diff` took the ids behind the end of a
draft, which a device knows and a host does not, for a difference of the drafts.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

REPLAY, TRACED = os.environ["SPECD_REPLAY"], os.environ["SPECD_TRACED_ROUNDS"]
TASKS = 77  # of the generator's 30 rounds, in every trace


def run(*arguments, code=0):
    done = subprocess.run([REPLAY, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout


def number(text, name):
    return int(re.search(rf"^ *{name} +(\d+)\b", text, re.MULTILINE)[1])


class DeviceTraceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="specd-test-")
        cls.addClassCleanup(folder.cleanup)
        subprocess.run([TRACED, "--test-case=a trace of*"], check=True, capture_output=True,
                       env={**os.environ, "TMPDIR": folder.name, "SPECD_KEEP_TRACES": "1"})
        cls.traces = {"cpu": [], "device": [], "graph": []}
        for path in sorted(pathlib.Path(folder.name).iterdir()):
            info = run("info", path)
            kind = "cpu" if re.search("^backend +cpu", info, re.MULTILINE) else \
                "graph" if "in a CUDA graph" in info else "device"
            cls.traces[kind].append(path)

    def test_every_kind_of_trace_is_there(self):
        self.assertEqual((len(self.traces["device"]), len(self.traces["graph"])), (2, 2))
        self.assertGreater(len(self.traces["cpu"]), 0)

    def test_verify_runs_device_rounds_again_by_rows(self):
        for path in self.traces["device"]:
            text = run("verify", path)
            self.assertEqual([number(text, name) for name in ("equal", "consistent", "different")],
                             [TASKS, 0, 0])

    def test_verify_takes_the_numbers_of_rounds_in_a_graph(self):
        for path in self.traces["graph"]:
            text = run("verify", path)
            self.assertGreaterEqual(number(text, "consistent"), TASKS)
            self.assertEqual((number(text, "different"), number(text, "not checkable")), (0, 0))

    def test_show_explains_every_round(self):
        for kind in ("device", "graph"):
            for path in self.traces[kind]:
                for place in range(1, 31):
                    self.assertRegex(run("show", path, place, "--top=2"), r"place +draft +p +q")
                text = run("show", path, 3)
                self.assertIn("accepted", text)
                self.assertEqual("candidates at place" in text, kind == "device")

    def test_diff_finds_nothing_between_a_device_and_the_cpu(self):
        # A graph that runs ahead of the answers has more rounds, and makes edits on the device.
        num_checked = {path: number(text, "equal") + number(text, "consistent")
                       for path in self.traces["graph"] for text in [run("verify", path)]}
        in_step = [path for path, num in num_checked.items() if num == TASKS]
        self.assertEqual(len(in_step), 1)
        for path in self.traces["device"] + in_step:
            text = run("diff", path, self.traces["cpu"][0])
            self.assertIn("4 sequences in both runs, 0 of them differ; 0 in one run only", text)


if __name__ == "__main__":
    unittest.main()
