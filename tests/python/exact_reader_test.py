"""ExactReader over messages and answers that are written down here: what it asks for, and that every byte
and id comes once."""

import unittest

from specd.exact_reader import ExactReader
from stream_reader_test import Publisher


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


class Side(Publisher):
    """A publisher that answers with the events that it has sent."""

    def __init__(self):
        super().__init__()
        self.sent, self.newest = {}, 0

    def keep(self, message):
        for event in message[1].get("events", [message[1]]):
            self.sent.setdefault(event["stream"], []).append(event)
            self.newest = max(self.newest, event["stream"])
        return message

    def answer(self, ask):
        base = {"v": 1, "epoch": self.epoch, "seq": self.seq, "newest": self.newest}
        if ask["ask"] == "from":
            if ask["stream"] not in self.sent:
                return {"v": 1, "again": False, "error": f"stream = {ask['stream']} is not kept"}
            return {**base, "events": self.sent[ask["stream"]]}
        wanted = [events for events in self.sent.values()
                  if (events[-1]["kind"] == "end") == (ask["ask"] == "ended")]
        return {**base, "events": [event for events in wanted for event in events]}


class ExactReaderTest(unittest.TestCase):
    def setUp(self):
        self.side, self.asked = Side(), []

    def read(self, reader, *messages):
        events = []
        for message in messages:
            events += reader.read(*message)
            while reader.asks:
                self.asked.append(reader.asks.popleft())
                events += reader.answer(self.asked[-1], self.side.answer(self.asked[-1]))
        return [(event.kind, event.stream, event.offset, list(event.ids) or event.text or event.why)
                for event in events]

    def test_a_lost_message_is_asked_for_and_nothing_comes_twice(self):
        side, reader = self.side, ExactReader(None, False)
        self.read(reader, side.heartbeat(0), side.keep(side.open(1, "a")), side.keep(side.text(1, "a", 0, "né")))
        side.keep(side.text(1, "a", 3, "lost"))
        got = self.read(reader, side.keep(side.text(1, "a", 7, "e")))
        self.assertEqual(got, [("text", 1, 3, "lost"), ("text", 1, 7, "e")])
        self.assertEqual([(ask["ask"], ask["offset"]) for ask in self.asked[1:]],
                         [("from", 3), ("ended", 0), ("streams", 0)])
        # An end that was lost is seen by the heartbeat after it.
        side.keep(side.end(1, "a", 8, "!"))
        self.assertEqual(self.read(reader, side.heartbeat(0)), [("end", 1, 8, "!")])

    def test_a_stream_that_began_before_is_had_from_its_beginning(self):
        side = self.side
        for message in (side.open(1, "a"), side.text(1, "a", 0, "be"), side.open(2, "b"),
                        side.end(2, "b", 0)):
            side.keep(message)
        reader = ExactReader(None, False)
        self.assertEqual(self.read(reader, side.heartbeat(1)), [("open", 1, 0, None), ("text", 1, 0, "be")])
        # What had ended before is of no interest, also after a loss.
        side.keep(side.open(3, "c"))
        self.assertEqual(self.read(reader, side.heartbeat(1)), [("open", 3, 0, None)])
        # But those who name it get it.
        self.assertEqual([each[:2] for each in self.read(ExactReader("b", False), side.heartbeat(1))],
                         [("open", 2), ("end", 2)])

    def test_a_text_side_that_was_replaced_continues_its_streams(self):
        side, reader = self.side, ExactReader(None, False)
        self.read(reader, side.heartbeat(0), side.keep(side.open(1, "a")), side.keep(side.text(1, "a", 0, "one ")))
        side.seq = 0
        side.keep(side.text(1, "a", 4, "two"))
        self.assertEqual(self.read(reader, side.heartbeat(1)), [("text", 1, 4, "two")])
        self.assertEqual(reader.read(b"heartbeat", {"v": 1, "epoch": 0, "seq": 0, "streams": 0}), [])

    def test_what_cannot_be_given_is_lost_by_name(self):
        side, reader = self.side, ExactReader(None, False)
        self.read(reader, side.heartbeat(0), side.open(1, "a"))
        side.seq += 1
        self.assertEqual(self.read(reader, side.heartbeat(1)), [("lost", 1, 0, "stream = 1 is not kept")])
        side.epoch += 1
        self.read(reader, side.keep(side.open(9, "b")))
        side.epoch += 1
        self.assertEqual(self.read(reader, side.heartbeat(0))[0][0], "lost")

    def test_ids_are_proved_also_if_a_stop_string_made_the_last_ones_void(self):
        for checksum, kind in ((fnv(b"\1\0\0\0\2\0\0\0"), "end"), (7, "lost")):
            side, reader = self.side, ExactReader("a", True)
            self.setUp()
            side = self.side
            ids = {"kind": "tokens", "stream": 1, "offset": 0, "ids": [1, 2, 3], "accepted": 0}
            end = {"kind": "end", "stream": 1, "offset": 2, "finish": "stop", "checksum": checksum}
            got = self.read(reader, side.heartbeat(0),
                            side.keep(side.batch({"kind": "open", "stream": 1, "offset": 0, "rid": "a"})),
                            side.keep(side.batch(ids)), side.keep(side.batch(end)))
            self.assertEqual(got[1], ("tokens", 1, 0, [1, 2, 3]))
            self.assertEqual(got[2][0], kind)

    def test_the_half_of_a_round_that_is_known_is_cut_off(self):
        side, reader = self.side, ExactReader(None, True)
        ids = {"kind": "tokens", "stream": 1, "offset": 0, "ids": [1, 2, 3], "accepted": 0}
        self.read(reader, side.heartbeat(0),
                  side.keep(side.batch({"kind": "open", "stream": 1, "offset": 0, "rid": "a"}, ids)))
        again = {**ids, "offset": 1, "ids": [2, 3, 4, 5], "scores": [[[i, -1.0, 1]] for i in (2, 3, 4, 5)]}
        (event,) = reader.read(*side.batch(again))
        self.assertEqual((event.offset, event.token_offset, event.ids), (3, 3, (4, 5)))
        self.assertEqual(event.scores["id"].tolist(), [[4], [5]])


if __name__ == "__main__":
    unittest.main()
