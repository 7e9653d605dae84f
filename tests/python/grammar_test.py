"""The grammar engine from Python: masks held against the texts of the ids, and what is refused."""

import gc
import json
import os
import pathlib
import re
import signal
import tempfile
import unittest

import numpy as np

import specd

TEXTS = [b"</s>", b"b", b"a", b"ab", b"c", b"abc", None, b"1", b"12", b"\xc3", b"\xa9", b"<pad>",
         b"{", b"}", b'"', b":"] + [b"filler%d" % i for i in range(20)]
V = 40  # more columns than ids, and no multiple of 32


def make_tokenizer(**changes):
    arguments = dict(tokens=TEXTS, special_token_ids=[0, 11], vocab_size=V, eos_token_ids=[0])
    return specd.Tokenizer(**(arguments | changes))


def allowed(row, vocab_size=V):
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    assert not bits[vocab_size:].any()
    return np.flatnonzero(bits).tolist()


class GrammarTest(unittest.TestCase):
    def setUp(self):
        self.tokenizer = make_tokenizer()

    def test_masks_are_the_ids_whose_text_continues_a_choice(self):
        choices = ["abc", "ab12", "é"]
        grammar = specd.Grammar(self.tokenizer, choice=choices)
        encoded = [choice.encode() for choice in choices]
        open_ = [(b"", grammar.matcher())]
        places = 0
        while open_:
            text, matcher = open_.pop()
            places += 1
            expected = [0] if text in encoded else []
            for token_id, piece in enumerate(TEXTS):
                if piece and token_id not in (0, 11):
                    if any(choice.startswith(text + piece) for choice in encoded):
                        expected.append(token_id)
                        fork = matcher.fork()
                        self.assertTrue(fork.accept(token_id))
                        open_.append((text + piece, fork))
            row = matcher.mask()
            self.assertEqual((row.dtype, row.shape), (np.dtype(np.int32), (2,)))
            self.assertEqual(allowed(row), expected)
            self.assertEqual(matcher.is_accepting, text in encoded)
        self.assertGreater(places, 8)

    def test_every_kind_compiles(self):
        for options in ({"json": {"type": "integer"}}, {"regex": "[ab]+"}, {"choice": ["a", "b"]},
                        {"grammar": 'root ::= "a" root | "b"'}, {"json_object": True},
                        {"structural_tag": {"type": "structural_tag", "triggers": ["b"], "structures": [
                            {"begin": "b", "schema": {"type": "integer"}, "end": "c"}]}},
                        {"json": '{"enum": [1, 12]}', "whitespace": "compact"}):
            with self.subTest(options):
                matcher = specd.Grammar.compile(self.tokenizer, **options).matcher()
                self.assertTrue(allowed(matcher.mask()))
        same = specd.StructuredOutputs(regex="[ab]+")
        row = specd.Grammar(self.tokenizer, same).matcher().mask()
        self.assertEqual(allowed(row), [1, 2, 3])

    def test_accept_rollback_fork_and_ends(self):
        matcher = specd.Grammar(self.tokenizer, regex="a+b?").matcher(stop_token_ids=[1])
        self.assertFalse(matcher.accept(1))  # a stop id, although its text is b
        self.assertFalse(matcher.accept(-1))
        self.assertFalse(matcher.accept(V))
        self.assertTrue(matcher.accept(2))
        first = matcher.mask()
        fork = matcher.fork()
        self.assertTrue(matcher.accept(3))
        self.assertTrue(matcher.is_finished)
        self.assertTrue(matcher.accept(1))
        self.assertTrue(matcher.is_terminated)
        self.assertEqual(allowed(matcher.mask()), [0, 1])
        self.assertEqual(matcher.num_accepted, 3)
        matcher.rollback(2)
        self.assertFalse(matcher.is_terminated)
        for same in (matcher.mask(), fork.mask()):
            np.testing.assert_array_equal(same, first)

    def test_forced(self):
        matcher = specd.Grammar(self.tokenizer, choice=["abc12"]).matcher()
        self.assertEqual(matcher.forced_text(), b"abc12")
        self.assertEqual(matcher.forced(), [5, 8])
        self.assertEqual(matcher.forced(max_ids=1), [5])
        self.assertEqual(matcher.num_accepted, 0)
        matcher = specd.Grammar(self.tokenizer, regex="a+").matcher()
        self.assertEqual((matcher.forced_text(), matcher.forced()), (b"a", [2]))
        matcher.accept(2)
        self.assertEqual((matcher.forced_text(), matcher.forced()), (b"", []))

    def test_masks_of_a_batch_equal_one_by_one(self):
        grammars = [specd.Grammar(self.tokenizer, regex=text) for text in ("[ab]+", "1.*", "c?b")]
        matchers = [grammars[i % 3].matcher() for i in range(30)]
        expected = np.array([matcher.mask() for matcher in matchers])
        for threads in (0, 1, 2, 5):
            np.testing.assert_array_equal(specd.fill_masks(matchers, threads=threads), expected)
            rows = np.full((40, 5), 7, np.int32)
            filled = specd.fill_masks(matchers, rows[:, 1:3], indices=range(35, 5, -1),
                                      threads=threads)
            np.testing.assert_array_equal(filled[35:5:-1], expected)
            self.assertTrue((rows[:, 0] == 7).all() and (rows[:, 3:] == 7).all())
            self.assertTrue((rows[:6] == 7).all() and (rows[36:] == 7).all())
        self.assertEqual(specd.fill_masks([]).shape[0], 0)

    def test_a_forked_process_fills_and_closes_without_its_parents_threads(self):
        tokenizer = make_tokenizer(tokens=TEXTS + [b"%d" % i for i in range(20000)],
                                   vocab_size=21000)

        def fill(last):
            grammars = [specd.Grammar(tokenizer, regex="[0-9]{%d,}%s" % (i, last))
                        for i in range(20)]
            return specd.fill_masks([grammar.matcher() for grammar in grammars], threads=4)

        expected = fill("a")
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a child that waits for the parent's threads ends so
            same = np.array_equal(fill("[0-9]*a"), expected)  # another grammar of the same texts
            tokenizer.close()
            gc.collect()
            os._exit(0 if same else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_mask_into_a_row_and_apply(self):
        matcher = specd.Grammar(self.tokenizer, regex="[ab]+").matcher()
        rows = np.zeros((3, 2), np.int32)
        self.assertIs(type(matcher.mask(out=rows[1])), np.ndarray)
        np.testing.assert_array_equal(rows, [[0, 0], matcher.mask(), [0, 0]])
        logits = np.arange(V, dtype=np.float32)
        self.assertIs(specd.apply_mask(logits, rows[1]), logits)
        self.assertEqual(np.flatnonzero(np.isfinite(logits)).tolist(), [1, 2, 3])
        both = specd.apply_mask(np.zeros((3, V), np.float16), rows)
        self.assertEqual(np.isfinite(both).sum(axis=1).tolist(), [0, 3, 0])

    def test_a_tokenizer_json(self):
        names = {**{chr(i): i for i in range(33, 127)}, "Ġ": 127, "ab": 128}
        text = json.dumps({
            "version": "1.0", "decoder": {"type": "ByteLevel"},
            "added_tokens": [{"id": 129, "content": "<eos>", "special": True}],
            "model": {"type": "BPE", "vocab": names, "merges": []}})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(text)
            for tokenizer in (specd.Tokenizer(path, vocab_size=130, eos_token_ids=[129]),
                              specd.Tokenizer(str(path), vocab_size=130),
                              specd.Tokenizer(json=text, vocab_size=130)):
                matcher = specd.Grammar(tokenizer, regex="ab c").matcher()
                self.assertEqual(allowed(matcher.mask(), 130), [ord("a"), 128])
                self.assertEqual(matcher.forced(), [128, 127, ord("c")])

    def test_refusals_name_the_field(self):
        t = self.tokenizer
        grammar = specd.Grammar(t, regex="a+")
        matcher = grammar.matcher()
        rows = np.zeros((2, 2), np.int32)
        cases = {
            "vocab_size = 3, but": lambda: make_tokenizer(vocab_size=3),
            "vocab_size: -1": lambda: make_tokenizer(vocab_size=-1),
            r"eos_token_ids\[0\] = 40": lambda: make_tokenizer(eos_token_ids=[40]),
            "special_token_ids": lambda: make_tokenizer(special_token_ids=[36]),
            "special_token_ids: a": lambda: specd.Tokenizer("x", vocab_size=1, special_token_ids=[0]),
            "exactly one": lambda: specd.Tokenizer(vocab_size=1),
            "2 of path, json and tokens": lambda: make_tokenizer(path="x"),
            r"tokens\[1\]": lambda: make_tokenizer(tokens=[b"a", "b"]),
            "/nowhere": lambda: specd.Tokenizer("/nowhere", vocab_size=1),
            "tokenizer: ": lambda: specd.Grammar("tokenizer.json", regex="a"),
            "give exactly one": lambda: specd.Grammar(t, regex="a", choice=["b"]),
            "constraint: ": lambda: specd.Grammar(t, "a"),
            r"\^": lambda: specd.Grammar(t, regex="(a"),
            "uniqueItems": lambda: specd.Grammar(t, json={"uniqueItems": True}),
            r"stop_ids\[0\] = 40": lambda: grammar.matcher([40]),
            "num_ids = 1 is outside 0 .. 0": lambda: matcher.rollback(1),
            "num_ids: -1": lambda: matcher.rollback(-1),
            "token_id: ": lambda: matcher.accept(2**31),
            "token_id: 'a'": lambda: matcher.accept("a"),
            "out: ": lambda: matcher.mask(np.zeros(2, np.int64)),
            "out: a": lambda: matcher.mask(np.zeros(4, np.int32)[::2]),
            "exactly 2": lambda: matcher.mask(np.zeros(3, np.int32)),
            "rows: ": lambda: specd.fill_masks([matcher], np.zeros((1, 3), np.int32)),
            "rows: a": lambda: specd.fill_masks([matcher], rows[:, ::-1]),
            "has row 1": lambda: specd.fill_masks([matcher, matcher.fork()], rows[:1]),
            "has row 2": lambda: specd.fill_masks([matcher], rows, indices=[2]),
            "indices: 2 rows": lambda: specd.fill_masks([matcher], rows, indices=[0, 1]),
            "twice": lambda: specd.fill_masks([matcher, matcher]),
            r"matchers\[0\]": lambda: specd.fill_masks([grammar]),
            "threads = 17": lambda: specd.fill_masks([matcher], threads=17),
            "logits: ": lambda: specd.apply_mask(np.zeros(V, int), matcher.mask()),
            "mask: ": lambda: specd.apply_mask(np.zeros(V), np.zeros(3, np.int32)),
        }
        for pattern, call in cases.items():
            with self.subTest(pattern), self.assertRaisesRegex(specd.Error, pattern):
                call()
        self.assertEqual(matcher.num_accepted, 0)

    def test_warnings_name_what_lenient_dropped(self):
        # The tokenizer has no bracket, so an array alone would have no text.
        schema = {"type": ["array", "integer"], "uniqueItems": True}
        grammar = specd.Grammar(self.tokenizer, json=schema, lenient=True)
        self.assertEqual(len(grammar.warnings), 1)
        self.assertIn("uniqueItems", grammar.warnings[0])
        self.assertGreater(grammar.size_bytes, 0)
        self.assertEqual(specd.Grammar(self.tokenizer, regex="a").warnings, [])

    def test_closed_objects_refuse_by_name_and_the_rest_lives_on(self):
        tokenizer = make_tokenizer()
        grammar = specd.Grammar(tokenizer, regex="a+")
        with grammar.matcher() as matcher:
            tokenizer.close()
            grammar.close()
            self.assertEqual(allowed(matcher.mask()), [2])
        for name, call in (("tokenizer", lambda: specd.Grammar(tokenizer, regex="a")),
                           ("grammar", lambda: grammar.matcher()),
                           ("matcher", lambda: matcher.mask()),
                           ("matcher", lambda: matcher.is_terminated),
                           ("matcher", lambda: specd.fill_masks([matcher]))):
            with self.assertRaisesRegex(specd.Error, re.escape(f"the {name} is closed")):
                call()
        matcher.close()
        left = specd.Grammar(make_tokenizer(), regex="a+").matcher()
        gc.collect()
        self.assertTrue(left.accept(2))


if __name__ == "__main__":
    unittest.main()
