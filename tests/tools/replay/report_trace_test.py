"""The page of `specd-replay report` from a recorded trace, in a Chromium without a window.

The toy engine records a regular expression with sampled drafts. The page shows the texts, probabilities
and masks that the records and rows say, read here without any code of specd. Without Chromium the
test exits with 77, skipped. SPECD_REPORT_SHOTS=FOLDER leaves a screenshot there.
"""

import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

SOURCE = pathlib.Path(__file__).resolve().parents[3]
for folder in ("tests/tools", "tests/python"):
    sys.path.insert(0, str(SOURCE / folder))

import chromium  # noqa: E402
import trace_file  # noqa: E402
from toy_tokenizer import texts_of_ids  # noqa: E402

BIN = pathlib.Path(os.environ["SPECD_BIN"])
TOKENIZER = SOURCE / "tools/toy_engine/tokenizer.json"
CORPUS = SOURCE / "tools/toy_engine/corpus.txt"
TEMPERATURE = 0.8
GRAMMAR_MASK = 3  # of TraceTensor


class Token:
    """A kept token with the place that decided it."""

    def __init__(self, record, task, place):
        self.record, self.task, self.place = record, task, place
        self.id = task["confirmed"][place]
        self.decision = task["decisions"][place]
        self.is_accepted = place < task["outcome"].get("num_accepted", 0)


class ReportOfTrace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="specd-report-")
        folder = pathlib.Path(cls.folder.name)
        subprocess.run([BIN / "specd-toy-engine", "--specd=embedded:cpu", f"--tokenizer={TOKENIZER}",
                        f"--corpus={CORPUS}", "--prompt=The daemon|A round",
                        f"--temperature={TEMPERATURE}", "--drafts=sampled", "--verify=token",
                        "--regex=([a-z]+ ){20}[a-z]+[.]", "--max_tokens=60", "--print=none", "--stats=none",
                        f"--trace={folder / 'traces'}", "--trace_options=level=rows"], check=True)
        (path,) = (folder / "traces").glob("*.mcap")
        cls.page = folder / "report.html"
        subprocess.run([BIN / "specd-replay", "report", path, "-o", cls.page,
                        f"--tokenizer={TOKENIZER}"], check=True, stdout=subprocess.DEVNULL)
        cls.path = path
        cls.trace = trace_file.Trace(path)
        cls.pieces = texts_of_ids()
        cls.browser = chromium.Chromium()
        cls.browser.resize(1400, 1000)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def open(self, request):
        """Opens the page at a sequence and returns its tokens from the records."""
        names = [o["request_id"] for o in self.trace.openings.values()]
        self.browser.open(f"{self.page.as_uri()}#sequence={names.index(request)}")
        self.assertEqual(self.browser.run("document.documentElement.dataset.ready"), "true",
                         self.browser.run("document.getElementById('failure').textContent"))
        return [Token(record, task, place) for record, task, answer in self.trace.steps()
                if self.trace.request(answer["sequence"]) == request
                for place in range(answer.get("num_kept", 0))]

    def mask(self, token):
        """The ids that the constraint allows at the token's place."""
        index = token.task["places"][token.place]["grammar_mask"]
        row = next(r for r in token.record["rows"] if r.get("tensor", 0) == GRAMMAR_MASK
                   and r.get("index", 0) == index)
        size = self.trace.vocab_size
        words = np.frombuffer(self.trace.row_bytes, "<u4", (size + 31) // 32, row["offset"])
        return ((words[:, None] >> np.arange(32, dtype=np.uint32)) & 1).reshape(-1)[:size].astype(bool)

    def test_it_says_what_the_doctor_says(self):
        self.open("The daemon")
        findings = self.browser.run("document.getElementById('findings').textContent")
        printed = subprocess.run([BIN / "specd-replay", "doctor", self.path], stdout=subprocess.PIPE,
                                 text=True, check=True).stdout
        sentences = [line for line in printed.splitlines() if line.startswith(("advice: ", "fault: "))]
        self.assertTrue(sentences)
        self.assertEqual(findings, "".join(sentences))

    def title_of(self, name):
        return float(self.browser.run(f"document.getElementById('{name}').title"))

    def panel(self):
        return self.browser.run("document.getElementById('panel').textContent")

    def check_panel(self, k, token):
        self.browser.click(f'#text [data-k="{k}"]')
        piece = self.browser.run("document.getElementById('panel_piece').textContent")
        self.assertEqual(piece.replace("\u00b7", " "), self.pieces[token.id].decode())
        self.assertIn(f"id {token.id} ", self.panel())
        mask = self.mask(token)
        self.assertIn(f"allowed ids{mask.sum():,} of {self.trace.vocab_size:,}", self.panel())
        if token.place >= len(token.task["tokens"]):
            return  # no draft token was judged here
        decision, draft = token.decision, token.task["tokens"][token.place]
        p = decision["p_weight"] / decision["p_mass"]
        self.assertEqual(self.title_of("panel_p"), p)
        row = self.trace.row(token.record, 0, token.task["target_rows"][token.place])
        scale = math.log2(math.e) / TEMPERATURE
        self.assertTrue(math.isclose(p, trace_file.softmax(row, scale, mask)[draft], rel_tol=1e-4,
                                     abs_tol=1e-9))
        coin = decision["accept_coin"] * 2.0**-53
        self.assertEqual(self.title_of("panel_coin"), coin)
        self.assertEqual(token.is_accepted, coin < min(1, self.title_of("panel_ratio")))

    def test_the_panel_shows_what_the_trace_has(self):
        for request in ("The daemon", "A round"):
            with self.subTest(request=request):
                tokens = self.open(request)
                self.assertEqual(self.browser.run("document.querySelectorAll('#text [data-k]').length"),
                                 len(tokens))
                accepted = [k for k, token in enumerate(tokens) if token.is_accepted]
                fallen = [k for k, token in enumerate(tokens) if not token.is_accepted
                          and token.place < len(token.task["tokens"])]
                self.assertGreater(min(len(accepted), len(fallen)), 3)
                for k in accepted[:4] + fallen[:4]:
                    self.check_panel(k, tokens[k])
                self.assertEqual(self.browser.problems(), [])

    def test_the_text_and_the_facts_are_those_of_the_trace(self):
        tokens = self.open("The daemon")
        shown = self.browser.run("""(() => {
            const copy = document.getElementById('text').cloneNode(true);
            copy.querySelectorAll('.gutter, .mark').forEach((element) => element.remove());
            return copy.textContent; })()""")
        text = b"".join(self.pieces.get(token.id, b"") for token in tokens).decode()
        self.assertTrue(shown.startswith(text), (shown, text))
        facts = self.browser.run("document.getElementById('facts').textContent")
        self.assertIn(f"specd{self.trace.info['specd_version']}", facts)
        shots = os.environ.get("SPECD_REPORT_SHOTS")
        if shots:
            k = next(k for k, token in enumerate(tokens) if token.is_accepted)
            self.browser.click(f'#text [data-k="{k}"]')
            self.browser.screenshot(os.path.join(shots, "recorded.png"))
        self.assertEqual(self.browser.problems(), [])


if __name__ == "__main__":
    if chromium.find() is None:
        print(f"skipped: no Chromium; install it: {chromium.INSTALL}")
        sys.exit(77)
    unittest.main()
