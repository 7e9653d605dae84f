"""layout_check reports, lists what is large, and reads the files that belong to the project.

The tests of its rules lie in files beside this one, named after the rules' files.
"""

import os
import subprocess
import sys
import tempfile
import unittest

from layout_tree import GOOD_TREE, PROGRAM, TreeTest, check, layout_check, write_tree


class LayoutCheckTest(TreeTest):
    def test_good_tree_is_clean(self):
        findings, large = check({})
        self.assertEqual((findings, large), ([], []))

    def test_folder_without_readme(self):
        findings, _ = check({}, removed=("ipc/README.md",))
        self.assertEqual(findings, [("readme", "ipc/README.md", 1)])
        findings, _ = check({"python/client.py": "pass\n"})
        self.assertEqual(findings, [("readme", "python/README.md", 1)])

    def test_large_things_are_listed_and_do_not_fail(self):
        body = "  a += 1;\n" * 69
        findings, large = check({
            "daemon/fits.cc": "void Fits(int a) {\n" + "  a += 1;\n" * 68 + "}\n",
            "daemon/long.cc": "namespace specd {\nclass A {\n  explicit A(int a) : a_{a}, b_(a) {\n"
                              + body + "  }\n};\nstatic const int k[] = {\n" + "  1,\n" * 80
                              + "};\n}\n"
                              "int Two(\n    int a) {\n" + body + "  if (a) { a = 2; }\n}\n",
            "daemon/table.cc": "const auto kTable = Make({\n" + "  1,\n" * 80 + "});\n",
            "tools/long.py": "def f():\n" + "    pass\n" * 70,
            "tools/file.py": "pass\n" * 401,
            "tools/fits.py": "pass\n" * 400,
        })
        self.assertEqual(findings, [])
        self.assertEqual({(item.path, item.line, item.what, item.num_lines) for item in large},
                         {("daemon/long.cc", 3, "A", 71), ("daemon/long.cc", 158, "Two", 73),
                          ("tools/long.py", 1, "f", 71), ("tools/file.py", 1, "file", 401)})

    def test_ignored_and_binary_files_are_not_read(self):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, GOOD_TREE)
            write_tree(root, {"build/x.md": "/wo" "rk/x\n", ".venv/x.py": "# /wo" "rk/x\n"})
            with open(os.path.join(root, "tests", "corpus"), "wb") as file:
                file.write(b"\xff\xfe/wo" b"rk/x\n")
            self.assertEqual(layout_check.check_tree(root)[1], [])

    def test_in_a_checkout_git_says_what_is_ignored(self):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, {**GOOD_TREE, ".gitignore": "/scratch/\n",
                              "scratch/x.md": "/wo" "rk/x\n", "docs/new.md": "/wo" "rk/x\n"})
            try:
                subprocess.run(["git", "init", "--quiet", root], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                self.skipTest("git is not installed")
            findings = layout_check.check_tree(root)[1]
            self.assertEqual([finding.path for finding in findings], ["docs/new.md"])

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, GOOD_TREE)
            run = subprocess.run([sys.executable, PROGRAM, "--root", root], capture_output=True,
                                 text=True, check=False)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertIn("clean", run.stdout)
            self.assertNotIn("\033", run.stdout)
            write_tree(root, {"daemon/x.h": "#pragma once\n"})
            run = subprocess.run([sys.executable, PROGRAM, "--root", root], capture_output=True,
                                 text=True, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertIn("daemon/x.h:1: prologue: ", run.stdout)
        run = subprocess.run([sys.executable, PROGRAM, "--root", os.path.join(root, "gone")],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)


if __name__ == "__main__":
    unittest.main()
