"""specd.subscribe over a running daemon: several streams at once, one that was joined in the middle, ids,
asyncio, and what a subscriber hears when the daemon is killed or started again."""

import asyncio
import collections
import itertools
import json
import threading
import unittest

import numpy as np

import specd
from support import TOKENIZER, ProcessTest, wait_until

PROMPTS = ["The daemon", "A round", "The engine"]


def take(events, num_ends):
    """The events up to this many ends."""
    taken = []
    while num_ends > 0:
        taken.append(next(events))
        num_ends -= taken[-1].kind == "end"
    return taken


def texts(events):
    joined = collections.defaultdict(str)
    for event in events:
        joined[event.request_id] += event.text
    return joined


def generate_with_scores(uri):
    """Three sequences in rounds of up to four tokens; returns the scores of each by request id, a
    list of one array for each round."""
    tokenizer = json.loads(TOKENIZER.read_text())
    vocab_size = 1 + max(max(tokenizer["model"]["vocab"].values()),
                         max(token["id"] for token in tokenizer["added_tokens"]))
    asked = {"logprobs": dict(logprobs=4),
             "logits": dict(logprobs=1, logprobs_mode="processed_logits", top_k=3,
                            logprob_token_ids=[7, 7, 0], stop=["a" * 40]),
             "none": {}}
    rng = np.random.default_rng(5)
    letters = [tokenizer["model"]["vocab"][letter] for letter in "abc"]
    scores = {name: [] for name in asked}
    with specd.Engine(uri, vocab_size=vocab_size, max_batch=3, max_draft=3) as engine:
        sequences = [engine.open(specd.SamplingParams(seed=3, max_tokens=25, **params),
                                 request_id=name) for name, params in asked.items()]
        for number in itertools.count():
            live = [each for each in sequences if each.state().finish_reason is None]
            if not live:
                break
            # A round of "a" may begin the stop string, and the round of "b" after it releases it.
            letter = letters[number % len(letters)]
            rows = rng.normal(size=(4 * len(live), vocab_size)).astype(np.float32)
            rows[:, letter] += 12
            for result in engine.verify(rows, {each: [letter] * 3 for each in live}):
                scores[result.sequence.request_id].append(result.scores)
    return scores


