"""What a trace may hold, and the page of `specd-replay report`: hostile, absent and large data.

report_page_test.py says how to run it and what it needs.
"""

import pathlib

from report_page_data import REFUSED, PLAIN, REJECTED, ReportData
from report_page_support import FOLDER, FRAMES, PageTestCase, add_step, main, one_step


class PageLimitsTest(PageTestCase):
    def test_the_example_of_the_description(self):
        text = (FOLDER / "DATA.md").read_text(encoding="utf-8")
        data = ReportData()
        data.as_json = lambda: text.split("```json\n")[1].split("```")[0]
        self.show(data)
        self.browser.click('#text [data-k="1"]')
        self.assertEqual(self.text_of("#panel_kind"), "replacement")
        self.assertEqual(self.text_of("#panel_why"), "Another id is the argmax.")
        self.assertEqual(self.text_of(".places del, .places .draft"), "\u00b7dog")

    def test_hostile_text_is_shown_and_runs_nothing(self):
        hostile = ["</script><script>window.ran = 1</script>",
                   "<img src=x onerror='window.ran = 2'>",
                   "<!-- <script>", "\u202egnp.exe\u202c", "\0", "\x1b[31m", "\u2028", "\ufeff",
                   "@SPECD_REPORT_DATA@", "${window.ran = 3}", "&lt;b&gt;", "שלום",
                   "\U000e0041"]
        data = ReportData()
        data.warnings.append(hostile[1])
        text = data.text
        data.add("sequences", request_id=text(hostile[0]), handle=text(hostile[1]),
                 method=text("token"), seed="1", params={hostile[1]: hostile[0]}, rounds=1,
                 tokens=len(hostile), drafted=0, accepted=0)
        add_step(data, [(piece, PLAIN) for piece in hostile])
        decision = data.add("decisions", step=0, place=0, draft_id=1, draft_text=text(hostile[1]),
                            p=0.5, q=0, accept_coin=0.5, verdict=REFUSED, why=text(hostile[0]))
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

    def test_the_policy_forbids_requests_and_handlers(self):
        self.show(one_step([("a", PLAIN)]))
        for action, directive in (
                ("new Image().src = 'http://localhost:9/x.png'", "img-src"),
                ("fetch('http://localhost:9/x').catch(() => 0)", "connect-src"),
                ("document.body.setAttribute('onclick', 'window.ran = 1')", "script-src-attr")):
            self.assertEqual(self.run_js(f"""new Promise((done) => {{
                addEventListener('securitypolicyviolation',
                    (event) => done(event.effectiveDirective), {{once: true}});
                {action};
                setTimeout(() => done('nothing'), 5000); }})"""), directive)
        self.assertIsNone(self.run_js("document.body.click(), window.ran"))

    def test_bytes_of_a_character_meet(self):
        whale = "\U0001f433".encode()
        euro = "€".encode()
        pieces = [" a", whale[:1], whale[1:3], whale[3:] + b"!", b"\xff", "é".encode()[:1], " b",
                  euro[:1], euro[1:]]
        data = one_step([(piece if isinstance(piece, str)
                          else piece.decode("utf-8", "surrogateescape"), PLAIN)
                         for piece in pieces])
        self.show(data)
        shown = [self.text_of(f'#text [data-k="{k}"]') for k in range(len(pieces))]
        self.assertEqual(shown, [" a", "F0", "9F90", "\U0001f433!", "FF", "C3", " b", "E2", "€"])
        self.search(" a\U0001f433")
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
        print(f"\n    {what}: ready {opened:.0f} ms after navigation, painted {painted:.0f} ms; "
              f"to the second frame after a click {click:.0f} ms, a sort {sort:.0f} ms, "
              f"a scroll {scroll:.0f} ms")

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


if __name__ == "__main__":
    main()
