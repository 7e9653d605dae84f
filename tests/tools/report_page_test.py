"""The page of `specd-replay report` in a Chromium without a window.

Without Chromium it exits with 77, skipped.
The data is made here (report_page_data.py), so nothing of specd has to be built. By hand:
    python3 tests/tools/report_page_test.py -v
SPECD_REPORT_SHOTS=FOLDER leaves screenshots there.
"""

from report_page_data import (ACCEPTED, BONUS, CUT, NOT_JUDGED, PLAIN, REJECTED, REPLACEMENT,
                              TAKEN)
from report_page_support import PageTestCase, contrast, hits, main, one_step

KINDS = ("accepted", "replacement", "bonus", "plain", "forced")


class PageTest(PageTestCase):
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
        shown = self.run_js("""(() => {
            const copy = document.getElementById('text').cloneNode(true);
            copy.querySelectorAll('.gutter, .mark').forEach((element) => element.remove());
            return copy.textContent; })()""")
        self.assertEqual(shown, written)

    def test_kinds_differ_without_colour_and_are_readable(self):
        data = one_step([("a", kind) for kind in range(5)])
        for scheme in ("light", "dark"):
            self.browser.prefer(scheme)
            self.show(data)
            lines = self.run_js(f"""{list(KINDS)}.map((kind) => {{
                const style = getComputedStyle(document.querySelector('#text .' + kind));
                return style.textDecorationLine + style.textDecorationStyle; }})""")
            self.assertEqual(len(set(lines)), 5, lines)
            self.browser.click('#text [data-k="0"]')
            pairs = self.run_js("""[...document.querySelectorAll(
                '#text .t, .muted, .facts dt, .facts dd, th button, td, h2, .choice label, ' +
                '.gutter, #panel dt, #panel dd, .places .t, #panel_kind, .warning, .chip')]
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
                 accept_coin=0.625, prefix=1, bound=0.75, verdict=TAKEN, token=1)
        data.tables["tokens"]["decision"] = [0]
        self.show(data)
        self.browser.click('#text [data-k="0"]')
        self.assertEqual(self.title_of("#panel_threshold"), 0.75)
        self.assertEqual(self.text_of("#panel_ratio"), "0.5000")
        self.assertIn("0.6250 < h = 0.7500", self.text_of("#panel"))

    def test_block_draws_no_threshold_without_its_bound(self):
        """p / q is no threshold of `block`."""
        data = one_step([("a", ACCEPTED)], method="block")
        data.add("decisions", step=0, place=0, draft_id=1, draft_kind=2, p=0.25, q=0.5,
                 accept_coin=0.625, prefix=1, bound=None, verdict=TAKEN, token=1)
        data.tables["tokens"]["decision"] = [0]
        self.show(data)
        self.browser.click('#text [data-k="0"]')
        self.assertEqual(self.title_of("#panel_coin"), 0.625)
        self.assertEqual(self.count("#panel_threshold"), 0)
        self.assertEqual(self.count("#panel .coin_line.accept .threshold"), 0)

    # ---- the tree

    def tree(self):
        """Method `tree`: a falls, b stands and d below it, c is not judged, and f is the bonus."""
        data = one_step([("b", ACCEPTED), ("d", ACCEPTED), ("f", BONUS)], method="tree")
        data.tables["steps"]["drafted"] = [6]
        facts = [  # node, parent, text, fate, p, q, bound, coin, row of rejected
            (1, None, "a", 1, 0.125, 0.5, 0.25, 0.75, 0),
            (0, None, "b", 0, 0.5, 0.25, 1, 0.625, None), (2, 0, "d", 0, 0.75, 0.5, 1, 0.375, None),
            (4, 0, "e", 2, 0.0625, 0.5, None, None, 2), (5, 4, "x", 3, None, None, None, None, None),
            (3, None, "c", 2, 0.25, 0.125, None, None, 1)]
        for node, parent, piece, fate, p, q, bound, coin, rejected in facts:
            data.add("nodes", step=0, node=node, parent=parent, rejected=rejected, id=node,
                     text=data.text(piece), kind=1, fate=fate, p=p, q=q, d=q, bound=bound, coin=coin)
        for place, node, piece, fate in ((0, 1, "a", 0), (0, 3, "c", 1), (1, 4, "e", 1)):
            data.add("rejected", step=0, place=place, id=node, text=data.text(piece), fate=fate)
        data.add("decisions", step=0, place=2, draft_kind=0, verdict=2, token=2, token_p=0.03125,
                 draw_coin=0.5, draw_purpose=0, why=data.text("bonus"))
        data.tables["tokens"]["decision"] = [None, None, 0]
        return data

    def rows(self):
        """The lines of the tree: its columns, and whether the walk goes there."""
        return self.run_js("""[...document.querySelectorAll('.tree tbody tr')].map((row) =>
            [[...row.children].map((cell) => cell.textContent), row.className === 'walked'])""")

    def test_the_tree_shows_each_node_and_the_walk(self):
        self.show(self.tree())
        self.browser.click('#text [data-k="0"]')
        self.assertEqual(self.rows(), [
            [["the text before", "", "", "", "", ""], True],
            [["a", "0.1250", "0.5000", "0.2500", "0.7500", "rejected"], False],
            [["b", "0.5000", "0.2500", "1", "0.6250", "accepted"], True],
            [["d", "0.7500", "0.5000", "1", "0.3750", "accepted"], True],
            [["f", "0.0313", "", "", "", "bonus"], True],
            [["e", "0.0625", "0.5000", "", "", "not judged"], False],
            [["x", "", "", "", "", "outside the vocabulary"], False],
            [["c", "0.2500", "0.1250", "", "", "not judged"], False]])
        self.assertEqual(self.count(".branches .walk"), 3)
        self.assertEqual(self.count(".branches .edge"), 7)
        # A line begins below the dot of its parent and ends at its own.
        ends = self.run_js("""[...document.querySelectorAll('.branches .walk')].map((edge) => {
            const end = edge.getPointAtLength(edge.getTotalLength());
            const start = edge.getPointAtLength(0);
            return [start.x, start.y, end.x, end.y]; })""")
        dots = self.run_js("""[...document.querySelectorAll('.branches .dot')].map((dot) =>
            [dot.cx.baseVal.value, dot.cy.baseVal.value])""")
        self.assertEqual(ends, [dots[0] + dots[2], dots[2] + dots[3], dots[3] + dots[4]])
        heights = self.run_js("""[...document.querySelectorAll('.tree tr')].map((row) =>
            row.offsetHeight)""")
        self.assertEqual(set(heights), {24})  # the dots lie beside their words
        self.assertEqual(self.title_of("#panel_p"), 0.5)
        self.assertEqual(self.title_of("#panel_coin"), 0.625)
        self.shot("tree")

    def test_a_node_opens_what_it_is(self):
        self.show(self.tree())
        self.browser.click('#text [data-k="2"]')
        self.assertEqual(self.text_of(".tree [aria-current]"), "f")
        self.assertIsNone(self.text_of("#panel_p"))
        self.browser.click(".tree tbody tr:nth-child(2) button")
        self.assertEqual(self.link(), "#sequence=0&draft=0")
        self.assertEqual(self.text_of(".tree [aria-current]"), "a")
        self.assertEqual(self.title_of("#panel_threshold"), 0.25)
        self.assertIn("0.7500 \u2265 t / d = 0.2500", self.text_of("#panel"))
        self.browser.click(".tree tbody tr:nth-child(4) button")
        self.assertEqual(self.link(), "#sequence=0&token=1")
        self.assertTrue(self.run_js("document.querySelector('.tree tr:nth-child(7) button').disabled"))
        label = self.run_js("document.getElementById('heat_map').getAttribute('aria-label')")
        self.assertIn("place 1", label)  # the depth of the tree, not its six nodes
        self.assertNotIn("place 2", label)

    def test_a_chain_has_no_tree(self):
        self.show(self.prose(10, [40]))
        self.browser.click('#text [data-k="0"]')
        self.assertEqual(self.count(".tree"), 0)
        self.assertGreater(self.count(".places button"), 0)

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
        self.search(" target")  # one token
        self.browser.press("Enter")
        self.assertEqual(self.text_of("#text .now"), " target")
        self.assertEqual(self.count("#text .now"), 1)
        self.search("the target has")
        self.browser.press("Enter")
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

    def test_the_picker(self):
        data = self.prose(7, [30, 60, 45])
        self.show(data)
        self.browser.click("#sequence_table th:nth-child(5) button")  # tokens, largest first
        names = "[...document.querySelectorAll('#sequence_table td:first-child')]" \
            ".map((cell) => cell.textContent)"
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


if __name__ == "__main__":
    main()
