"""specd-replay diff on runs that differ in one parameter, at every level of a trace.

Both runs of a pair have the same rows, seed and drafts, so a cause that names rows, drafts or a
decision is wrong. The parameter is known from the test and not from the trace.
"""

import re
import unittest

import numpy as np

import trace_file
from replay_support import TOKENIZER, Traces, out
import specd  # replay_support knows the folder

VOCAB, DRAFT = 64, 3
RED = "\x1b[31m"
LEVELS = ("rounds", "hashes", "rows")


class Pairs(Traces):
    @classmethod
    def record(cls, name, level, rounds=14, tokenizer=None, eos=(0,), **params):
        """One request over rows that depend on the round only; drafts too."""
        rng = np.random.default_rng(3)
        folder = cls.folder / name
        size = 2048 if tokenizer else VOCAB
        made = dict(temperature=1.0, seed=5, max_tokens=1000, verify="token")
        with specd.Engine(vocab_size=size, max_batch=1, max_draft=DRAFT, eos_token_ids=list(eos),
                          tokenizer=tokenizer, trace=str(folder),
                          trace_options=f"level={level}") as engine:
            sequence = engine.open(specd.SamplingParams(**{**made, **params}), request_id="r")
            for _ in range(rounds):
                rows = rng.normal(0, 2, (DRAFT + 1, size)).astype(np.float32)
                drafts = rng.integers(10, VOCAB, DRAFT)
                rows[np.arange(DRAFT), drafts] += 7
                rows[:, 0] = -50
                (result,) = engine.verify(rows, {sequence: drafts})
                if result.finish_reason is not None:
                    break
        (path,) = folder.glob("*.mcap")
        return path

    @classmethod
    def pair(cls, name, level, a, b, **both):
        return [cls.record(f"{name}-{level}-{side}", level, **{**both, **params})
                for side, params in (("a", a), ("b", b))]

    def causes(self, a, b):
        """(first round, [(cause, text)]) of the request."""
        text = out("diff", a, b, code=1)
        found = re.search(r"first difference in round (\d+) of A", text)
        causes = re.findall(r"^  ([a-z ]+): (.*)$", text, re.M)
        return int(found[1]) if found else None, causes, text

    def test_edits_with_equal_counts(self):
        """At level rounds diff said that the rows differ, and at hashes that the decision is a bug."""
        for level in LEVELS:
            a, b = self.pair("bias", level, dict(logit_bias={3: 9.0}), dict(logit_bias={9: 9.0}))
            counts = [t.get("num_edits") for t in trace_file.read(a)[2].value["tasks"]]
            self.assertEqual(counts, [t.get("num_edits") for t in
                                      trace_file.read(b)[2].value["tasks"]])
            number, causes, text = self.causes(a, b)
            self.assertEqual(number, 1, text)
            named = [t for cause, t in causes if cause == "parameters"]
            self.assertIn("logit_bias has other members in A than in B", named)
            if level == "rows":
                self.assertTrue(any("id 3: bias 9, count 0, flags 0 in A, id 9" in t for t in named))
            else:
                self.assertIn("the token edits differ (record level=rows to see which)", named)
            self.assertFalse({c for c, _ in causes} - {"parameters", "outcome"}, text)

    def test_another_value_of_one_bias(self):
        for level in LEVELS:
            a, b = self.pair("value", level, dict(logit_bias={3: 1.0}), dict(logit_bias={3: 1.0000001}))
            number, causes, text = self.causes(a, b)
            self.assertEqual(number, 1, text)
            self.assertIn("the token edits differ", " ".join(t for _, t in causes))

    def test_more_edits(self):
        a, b = self.pair("more", "rounds", dict(logit_bias={3: 1.0}), dict(logit_bias={3: 1.0, 4: 1.0}))
        _, causes, text = self.causes(a, b)
        self.assertIn(("parameters", "the token edits differ: 1 in A and 2 in B (record level=rows to "
                                     "see which)"), causes, text)

    def test_allowed_ids(self):
        ids = list(range(1, VOCAB))
        for level in LEVELS:
            a, b = self.pair("allowed", level, dict(allowed_token_ids=ids),
                             dict(allowed_token_ids=ids[:20] + ids[22:]))
            number, causes, text = self.causes(a, b)
            self.assertEqual(number, 1, text)
            self.assertIn("allowed_token_ids has other members in A than in B",
                          [t for _, t in causes])
            self.assertTrue(any("the token edits differ" in t or t.startswith("allowed is ")
                                for _, t in causes), text)
            self.assertFalse({c for c, _ in causes} - {"parameters", "outcome"}, text)

    def test_edits_of_the_draft_places(self):
        """A bad word of two ids bans its second id at the places behind the first one."""
        first = self.record("drafts", "rounds", rounds=1)
        draft = trace_file.read(first)[2].value["tasks"][0]["tokens"]
        for level in LEVELS:
            a, b = self.pair("words", level, dict(bad_words=[[draft[1], 4]]),
                             dict(bad_words=[[draft[1], 5]]))
            number, causes, text = self.causes(a, b)
            self.assertEqual(number, 1, text)
            want = "place 2: the token edits differ: id 4" if level == "rows" else \
                "the token edits of the draft's places differ (record level=rows to see which)"
            self.assertTrue(any(c == "parameters" and t.startswith(want) for c, t in causes), text)

    def test_constraints(self):
        for level in ("rounds", "hashes"):
            a, b = self.pair("regex", level,
                             dict(structured_outputs=specd.StructuredOutputs(regex="[a-z ]{50}")),
                             dict(structured_outputs=specd.StructuredOutputs(regex="[a-m ]{50}")),
                             tokenizer=TOKENIZER)
            number, causes, text = self.causes(a, b)
            self.assertIsNotNone(number, text)
            self.assertEqual(causes[0], ("parameters", "the constraint (regex) has another text in A "
                                                       "than in B"), text)
            # At level rounds no mask is recorded, so the rows are not accused alone.
            self.assertNotIn("rows", [c for c, _ in causes], text)
            self.assertIn("rows or grammar" if level == "rounds" else "grammar",
                          [c for c, _ in causes], text)

    def test_parameters_that_no_round_records(self):
        """`then A goes on alone` was all that diff said."""
        base = dict(logit_bias={7: 30.0})  # every round ends with this id
        for name, a, b, want in (
                ("length", dict(max_tokens=12), dict(max_tokens=5),
                 "max_tokens is 12 in A and 5 in B"),
                ("default", dict(max_tokens=30, min_p=0.0), dict(max_tokens=5),
                 "max_tokens is 30 in A and 5 in B"),
                ("stop", {}, dict(stop_token_ids=[7]), "stop_token_ids is [] in A and [7] in B"),
                ("eos", {}, dict(eos=(0, 7)), "eos_token_ids is [0] in A and [0 7] in B"),
                ("flag", {}, dict(ignore_eos=True, max_tokens=5),
                 "ignore_eos is false in A and true in B")):
            pair = self.pair(name, "rounds", {**base, **a}, {**base, **b})
            _, causes, text = self.causes(*pair)
            ends = "length" if "max_tokens" in b else "stop"
            self.assertIn(("answer", f"finish_reason is none in A and {ends} in B"), causes, text)
            self.assertIn(("parameters", want), causes, text)
            self.assertNotIn("seed is", text)

    def test_older_traces(self):
        """Without the hashes an edit may differ unseen: no cause is named for certain, and no bug."""
        for level in LEVELS:
            pair = self.pair("old", level, dict(logit_bias={3: 9.0}), dict(logit_bias={9: 9.0}))
            for path in pair:
                records = trace_file.read(path)
                for record in records:
                    for name in ("list_hashes", "constraint_hash"):
                        record.value.pop(name, None)
                    for task in record.value.get("tasks", []):
                        for name in ("edits_hash", "overrides_hash", "parameters_hash"):
                            task.pop(name, None)
                trace_file.write(path, records)
            _, causes, text = self.causes(*pair)
            self.assertNotIn("decision", text)
            if level == "rows":
                self.assertIn("the token edits differ: id 3", text)
            elif level == "rounds":
                self.assertRegex(text, r"rows or parameters: [pq] of place 0 differs, and so do the "
                                       r"rows or a parameter that was not recorded\n")
            else:
                self.assertRegex(text, r"parameters: the tokens are .*, from inputs that are equal as "
                                       r"far as they were recorded; the cause may be a parameter "
                                       r"that was not recorded\n")


if __name__ == "__main__":
    unittest.main()
