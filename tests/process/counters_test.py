"""The counters of a daemon from outside: exact numbers, and a file that is read whatever the daemon does.

Expected numbers are those that the engine counted itself, from the answers that it got.
"""

import json
import unittest

from support import ProcessTest


class CountersTest(ProcessTest):
    def setUp(self):
        super().setUp()
        self.counters = self.folder / "s.counters"

    def specctl(self, *arguments, path=None):
        return self.run_to_end("specctl", *arguments, f"--counters={path or self.counters}")

    def stats(self, code=0):
        """The values by name and labels."""
        done = self.specctl("stats", "--json")
        self.assertEqual(done.code, code, done.stderr)
        self.said = json.loads(done.stdout)
        return {(each["name"].removeprefix("specd:"), *each["labels"].values()): each
                for each in self.said["metrics"]}

    def run_engine(self, *flags, tokens=40):
        """The total of the engine's own count, with the rounds of each sequence added up."""
        engine = self.engine("--prompt=The daemon|A round", f"--max_tokens={tokens}", "--print=none",
                             *flags)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        report = json.loads(engine.stdout)
        return report["total"] | {"sequence_rounds": sum(each["rounds"] for each in report["streams"])}

    def test_the_numbers_are_those_of_the_engine(self):
        daemon = self.daemon()
        total = self.run_engine()
        stats = self.stats()
        for name, wanted in (("spec_decode_num_draft_tokens", "drafts"), ("kept_tokens", "tokens"),
                             ("spec_decode_num_accepted_tokens", "accepted"), ("rounds", "rounds"),
                             ("sequence_rounds", "sequence_rounds")):
            self.assertEqual(stats[(name,)]["value"], total[wanted], name)
        self.assertGreater(total["accepted"], 0)
        per_place = [each["value"] for key, each in stats.items() if key[0].endswith("_per_pos")]
        self.assertEqual(sum(per_place), total["accepted"])
        self.assertEqual(per_place, sorted(per_place, reverse=True))
        rounds = stats[("rounds",)]["value"]
        for name in ("wait", "verify", "commit"):
            times = stats[(f"round_{name}_seconds",)]
            self.assertEqual((times["count"], sum(times["buckets"])), (rounds, rounds))
        self.assertEqual(stats[("attached_sessions",)]["value"], 1)
        self.assertEqual(stats[("state",)]["value"], 1)
        self.assertEqual(self.said["pid"], daemon.process.pid)
        self.stop(daemon)
        self.assertIn(f"stopped after {rounds} rounds, {total['tokens']} tokens, {total['drafts']} drafts of which "
                      f"{total['accepted']} accepted", daemon.stderr)

    def test_lossy_methods_are_refused_by_name_or_counted(self):
        daemon = self.daemon()
        lossy = ("--prompt=The daemon", "--max_tokens=8", "--print=none", "--verify=relaxed")
        refused = self.engine(*lossy)
        self.assertNotEqual(refused.wait(), 0)
        self.assertIn("--allow_lossy", refused.stderr)
        self.stop(daemon)
        daemon = self.daemon("--allow_lossy")
        engine = self.engine(*lossy)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        rounds = self.stats()[("lossy_sequence_rounds",)]["value"]
        self.assertGreater(rounds, 0)
        self.run_engine()
        self.assertEqual(self.stats()[("lossy_sequence_rounds",)]["value"], rounds)
        # At the rates 1 and 0 a draft token stands always or never, whatever the model says. Behind the end of
        # a text none does.
        for rate, least, most in (("1", 0.9, 1), ("0", 0, 0)):
            total = self.run_engine("--verify=synthetic", f"--synthetic_rates={rate}")
            self.assertGreater(total["drafts"], 0)
            self.assertTrue(least <= total["accepted"] / total["drafts"] <= most, total)
        wrong = self.engine("--verify=synthetic", "--synthetic_rates=1,many")
        self.assertEqual(wrong.wait(), 2)
        self.assertIn("synthetic_rates", wrong.stderr)
        self.stop(daemon)

    def test_sequences_and_text_are_counted(self):
        daemon = self.daemon()
        client = self.client("--streams=2")
        total = self.run_engine()
        self.assertEqual(client.wait(), 0, client.stderr)
        stats = self.stats()
        self.assertEqual(stats[("opened_sequences",)]["value"], 2)
        self.assertEqual(sum(each["value"] for key, each in stats.items() if key[0] == "ended_sequences"), 2)
        self.assertEqual(stats[("sequences",)]["value"], 0)
        self.assertEqual(stats[("text_streams",)]["value"], 2)
        self.assertEqual(stats[("text_tokens",)]["value"], total["tokens"])
        self.assertEqual(stats[("lost_messages", "text")]["value"], 0)
        self.stop(daemon)

    def test_a_refused_engine_is_counted_by_its_code(self):
        daemon = self.daemon("--vocab_size=4096")
        engine = self.engine("--prompt=The daemon", "--max_tokens=4")
        self.assertNotEqual(engine.wait(), 0)
        self.assertEqual({key[1]: each["value"] for key, each in self.stats().items() if key[0] == "refused_requests"},
                         {"SPECD_ERROR_VOCABULARY": 1})
        self.stop(daemon)

    def test_a_daemon_that_hangs_is_read(self):
        daemon = self.daemon()
        total = self.run_engine()
        daemon.stop()
        self.assertEqual(self.stats()[("kept_tokens",)]["value"], total["tokens"])
        self.assertTrue(self.said["alive"])
        beats = [each["value"] for key, each in self.stats().items() if key[0] == "thread_beats"]
        self.assertEqual(beats, [each["value"] for key, each in self.stats().items() if key[0] == "thread_beats"])
        self.kill(daemon)

    def test_a_daemon_that_was_killed_is_read_and_its_successor_counts_anew(self):
        daemon = self.daemon()
        total = self.run_engine()
        self.kill(daemon)
        self.assertEqual(self.stats(code=1)[("kept_tokens",)]["value"], total["tokens"])
        self.assertFalse(self.said["alive"])
        done = self.specctl("stats")
        self.assertIn(f"daemon {daemon.process.pid} has ended", done.stdout)
        self.assertIn("these are its last numbers", done.stderr)
        other = self.daemon()
        self.assertEqual(self.stats()[("kept_tokens",)]["value"], 0)
        self.assertEqual(self.said["pid"], other.process.pid)
        self.stop(other)
        self.assertFalse(self.counters.exists())

    def test_the_command_line(self):
        self.assertEqual(self.specctl("stats").code, 1)  # there is no daemon
        for words in ([], ["status"], ["stats", "more"], ["stats", "--no_such_flag"], ["top", "--interval=0"],
                      ["top", "--interval=nan"]):
            done = self.specctl(*words)
            self.assertEqual(done.code, 2, words)
            self.assertTrue(done.stderr)
        self.assertIn("did you mean stats?", self.specctl("stast").stderr)
        done = self.run_to_end("specctl", "--help")
        self.assertEqual(done.code, 0)
        for word in ("specctl stats", "specctl top --interval=0.5", "--counters", "Exit status"):
            self.assertIn(word, done.stdout)
        self.assertEqual(self.run_to_end("specctl", "--version").code, 0)
        self.assertIn("# Metrics", self.run_to_end("specctl", "describe").stdout)

    def test_top_has_rates_and_no_colours_in_a_file(self):
        daemon = self.daemon()
        top = self.start("specctl", "top", "--interval=0.1", "--count=3", f"--counters={self.counters}")
        self.run_engine(tokens=400)
        self.assertEqual(top.wait(), 0, top.stderr)
        self.assertEqual(top.stdout.count("tokens per draft"), 3)
        self.assertIn("per second", top.stdout)
        self.assertNotIn("\x1b", top.stdout)
        self.stop(daemon)


if __name__ == "__main__":
    unittest.main()
