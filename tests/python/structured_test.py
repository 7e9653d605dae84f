"""StructuredOutputs: what is sent, what is refused, and whole outputs that keep to a constraint.

The toy engine's tokenizer gives ids their text; re and json judge the outputs. SPECD_TEST_URI names a
daemon in place of the embedded engine (tests/process/attached_test.py).
"""

import json
import os
import re
import unittest

import numpy as np

import specd
from specd import params
from toy_tokenizer import TOKENIZER, texts_of_ids

URI = os.environ.get("SPECD_TEST_URI", "embedded:cpu")
SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"enum": ["\u00e4"]}}}


def constraint(**fields):
    """The fields of specd_params for a StructuredOutputs, and its text."""
    made = specd.SamplingParams(structured_outputs=specd.StructuredOutputs(**fields))
    struct, kept = params.to_struct(made)
    text = None if struct.grammar is None else struct.grammar.decode()
    del kept
    return (struct.grammar_kind, struct.grammar_whitespace, struct.grammar_lenient,
            text)


class SentTest(unittest.TestCase):
    def test_each_kind_has_its_number_and_text(self):
        # The numbers are those of SPECD_GRAMMAR_... in the header.
        for fields, kind, text in (
                ({"json": '{"type":  "null"}'}, 1, '{"type":  "null"}'),
                ({"json_object": True}, 2, ""),
                ({"regex": "[0-9]+"}, 3, "[0-9]+"),
                ({"grammar": 'root ::= "a"'}, 4, 'root ::= "a"')):
            self.assertEqual(constraint(**fields), (kind, 0, 0, text))
        for name, kind in (("json", 1), ("structural_tag", 6)):
            sent = constraint(**{name: SCHEMA})
            self.assertEqual((sent[0], json.loads(sent[3])), (kind, SCHEMA))
            self.assertLess(sent[3].index('"b"'), sent[3].index('"a"'))  # properties keep their order
        sent = constraint(choice=["yes", 'n"o', "\u00e4"])
        self.assertEqual((sent[0], json.loads(sent[3])), (5, ["yes", 'n"o', "\u00e4"]))

    def test_the_mode_is_sent_beside_it(self):
        self.assertEqual(constraint(regex="a", whitespace="compact")[:3], (3, 1, 0))
        self.assertEqual(constraint(regex="a", disable_any_whitespace=True)[:3], (3, 1, 0))
        self.assertEqual(constraint(regex="a", lenient=True)[:3], (3, 0, 1))
        for given, number in (("schema", 0), ("any", 1)):
            made = specd.StructuredOutputs(json=SCHEMA, key_order=given)
            struct, _ = params.to_struct(specd.SamplingParams(structured_outputs=made))
            self.assertEqual(struct.grammar_key_order, number)
        for given in (True, False):
            made = specd.StructuredOutputs(regex="a", enable_in_reasoning=given)
            struct, _ = params.to_struct(specd.SamplingParams(structured_outputs=made))
            self.assertEqual(struct.grammar_in_reasoning, given)
        self.assertEqual(params.to_struct(specd.SamplingParams())[0].grammar_kind, 0)

    def test_a_default_that_is_named_is_sent_so_that_it_wins_over_the_profiles(self):
        def numbers(**mode):
            made = specd.StructuredOutputs(regex="a", **mode)
            struct, _ = params.to_struct(specd.SamplingParams(structured_outputs=made))
            return {struct.numbers.items[i].name.decode(): struct.numbers.items[i].value
                    for i in range(struct.numbers.count)}
        self.assertEqual(numbers(), {})
        self.assertEqual(numbers(whitespace="compact", lenient=True, enable_in_reasoning=True), {})
        self.assertEqual(numbers(whitespace="flexible", lenient=False), {
            "grammar_whitespace": 0, "grammar_lenient": 0})
        self.assertEqual(numbers(key_order="schema"), {"grammar_key_order": 0})
        self.assertEqual(numbers(key_order="any"), {})
        self.assertEqual(numbers(disable_any_whitespace=False), {"grammar_whitespace": 0})
        self.assertEqual(numbers(disable_any_whitespace=True), {})
        self.assertEqual(numbers(enable_in_reasoning=False), {"grammar_in_reasoning": 0})

    def test_a_text_with_a_nul_is_sent_whole(self):
        made = specd.SamplingParams(structured_outputs=specd.StructuredOutputs(regex="a\0b"))
        struct, kept = params.to_struct(made)
        self.assertEqual(struct.grammar_bytes, 3)
        del kept

    def test_exactly_one_kind(self):
        with self.assertRaisesRegex(ValueError, "none given; give exactly one of json, json_object, regex, "
                                    "grammar, choice, structural_tag"):
            specd.StructuredOutputs()
        with self.assertRaisesRegex(specd.Error, "json and regex given"):
            specd.StructuredOutputs(json={}, regex="a")
        with self.assertRaisesRegex(ValueError, "none given"):
            specd.StructuredOutputs(json_object=False)

    def test_wrong_values_are_refused_by_name(self):
        for fields, text in (({"json": 3}, "json: 3 is neither a dict nor a string"),
                             ({"json": {"a": {1}}}, "json is not JSON"),
                             ({"json": {"a": float("nan")}}, "json is not JSON"),
                             ({"regex": b"a"}, "regex: b'a' is not a string"),
                             ({"choice": "abc"}, "choice: 'abc' is not a list"),
                             ({"choice": []}, "choice: \\[\\] is not a list"),
                             ({"choice": ["a", 1]}, "choice: "),
                             ({"json_object": "yes"}, "json_object: 'yes'"),
                             ({"regex": "a", "whitespace": "none"}, "whitespace: 'none' is not one of "
                              "flexible, compact"),
                             ({"regex": "a", "key_order": "given"}, "key_order: 'given' is not one of "
                              "schema, any"),
                             ({"regex": "a", "whitespace": "flexible",
                               "disable_any_whitespace": True}, "give one of the two"),
                             ({"regex": "a", "reasoning_parser": "qwen3"},
                              "reasoning_parser is refused: it belongs to the model"),
                             ({"regex": "a", "any_order": True}, "any_order is refused: the order"),
                             ({"regex": "a", "backend": "xgrammar"}, "backend is refused: specd's own engine "
                              "enforces every constraint, .*; leave it out"),
                             ({"regex": "a", "backend": "specd"}, "backend is refused"),
                             ({"regex": "a", "grammar_backend": "xgrammar"}, "grammar_backend is refused"),
                             ({"regex": "a", "lenient": 2}, "lenient: 2"),
                             ({"regex": "a", "whitespace_pattern": "x"}, "whitespace_pattern"),
                             ({"regexp": "a"}, "regexp: no such keyword; they are json")):
            with self.subTest(fields), self.assertRaisesRegex(ValueError, text):
                specd.StructuredOutputs(**fields)
        for value in ({"json": {}}, "json"):
            with self.assertRaisesRegex(specd.Error, "is no specd.StructuredOutputs"):
                params.to_struct(specd.SamplingParams(structured_outputs=value))
        for name in ("json_schema", "regex", "guided_decoding", "ebnf", "structural_tag"):
            with self.assertRaisesRegex(specd.Error, "structured_outputs="):
                specd.SamplingParams(**{name: "a"})
        with self.assertRaisesRegex(specd.Error, "grammar_backend is refused"):
            specd.SamplingParams(grammar_backend="xgrammar")

    def test_each_choice_is_sent_as_its_number_in_the_header(self):
        # The numbers of SPECD_GRAMMAR_... and SPECD_WHITESPACE_....
        kinds = {"json": ("{}", 1), "json_object": (True, 2), "regex": ("a", 3),
                 "grammar": ('root ::= "a"', 4), "choice": (["a"], 5), "structural_tag": ("{}", 6)}
        for kind, (text, number) in kinds.items():
            made = specd.StructuredOutputs(**{kind: text})
            self.assertEqual(made.numbers(), {"kind": number, "whitespace": 0, "key_order": 0})
        for field, names in (("whitespace", ("flexible", "compact")),
                             ("key_order", ("schema", "any"))):
            for number, name in enumerate(names):
                made = specd.StructuredOutputs(regex="a", **{field: name})
                self.assertEqual(made.numbers()[field], number)
                struct, kept = params.to_struct(specd.SamplingParams(structured_outputs=made))
                self.assertEqual(getattr(struct, f"grammar_{field}"), number)
                del kept


class OutputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.texts = texts_of_ids()
        cls.size = 1 + max(cls.texts)
        model = {} if URI.startswith("unix:") else {"tokenizer": TOKENIZER, "eos_token_ids": [0]}
        cls.engine = specd.Engine(URI, vocab_size=cls.size, max_batch=2, max_sequences=8, max_draft=4,
                                  **model)
        cls.addClassCleanup(cls.engine.close)

    def test_forced_ids_spell_what_must_follow(self):
        made = specd.StructuredOutputs(regex="The daemon verifies [0-9]+ drafts")
        sequence = self.engine.open(specd.SamplingParams(structured_outputs=made))
        forced = self.engine.forced(sequence, max_ids=5)
        text = b"".join(self.texts[token] for token in forced)
        self.assertTrue(forced and b"The daemon verifies ".startswith(text), text)
        self.assertEqual(self.engine.forced(sequence, max_ids=1), forced[:1])
        self.assertEqual(self.engine.forced(sequence, forced[:1], max_ids=4), forced[1:5])
        # Given to a round as drafts, they are judged; rows that want them accept them.
        draft = forced[:4]
        rows = np.zeros((len(draft) + 1, self.size), np.float32)
        rows[range(len(draft)), draft] = 50
        (result,) = self.engine.verify(rows, {sequence: draft})
        self.assertEqual(result.num_accepted, len(draft))
        free = self.engine.open(specd.SamplingParams())
        self.assertEqual(self.engine.forced(free), [])
        free.close()
        with self.assertRaisesRegex(specd.Error, "is not open"):
            self.engine.forced(free)
        with self.assertRaisesRegex(specd.Error, "num_prefix = 5 is outside 0 .. 4"):
            self.engine.forced(sequence, [1] * 5)
        sequence.close()

    def output(self, seed, num_drafts, pieces, **fields):
        """Returns the text and the last Result of a sequence over random rows."""
        made = specd.StructuredOutputs(**fields)
        sequence = self.engine.open(specd.SamplingParams(
            seed=seed, max_tokens=300, structured_outputs=made))
        rng, tokens = np.random.default_rng([seed, num_drafts]), []
        while True:
            draft = rng.choice(pieces, num_drafts).tolist()
            rows = rng.normal(size=(num_drafts + 1, self.size)).astype(np.float32) * 2
            rows[:, 0] += 3  # EOS is likely, so that outputs end
            result, = self.engine.verify(rows, {sequence: draft})
            self.assertEqual(result.status, "ok")
            tokens.extend(result.tokens.tolist())
            if result.finish_reason is not None:
                sequence.close()
                return b"".join(self.texts[i] for i in tokens if i != result.stop_token), result

    def pieces(self, characters):
        return [i for i, text in self.texts.items() if text and not text.strip(characters)]

    def test_outputs_match_a_pattern_with_drafts_and_without(self):
        pattern, pieces = "[0-9]{4}-[0-9]{2}(-[a-f]{1,3})?", self.pieces(b"0123456789-abcdef")
        ends = set()
        for seed in range(20):
            for num_drafts in (0, 4):
                text, last = self.output(seed, num_drafts, pieces, regex=pattern)
                self.assertIsNotNone(re.fullmatch(pattern, text.decode()), text)
                self.assertEqual(last.finish_reason, "stop")
                ends.add(last.stop_token)
        self.assertEqual(ends, {0, None})  # EOS, and the end of the grammar

    def test_outputs_are_one_of_the_choices(self):
        for seed in range(10):
            text, last = self.output(seed, seed % 5, self.pieces(b"yesnoz"), choice=["yes", "no\n"])
            self.assertIn(text, (b"yes", b"no\n"))
            self.assertEqual((last.finish_reason, last.stop_token), ("stop", None))

    def test_outputs_follow_a_grammar(self):
        rules = 'root ::= "[" item ("," item)* "]"\nitem ::= "a" | root'
        for seed in range(5):
            text, last = self.output(seed, 3, self.pieces(b"[],a"), grammar=rules)
            if last.finish_reason == "stop":
                self.assertIsInstance(json.loads(text.replace(b"a", b"1")), list)

    def test_outputs_are_a_json_object(self):
        num_stopped = 0
        pieces = self.pieces(b'{}[]":, 0123456789abcdefnulltrue')
        for seed in range(10):
            for num_drafts in (0, 4):
                text, last = self.output(seed, num_drafts, pieces, json_object=True)
                if last.finish_reason == "stop":
                    self.assertIsInstance(json.loads(text), dict)
                    num_stopped += 1
                else:
                    self.assertEqual(last.finish_reason, "length")
                    self.assertRegex(text, rb"^\s*\{")
        self.assertGreater(num_stopped, 5)

    def test_the_tags_of_outputs_hold_what_their_schema_says(self):
        # "<" alone is the trigger, so every "<" of the text begins a tag.
        tags = {"type": "structural_tag", "triggers": ["<"], "structures": [
            {"begin": "<f>", "schema": {"type": "array", "items": {"type": "integer"}}, "end": "</f>"},
            {"begin": "<g>", "schema": {"enum": ["a", None]}, "end": "</g>"}]}
        tag = re.compile(rb"<([fg])>([^<]*)</\1>")
        num_tags = 0
        for seed in range(40):
            for num_drafts in (0, 4):
                text, last = self.output(seed, num_drafts, self.pieces(b"<>/fg[]0123456789,anul\""),
                                         structural_tag=tags)
                for name, content in tag.findall(text):
                    value = json.loads(content)
                    if name == b"f":
                        self.assertIsInstance(value, list)
                        # To JSON Schema 1.0 is an integer.
                        self.assertTrue(all(type(item) in (int, float) and item == int(item)
                                            for item in value), text)
                    else:
                        self.assertIn(value, ("a", None))
                    num_tags += 1
                free = tag.sub(b"", text)
                if last.finish_reason == "stop":
                    self.assertNotIn(b"<", free)
                else:  # the last tag may be open
                    self.assertEqual(last.finish_reason, "length")
                    self.assertRegex(free, rb"^[^<]*(<[^<]*(</?[fg]?)?)?$")
        self.assertGreater(num_tags, 3)

    def test_a_constraint_that_is_wrong_is_refused_when_it_is_opened(self):
        for fields in ({"regex": "(a"}, {"grammar": "root ::= missing"}, {"json": "{"}):
            with self.subTest(fields), self.assertRaisesRegex(specd.Error, "grammar"):
                self.engine.open(specd.SamplingParams(
                    structured_outputs=specd.StructuredOutputs(**fields)))

    def test_the_warnings_of_an_opening_name_what_lenient_dropped(self):
        schema = {"properties": {"a": {"type": "array", "uniqueItems": True}}}
        made = specd.StructuredOutputs(json=schema, lenient=True)
        sequences = self.engine.open_all(specd.SamplingParams(structured_outputs=made, n=2))
        sequences.append(sequences[0].fork())
        for sequence in sequences:
            warning, = sequence.warnings
            self.assertIn("/properties/a: uniqueItems", warning)
            sequence.close()
        for params in (specd.SamplingParams(), specd.SamplingParams(
                structured_outputs=specd.StructuredOutputs(regex="a"))):
            sequence = self.engine.open(params)
            self.assertEqual(sequence.warnings, [])
            sequence.close()

    def test_without_a_tokenizer_a_constraint_is_refused_with_the_remedy(self):
        with specd.Engine(vocab_size=8) as engine:
            with self.assertRaisesRegex(specd.Error, "tokenizer"):
                engine.open(specd.SamplingParams(
                    structured_outputs=specd.StructuredOutputs(regex="a")))

    def test_a_constraint_begins_after_the_reasoning(self):
        ids = {text: i for i, text in self.texts.items()}
        rows = lambda text: np.eye(self.size)[[ids[c.encode()] for c in text]] * 50
        with specd.Engine(vocab_size=self.size, max_draft=3, tokenizer=TOKENIZER, eos_token_ids=[0],
                          reasoning_start="<think>", reasoning_end="</think>") as engine:
            for fields, free in (({}, True), ({"enable_in_reasoning": True}, False)):
                made = specd.StructuredOutputs(regex="[0-9]{2}", **fields)
                # Every output begins with the prompt's open thought.
                sequence = engine.open(specd.SamplingParams(
                    temperature=0, max_tokens=50, structured_outputs=made),
                    prompt_ids=[ids[c.encode()] for c in "<think>"])
                text = b""
                for begin in range(0, len("hm</think>xyz"), 1):
                    result, = engine.verify(rows("hm</think>xyz"[begin]), {sequence: []})
                    text += b"".join(self.texts[i] for i in result.tokens.tolist())
                    if result.finish_reason:
                        break
                self.assertEqual(text.startswith(b"hm</think>"), free)
                self.assertRegex(text.removeprefix(b"hm</think>"), rb"^[0-9]{2}$")
                self.assertEqual((result.finish_reason, result.stop_token), ("stop", None))
        with self.assertRaisesRegex(specd.Error, "reasoning_end"):
            specd.Engine(vocab_size=self.size, tokenizer=TOKENIZER, reasoning_start="<think>")
        with self.assertRaisesRegex(specd.Error, "needs a tokenizer"):
            specd.Engine(vocab_size=self.size, reasoning_end="</think>")

    def test_the_model_of_an_embedded_engine_is_checked(self):
        with self.assertRaisesRegex(specd.Error, "/nonexistent"):
            specd.Engine(vocab_size=8, tokenizer="/nonexistent")
        with self.assertRaisesRegex(specd.Error, "EOS id 9"):
            specd.Engine(vocab_size=8, eos_token_ids=[9])
        with self.assertRaisesRegex(specd.Error, "eos_token_ids"):
            specd.Engine(vocab_size=8, eos_token_ids=["</s>"])
        ignoring = specd.SamplingParams(ignore_eos=True)
        with specd.Engine(vocab_size=8) as engine:
            with self.assertRaisesRegex(specd.Error, "ignore_eos"):
                engine.open(ignoring)
        with specd.Engine(vocab_size=8, tokenizer=None, eos_token_ids=[2]) as engine:
            engine.open(ignoring)
            sequence = engine.open(specd.SamplingParams(temperature=0))
            result, = engine.verify(np.eye(8)[[2]], {sequence: []})
            self.assertEqual((result.finish_reason, result.stop_token), ("stop", 2))

    def test_an_embedded_engine_bounds_the_compile_of_a_constraint(self):
        asked = lambda **fields: specd.SamplingParams(
            structured_outputs=specd.StructuredOutputs(**fields))
        heavy = 'root ::= "x"' + " [a]?" * 2000
        with specd.Engine(vocab_size=self.size, tokenizer=TOKENIZER, compile_ms=1,
                          compile_mib=4096) as engine:
            with self.assertRaisesRegex(specd.Error, "compile_ms = 1 of CPU time"):
                engine.open(asked(grammar=heavy))
            engine.open(asked(regex="[0-9]+"))
        for name, value, words in (("compile_ms", 60001, "1 .. 60000"),
                                   ("compile_mib", 15, "16 .. 4096"),
                                   ("compile_s", 1, "did you mean compile_ms"),
                                   ("reserved2", 0, "no such option")):
            with self.subTest(name), self.assertRaisesRegex(specd.Error, f"^{name}.*{words}"):
                specd.Engine(vocab_size=8, **{name: value})
        for name in "compile_ms", "compile_mib":
            with self.subTest(name), self.assertRaisesRegex(specd.Error, f"--{name}=16"):
                specd.Engine("unix:/nowhere", vocab_size=8, **{name: 16})


if __name__ == "__main__":
    unittest.main()
