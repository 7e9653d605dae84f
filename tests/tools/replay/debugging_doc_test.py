"""The commands of docs/DEBUGGING.md, run as a reader runs them: they print what the document shows.

A block that begins with "$ " holds commands and, after each, its output. The Python block is the file
that its first line names. Only times (a number before ns, us, ms or s) and handles of sequences may differ.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
DOCUMENT = SOURCE / "docs/DEBUGGING.md"


def without_times(text):
    """Without times and their units, which change under load, and without handles, in which a session's
    number is drawn at random."""
    text = re.sub(r"\bsequence 0x[0-9a-f]{9,}\b", "sequence HANDLE", text)
    return re.sub(r"\b[\d.]+ (?:ns|us|ms|s)\b", "TIME", text)


def commands_of(block):
    """Pairs of a command and the lines after it."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


class Document(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="specd-debugging-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("tools", "LICENSE"):  # the commands begin at the root of the source tree
            (self.folder / name).symlink_to(SOURCE / name)
        path = f"{os.environ['SPECD_BIN']}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path}

    def run_command(self, command):
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, timeout=120)
        return done.stdout

    def test_its_commands_print_what_it_shows(self):
        text = DOCUMENT.read_text()
        for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
            name = re.match(r"# (\w+\.py): ", block)
            self.assertTrue(name, "the first line of a Python block names its file")
            (self.folder / name[1]).write_text(block)
        programs = set()
        for block in re.findall(r"^```\n(\$ .*?)^```", text, re.M | re.S):
            for command, shown in commands_of(block):
                with self.subTest(command=command):
                    printed = self.run_command(command)
                    self.assertEqual(without_times(printed), without_times(shown))
                    programs.add(" ".join(command.split()[:2]))
        # The hunts are there, with each question that the tool answers in them.
        for wanted in ("stats", "verify", "diff", "show", "rerun", "cut", "doctor"):
            self.assertIn(f"specd-replay {wanted}", programs)
        for wanted in ("specd-toy-engine --drafts=sampled", "python3 replica.py"):
            self.assertIn(wanted, programs)

    def test_times_alone_are_left_out(self):
        self.assertEqual(without_times("ran 11.5 us, committed 3 ms"), "ran TIME, committed TIME")
        self.assertEqual(without_times("p is 0.25 in A"), "p is 0.25 in A")
        self.assertEqual(without_times("sequence 0x100000000 a"), "sequence HANDLE a")
        self.assertEqual(without_times("mask 0x100000000 a"), "mask 0x100000000 a")


if __name__ == "__main__":
    unittest.main()
