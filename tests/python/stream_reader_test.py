"""StreamReader over messages that are written down here, in the order and with the losses that
docs/PROTOCOL.md describes."""

import math
import unittest

from specd import Error, StreamEvent
from specd.results import Logprob
from specd.stream_reader import HEARTBEAT, StreamReader, reasoning_of

EPOCH = 0x0102030405060708


class Publisher:
    """Makes the messages of one publisher, numbered."""

    def __init__(self, epoch=EPOCH):
        self.epoch, self.seq = epoch, 0

    def _next(self, **message):
        self.seq += 1
        return {"v": 1, "epoch": self.epoch, "seq": self.seq, **message}

    def open(self, stream, rid):
        return b"text/" + rid.encode() + b"/", self._next(kind="open", stream=stream, rid=rid)

    def text(self, stream, rid, at, text, **more):
        message = {"kind": "text", "stream": stream, "rid": rid, "token_offset": at // 2,
                   "tokens": at, "byte_offset": at, "text": text,
                   "spans": [[len(text.encode()), 0]], **more}
        return b"text/" + rid.encode() + b"/", self._next(**message)

    def end(self, stream, rid, at, text=""):
        return self.text(stream, rid, at, text, kind="end", finish="stop", stop=None)

    def batch(self, *events):
        return b"tokens", self._next(events=list(events))

    def heartbeat(self, streams):
        return HEARTBEAT, {"v": 1, "epoch": self.epoch, "seq": self.seq, "streams": streams}


def read(reader, *messages):
    """The events of messages, without the messages themselves."""
    return [brief(event) for message in messages for event in reader.read(*message)]


def brief(event):
    return (event.kind, event.stream, event.request_id, event.offset, event.missed,
            list(event.ids) or event.text)