class SubscribeTest(ProcessTest):
    def generate(self, *flags, prompts=PROMPTS):
        return self.engine(f"--prompt={'|'.join(prompts)}", "--print=none", *flags)

    def test_streams_at_once_are_told_apart(self):
        self.daemon()
        client = self.client("--streams=3")
        uri = f"unix:{self.socket}"
        with specd.subscribe(uri) as events, specd.subscribe(uri, output="final") as last, \
                specd.subscribe(uri, stream_interval=10) as joined, \
                specd.subscribe(f"ipc://{self.socket}.text", request_id=PROMPTS[1]) as one:
            engine = self.generate("--max_tokens=60")
            taken, final, parts = take(events, 3), take(last, 3), take(joined, 3)
            alone = take(one, 1)
        self.assertEqual(client.wait(), 0, client.stderr)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(texts(taken), self.texts(client))
        self.assertEqual(set(texts(taken)), set(PROMPTS))
        self.assertEqual(len({event.stream for event in taken}), 3)
        self.assertEqual([event.missed for event in taken if event.missed], [])
        # The streams come at the same time.
        order = [event.stream for event in taken if event.kind == "text"]
        self.assertGreater(sum(a != b for a, b in zip(order, order[1:])), 10)
        ends = {event.request_id: event for event in taken if event.kind == "end"}
        for name, end in self.ends(client).items():
            self.assertEqual((ends[name].finish, ends[name].message["tokens"]),
                             (end["finish"], end["tokens"]))
        self.assertEqual(texts(alone), {PROMPTS[1]: self.texts(client)[PROMPTS[1]]})
        self.assertEqual({each.request_id: each.text for each in final if each.kind == "end"}, texts(taken))
        self.assertEqual(len(final), 6)  # an open and an end of each
        self.assertEqual(texts(parts), texts(taken))
        self.assertLess(len(parts), len(taken))

    def test_with_best_effort_a_stream_that_was_joined_in_the_middle_is_its_tail(self):
        self.daemon()
        client = self.client("--streams=1")
        engine = self.generate("--max_tokens=150", "--forward_ms=20", prompts=PROMPTS[:1])
        wait_until(lambda: client.stdout.count('"text"') > 5 or not client.running(), "some text")
        with specd.subscribe(f"unix:{self.socket}", best_effort=True) as events:
            taken = take(events, 1)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        whole = self.texts(client)[PROMPTS[0]].encode()
        self.assertNotEqual(taken[0].kind, "open")
        self.assertEqual(taken[0].request_id, PROMPTS[0])
        missed = [event.missed for event in taken]
        self.assertGreater(missed[0], 0)
        self.assertEqual(missed[1:], [0] * (len(taken) - 1))
        tail = texts(taken)[PROMPTS[0]].encode()
        self.assertGreater(len(tail), 0)
        self.assertEqual(missed[0] + len(tail), len(whole))
        self.assertEqual(whole[missed[0]:], tail)

    def check_scores(self, events, scores):
        """The scores of events are those of the rounds, bit for bit, each with its tokens."""
        for name, wanted in scores.items():
            mine = [event for event in events if event.request_id == name]
            if name == "none":
                self.assertEqual([event.scores for event in mine], [None] * len(mine))
                self.assertEqual({event.logprobs for event in mine}, {None})
                continue
            found = [event for event in mine if event.scores is not None]
            self.assertEqual(len(found), len(wanted))
            offset = 0
            for event, array in zip(found, wanted):
                self.assertEqual((event.token_offset, event.scores.shape), (offset, array.shape))
                self.assertEqual(event.scores.tobytes(), array.tobytes())
                self.assertEqual(list(event.logprobs[0])[0], int(array["id"][0, 0]))
                offset += len(array)
            self.assertEqual(offset, 25)

    def test_scores_are_those_of_the_rounds_bit_for_bit(self):
        self.daemon()
        uri = f"unix:{self.socket}"

        async def read():
            taken = []
            async with specd.subscribe(uri, ids=True) as events:
                ready.set()
                async for event in events:
                    taken.append(event)
                    if sum(event.kind == "end" for event in taken) == 3:
                        return taken

        ready, taken_async = threading.Event(), []
        reader = threading.Thread(target=lambda: taken_async.extend(asyncio.run(read())))
        reader.start()
        self.assertTrue(ready.wait(30), "no subscription after 30 s")
        with specd.subscribe(uri) as texts_of, specd.subscribe(uri, ids=True) as ids_of:
            scores = generate_with_scores(uri)
            taken_text, taken_ids = take(texts_of, 3), take(ids_of, 3)
        reader.join()
        self.check_scores(taken_ids, scores)
        self.check_scores(taken_async, scores)
        self.check_scores(taken_text, scores)
        for event in taken_ids:
            if event.scores is not None:
                self.assertEqual(event.scores["id"][:, 0].tolist(), list(event.ids))
        # The text of "logits" was held back, and its scores were not.
        self.assertTrue(any(event.scores is not None and not event.text for event in taken_text))
        self.assertGreater(max(len(array) for array in scores["logits"]), 1)

    def test_a_daemon_that_is_killed_is_missed_and_the_next_one_is_found(self):
        first = self.daemon()
        with specd.subscribe(f"unix:{self.socket}", silence_ms=1000) as events:
            self.generate("--max_tokens=150", "--forward_ms=20", prompts=PROMPTS[:1])
            opened = next(events)
            self.kill(first)
            with self.assertRaises(specd.Error) as caught:
                while True:
                    next(events)
            self.assertEqual(caught.exception.code_name, "SPECD_ERROR_DISCONNECTED")
            self.daemon()
            # The subscriber connects to the new daemon by itself, perhaps after the end of a generation.
            is_heard = threading.Event()

            def generate_until_heard():
                while not is_heard.is_set():
                    self.generate("--max_tokens=10", prompts=PROMPTS[1:2]).wait()
            again = threading.Thread(target=generate_until_heard)
            again.start()
            heard = [next(events)]
            while not {"lost", "end"} <= {event.kind for event in heard}:
                try:
                    heard.append(next(events))
                except specd.Error:
                    continue
            is_heard.set()
            again.join()
        # A stream that no engine opens again is lost, after a while and once.
        self.assertEqual([(event.stream, event.request_id) for event in heard if event.kind == "lost"],
                         [(opened.stream, PROMPTS[0])])
        self.assertEqual({event.request_id for event in heard if event.kind != "lost"}, {PROMPTS[1]})

    def test_an_endpoint_without_a_publisher_and_wrong_arguments(self):
        with self.assertRaises(specd.Error) as caught:
            with specd.subscribe(f"unix:{self.socket}", silence_ms=50):
                self.fail("nothing publishes there")
        self.assertEqual(caught.exception.code_name, "SPECD_ERROR_DISCONNECTED")
        self.assertIn("for 50 ms", str(caught.exception))
        for arguments, field in ((dict(endpoint=7), "endpoint"),
                                 (dict(endpoint="nonsense"), "endpoint"),
                                 (dict(endpoint="unix:/s", request_id=4), "request_id"),
                                 (dict(endpoint="unix:/s", silence_ms=0), "silence_ms"),
                                 (dict(endpoint="unix:/s", output="all"), "output"),
                                 (dict(endpoint="unix:/s", stream_interval_ms=0), "stream_interval_ms"),
                                 (dict(endpoint="unix:/s", output="final", stream_interval=4),
                                  "stream_interval")):
            with self.subTest(arguments), self.assertRaises(specd.Error) as caught:
                specd.subscribe(**arguments)
            self.assertIn(field, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
