"""tools/demo as a stranger runs it: text, marks, table, and nothing left behind, whatever ends it."""

import os
import re
import signal
import unittest

from support import ProcessTest, SOURCE, wait_until

PROMPTS = ("The daemon", "A round", "The engine", "A draft token")


class DemoTest(ProcessTest):
    def demo(self, *flags):
        return self.start(SOURCE / "tools/demo", *flags, start_new_session=True,
                          env={**os.environ, "TMPDIR": str(self.folder)})

    def assertNothingLeft(self, demo):
        self.assertEqual(list(self.folder.iterdir()), [])
        with self.assertRaises(ProcessLookupError):
            os.killpg(demo.process.pid, 0)

    def columns(self, demo):
        """The text of each prompt, put together from the columns, without the marks."""
        rows = [line.split("|") for line in demo.stdout.splitlines() if line.count("|") == 3]
        texts = [" ".join(row[i].strip() for row in rows) for i in range(4)]
        return [re.split(r"-- (?:stop|length):", text)[0].replace("[", "").replace("]", "")
                for text in texts]

    def test_text_marks_and_table(self):
        demo = self.demo("--max_tokens=60")
        self.assertEqual(demo.wait(), 0, demo.stderr)
        for prompt in PROMPTS:
            self.assertEqual(len(re.findall(rf"^{prompt} +\d+ +\d+ ", demo.stdout, re.MULTILINE)), 1)
        self.assertRegex(demo.stdout, r"\[[^\]]+\]")  # accepted drafts are marked
        for word in ("tokens", "rounds", "accepted/round", "tokens/s", "specd us"):
            self.assertIn(word, demo.stdout)
        self.assertNotIn("\x1b", demo.stdout)  # no colours where nobody sees them
        self.assertNothingLeft(demo)

    def test_without_drafts_the_text_is_the_same_and_nothing_is_marked(self):
        with_drafts = self.demo("--max_tokens=40")
        self.assertEqual(with_drafts.wait(), 0, with_drafts.stderr)
        without = self.demo("--max_tokens=40", "--draft=0")
        self.assertEqual(without.wait(), 0, without.stderr)
        # The marks take room, so lines break elsewhere: compare without any space.
        squeezed = [[re.sub(r"\s", "", text) for text in self.columns(demo)]
                    for demo in (with_drafts, without)]
        self.assertGreater(len(squeezed[0][0]), 100)
        self.assertEqual(squeezed[0], squeezed[1])

    def test_interrupted(self):
        demo = self.demo("--max_tokens=100000", "--forward_ms=50")
        wait_until(lambda: "The daemon" in demo.stdout or not demo.running(), "the first line")
        self.assertTrue(demo.running(), demo.stderr)
        os.killpg(demo.process.pid, signal.SIGINT)
        self.assertEqual(demo.wait(), 130)
        self.assertNothingLeft(demo)

    def test_a_bad_flag_is_reported_and_everything_ends(self):
        demo = self.demo("--no_such_flag=1")
        self.assertNotEqual(demo.wait(), 0)
        self.assertIn("no_such_flag", demo.stderr)
        self.assertNothingLeft(demo)


if __name__ == "__main__":
    unittest.main()
