"""The acceptance that the report page shows: figures, charts, causes, and the key of its numbers.

Without Chromium it exits with 77, skipped. The data is made here (report_page_data.py). By hand:
    python3 tests/tools/report_acceptance_test.py -v
SPECD_REPORT_SHOTS=FOLDER leaves a screenshot there.
"""

from report_page_data import ACCEPTED, BAD_ROW, CAUSES, CUT, NOT_JUDGED, REJECTED, TAKEN, WITH_BLOCK
from report_page_support import PageTestCase, main, one_step


class AcceptanceTest(PageTestCase):
    def steps_with_draft(self, data):
        steps = data.tables["steps"]
        return [i for i, drafted in enumerate(steps["drafted"]) if drafted > 0]

    def test_the_head_has_the_figures_of_the_decisions(self):
        data = self.prose(1, [300, 200])
        self.show(data)
        steps, decisions = data.tables["steps"], data.tables["decisions"]
        mine = self.steps_with_draft(data)
        accepted = sum(steps["judged_accepted"][i] for i in mine)
        self.assertEqual(self.text_of("#per_round"), f"{accepted / len(mine):.2f}")
        judged = [v == TAKEN for v, draft in zip(decisions["verdict"], decisions["draft_id"])
                  if draft is not None]
        self.assertEqual(self.text_of("#rate"), f"{100 * sum(judged) / len(judged):.1f} %")
        chances = [min(1, p / q) for p, q in zip(decisions["p"], decisions["q"]) if q]
        self.assertTrue(self.text_of("#expected").startswith(
            f"{100 * sum(chances) / len(chances):.1f} % \u00b1"), self.text_of("#expected"))
        for place in range(3):
            here = [v == TAKEN for v, draft, at in
                    zip(decisions["verdict"], decisions["draft_id"], decisions["place"])
                    if draft is not None and at == place]
            self.assertEqual(self.text_of(f"#rates li:nth-child({place + 1}) .share"),
                             f"{100 * sum(here) / len(here):.0f}")
        causes = [data.as_object()["strings"][c] for c in data.tables["rejected"]["cause"]
                  if c is not None]
        shown = self.text_of("#reasons")
        for cause in CAUSES:
            self.assertIn(f"{cause} {causes.count(cause)}", shown)
        self.shot("head")

    def test_a_token_that_the_finish_rules_drop_counts_as_accepted(self):
        """Bug: the chart by place counted kept drafts, and `stats` judged ones."""
        data = one_step([("a", ACCEPTED)])
        steps = data.tables["steps"]
        steps["drafted"], steps["accepted"], steps["judged_accepted"] = [3], [1], [3]
        self.show(data)
        label = self.run_js("document.getElementById('heat_map').getAttribute('aria-label')")
        self.assertEqual(label, "Acceptance by place: place 0 100.0 %, place 1 100.0 %, "
                         "place 2 100.0 %")
        self.assertEqual(self.text_of("#per_round"), "3.00")

    def test_an_expectation_of_a_part_stands_beside_the_rate_of_that_part(self):
        """Bug: the page set it beside the rate of all."""
        data = one_step([("a", ACCEPTED)])
        data.tables["steps"]["drafted"] = [2]
        part = {"reached": 200, "accepted": 160, "known": 100, "accepted_of_known": 30, "expected": .31,
                "error": .02}
        whole = {**part, "known": 200, "accepted_of_known": 160, "expected": .79}
        none = {**part, "known": 0, "accepted_of_known": 0, "expected": None, "error": None}
        data.said = {"acceptance": part,
                     "places": [{"place": i, **(part, whole, none)[i % 3]} for i in range(27)]}
        self.show(data)
        self.assertEqual(self.text_of("#rate"), "80.0 %")
        self.assertEqual(self.text_of("#expected"), "of the 100 whose probability is known 30.0 % were "
                         "accepted, 31.0 % \u00b1 2.0 % expected")
        for place, ticks in ((1, 0), (2, 1), (3, 0)):
            self.assertEqual(self.count(f"#rates li:nth-child({place}) .tick"), ticks)
        self.assertEqual(self.count("#rates li"), 24)
        self.assertIn("and 3 other places", self.text_of("#acceptance"))

    def test_the_head_counts_what_was_judged(self):
        """Bugs: it had drafts that no walk reached, and those whose row was bad."""
        data = one_step([("a", ACCEPTED)])
        steps = data.tables["steps"]
        steps["drafted"], steps["accepted"], steps["judged_accepted"], steps["reached"] = [5], [1], [1], [1]
        for place, fate, cause in ((1, BAD_ROW, None), (2, WITH_BLOCK, None), (3, REJECTED, "the coin"),
                                   *((4, REJECTED, f"cause {i}") for i in range(7))):
            data.add("rejected", step=0, place=place, id=3, text=data.text("b"), fate=fate,
                     cause=data.text(cause), cause_kind=None if cause is None else 0)
        self.show(data)
        self.assertEqual(self.count("#reasons li"), 6)
        self.assertIn("and 2 other causes", self.text_of("#acceptance"))
        self.assertNotIn("block", self.text_of("#acceptance"))
        buttons = self.run_js("[...document.querySelectorAll('#causes button')]"
                              ".map((button) => button.textContent)")
        self.assertIn("its row was bad 1", buttons)
        self.assertIn("rejected with its block 1", buttons)
        tips = self.run_js("""[0, 1].map((place) => {
            const canvas = document.getElementById('heat_map');
            const box = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2,
                clientY: box.top + (place + .5) * (box.height - 20) / 5}));
            return document.body.textContent.match(/of the (\\d+) that were reached/)[1]; })""")
        self.assertEqual(tips, ["1", "0"])

    def test_draft_tokens_are_coloured_and_filtered_by_cause(self):
        data = self.prose(2, [150])
        self.show(data)
        rejected, strings = data.tables["rejected"], data.as_object()["strings"]
        of_cause = {cause: sum(c is not None and strings[c] == cause for c in rejected["cause"])
                    for cause in CAUSES}
        self.assertGreater(min(of_cause.values()), 3)
        buttons = self.run_js("[...document.querySelectorAll('#causes button')]"
                              ".map((button) => button.textContent)")
        for cause, number in of_cause.items():
            self.assertIn(f"rejected: {cause} {number}", buttons)
        top_k = next(i for i, text in enumerate(buttons) if "top_k" in text) + 1
        coin = next(i for i, text in enumerate(buttons) if "coin" in text) + 1
        self.browser.click(f"#causes button:nth-child({top_k})")  # alone
        self.assertEqual(self.count("#text del"), of_cause["p is 0: top_k"])
        self.assertEqual(self.run_js("document.querySelector('#text del').title"),
                         "rejected: p is 0: top_k")
        self.browser.click(f"#causes button:nth-child({coin})")
        self.assertEqual(self.count("#text del"), sum(of_cause.values()))
        colours = {tuple(pair) for pair in self.run_js(
            """[...document.querySelectorAll('#text del')].map((draft) =>
            [draft.title, getComputedStyle(draft).color])""")}
        self.assertEqual(len(colours), 2, colours)
        self.assertEqual(len({colour for _, colour in colours}), 2, colours)
        self.browser.click(f"#causes button:nth-child({top_k})")
        self.assertEqual(self.count("#text del"), of_cause["the coin"])
        row = rejected["fate"].index(NOT_JUDGED)  # a link to a hidden one shows all again
        self.run_js(f"location.hash = '#sequence=0&draft={row}'")
        self.browser.settle()
        self.assertEqual(self.count("#text del"), len(rejected["fate"]))
        self.assertEqual(self.text_of("#panel_cause"), "not judged")
        for fate in (REJECTED, NOT_JUDGED, CUT):
            self.assertEqual(self.count(f"#text del.fate{fate}"), rejected["fate"].count(fate))

    def test_the_key_says_what_the_numbers_are(self):
        data = self.prose(3, [60])
        self.show(data)
        self.browser.click("#key summary")
        names = self.run_js("[...document.querySelectorAll('#key dt')].map((t) => t.textContent)")
        self.assertEqual(names[:5], ["x", "p", "q", "u", "p / q"])
        self.assertIn("target", self.text_of("#key dd:nth-of-type(2)"))
        k = data.tables["tokens"]["kind"].index(ACCEPTED)
        self.browser.click(f'#text [data-k="{k}"]')
        hints = self.run_js("""Object.fromEntries([...document.querySelectorAll('#panel .hint')]
            .map((hint) => [hint.textContent, hint.title]))""")
        self.assertIn("target", hints["p(x)"])
        self.assertIn("drafter", hints["q(x)"])
        self.assertIn("accept coin", hints["u"])

    def test_the_verify_time_has_a_lane_of_its_own(self):
        self.show(self.prose(4, [400]))
        rows = self.run_js("""(() => {
            const canvas = document.getElementById('timeline');
            const scale = canvas.height / parseFloat(canvas.style.height);
            const {data, width, height} = canvas.getContext('2d')
                .getImageData(0, 0, canvas.width, canvas.height);
            const rowsOf = (name) => {
              const probe = document.getElementById('colour_probe');
              probe.style.color = `var(--${name})`;
              const want = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
              const rows = [];
              for (let y = 0; y < height; ++y) {
                for (let x = 0; x < width; ++x) {
                  const at = 4 * (y * width + x);
                  if (want.every((value, c) => Math.abs(value - data[at + c]) < 12)) {
                    rows.push(y / scale);
                    break;
                  }
                }
              }
              return [Math.min(...rows), Math.max(...rows)];
            };
            return {bars: rowsOf('drafted'), line: rowsOf('line')}; })()""")
        self.assertGreater(rows["line"][0], rows["bars"][1], rows)
        self.assertGreater(rows["line"][1] - rows["line"][0], 5, rows)


if __name__ == "__main__":
    main()
