"""The page of `specd-replay report` in Chromium without a window; exits with 77, skipped, without it.

The data is made here (report_page_data.py), so nothing of specd has to be built. By hand:
    python3 tests/tools/report_page_test.py -v
SPECD_REPORT_SHOTS=FOLDER leaves screenshots there.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import chromium
from report_page_data import (ACCEPTED, BONUS, CUT, ENDS, FALLS, FORCED, NOT_JUDGED, PLAIN,
                              REJECTED, REPLACEMENT, STANDS, Generator, ReportData, pieces_of)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = SOURCE / "tools" / "replay" / "report"
KINDS = ("accepted", "replacement", "bonus", "plain", "forced")
PROSE = """Each draft token is judged in its order. A token stands while its coin is below the ratio
of the two probabilities, and the first token that falls is replaced from what the target has left.
After a whole draft has passed, one more token is drawn as a bonus.
"""


class PageTest(unittest.TestCase):
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

    # ---- the text

    def test_each_token_has_the_style_of_its_kind(self):
        data = self.prose(1, [120, 90])
        self.show(data)
        tokens, steps = data.tables["tokens"], data.tables["steps"]
        mine = [i for i, step in enumerate(tokens["step"]) if steps["sequence"][step] == 0]
        for kind, name in enumerate(KINDS):
            expected = sum(tokens["kind"][i] == kind for i in mine)
            self.assertEqual(self.count(f"#text .{name}"), expected, name)
        written = "".join(data.as_object()["strings"][tokens["text"][i]] for i in mine)
        shown = self.run_js("""(() => { const copy = document.getElementById('text').cloneNode(true);
            copy.querySelectorAll('.gutter, .mark').forEach((element) => element.remove());
            return copy.textContent; })()""")
        self.assertEqual(shown, written)

    def test_kinds_differ_without_colour_and_are_readable(self):
        data = one_step([("a", kind) for kind in range(5)])
        for scheme in ("light", "dark"):
            self.browser.prefer(scheme)
            self.show(data)
            lines = self.run_js("""['accepted', 'replacement', 'bonus', 'plain', 'forced'].map((kind) => {
                const style = getComputedStyle(document.querySelector(`#text .${kind}`));
                return `${style.textDecorationLine} ${style.textDecorationStyle}`; })""")
            self.assertEqual(len(set(lines)), 5, lines)
            pairs = self.run_js("""[...document.querySelectorAll(
                '#text .t, .muted, .facts dt, .facts dd, th button, td, h2, .choice label, .gutter')]
                .filter((element) => element.offsetParent).map((element) => {
                  let ground = element;
                  while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') {
                    ground = ground.parentElement; }
                  return [element.className || element.tagName, getComputedStyle(element).color,
                          getComputedStyle(ground).backgroundColor]; })""")
            for name, colour, ground in pairs:
                self.assertGreaterEqual(contrast(colour, ground), 4.5, (scheme, name))
        self.browser.prefer("light")

    def test_rejected_drafts_are_shown_on_demand(self):
        data = self.prose(2, [150])
        self.show(data)
        self.assertEqual(self.count("#text del"), 0)
        self.browser.click("#show_rejected")
        for fate in (REJECTED, NOT_JUDGED, CUT):
            self.assertEqual(self.count(f"#text del.fate{fate}"),
                             data.tables["rejected"]["fate"].count(fate))
        self.browser.click("#show_rejected")
        self.assertEqual(self.count("#text del"), 0)

    def test_missing_tokens_leave_a_gap(self):
        data = one_step([("a", PLAIN), ("b", PLAIN)])
        data.tables["steps"]["base"] = [7]
        self.show(data)
        self.assertEqual(self.text_of("#text .gap"), "7 earlier tokens")

    # ---- the panel

    def test_the_panel_shows_the_numbers_of_the_token(self):
        data = self.prose(3, [200])
        self.show(data)
        tokens, decisions = data.tables["tokens"], data.tables["decisions"]
        strings = data.as_object()["strings"]
        for kind in (ACCEPTED, REPLACEMENT, BONUS):
            k = [k for k, value in enumerate(tokens["kind"]) if value == kind][5]
            d = tokens["decision"][k]
            self.browser.click(f'#text [data-k="{k}"]')
            self.assertEqual(self.text_of("#panel_kind"), KINDS[kind])
            self.assertEqual(self.text_of("#panel_why"), strings[decisions["why"][d]])
            self.assertEqual(self.link(), f"#sequence=0&token={k}")
            if kind == BONUS:
                self.assertIsNone(self.text_of("#panel_p"))
                self.assertEqual(self.title_of("#panel_draw_coin"), decisions["draw_coin"][d])
                continue
            p, q, coin = (decisions[name][d] for name in ("p", "q", "accept_coin"))
            self.assertEqual(self.title_of("#panel_p"), p)
            self.assertEqual(self.title_of("#panel_q"), q)
            self.assertEqual(self.title_of("#panel_coin"), coin)
            self.assertEqual(self.title_of("#panel_threshold"), min(1, p / q))
            self.assertEqual(coin < min(1, p / q), kind == ACCEPTED)
            self.assertEqual(self.count("#panel .candidates tr"),
                             data.tables["candidates"]["decision"].count(d))
            if kind == REPLACEMENT:
                self.assertEqual(self.run_js("document.getElementById('panel_interval').title"),
                                 f"[{decisions['draw_low'][d]!r}, {decisions['draw_high'][d]!r})")
        self.shot("panel")

    def test_a_rejected_draft_opens_its_own_decision(self):
        data = self.prose(4, [100])
        self.show(data)
        self.browser.click("#show_rejected")
        row = data.tables["rejected"]["fate"].index(REJECTED)
        decision = data.tables["rejected"]["decision"][row]
        self.browser.click(f'#text [data-draft="{row}"]')
        self.assertEqual(self.title_of("#panel_p"), data.tables["decisions"]["p"][decision])
        self.assertEqual(self.text_of("#panel_kind"), "rejected")
        row = data.tables["rejected"]["fate"].index(NOT_JUDGED)
        self.browser.click(f'#text [data-draft="{row}"]')
        self.assertIsNone(self.text_of("#panel_p"))
        self.assertIn("nothing was decided", self.text_of("#panel"))

    def test_block_draws_the_threshold_at_its_bound(self):
        data = one_step([("a", ACCEPTED)], method="block")
        data.add("decisions", step=0, place=0, draft_id=1, draft_kind=2, p=0.25, q=0.5,
                 accept_coin=0.625, prefix=1, bound=0.75, verdict=STANDS, token=1)
        data.tables["tokens"]["decision"] = [0]
        self.show(data)
        self.browser.click('#text [data-k="0"]')
        self.assertEqual(self.title_of("#panel_threshold"), 0.75)
        self.assertEqual(self.text_of("#panel_ratio"), "0.5000")
        self.assertIn("0.6250 < h = 0.7500", self.text_of("#panel"))

    # ---- keys, search, picker, link

    def test_keys(self):
        data = self.prose(5, [300])
        kept = data.tables["steps"]["kept"]
        self.show(data)
        self.browser.press("ArrowRight")
        self.assertEqual(self.link(), "#sequence=0&token=0")
        self.browser.press("ArrowRight")
        self.browser.press("ArrowRight")
        self.browser.press("ArrowLeft")
        self.assertEqual(self.link(), "#sequence=0&token=1")
        self.assertEqual(self.run_js("document.activeElement.dataset.k"), "1")
        starts = [sum(kept[:step]) for step in range(4)]
        step = 0 if kept[0] > 1 else 1  # of token 1
        self.browser.press("ArrowDown")
        self.assertEqual(self.link(), f"#sequence=0&token={starts[step + 1]}")
        self.browser.press("ArrowUp")
        self.assertEqual(self.link(), f"#sequence=0&token={starts[step]}")
        self.browser.press("Escape")
        self.assertTrue(self.run_js("document.getElementById('panel').hidden"))
        self.browser.press("/")
        self.assertEqual(self.run_js("document.activeElement.id"), "query")
        self.assertEqual(self.run_js("document.getElementById('query').value"), "")

    def test_search_finds_text_and_ids(self):
        data = self.prose(6, [400, 200])
        self.show(data)
        strings = data.as_object()["strings"]
        tokens, steps = data.tables["tokens"], data.tables["steps"]
        texts = [[], []]
        ids = [[], []]
        for step, text, token in zip(tokens["step"], tokens["text"], tokens["id"]):
            texts[steps["sequence"][step]].append(strings[text])
            ids[steps["sequence"][step]].append(token)
        self.search("the target has")  # crosses tokens
        first, second = ("".join(text).lower().count("the target has") for text in texts)
        self.assertEqual(self.text_of("#hits"), f"{first} hits")
        self.browser.press("Enter")
        self.assertEqual(self.text_of("#hits"), f"1 of {first}")
        at = "".join(texts[0]).index("the target has")
        expected = next(k for k in range(len(texts[0])) if len("".join(texts[0][: k + 1])) > at)
        self.assertEqual(self.link(), f"#sequence=0&token={expected}")
        self.assertEqual(self.run_js(
            "[...document.querySelectorAll('#text .now')].map((t) => t.textContent).join('')"),
            " the target has")
        self.browser.press("Enter", modifiers=8)  # Shift: the hit before, which is the last
        self.assertEqual(self.text_of("#hits"), f"{first} of {first}")
        self.browser.click("#everywhere")
        self.assertEqual(self.text_of("#hits"), f"{first + second} hits")
        wanted = ids[0][10]
        self.search(f"id:{wanted}")
        self.assertEqual(self.text_of("#hits"), hits(sum(i.count(wanted) for i in ids)))
        self.search("no such text")
        self.assertEqual(self.text_of("#hits"), "no hit")
        self.assertEqual(self.count("#text .hit"), 0)

    def search(self, query):
        self.run_js("document.getElementById('query').select()")
        self.browser.type(query)
        self.run_js("new Promise((done) => setTimeout(done, 200))")

    def test_the_picker(self):
        data = self.prose(7, [30, 60, 45])
        self.show(data)
        self.browser.click("#sequence_table th:nth-child(5) button")  # tokens, largest first
        names = "[...document.querySelectorAll('#sequence_table tbody td:first-child')].map((c) => c.textContent)"
        self.assertEqual(self.run_js(names), ["request-1", "request-2", "request-0"])
        self.browser.click("#sequence_table tbody tr:nth-child(2) button")
        self.assertEqual(self.link(), "#sequence=2")
        self.assertEqual(self.count("#text [data-k]"), 45)
        self.assertEqual(self.text_of(".request"), "request-2")
        self.assertEqual(self.text_of("#sequence_table tr.chosen td"), "request-2")
        self.run_js("document.getElementById('sequence_filter').focus()")
        self.browser.type("quest-1")
        self.browser.settle()
        self.assertEqual(self.run_js(names), ["request-1"])
        self.assertEqual(self.text_of("#sequence_count"), "1 of 3 sequences")

    def test_a_link_restores_the_choice(self):
        data = self.prose(8, [50, 2000])
        self.show(data, "#sequence=1&token=1500")
        self.assertEqual(self.text_of(".request"), "request-1")
        self.assertEqual(self.run_js("document.querySelector('#text .chosen').dataset.k"), "1500")
        box = self.run_js("(() => { const box = document.querySelector('#text .chosen')"
                          ".getBoundingClientRect(); return [box.top, box.bottom]; })()")
        self.assertTrue(0 < box[0] < box[1] < 1000, box)
        self.run_js("location.hash = '#sequence=0&token=3'")
        self.browser.settle()
        self.assertEqual(self.run_js("document.querySelector('#text .chosen').dataset.k"), "3")
        self.show(data, "#sequence=99&token=-1")  # foreign numbers: the first sequence
        self.assertEqual(self.text_of(".request"), "request-0")

    # ---- the charts

    def test_the_timeline_zooms_and_opens_rounds(self):
        data = self.prose(9, [600])
        self.show(data)
        box = self.run_js("(() => { const box = document.getElementById('timeline')"
                          ".getBoundingClientRect(); return [box.left, box.top, box.width]; })()")
        plot = box[2] - 46 - 58

        def mouse(kind, part):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=box[0] + 46 + plot * part,
                              y=box[1] + 60, button="left", buttons=1, clickCount=1)

        mouse("mousePressed", 0.25)
        mouse("mouseMoved", 0.4)
        mouse("mouseMoved", 0.5)
        mouse("mouseReleased", 0.5)
        self.browser.settle()
        rounds = data.as_object()["trace"]["rounds"]
        first, last = (int(word) for word in self.text_of("#window").replace("rounds ", "")
                       .split(" to "))
        self.assertAlmostEqual(first, rounds * 0.25, delta=2)
        self.assertAlmostEqual(last, rounds * 0.5, delta=2)
        mouse("mousePressed", 0.5)
        mouse("mouseReleased", 0.5)
        self.browser.settle()
        middle = self.run_js("document.querySelector('#panel section:last-child dd').textContent")
        self.assertAlmostEqual(int(middle.split(" ")[0]), rounds * 0.375, delta=2)
        label = self.run_js("document.getElementById('heat_map').getAttribute('aria-label')")
        self.assertIn("place 0", label)
        self.browser.click("#zoom_reset")
        self.assertEqual(self.text_of("#window"), "")
        self.browser.click("label[for=axis_time]")
        self.browser.click("label[for=scope_one]")
        self.assertEqual(self.browser.problems(), [])

    # ---- hostile data, sizes

    def test_hostile_text_is_shown_and_runs_nothing(self):
        hostile = ["</script><script>window.ran = 1</script>", "<img src=x onerror='window.ran = 2'>",
                   "<!-- <script>", "\u202egnp.exe\u202c", "\0", "\x1b[31m", "\u2028", "\ufeff",
                   "@SPECD_REPORT_DATA@", "${window.ran = 3}", "&lt;b&gt;", "שלום", "\U000e0041"]
        data = ReportData()
        data.warnings.append(hostile[1])
        text = data.text
        data.add("sequences", request_id=text(hostile[0]), handle=text(hostile[1]),
                 method=text("token"), seed="1", params={hostile[1]: hostile[0]}, rounds=1,
                 tokens=len(hostile), drafted=0, accepted=0)
        add_step(data, [(piece, PLAIN) for piece in hostile])
        decision = data.add("decisions", step=0, place=0, draft_id=1, draft_text=text(hostile[1]),
                            p=0.5, q=0, accept_coin=0.5, verdict=FALLS, why=text(hostile[0]))
        data.add("candidates", decision=decision, id=1, text=text(hostile[1]), p=0.5, forbidden=1)
        data.add("grammar", decision=decision, state=hostile[1], mask=hostile[0], allowed=1)
        data.add("rejected", step=0, place=0, id=-5, text=text(hostile[1]), fate=REJECTED,
                 decision=decision)
        data.tables["tokens"]["decision"] = [decision] * len(hostile)
        self.show(data)
        self.browser.click("#show_rejected")
        self.browser.click('#text [data-k="0"]')
        self.search("onerror")
        self.assertEqual(self.text_of("#hits"), "1 hit")
        self.assertEqual(self.browser.problems(), [])
        self.assertIsNone(self.run_js("window.ran"))
        self.assertEqual(self.count("img, main script, iframe"), 0)
        shown = [self.text_of(f'#text [data-k="{k}"]') for k in range(len(hostile))]
        self.assertEqual(shown, hostile[:3] + [
            "U+202Egnp.exeU+202C", "\u2400", "\u241b[31m", "U+2028", "U+FEFF"] + hostile[8:12] +
            ["U+E0041"])
        self.assertEqual(self.text_of(".request"), hostile[0])
        self.assertEqual(self.text_of(".warnings li"), hostile[1])

    def test_bytes_of_a_character_meet(self):
        whale = "\U0001f433".encode()
        pieces = [" a", whale[:1], whale[1:3], whale[3:] + b"!", b"\xff", "é".encode()[:1], " b"]
        data = one_step([(piece if isinstance(piece, str)
                          else piece.decode("utf-8", "surrogateescape"), PLAIN)
                         for piece in pieces])
        self.show(data)
        shown = [self.text_of(f'#text [data-k="{k}"]') for k in range(len(pieces))]
        self.assertEqual(shown, [" a", "F0", "9F90", "\U0001f433!", "FF", "C3", " b"])
        self.search("\U0001f433")
        self.assertEqual(self.text_of("#hits"), "1 hit")

    def test_absent_columns_and_tables(self):
        data = one_step([("a", None)])
        for table in ("decisions", "candidates", "grammar", "rejected"):
            del data.tables[table]
        data.tables["tokens"] = {"step": [0]}
        self.show_object(data)
        self.browser.click('#text [data-k="0"]')
        self.assertEqual(self.text_of('#text [data-k="0"]'), "[?]")
        self.assertEqual(self.browser.problems(), [])
        empty = ReportData()
        for table in list(empty.tables):
            del empty.tables[table]
        self.show_object(empty)
        self.assertEqual(self.text_of("#sequence_count"), "0 sequences")

    def show_object(self, data):
        """Shows tables of which some are missing."""
        document = {"version": 1, "trace": {"file": "t", "warnings": []},
                    "strings": list(data.strings), **data.tables}
        data.as_json = lambda: json.dumps(document).replace("<", "\\u003c")
        self.show(data)

    def test_another_version_is_refused(self):
        path = pathlib.Path(self.folder.name) / "report.html"
        path.write_text(self.template.replace("@SPECD_REPORT_DATA@", '{"version": 2}'))
        self.browser.open(path.as_uri())
        self.assertIn("version 2", self.text_of("#failure"))
        self.assertTrue(self.run_js("document.getElementById('main').hidden"))

    def test_sizes(self):
        """100,000 tokens in one sequence; 1,000 sequences. The times are printed, not asserted."""
        self.show(self.prose(10, [100000], candidates=False))
        self.assertEqual(self.text_of(".facts div:nth-child(3) dd"), "100,000")
        self.assertLess(self.count("#text [data-k]"), 8000)
        self.report("100,000 tokens")
        for k in (50000, 99999):
            taken = self.run_js(f"""(async () => {{ const begin = performance.now();
                location.hash = '#sequence=0&token={k}';
                await new Promise((done) => addEventListener('hashchange', done, {{once: true}}));
                {FRAMES} return performance.now() - begin; }})()""")
            print(f"    jump to token {k:,}: {taken:.0f} ms")
            self.assertEqual(self.run_js("document.querySelector('#text .chosen').dataset.k"),
                             str(k))
        taken = self.run_js("(() => { const begin = performance.now(); const query ="
                            " document.getElementById('query'); query.value = 'the target has';"
                            " document.getElementById('everywhere').click();"
                            " return performance.now() - begin; })()")
        print(f"    search: {taken:.0f} ms, {self.text_of('#hits')}")
        self.show(self.prose(11, [100] * 1000, candidates=False))
        self.assertEqual(self.text_of("#sequence_count"), "1,000 sequences")
        self.browser.click("#more_sequences")
        self.assertEqual(self.count("#sequence_table tbody tr"), 1000)
        self.report("1,000 sequences of 100 tokens")

    def report(self, what):
        opened = self.run_js("performance.getEntriesByName('ready')[0].startTime")
        painted = self.run_js("performance.getEntriesByType('paint').at(-1)?.startTime ?? 0")
        click, sort, scroll = (self.run_js(f"""(async () => {{ const begin = performance.now();
            {action}; {FRAMES} return performance.now() - begin; }})()""") for action in (
                "document.querySelector('#text [data-k=\"40\"]').click()",
                "document.querySelector('#sequence_table th:nth-child(5) button').click()",
                "scrollBy(0, 4000)"))
        print(f"\n    {what}: ready {opened:.0f} ms after navigation, painted {painted:.0f} ms; to the "
              f"second frame after a click {click:.0f} ms, a sort {sort:.0f} ms, a scroll {scroll:.0f} ms")

    def test_print(self):
        self.show(self.prose(12, [3000]))
        answer = self.browser.call("Page.printToPDF")
        self.assertGreater(len(answer["data"]), 20000)
        self.assertEqual(self.browser.problems(), [])

    def test_narrow_window(self):
        try:
            self.browser.resize(480, 900)
            self.show(self.prose(13, [300, 200]))
            self.browser.click("#text .replacement")
            self.assertLessEqual(self.run_js("document.documentElement.scrollWidth"), 480)
            self.shot("narrow")
        finally:
            self.browser.resize(1400, 1000)


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


if __name__ == "__main__":
    if chromium.find() is None:
        print(f"skipped report_page_test: no Chromium; install it: {chromium.INSTALL}")
        sys.exit(77)
    unittest.main()
