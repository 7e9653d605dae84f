"""StreamOutput over events that are made here: every byte, id and score once and in order, whatever the
intervals; and the places where an event is due, counted by hand."""

import random
import time
import unittest

import numpy as np

from specd import Error, StreamEvent
from specd.results import SCORE
from specd.stream_output import StreamOutput


def text(at, piece, tokens, *, new=1, stream=1, **fields):
    """An event whose tokens are `new` up to `tokens`."""
    fields.setdefault("kind", "text")
    return StreamEvent(stream=stream, request_id="a", offset=at, text=piece,
                       token_offset=tokens - new, message={"tokens": tokens, "byte_offset": at},
                       **fields)


def ids(at, *new, kind="tokens", scored=False, **fields):
    """An event of ids, `at` of which came before."""
    return StreamEvent(kind, 1, "a", at, ids=new, token_offset=at, message={"offset": at},
                       scores=scores(new) if scored and new else None, **fields)


def scores(ids):
    return np.array([[(each, -1.0, 1)] for each in ids], SCORE)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def run(output, messages):
    return [[(event.kind, event.offset, event.missed, event.text) for event in output.take(message)]
            for message in messages]


OPEN = StreamEvent("open", 1, "a")
LETTERS = [[OPEN]] + [[text(i, letter, i + 1)] for i, letter in enumerate("abcdefg")] + \
    [[text(7, "h", 7, new=0, kind="end", finish="stop")]]


