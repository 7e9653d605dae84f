"""verify and diff compare everything that an engine received: each member of a recorded answer is
changed in turn, and must be named. The new values come from the test, not from the program."""

import unittest

import numpy as np

import trace_file
from replay_support import Traces, error, out
import specd  # replay_support knows the folder

VOCAB, DRAFT = 64, 3


class Answers(Traces):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.paths = {level: cls.record(level, level) for level in ("rounds", "rows")}

    @classmethod
    def record(cls, name, level, **params):
        """One request whose round 6 ends by id 7, its tenth round or its length."""
        rng = np.random.default_rng(9)
        made = dict(seed=5, temperature=0.9, max_tokens=99, logprobs=2, verify="token")
        with specd.Engine(vocab_size=VOCAB, max_batch=1, max_draft=DRAFT, eos_token_ids=[0],
                          trace=str(cls.folder / name), trace_options=f"level={level}") as engine:
            sequence = engine.open(specd.SamplingParams(**{**made, **params}), request_id="r")
            for number in range(6):
                rows = rng.normal(0, 2, (DRAFT + 1, VOCAB)).astype(np.float32)
                drafts = rng.integers(10, 20, DRAFT)
                rows[np.arange(DRAFT), drafts] += 9
                rows[:, [0, 7]] = -50
                if number == 5:
                    rows[:] = -50
                    rows[:, 7] = 50
                (result,) = engine.verify(rows, {sequence: drafts})
                if result.finish_reason is not None:
                    break
        return sorted((cls.folder / name).glob("*.mcap"))[-1]

    def changed(self, path, number, change):
        records = trace_file.read(path)
        value = [r.value for r in records if r.topic == "round"][number]
        change(value["answers"][0], value["tasks"][0])
        other = path.with_name("changed.mcap")
        trace_file.write(other, records)
        return other

    CHANGES = (
        ("status", lambda a, t: a.update(status=1)),
        ("refusal", lambda a, t: a.update(refusal=1)),
        ("finish_reason", lambda a, t: a.update(finish_reason=2)),
        ("num_accepted", lambda a, t: a.update(num_accepted=a.get("num_accepted", 0) ^ 1)),
        ("num_kept", lambda a, t: a.update(num_kept=a["num_kept"] ^ 1)),
        ("total_kept", lambda a, t: a.update(total_kept=a["total_kept"] + 1)),
        ("stop_token", lambda a, t: a.update(stop_token=7)),
        ("score", lambda a, t: t["token_scores"][1].update(rank=5)),
        ("score", lambda a, t: t["token_scores"][1].update(id=63)),
        ("score", lambda a, t: t["token_scores"][1].update(value=1.0)),
    )

    def test_verify_names_each_change(self):
        """Five of these were equal."""
        for level, path in self.paths.items():
            self.assertRegex(out("verify", path), r"(?m)^different +0$")
            for member, change in self.CHANGES:
                other = self.changed(path, 2, change)
                text = out("verify", other, "--limit=99", code=1)
                other.unlink()
                self.assertRegex(text, rf"round 3, sequence 0x\w+: .*{member}", (level, member))

    def test_diff_names_each_change(self):
        for level, path in self.paths.items():
            for member, change in self.CHANGES:
                other = self.changed(path, 2, change)
                text = out("diff", path, other, code=1)
                other.unlink()
                self.assertIn("first difference in round 3 of A and 3 of B", text, (level, member))
                self.assertRegex(text, rf"answer: .*{member}", (level, member))

    def test_runs_that_end_by_length_and_by_stop(self):
        """They had "0 differ": the tokens are the same."""
        stop = self.record("stop", "rounds", stop_token_ids=[7])
        total = trace_file.read(stop)
        kept = [r.value for r in total if r.topic == "round"][-1]["answers"][0]["total_kept"]
        length = self.record("length", "rounds", max_tokens=kept)
        text = out("diff", length, stop, code=1)
        self.assertIn("answer: finish_reason is length in A and stop in B", text)
        self.assertIn("answer: stop_token is -1 in A and 7 in B", text)
        for path in (stop, length):
            self.assertRegex(out("verify", path), r"(?m)^different +0$")

    def test_two_runs_in_one_folder(self):
        """They were summed, or refused without a way to choose."""
        folder = self.folder / "both"
        for _ in range(2):
            self.record("both", "rounds")
        files = sorted(folder.glob("*.mcap"))
        self.assertEqual(len(files), 2)
        lines = out("info", folder).splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:3]], ["1", "2"])
        self.assertIn("there are 2 recordings", error("show", folder, "1"))
        self.assertEqual(out("show", folder, "1", "--recording=2").count("sequence 0x"), 1)
        one = [line for line in out("verify", files[0]).splitlines() if line.startswith("consistent")]
        both = [line for line in out("verify", folder).splitlines() if line.startswith("consistent")]
        self.assertEqual(both, one * 2)
        self.assertIn("0 of them differ", out("diff", folder, folder, "--recording=1:2"))
        self.assertIn("no recording is that", error("verify", folder, "--recording=3"))

    def test_dumps_that_overlap(self):
        """Rounds of several dumps of a flight recorder are counted once."""
        folder = self.folder / "flight"
        rows = np.zeros((1, VOCAB), np.float32)
        with specd.Engine(vocab_size=VOCAB, max_batch=1, max_draft=DRAFT, trace=str(folder),
                          trace_options="level=rounds,flight=4") as engine:
            sequence = engine.open(specd.SamplingParams(seed=5, max_tokens=99), request_id="r")
            for num_rounds in (3, 2):
                for _ in range(num_rounds):
                    engine.verify(rows, {sequence: np.array([], int)})
                engine.dump_trace()
        files = sorted(folder.glob("*.mcap"))[:2]
        numbers = [[r.value["number"] for r in trace_file.read(path) if r.topic == "round"]
                   for path in files]
        self.assertEqual(numbers, [[1, 2, 3], [2, 3, 4, 5]])
        self.assertRegex(out("info", *files), r"(?m)^rounds +5 \(numbers 1 to 5; 0 ")
        self.assertEqual(len(out("list", *files).splitlines()), 1 + 5)
        self.assertEqual(len(out("list", *files, "--sequences").splitlines()), 1 + 1)


if __name__ == "__main__":
    unittest.main()
