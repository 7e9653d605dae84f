"""The whole way of a token, through real processes: engine, daemon, detokenizer, subscriber."""

import json
import unittest

from support import ProcessTest


class FlowTest(ProcessTest):
    def ids(self, *flags, **options):
        engine = self.engine("--print=ids", "--stats=none", "--max_tokens=60", *flags, **options)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        lines = engine.stdout.splitlines()
        self.assertEqual(len(lines), 4)
        for line in lines:
            self.assertLessEqual(len(line.split(": ")[1].split()), 60)
        return engine.stdout

    def test_four_streams_arrive_whole(self):
        daemon = self.daemon()
        client = self.client("--streams=4")
        engine = self.engine("--print=text", "--stats=none", "--max_tokens=60")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        # The engine decodes its own ids, from its own code: another path to the same text.
        texts = self.texts(client)
        self.assertEqual(len(texts), 4)
        for name, text in texts.items():
            self.assertIn(f"== {name}\n{text}", engine.stdout)
        ends = self.ends(client)
        for name, end in ends.items():
            self.assertIn(end["finish"], ("length", "stop"))
            self.assertGreater(end["accepted"], 0)
            self.assertLess(end["rounds"], end["tokens"])
        self.stop(daemon)
        self.assertEqual(self.sockets(), [])

    def test_spans_cover_the_text_and_count_the_accepted(self):
        self.daemon()
        client = self.client("--streams=1")
        engine = self.engine("--prompt=The daemon", "--print=none", "--max_tokens=60")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        for event in self.events(client):
            if event["kind"] != "open":
                self.assertEqual(sum(size for size, _ in event["spans"]),
                                 len(event["text"].encode()))
        statistics = json.loads(engine.stdout)["streams"][0]
        end = self.ends(client)["The daemon"]
        self.assertEqual(end["tokens"], statistics["tokens"])
        self.assertEqual(end["rounds"], statistics["rounds"])

    def test_same_seed_same_text_with_and_without_drafts(self):
        self.daemon()
        plain = self.ids("--draft=0")
        for draft in ("1", "5", "8"):
            self.assertEqual(self.ids(f"--draft={draft}"), plain)
        self.assertEqual(self.ids("--draft=5", "--drafts=sampled", "--verify=exact_match"), plain)
        self.assertNotEqual(self.ids("--draft=5", "--seed=2"), plain)

    def test_embedded_mode_gives_the_same_ids_as_the_daemon(self):
        self.daemon()
        for flags in (("--draft=5",), ("--draft=3", "--drafts=sampled", "--verify=token"),
                      ("--draft=5", "--drafts=sampled"),  # auto: block
                      ("--draft=4", "--temperature=0")):
            self.assertEqual(self.ids(*flags), self.ids(*flags, uri="embedded:cpu"))

    def test_a_stop_string_ends_text_and_engine(self):
        self.daemon()
        whole = self.client("--streams=1")
        engine = self.engine("--prompt=The daemon", "--print=none", "--max_tokens=120")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(whole.wait(), 0, whole.stderr)
        text = self.texts(whole)["The daemon"]
        stop = text[30:34]  # stands in the text, so the same seed will meet it again
        client = self.client("--streams=1")
        engine = self.engine("--prompt=The daemon", f"--stop={stop}", "--max_tokens=120",
                             "--forward_ms=20")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        self.assertEqual(self.texts(client)["The daemon"], text[: text.index(stop)])
        end = self.ends(client)["The daemon"]
        self.assertEqual((end["finish"], end["stop"]), ("stop", stop))
        # The engine was told: it stopped where the text did, long before its own limit.
        statistics = json.loads(engine.stdout.splitlines()[-1])["streams"][0]
        self.assertEqual(statistics["finish"], "stop")
        self.assertEqual(statistics["tokens"], end["tokens"])

    def test_ids_only(self):
        self.daemon("--detokenizer=off")
        self.ids("--draft=5")
        refused = self.engine("--stop=.")
        self.assertEqual(refused.wait(), 1)
        self.assertIn("stop_strings need a detokenizer", refused.stderr)


if __name__ == "__main__":
    unittest.main()
