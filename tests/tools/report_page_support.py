"""What the tests of the report page share: a browser, pages with made data, and their parts."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import chromium
from report_page_data import ACCEPTED, Generator, ReportData, pieces_of

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = SOURCE / "tools" / "replay" / "report"
PROSE = """Each draft token is judged in its order. A token stands while its coin is below the ratio
of the two probabilities, and the first token that falls is replaced from what the target has left.
After a whole draft has passed, one more token is drawn as a bonus.
"""


class PageTestCase(unittest.TestCase):
    """Opens pages in one browser."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="specd-report-")
        template = pathlib.Path(cls.folder.name) / "template.html"
        subprocess.run([os.environ.get("SPECD_CMAKE", "cmake"), f"-DPAGE={template}", "-P",
                        str(FOLDER / "assemble.cmake")], check=True)
        cls.template = template.read_text(encoding="utf-8")
        cls.browser = chromium.Chromium()
        cls.browser.resize(1400, 1000)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def show(self, data, link=""):
        """Opens the page with the data, and fails if it complains."""
        path = pathlib.Path(self.folder.name) / "report.html"
        before, after = self.template.split("@SPECD_REPORT_DATA@")
        path.write_text(before + data.as_json() + after, encoding="utf-8")
        self.browser.open(path.as_uri() + link)
        self.assertEqual(self.run_js("document.documentElement.dataset.ready"), "true",
                         self.run_js("document.getElementById('failure').textContent"))
        self.assertEqual(self.browser.problems(), [])

    def run_js(self, script):
        return self.browser.run(script)

    def text_of(self, selector):
        return self.run_js(f"document.querySelector({json.dumps(selector)})?.textContent")

    def title_of(self, selector):
        return float(self.run_js(f"document.querySelector({json.dumps(selector)}).title"))

    def count(self, selector):
        return self.run_js(f"document.querySelectorAll({json.dumps(selector)}).length")

    def link(self):
        return self.run_js("location.hash")

    def shot(self, name):
        folder = os.environ.get("SPECD_REPORT_SHOTS")
        if folder:
            self.browser.screenshot(os.path.join(folder, f"{name}.png"))

    def prose(self, seed, lengths, **options):
        generator = Generator(seed, pieces_of(PROSE), **options)
        for i, length in enumerate(lengths):
            generator.add_sequence(f"request-{i}", length, temperature=0.8)
        generator.run()
        return generator.data

    def search(self, query):
        self.run_js("document.getElementById('query').select()")
        self.browser.type(query)
        self.run_js("new Promise((done) => setTimeout(done, 200))")

    def show_object(self, data):
        """Shows tables of which some are missing."""
        document = {"version": 1, "trace": {"file": "t", "warnings": []},
                    "strings": list(data.strings), **data.tables}
        data.as_json = lambda: json.dumps(document).replace("<", "\\u003c")
        self.show(data)


FRAMES = "for (let i = 0; i < 2; ++i) await new Promise(requestAnimationFrame);"


def hits(number):
    return f"{number} hit" + ("" if number == 1 else "s")


def add_step(data, tokens, method="token"):
    """One step of sequence 0 with tokens [(text, kind)]."""
    accepted = sum(kind == ACCEPTED for _, kind in tokens)
    step = data.add("steps", sequence=0, round=0, time_ms=0.5, verify_us=12.5, base=0,
                    method=data.text(method), drafted=accepted, accepted=accepted,
                    kept=len(tokens), status=data.text("ok"))
    for i, (piece, kind) in enumerate(tokens):
        data.add("tokens", step=step, id=i, text=data.text(piece), kind=kind)
    return step


def one_step(tokens, method="token"):
    data = ReportData()
    data.add("sequences", request_id=data.text("one"), handle=data.text("0x1"),
             method=data.text(method), seed="1", params={}, rounds=1, tokens=len(tokens), drafted=0,
             accepted=0)
    add_step(data, tokens, method)
    return data


def contrast(colour, ground):
    """WCAG 2.1's contrast ratio of two colours rgb(r, g, b)."""
    def luminance(text):
        parts = [float(part) / 255 for part in text[text.index("(") + 1:-1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    low, high = sorted((luminance(colour), luminance(ground)))
    return (high + 0.05) / (low + 0.05)


def main():
    if chromium.find() is None:
        print(f"skipped: no Chromium; install it: {chromium.INSTALL}")
        sys.exit(77)
    unittest.main()