class TextTest(unittest.TestCase):
    def test_text_of_the_thought_and_bytes_of_scores(self):
        reader, publisher = StreamReader("r"), Publisher()
        reader.read(*publisher.open(1, "r"))
        thought, = reader.read(*publisher.text(1, "r", 0, "h\u20acso", spans=[[4, 3], [1, 0], [1, 1]],
                                               scores=[[[5, -0.5, 1], [-1, 0.0, 0]]],
                                               score_bytes=[[b"\xe2\x82", b""]]))
        self.assertEqual((thought.reasoning, thought.answer), ("h\u20ac", "so"))
        self.assertEqual(thought.logprobs, [{5: Logprob(-0.5, 1, b"\xe2\x82")}])
        end, = reader.read(*publisher.text(1, "r", 6, "x", kind="end", finish="stop", stop=None,
                                           reasoning_tokens=3))
        self.assertEqual((end.reasoning, end.answer, end.reasoning_tokens), ("", "x", 3))
        # Of an event whose first bytes had come, as an exact reader has it.
        message = {"text": "h\u20acso", "spans": [[4, 2], [2, 0]]}
        self.assertEqual([reasoning_of(message, repeated) for repeated in (0, 1, 4, 6)],
                         ["h\u20ac", "\u20ac", "", ""])

    def test_streams_that_were_seen_to_open_have_everything(self):
        sent, reader = Publisher(), StreamReader()
        # A text side that has not heard its daemon does not hear its streams either.
        self.assertEqual(read(reader, Publisher(epoch=0).heartbeat(0)), [])
        self.assertFalse(reader.is_subscribed)
        self.assertEqual(read(reader, sent.heartbeat(0)), [])
        self.assertTrue(reader.is_subscribed)
        events = read(reader, sent.open(1, "a"), sent.open(2, "b"), sent.text(1, "a", 0, "né"),
                      sent.text(2, "b", 0, "x"), sent.text(1, "a", 3, "e"), sent.heartbeat(2),
                      sent.end(1, "a", 4), sent.end(2, "b", 1, "y"), sent.heartbeat(0))
        self.assertEqual(events, [
            ("open", 1, "a", 0, 0, ""), ("open", 2, "b", 0, 0, ""), ("text", 1, "a", 0, 0, "né"),
            ("text", 2, "b", 0, 0, "x"), ("text", 1, "a", 3, 0, "e"), ("end", 1, "a", 4, 0, ""),
            ("end", 2, "b", 1, 0, "y")])

    def test_a_stream_that_is_under_way_says_what_came_before(self):
        sent, reader = Publisher(), StreamReader()
        sent.seq = 70
        self.assertEqual(read(reader, sent.text(1, "a", 12, "xy"), sent.text(1, "a", 14, "z"),
                              sent.end(2, "b", 5, "!")),
                         [("text", 1, "a", 12, 12, "xy"), ("text", 1, "a", 14, 0, "z"),
                          ("end", 2, "b", 5, 5, "!")])

    def test_a_gap_is_said_once_and_a_repetition_is_dropped(self):
        sent, reader = Publisher(), StreamReader()
        first = sent.open(1, "a"), sent.text(1, "a", 0, "abc")
        sent.text(1, "a", 3, "lost")
        self.assertEqual(read(reader, *first, sent.text(1, "a", 7, "d"), sent.text(1, "a", 3, "lost"),
                              sent.text(1, "a", 8, "e")),
                         [("open", 1, "a", 0, 0, ""), ("text", 1, "a", 0, 0, "abc"),
                          ("text", 1, "a", 7, 4, "d"), ("text", 1, "a", 8, 0, "e")])

    def test_one_name_twice_is_two_streams(self):
        sent, reader = Publisher(), StreamReader()
        events = read(reader, sent.open(1, "a"), sent.text(1, "a", 0, "abc"), sent.end(1, "a", 3),
                      sent.open(9, "a"), sent.text(9, "a", 0, "x"))
        self.assertEqual(events[-1], ("text", 9, "a", 0, 0, "x"))

    def test_only_the_request_that_was_asked_for(self):
        # The topic of a name with a slash begins with that of another.
        sent, reader = Publisher(), StreamReader("a")
        self.assertEqual(read(reader, sent.text(1, "a/b", 0, "x"), sent.text(2, "a", 0, "y")),
                         [("text", 2, "a", 0, 0, "y")])

    def test_another_publisher_loses_every_stream_that_has_not_ended(self):
        for second in (Publisher(EPOCH + 1), Publisher()):  # a daemon, or a detokenizer, anew
            sent, reader = Publisher(), StreamReader()
            read(reader, sent.open(1, "a"), sent.text(1, "a", 0, "abc"), sent.open(2, "b"),
                 sent.end(2, "b", 0))
            with self.subTest(second.epoch):
                self.assertEqual(read(reader, second.open(1, "c"), second.text(1, "c", 0, "x")),
                                 [("lost", 1, "a", 3, 0, ""), ("open", 1, "c", 0, 0, ""),
                                  ("text", 1, "c", 0, 0, "x")])

    def test_another_publisher_is_noticed_at_any_number(self):
        # The numbers of another daemon go on; those of a detokenizer under the same daemon do not.
        for epoch, num_before, num_skipped in ((EPOCH + 1, 1, 9), (EPOCH, 1, 0), (EPOCH, 5, 2)):
            sent, reader = Publisher(), StreamReader()
            read(reader, *(sent.open(stream, "a") for stream in range(num_before)))
            second = Publisher(epoch)
            second.seq = num_skipped
            with self.subTest(epoch=epoch, before=num_before):
                events = read(reader, second.open(70, "c"))
                self.assertEqual([event[0] for event in events], ["lost"] * num_before + ["open"])

    def test_a_detokenizer_that_has_not_heard_its_daemon_yet(self):
        sent, reader = Publisher(), StreamReader()
        read(reader, sent.open(1, "a"))
        anew = Publisher(epoch=0)
        self.assertEqual(read(reader, anew.heartbeat(0)), [("lost", 1, "a", 0, 0, "")])
        # The same daemon is heard: nothing is lost a second time.
        anew.epoch = EPOCH
        self.assertEqual(read(reader, anew.heartbeat(0), anew.open(4, "b"), anew.heartbeat(1)),
                         [("open", 4, "b", 0, 0, "")])

    def test_the_end_of_a_stream_was_lost(self):
        sent, reader = Publisher(), StreamReader()
        read(reader, sent.open(1, "a"), sent.text(1, "a", 0, "abc"))
        sent.end(1, "a", 3)
        self.assertEqual(read(reader, sent.heartbeat(0), sent.heartbeat(0)),
                         [("lost", 1, "a", 3, 0, "")])

    def test_another_version_is_refused_and_unknown_keys_are_not(self):
        sent, reader = Publisher(), StreamReader()
        topic, message = sent.text(1, "a", 0, "x", colour="red")
        self.assertEqual(read(reader, (topic, message)), [("text", 1, "a", 0, 0, "x")])
        with self.assertRaises(Error) as caught:
            reader.read(topic, {**message, "v": 2})
        self.assertEqual(caught.exception.code_name, "SPECD_ERROR_VERSION")
        self.assertIn("version 2", str(caught.exception))


