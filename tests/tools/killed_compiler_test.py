"""tools/lib.sh's build when the system kills the compiler: it says so, and how to build with less.

The real cmake, ninja and c++ build a tree of one file. The compiler proper, which the driver c++
starts, is a script: it ends as the case wants, by the signal of the kernel's out-of-memory killer too.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
HINT = "CMAKE_BUILD_PARALLEL_LEVEL=1 tools/test"

PRESETS = """{
  "version": 6,
  "configurePresets": [
    { "name": "one", "generator": "Ninja", "binaryDir": "${sourceDir}/build" }
  ],
  "buildPresets": [{ "name": "one", "configurePreset": "one" }]
}
"""
RULES = """cmake_minimum_required(VERSION 3.25)
project(one LANGUAGES NONE)
add_custom_target(one ALL
  COMMAND c++ -B${CMAKE_SOURCE_DIR}/compilers/ -c ${CMAKE_SOURCE_DIR}/one.cc -o one.o)
"""
CALLER = """#!/usr/bin/env bash
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
configure one >/dev/null
build one
printf 'built\\n'
"""


class KilledCompilerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        self.program("tools/test", CALLER)
        shutil.copy(REPOSITORY / "tools/lib.sh", self.tree / "tools/lib.sh")
        (self.tree / "CMakePresets.json").write_text(PRESETS)
        (self.tree / "CMakeLists.txt").write_text(RULES)
        (self.tree / "one.cc").write_text("int one;\n")

    def program(self, name, text):
        path = self.tree / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def build(self, compiler, terminal=False):
        """Runs tools/test with `compiler`, a script, in the place of cc1plus."""
        self.program("compilers/cc1plus", f"#!/bin/sh\n{compiler}\n")
        command = [str(self.tree / "tools/test")]
        if terminal:
            command = ["script", "--quiet", "--return", "--command", command[0], "/dev/null"]
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60, check=False,
                              env={**os.environ, "LC_ALL": "C", "NO_COLOR": "1"})

    def test_a_killed_compiler_is_told_from_one_that_refuses(self):
        killed = self.build("kill -KILL $$")
        self.assertNotEqual(killed.returncode, 0)
        self.assertIn("memory ran out", killed.stderr)
        self.assertIn(HINT, killed.stderr)
        self.assertIn("FAILED: ", killed.stdout)  # the build's own words are there too
        self.assertNotIn("built", killed.stdout.splitlines())

        refused = self.build("echo 'one.cc:1:1: error: no' >&2; exit 1")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("one.cc:1:1: error: no", refused.stdout)
        self.assertNotIn("memory", refused.stdout + refused.stderr)

    def test_memory_that_the_compiler_is_refused(self):
        refused = self.build(
            "echo 'cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes' >&2\n"
            "exit 1")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(HINT, refused.stderr)

    def test_a_build_that_passes_says_nothing_of_it(self):
        # -o is the driver's way to say where the assembler will look.
        passed = self.build('while [ "$1" != -o ]; do shift; done\n: >"$2"')
        self.assertEqual(passed.returncode, 0, passed.stdout + passed.stderr)
        self.assertEqual(passed.stdout.splitlines()[-1], "built")
        self.assertNotIn("memory", passed.stdout + passed.stderr)

    @unittest.skipUnless(shutil.which("script"), "script of util-linux is not there")
    def test_on_a_terminal(self):
        killed = self.build("kill -KILL $$", terminal=True)
        self.assertNotEqual(killed.returncode, 0)
        self.assertIn(HINT, killed.stdout)  # a terminal has one stream for both


if __name__ == "__main__":
    unittest.main()