class StreamOutputTest(unittest.TestCase):
    def test_without_an_interval_the_events_are_those_that_came(self):
        output = StreamOutput("delta", None, None)
        for message in LETTERS[:4]:
            self.assertEqual(list(output.take(message)), message)
        # Bug: those of one message were joined.
        rest = sum(LETTERS[4:], [])
        self.assertEqual(list(output.take(rest)), rest)

    def test_the_first_token_and_the_end_do_not_wait_for_an_interval_of_tokens(self):
        given = run(StreamOutput("delta", 3, None), LETTERS)
        self.assertEqual(given, [[("open", 0, 0, "")], [("text", 0, 0, "a")], [], [],
                                 [("text", 1, 0, "bcd")], [], [], [("text", 4, 0, "efg")],
                                 [("end", 7, 0, "h")]])

    def test_cumulative_and_final(self):
        given = run(StreamOutput("cumulative", 3, None), LETTERS)
        self.assertEqual(sum(given, []), [("open", 0, 0, ""), ("text", 0, 0, "a"),
                                          ("text", 0, 0, "abcd"), ("text", 0, 0, "abcdefg"),
                                          ("end", 0, 0, "abcdefgh")])
        given = run(StreamOutput("final", None, None), LETTERS)
        self.assertEqual(sum(given, []), [("open", 0, 0, ""), ("end", 0, 0, "abcdefgh")])

    def test_an_interval_of_time_is_looked_at_when_any_message_comes(self):
        clock = Clock()
        output = StreamOutput("delta", None, 50, clock)
        self.assertEqual(run(output, LETTERS[1:3]), [[("text", 0, 0, "a")], []])
        clock.now += 0.049
        self.assertEqual(run(output, [[]]), [[]])
        clock.now += 0.002
        self.assertEqual(run(output, [[], []]), [[("text", 1, 0, "b")], []])
        both = StreamOutput("delta", 2, 50, clock)
        self.assertEqual(run(both, LETTERS[1:4]), [[("text", 0, 0, "a")], [], [("text", 1, 0, "bc")]])
        self.assertEqual(run(both, LETTERS[4:5]), [[]])
        clock.now += 0.051
        self.assertEqual(run(both, [[]]), [[("text", 3, 0, "d")]])

    def test_no_event_spans_a_gap_and_nothing_is_lost_with_the_publisher(self):
        events = [[text(0, "a", 1)], [text(1, "b", 2)], [text(5, "f", 6, missed=3)],
                  [text(6, "g", 7)], [StreamEvent("lost", 1, "a", 7)]]
        self.assertEqual(sum(run(StreamOutput("final", None, None), events), []),
                         [("text", 0, 0, "ab"), ("text", 5, 3, "fg"), ("lost", 7, 0, "")])
        self.assertEqual(sum(run(StreamOutput("cumulative", None, None), events), []),
                         [("text", 0, 0, "a"), ("text", 0, 0, "ab"), ("text", 5, 3, "f"),
                          ("text", 5, 3, "fg"), ("lost", 7, 0, "")])
        # Scores that are missing show in token_offset alone.
        output = StreamOutput("final", None, None)
        given = [each for tokens in (1, 2, 5) for each in
                 output.take([text(tokens, "", tokens, scores=scores([tokens]))])]
        self.assertEqual([each.scores["id"].ravel().tolist() for each in given], [[1, 2]])

    def test_ids_behind_an_end_that_a_stop_string_moved_back_are_void(self):
        # Bug: they were given, and with scores the end came without the ids before it.
        for first in (0, 4):  # a stream with outputs begins later
            for kept in range(6):
                for scored in (False, True):
                    parts = [ids(first, 10, 11, scored=scored), ids(first + 2, 12, scored=scored),
                             ids(first + 3, 13, 14, scored=scored),
                             ids(first + kept, kind="end", finish="stop")]
                    for kind in ("cumulative", "final"):
                        with self.subTest(first=first, kept=kept, scored=scored, kind=kind):
                            output = StreamOutput(kind, None, None)
                            *_, end = [each for part in parts for each in output.take([part])]
                            want = (10, 11, 12, 13, 14)[:kept]
                            self.assertEqual((end.kind, end.offset, end.token_offset, end.ids),
                                             ("end", first, first, want))
                            if scored and kept:
                                self.assertEqual(end.scores["id"].ravel().tolist(), list(want))
                            else:
                                self.assertIsNone(end.scores)
        # Ids that were given may be void as well. The end says where.
        output = StreamOutput("delta", 3, None)
        given = [each for part in (ids(0, 10, 11), ids(2, 12), ids(1, kind="end"))
                 for each in output.take([part])]
        self.assertEqual([(each.kind, each.offset, each.ids) for each in given],
                         [("tokens", 0, (10, 11)), ("end", 1, ())])

    def test_an_event_costs_the_same_however_many_streams_live(self):
        # Bug: each looked at all streams, here 300 times as long.
        def seconds_of(arguments, num_streams):
            output = StreamOutput(*arguments)
            for stream in range(num_streams):
                list(output.take([text(0, "a", 1, stream=stream)]))
            began = time.process_time()
            for i in range(1, 200):
                list(output.take([text(i, "b", 1 + i, stream=0)]))
            return time.process_time() - began
        for arguments in (("delta", None, None), ("final", None, None), ("delta", 3, None)):
            with self.subTest(arguments):
                few, many = (min(seconds_of(arguments, count) for _ in range(3))
                             for count in (2, 6000))
                self.assertLess(many, 20 * few)

    def test_every_byte_id_and_score_comes_once_at_random_intervals(self):
        for seed in range(300):
            rng = random.Random(seed)
            clock, want = Clock(), {1: ("", []), 2: ("", [])}
            output = StreamOutput("delta", rng.choice([None, 1, 2, 7]), rng.choice([None, 20]), clock)
            got = {1: ("", []), 2: ("", [])}
            for step in range(41):
                events = []
                for stream in (1, 2) if step == 40 else rng.sample((1, 2), rng.randint(0, 2)):
                    had, ids = want[stream]
                    new = [rng.randrange(99) for _ in range(rng.randint(0, 3))]
                    piece = "".join(rng.choice("aé") for _ in range(rng.randint(0, 3)))
                    events.append(text(len(had.encode()), piece, len(ids) + len(new), new=len(new),
                                       stream=stream, kind="end" if step == 40 else "text",
                                       scores=scores(new) if new else None))
                    want[stream] = had + piece, ids + new
                clock.now += rng.random() / 50
                for event in output.take(events):
                    had, ids = got[event.stream]
                    self.assertEqual((event.offset, event.token_offset),
                                     (len(had.encode()), len(ids)), seed)
                    new = [] if event.scores is None else event.scores["id"].ravel().tolist()
                    got[event.stream] = had + event.text, ids + new
            self.assertEqual(got, want, seed)

    def test_wrong_arguments_are_refused_by_name(self):
        for arguments, field in ((("all", None, None), "output"), (("delta", 0, None), "stream_interval"),
                                 (("delta", None, 0), "stream_interval_ms"),
                                 (("final", 2, None), "stream_interval")):
            with self.subTest(arguments), self.assertRaises(Error) as caught:
                StreamOutput(*arguments)
            self.assertIn(field + ":", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