class ScoresTest(unittest.TestCase):
    scores = [[[5, -0.5, 1], [5, -0.5, 1], [-1, -math.inf, 0]], [[6, -2.25, 2], [8, -0.25, 1], [6, -2.25, 2]]]

    def test_scores_of_ids_and_of_texts(self):
        sent, reader = Publisher(), StreamReader()
        part = {**TokensTest.tokens(1, 40, [5, 6]), "scores": self.scores}
        opened, event = reader.read(*sent.batch(
            {"kind": "open", "stream": 1, "rid": "a", "offset": 40}, part))
        self.assertEqual((opened.scores, opened.logprobs), (None, None))
        sent, reader = Publisher(), StreamReader()
        text, = reader.read(*sent.text(1, "a", 0, "", token_offset=40, tokens=42, scores=self.scores))
        for each in (event, text):
            self.assertEqual(each.token_offset, 40)
            self.assertEqual(each.scores.tolist(), [[tuple(score) for score in token]
                                                    for token in self.scores])
            self.assertEqual(each.logprobs, [{5: Logprob(-0.5, 1)},
                                             {6: Logprob(-2.25, 2), 8: Logprob(-0.25, 1)}])
        self.assertEqual(text.text, "")
        self.assertEqual(event, event)

    def test_no_scores(self):
        sent, reader = Publisher(), StreamReader()
        event, = reader.read(*sent.text(1, "a", 0, "x"))
        self.assertEqual((event.scores, event.logprobs), (None, None))


class TokensTest(unittest.TestCase):
    @staticmethod
    def tokens(stream, offset, ids):
        return {"kind": "tokens", "stream": stream, "offset": offset, "ids": ids, "accepted": 0}

    def test_ids_by_batches_with_the_name_that_open_has(self):
        sent, reader = Publisher(), StreamReader()
        batch = sent.batch({"kind": "open", "stream": 1, "rid": "a", "offset": 0},
                           self.tokens(1, 0, [5, 6]), self.tokens(7, 30, [1]))
        self.assertEqual(read(reader, batch), [
            ("open", 1, "a", 0, 0, ""), ("tokens", 1, "a", 0, 0, [5, 6]),
            ("tokens", 7, None, 30, 30, [1])])
        # A stop string was found: tokens from the end's offset on are void.
        end = {"kind": "end", "stream": 1, "offset": 1, "finish": "stop"}
        self.assertEqual(read(reader, sent.batch(end, self.tokens(7, 33, [2]))),
                         [("end", 1, "a", 1, 0, ""), ("tokens", 7, None, 33, 2, [2])])

    def test_a_stream_that_was_opened_with_outputs_misses_nothing(self):
        sent, reader = Publisher(), StreamReader()
        batch = sent.batch({"kind": "open", "stream": 1, "rid": "a", "offset": 40},
                           self.tokens(1, 40, [5]))
        self.assertEqual(read(reader, batch),
                         [("open", 1, "a", 40, 0, ""), ("tokens", 1, "a", 40, 0, [5])])

    def test_ids_of_one_request(self):
        sent, reader = Publisher(), StreamReader("b")
        batch = sent.batch({"kind": "open", "stream": 1, "rid": "a", "offset": 0},
                           {"kind": "open", "stream": 2, "rid": "b", "offset": 0},
                           self.tokens(1, 0, [5]), self.tokens(2, 0, [6]), self.tokens(3, 0, [7]))
        self.assertEqual(read(reader, batch),
                         [("open", 2, "b", 0, 0, ""), ("tokens", 2, "b", 0, 0, [6])])
        self.assertEqual(reader.read(*sent.batch(self.tokens(2, 1, [8])))[0],
                         StreamEvent("tokens", 2, "b", 1, 0, "", (8,), 1, None, None,
                                     self.tokens(2, 1, [8])))


if __name__ == "__main__":
    unittest.main()
