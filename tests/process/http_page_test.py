"""The page of specd-http, and an EventSource, in a Chromium without a window.

Without Chromium it exits with 77, skipped. SPECD_PAGE_SHOT=FILE leaves a picture of the page there.
"""

import json
import os
import sys
import unittest

from http_support import HttpCase
from support import SOURCE, wait_until

sys.path.insert(0, str(SOURCE / "tests/tools"))
import chromium

PROMPTS = ["The daemon", "A round", "The engine", "A draft token"]


class PageTest(HttpCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = chromium.Chromium(1240, 760)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        super().setUp()
        self.running = self.daemon()
        self.start_http()
        self.origin = f"http://127.0.0.1:{self.port}"

    def open(self):
        self.browser.open(self.origin + "/")

    def js(self, script):
        return self.browser.run(script)

    def card(self, name, part):
        """Of the card of a request: all of its text, or the text of its marks."""
        return self.js(f"""[...document.querySelectorAll('article')].filter(
            (card) => card.dataset.rid === {json.dumps(name)}).map((card) =>
                [...card.querySelectorAll('{part}')].map((each) => each.textContent).join(''))[0]""")

    def test_it_shows_streams_while_they_run_and_marks_accepted_drafts(self):
        client = self.client(f"--streams={len(PROMPTS)}")
        self.open()
        engine = self.engine(f"--prompt={'|'.join(PROMPTS)}", "--print=none", "--temperature=0", "--max_tokens=90",
                             "--forward_ms=150", "--stop=. |tokens. ")
        wait_until(lambda: self.js("document.querySelectorAll('.running').length") == len(PROMPTS), "the cards")
        sizes = []
        for _ in range(2):
            seen = len(self.card(PROMPTS[0], ".text"))
            wait_until(lambda: len(self.card(PROMPTS[0], ".text")) > seen or not engine.running(), "more text")
            sizes.append(len(self.card(PROMPTS[0], ".text")))
        self.assertLess(sizes[0], sizes[1])  # it grows while it is looked at
        shot = os.environ.get("SPECD_PAGE_SHOT")
        if shot:
            wait_until(lambda: 0 < self.js("document.querySelectorAll('.stop').length"), "a text that stopped")
            self.browser.screenshot(shot)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        wait_until(lambda: self.js("document.querySelectorAll('.running').length") == 0, "the ends")
        texts, ends = self.texts(client), self.ends(client)
        accepted = {name: "" for name in PROMPTS}
        for event in self.events(client):
            text = event.get("text", "").encode()
            for size, kind in event.get("spans", ()):
                accepted[event["rid"]] += text[:size].decode() if kind & 1 else ""
                text = text[size:]
        for name in PROMPTS:
            self.assertEqual(self.card(name, ".text"), texts[name])
            self.assertEqual(self.card(name, "mark"), accepted[name])
            if isinstance(ends[name]["stop"], str):
                self.assertIn(f"stopped before {json.dumps(ends[name]['stop'])}", self.card(name, ".end"))
        self.assertTrue(any(accepted.values()))
        self.assertIn("stop", {end["finish"] for end in ends.values()})
        self.assertEqual(self.browser.problems(), [f"request: {self.origin}/v1/streams"])
        self.stop(self.running)

    def test_accepted_drafts_of_a_thought_are_marked_too(self):
        self.open()
        self.js("""take({kind: 'text', rid: 'thinks', byte_offset: 0, tokens: 4, text: 'abcd',
                         spans: [[1, 0], [1, 1], [1, 2], [1, 3]]})""")
        self.assertEqual(self.card("thinks", ".text"), "abcd")
        self.assertEqual(self.card("thinks", "mark"), "bd")
        self.assertIn("50 %", self.card("thinks", "footer"))
        self.stop(self.running)

    def test_texts_and_names_are_no_markup(self):
        name = "<img src=x onerror=alert(1)>"
        engine = self.engine(f"--prompt={name}", "--print=none", "--max_tokens=5")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.open()
        wait_until(lambda: self.js("document.querySelectorAll('article').length") == 1, "the card")
        self.assertEqual(self.card(name, "h2"), name)
        self.assertEqual(self.js("document.querySelectorAll('article img').length"), 0)
        self.stop(self.running)

    def test_an_event_source_goes_on_by_itself_and_ends(self):
        client = self.client("--streams=1")
        self.open()
        engine = self.engine(f"--prompt={PROMPTS[0]}", "--print=none", "--max_tokens=200", "--forward_ms=50",
                             self.endless_text())
        url = self.path(PROMPTS[0], format="specd")
        self.js(f"""(() => {{
            window.got = {{text: '', opened: 0}};
            window.source = new EventSource({json.dumps(url)});
            source.onopen = () => got.opened += 1;
            source.onmessage = (event) => got.text += JSON.parse(event.data).text ?? ''; }})()""")
        wait_until(lambda: len(self.js("got.text")) > 20 or not engine.running(), "some text")
        self.kill(self.http)
        self.start_http(listen=f"127.0.0.1:{self.port}")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        wait_until(lambda: self.js("source.readyState") == 2, "the EventSource to close")  # by 204
        self.assertEqual(self.js("got.text"), self.texts(client)[PROMPTS[0]])
        self.assertEqual(self.js("got.opened"), 2)
        self.stop(self.running)


if __name__ == "__main__":
    if chromium.find() is None:
        print(f"skipped: there is no Chromium; {chromium.INSTALL}")
        sys.exit(77)
    unittest.main()
