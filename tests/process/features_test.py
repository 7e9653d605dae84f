"""What a round can carry, through real processes: the same tokens and scores, bit for bit, in this
process and in a daemon, with one thread and with several; and the text of sequences that were opened
together or forked."""

import pathlib
import unittest

from support import BIN, ProcessTest

ENGINE = pathlib.Path(BIN) / "features_engine"


class FeaturesTest(ProcessTest):
    def features(self, *arguments):
        engine = self.start(ENGINE, *arguments)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        return engine.stdout

    def test_embedded_and_attached_agree_bit_for_bit(self):
        embedded = self.features("embedded:cpu", "1")
        self.assertEqual(self.features("embedded:cpu", "3"), embedded)
        self.daemon("--threads=2")
        self.assertEqual(self.features(f"unix:{self.socket}"), embedded)

    def test_the_streams_of_one_opening_and_a_fork_have_texts_of_their_own(self):
        self.daemon()
        client = self.client("--streams=3")
        lines = self.features(f"unix:{self.socket}").splitlines()
        self.assertEqual(client.wait(), 0, client.stderr)
        fork_at = next(int(line.split()[2]) for line in lines if line.startswith("fork at"))
        ends = self.ends(client)
        self.assertEqual(set(ends), {"features", "features#1", "fork"})
        self.texts(client)  # every text begins at byte 0 and has no gap
        first = {}
        for event in self.events(client):
            if event["kind"] != "open":
                first.setdefault(event["rid"], event["token_offset"])
        for name, end in ends.items():
            self.assertEqual(end["finish"], "length")
            self.assertEqual(end["tokens"], 40)
            gained = sum(line.split()[0] == name for line in lines if not line.startswith("fork at"))
            self.assertEqual(gained, 40 - (fork_at if name == "fork" else 0))
        self.assertEqual(first, {"features": 0, "features#1": 0, "fork": fork_at})


if __name__ == "__main__":
    unittest.main()
