"""specd-replay verify on records with one flipped bit in a parameter, and with checksums that fit.

The lowest bits of a bias or a filter change no answer here, so running the round again is equal.
"""

import struct
import unittest

import numpy as np

import trace_file
from replay_support import Traces, out
import specd  # replay_support knows the folder

VOCAB, DRAFT = 64, 3
# The members of a task that are parameters, as paths. A float32 is flipped as such.
FLOATS = [("target_scale",), ("draft_scale",), ("target_filters", "min_p"), ("draft_filters", "min_p"),
          ("penalties", "repetition"), ("penalties", "frequency"), ("penalties", "presence")]
INTEGERS = [("seed",), ("first_position",), ("round_base",), ("min_tokens",), ("num_edits",),
            ("target_filters", "top_k"), ("target_filters", "top_p"), ("draft_filters", "top_k"),
            ("draft_filters", "top_p"), ("scores", "num_top"), ("edits_hash",),
            ("overrides_hash",), ("parameters_hash",)]


def flipped(value, is_float):
    if not is_float:
        return value ^ 1
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.unpack("<f", struct.pack("<I", bits ^ 1))[0]


class Flips(Traces):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.paths = {level: cls.record(level) for level in ("rounds", "rows")}

    @classmethod
    def record(cls, level):
        rng = np.random.default_rng(9)
        params = specd.SamplingParams(
            seed=5, temperature=0.9, top_p=0.99, top_k=60, min_p=0.001, min_tokens=3,
            frequency_penalty=0.25, presence_penalty=0.5, repetition_penalty=1.25, max_tokens=99,
            logit_bias={3: 0.5, 9: 1.5}, allowed_token_ids=list(range(1, 63)), logprobs=2,
            draft_temperature=0.8, draft_top_p=0.9, draft_top_k=50, draft_min_p=0.001, verify="token")
        with specd.Engine(vocab_size=VOCAB, max_batch=1, max_draft=DRAFT, eos_token_ids=[0],
                          trace=str(cls.folder / level), trace_options=f"level={level},places=all") as engine:
            sequence = engine.open(params, request_id="r")
            for _ in range(6):
                rows, draft_rows = rng.normal(0, 2, (2, DRAFT + 1, VOCAB)).astype(np.float32)
                drafts = rng.integers(10, 20, DRAFT)
                rows[np.arange(DRAFT), drafts] += 5
                draft_rows[np.arange(DRAFT), drafts] += 5
                engine.verify(rows, {sequence: drafts}, q=draft_rows[:DRAFT])
        (path,) = (cls.folder / level).glob("*.mcap")
        return path

    def verified(self, level, change, code):
        path = self.paths[level]
        records = trace_file.read(path)
        rounds = [r.value for r in records if r.topic == "round"]
        change(rounds[3]["tasks"][0])
        other = path.with_name("changed.mcap")
        trace_file.write(other, records)
        text = out("verify", other, "--limit=99", code=code)
        other.unlink()
        return text, rounds[3]["number"]

    def check(self, level, path, is_float, words):
        def change(task):
            *outer, last = path
            for name in outer:
                task = task[name]
            task[last] = flipped(task[last], is_float)
        text, number = self.verified(level, change, 1)
        self.assertRegex(text, r"(?m)^different +1$", path)
        self.assertRegex(text, rf"round {number}, sequence 0x\w+: parameters: the record's hash does not "
                               rf"fit ({words})\n", path)

    def test_equal_without_a_flip(self):
        for level in self.paths:
            self.assertRegex(self.verified(level, lambda task: None, 0)[0], r"(?m)^different +0$")

    def test_an_anonymised_trace_has_no_hash(self):
        """A hash of few ids gives them away, and would not fit the new ones."""
        for level, path in self.paths.items():
            other = self.folder / f"{level}-shared.mcap"
            out("anonymise", path, "-o", other)
            self.assertRegex(out("verify", other), r"(?m)^different +0$")
            for record in trace_file.read(other):
                for value in [record.value, *record.value.get("tasks", [])]:
                    self.assertEqual([name for name in value if "hash" in name], [])

    def test_numbers(self):
        for level in self.paths:
            for path in FLOATS:
                self.check(level, path, True, "the numbers of the task")
            for path in INTEGERS:
                self.check(level, path, False, "the numbers of the task")

    def test_edits(self):
        for name in ("id", "count", "flags", "bias"):
            task = [r.value for r in trace_file.read(self.paths["rows"]) if r.topic == "round"][3]["tasks"][0]
            for i, edit in enumerate(task["edits"]):
                # The flip of another id may give the order of ids up, which is found otherwise.
                if name in edit and (name != "id" or edit["id"] == 9):
                    self.check("rows", ("edits", i, name), name == "bias", "the token edits")
                    break
            else:
                self.fail(name)
        self.check("rows", ("allowed", 0), False, "the token edits")
        place = next(i for i, place in enumerate(task["places"]) if place.get("overrides"))
        for name in ("count", "flags"):
            self.check("rows", ("places", place, "overrides", 0, name), False,
                       "the token edits of the places")

    def test_lists(self):
        for level in self.paths:
            for change in (lambda task: task.update(coins=[dict(key=dict(position=4000), coin=5)]),
                           lambda task: task["places"][0].update(forced=4),
                           lambda task: task["places"][0].update(mask_row=1),
                           lambda task: task["places"][0].update(below_min_tokens=True)):
                self.assertIn("fit the numbers of the task", self.verified(level, change, 1)[0])


if __name__ == "__main__":
    unittest.main()
