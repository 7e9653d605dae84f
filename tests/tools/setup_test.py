"""tools/setup has a group for the browser, and a page test without a browser names the command."""

import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]


def run(*command, **environment):
    return subprocess.run([str(part) for part in command], cwd=SOURCE, check=False, timeout=60,
                          capture_output=True, text=True, env={**os.environ, **environment})


class Setup(unittest.TestCase):
    def listed(self, *groups):
        return run("tools/setup", "--list", *groups).stdout.split()

    def test_the_browser_is_a_group_of_its_own(self):
        self.assertEqual(self.listed("browser"), ["chromium"])
        self.assertNotIn("chromium", self.listed())
        self.assertEqual(self.listed(), self.listed("build", "test"))

    def test_help_and_refusals_name_every_group(self):
        help_text, refusal = run("tools/setup", "--help").stdout, run("tools/setup", "x").stderr
        for group in ("build", "test", "develop", "package", "transformers", "browser", "monitor"):
            self.assertRegex(help_text, rf"\n  {group} ")
            self.assertIn(group, refusal)

    def test_a_page_test_without_a_browser_names_the_command(self):
        for name in ("report_page_test.py", "report_page_limits_test.py"):
            done = run(sys.executable, HERE / name, PATH="/nowhere", SPECD_CHROMIUM="")
            self.assertEqual(done.returncode, 77, done.stderr)
            self.assertIn("./tools/setup browser", done.stdout)


if __name__ == "__main__":
    unittest.main()
