"""ExactReader over messages and answers that are written down here: what it asks for, and that every byte
and id comes once."""

import copy
import unittest

from specd import Error
from specd.exact_reader import ExactReader
from stream_reader_test import Publisher


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


class Side(Publisher):
    """A publisher that gives its events again as daemon/text/kept_texts.cc and kept_streams.cc do: texts from
    a byte on, in one event, ids in whole rounds, and both in pages."""

    def __init__(self, page=1000):
        super().__init__()
        self.sent, self.newest, self.page = {}, 0, page  # bytes (or ids) of a page

    def keep(self, message):
        for event in message[1].get("events", [message[1]]):
            self.sent.setdefault(event["stream"], []).append(event)
            self.newest = max(self.newest, event["stream"])
        return message

    def answer(self, ask):
        number, offset = ask["stream"], ask["offset"]
        if number not in self.sent and (ask["ask"] == "from" or offset > 0):
            return {"v": 1, "again": False, "error": f"stream = {number} is not kept"}
        answer = {"v": 1, "epoch": self.epoch, "seq": self.seq, "newest": self.newest, "events": []}
        for stream in sorted(self.sent):
            events = self.sent[stream]
            if stream != number and ask["ask"] == "from" or stream < number:
                continue
            if ask["ask"] != "from" and (ask["ask"] == "ended") != (events[-1]["kind"] == "end"):
                continue
            if ask.get("rid", events[0]["rid"]) != events[0]["rid"]:
                continue
            room = self.page - sum(len(each.get("ids", each.get("text", ""))) for each in answer["events"])
            if room <= 0:
                return {**answer, "next": [stream, 0]}
            rest = self.rest_of(events, offset if stream == number else 0, room)
            answer["events"] += rest
            at = rest[-1] if rest else events[-1]
            has = at.get("byte_offset", at.get("offset", 0)) + len(at.get("ids", at.get("text", "").encode()))
            if has < self.end_of(events):
                return {**answer, "next": [stream, has]}
        return answer

    @staticmethod
    def end_of(events):
        last = events[-1]
        if "byte_offset" in last:
            return last["byte_offset"] + len(last["text"].encode())
        return last.get("offset", 0) + len(last.get("ids", ()))

    def rest_of(self, events, offset, room):
        """The events of one stream from the offset on, up to so many bytes (or ids)."""
        rest = [each for each in events if each["kind"] == "open" and offset <= each.get("offset", 0)]
        if any("ids" in each for each in events):
            for each in events:
                if each["kind"] == "tokens" and each["offset"] + len(each["ids"]) > offset and room > 0:
                    rest.append(each)
                    room -= len(each["ids"])
            return rest + ([events[-1]] if events[-1]["kind"] == "end" and room > 0 else [])
        # Whole events up to the size of a page, at least one.
        ends = [each["byte_offset"] + len(each["text"].encode()) for each in events if "text" in each]
        later = [end for end in ends if end > offset]
        if later:
            end = max([each for each in later if each - offset <= room], default=later[0])
            text = "".join(each.get("text", "") for each in events).encode()[offset:end].decode()
            rest.append({**self.text(events[0]["stream"], events[0]["rid"], offset, text)[1], "seq": 0})
            self.seq -= 1
            room -= end - offset
        if events[-1]["kind"] == "end" and (not later or end == ends[-1]):
            rest.append({**events[-1], "text": "", "spans": [], "byte_offset": ends[-1]})
        return rest


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
        self.assertEqual(got, [("text", 1, 3, "loste")])
        self.assertEqual([(ask["ask"], ask["offset"]) for ask in self.asked[1:]],
                         [("from", 3), ("ended", 0), ("streams", 0)])
        # An end that was lost is seen by the heartbeat after it.
        side.keep(side.end(1, "a", 8, "!"))
        self.assertEqual(self.read(reader, side.heartbeat(0)), [("text", 1, 8, "!"), ("end", 1, 9, None)])

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

    def test_a_text_side_without_its_daemon_subscribes_nobody(self):
        # Bug: a text side was killed before it had heard its daemon. Streams that began behind its heartbeat, and
        # ended before its successor's first one, did not come.
        side, reader = self.side, ExactReader(None, False)
        self.assertEqual(reader.read(b"heartbeat", {"v": 1, "epoch": 0, "seq": 0, "streams": 0}), [])
        self.assertFalse(reader.is_subscribed)
        self.assertEqual(self.read(reader, side.heartbeat(0)), [])
        self.assertTrue(reader.is_subscribed)

    def test_a_text_side_that_was_replaced_continues_its_streams(self):
        side, reader = self.side, ExactReader(None, False)
        self.read(reader, side.heartbeat(0), side.keep(side.open(1, "a")), side.keep(side.text(1, "a", 0, "one ")))
        side.seq = 0
        side.keep(side.text(1, "a", 4, "two"))
        self.assertEqual(self.read(reader, side.heartbeat(1)), [("text", 1, 4, "two")])
        self.assertEqual(reader.read(b"heartbeat", {"v": 1, "epoch": 0, "seq": 0, "streams": 0}), [])

    def test_a_text_side_that_was_replaced_is_noticed_at_the_same_number(self):
        # Bug: a successor whose texts were as many as those before was taken for the same text side. A stream
        # that began and ended in between did not come.
        side, reader = self.side, ExactReader(None, False)
        for message in (side.open(1, "a"), side.end(1, "a", 0)):
            side.keep(message)

        def heartbeat(instance):
            topic, message = side.heartbeat(0)
            return topic, {**message, "seq": 2, "instance": instance}
        self.assertEqual(self.read(reader, heartbeat(7), heartbeat(7)), [])
        num_asked = len(self.asked)
        for message in (side.open(2, "b"), side.end(2, "b", 0)):
            side.keep(message)
        self.assertEqual([each[:2] for each in self.read(reader, heartbeat(8))], [("open", 2), ("end", 2)])
        self.assertGreater(len(self.asked), num_asked)
        num_asked = len(self.asked)
        self.assertEqual(self.read(reader, heartbeat(8)), [])
        self.assertEqual(len(self.asked), num_asked)

    def test_what_cannot_be_given_is_lost_by_name(self):
        side, reader = self.side, ExactReader(None, False)
        self.read(reader, side.heartbeat(0), side.open(1, "a"))
        side.seq += 1
        self.assertEqual(self.read(reader, side.heartbeat(1)), [("lost", 1, 0, "stream = 1 is not kept")])
        side.epoch += 1
        self.read(reader, side.keep(side.open(9, "b")))
        side.epoch += 1
        self.assertEqual(self.read(reader, side.heartbeat(0))[0][0], "lost")

    def test_streams_go_on_at_the_next_daemon_by_their_names(self):
        def resumed(message):
            return message[0], {**message[1], "resumed": True}
        side, reader = self.side, ExactReader(None, False)
        self.read(reader, side.heartbeat(0), *map(side.keep, (
            side.open(1, "a"), side.text(1, "a", 0, "one"), side.open(2, "b"), side.text(2, "b", 0, "two"),
            side.open(3, "c"), side.text(3, "c", 0, "x"), side.end(3, "c", 1))))
        side.epoch, side.seq, side.sent = side.epoch + 1, 0, {}
        # The engine has opened b and c again; c had ended, and the reader knows. Nobody opens a.
        got = self.read(reader, side.heartbeat(0), *map(side.keep, (
            resumed(side.open(5, "b")), side.text(5, "b", 0, "tw"), side.text(5, "b", 2, "o th"),
            resumed(side.open(6, "c")), side.text(6, "c", 0, "x"), side.end(6, "c", 1),
            side.text(5, "b", 6, "ree"))))
        # A resumed stream keeps the number that it had.
        self.assertEqual([each[:4] for each in got], [("text", 2, 3, " three")])
        for _ in range(60):
            got += self.read(reader, side.heartbeat(1))
        self.assertEqual([each[:3] for each in got[1:]], [("lost", 1, 3)])
        # Bug: the engine of a came later, and the stream was kept from the reader for ever.
        got = self.read(reader, *map(side.keep, (resumed(side.open(7, "a")), side.text(7, "a", 0, "one more"))))
        a = got[0][1]
        self.assertEqual(got, [("open", a, 0, None), ("text", a, 0, "one more")])
        self.assertNotIn(a, (1, 2, 3))
        # Another stream of the name is none of the reader's old ones.
        side.epoch, side.seq, side.sent = side.epoch + 1, 0, {}
        got = self.read(reader, side.heartbeat(0), side.keep(side.open(1, "b")))
        self.assertEqual([each[:2] for each in got], [("lost", 2), ("open", a + 1)])

    def test_an_ask_that_meets_the_next_daemon_loses_no_stream(self):
        side, reader = self.side, ExactReader(None, False)
        self.read(reader, side.heartbeat(0), *map(side.keep, (side.open(1, "b"), side.text(1, "b", 0, "two"))))
        side.seq += 1  # a message is lost
        self.assertEqual(reader.read(*side.heartbeat(0)), [])
        side.epoch, side.seq, side.sent = side.epoch + 1, 0, {}
        answers = []
        while reader.asks:
            ask = reader.asks.popleft()
            answers.append(side.answer(ask))
            self.assertEqual(reader.answer(ask, answers[-1]), [])
        self.assertIn("error", answers[0])
        opening = side.open(5, "b")
        got = self.read(reader, side.heartbeat(0), side.keep((opening[0], {**opening[1], "resumed": True})),
                        side.keep(side.text(5, "b", 0, "two three")))
        self.assertEqual([each[:4] for each in got], [("text", 1, 3, " three")])
        # An aborted text may have come further than this daemon knows. What stopped may not.
        for finish, kind in ("abort", "end"), ("stop", "lost"):
            end = side.text(5, "b", 4, "", kind="end", finish=finish, stop=None, checksum=fnv(b"two "))
            got = copy.deepcopy(reader).read(*end)
            self.assertEqual([(each.kind, each.stream, each.offset) for each in got], [(kind, 1, 9)])
            side.seq -= 1

    def test_pages_are_joined(self):
        side, reader = Side(page=4), ExactReader(None, False)
        self.side = side
        for stream, text in (1, "one "), (2, "n\u00e9 two"):
            side.keep(side.open(stream, "a"))
            at = 0
            for letter in text * 3:
                side.keep(side.text(stream, "a", at, letter))
                at += len(letter.encode())
        got = self.read(reader, side.heartbeat(2))
        for stream, text in (1, "one "), (2, "n\u00e9 two"):
            self.assertEqual("".join(each[3] or "" for each in got if each[1] == stream), text * 3)
        self.assertGreater(len(self.asked), 6)

    def test_a_stream_that_goes_between_two_pages_is_lost_and_those_behind_it_are_read(self):
        # Bug: the refusal of a page was swallowed: the stream had no end, and the others did not come.
        side, reader = Side(page=4), ExactReader("a", False)
        for stream in 1, 2:
            for message in (side.open(stream, "a"), side.text(stream, "a", 0, "abcd"), side.end(stream, "a", 4, "ef")):
                side.keep(message)
        events = reader.read(*side.heartbeat(0))
        ask = reader.asks.popleft()
        self.assertEqual(ask["ask"], "ended")
        events += reader.answer(ask, side.answer(ask))
        del side.sent[1]
        while reader.asks:
            ask = reader.asks.popleft()
            events += reader.answer(ask, side.answer(ask))
        self.assertEqual([(event.kind, event.stream, event.text or event.why) for event in events],
                         [("open", 1, None), ("text", 1, "abcd"), ("lost", 1, "stream = 1 is not kept"),
                          ("open", 2, None), ("text", 2, "abcd"), ("text", 2, "ef"), ("end", 2, None)])

    def test_an_ask_that_is_refused_as_a_whole_is_an_error(self):
        reader = ExactReader("x" * 129, False)
        reader.read(*self.side.heartbeat(0))
        with self.assertRaisesRegex(Error, "rid takes more than 128"):
            reader.answer(reader.asks.popleft(), {"v": 1, "again": False, "error": "rid takes more than 128 bytes"})

    def test_a_stream_that_was_never_seen_to_open_is_lost_once(self):
        # Bug: a reader was told nothing of a stream whose opening and ids could not be given.
        side, reader = self.side, ExactReader(None, False)
        self.read(reader, side.heartbeat(0))
        got = self.read(reader, side.text(7, "a", 9, "x"), side.text(7, "a", 10, "y"))
        self.assertEqual(got, [("lost", 7, 0, "stream = 7 is not kept")])
        got = self.read(ExactReader("b", True), side.heartbeat(0), side.batch(
            {"kind": "tokens", "stream": 8, "offset": 3, "ids": [1], "accepted": 0}))
        self.assertEqual(got, [])  # perhaps of another request

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
