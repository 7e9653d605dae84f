"""A soak of kills: daemon, detokenizer, HTTP server and subscribers are killed at any moment, again and again,
while engines with reconnect_ms run rounds. No token and no byte is lost, and none comes twice.

    soak_test.py --kills=2000 --seed=7

Each engine must keep the tokens that the same sequence keeps embedded, where nobody is killed. The text of
these tokens is known beforehand, because every token that can come is printable. Each reader must have the ids
or the text of each stream from its beginning to its end. A subscriber that is killed prints what it has been
given, and its successor begins anew.
"""

import collections
import hashlib
import http.client
import json
import random
import sys
import threading
import time
import unittest

import numpy as np

import specd
from http_support import HttpCase
from soak_readers import SUBSCRIBER, Follower, HttpFollower, Part, Subscriber
from support import PATIENCE_S, TOKENIZER, wait_until

V = 2048
DRAFT = 3
NUM_ENGINES = 4
NUM_LIVE = 3  # sequences that an engine has running
# Of those that readers have not read to their end. Every second engine is idle again and again.
ENDED_MAX = 60, 1
# A daemon, by signal; its detokenizer; the HTTP server; a subscriber.
VICTIMS = "kill", "stop", "detok", "http", "subscriber"
KILLS, SEED = 40, 1

VOCABULARY = json.loads(TOKENIZER.read_text())["model"]["vocab"]
WORDS = {id: word.replace("Ġ", " ") for word, id in VOCABULARY.items()
         if word.replace("Ġ", "").isalpha() and word.replace("Ġ", "").isascii()}
PRINTABLE = np.array(sorted(WORDS))
METHODS = [
    {"temperature": 0, "repetition_penalty": 1.2},
    {"temperature": 0.9, "top_p": 0.95},
    {"temperature": 1.1, "top_k": 50, "verify": "token"},
    {"temperature": 1.0, "verify": "exact_match"},
    {"temperature": 0.8, "verify": "traversal", "frequency_penalty": 0.3},
]


class Script:
    """A sequence: its parameters, and rows and drafts that are a function of its text alone."""

    def __init__(self, number):
        self.number = number
        self.params = specd.SamplingParams(seed=number, max_tokens=24 + number % 5 * 8, **METHODS[number % len(METHODS)])
        self.parts = {}
        self.tokens, self.sum = self.undisturbed()
        self.text = "".join(WORDS[token] for token in self.tokens)

    def row(self, text):
        digest = hashlib.sha256(repr((self.number, text)).encode()).digest()
        row = np.full(V, -50, np.float32)
        row[PRINTABLE] = np.random.default_rng(int.from_bytes(digest[:8], "little")).normal(size=len(PRINTABLE)) * 3
        return row

    def part(self, text):
        """The draft behind this text, and its rows."""
        if text not in self.parts:
            draft, rows = (), []
            for place in range(DRAFT):
                rows.append(self.row(text + draft))
                likely = np.argsort(rows[-1])[-1 - (len(text) + place) % 2]
                draft += (int(likely),)
            rows.append(self.row(text + draft))
            self.parts[text] = draft, np.stack(rows)
        return self.parts[text]

    def undisturbed(self):
        text = ()
        with specd.Engine("embedded:cpu", vocab_size=V, max_draft=DRAFT) as engine:
            sequence = engine.open(self.params)
            rows = engine.rows(DRAFT + 1)
            while sequence.state().finish_reason is None:
                draft, rows[:] = self.part(text)
                result, = engine.submit(None, [record(sequence, draft, 0)]).result()
                text += tuple(result.tokens.tolist())
            return text, sequence.final().cumulative_logprob


def record(sequence, draft, first_row):
    return specd.Draft(sequence, list(draft), target_rows=range(first_row, first_row + DRAFT + 1))


class Streams:
    """What all parts know of the streams, by request id. A stream is closed once its readers have its end."""

    def __init__(self, scripts):
        self.scripts, self.lock = scripts, threading.Lock()
        self.of, self.waits_for = {}, {}
        self.errors, self.is_over = [], threading.Event()
        self.num_tokens = self.num_ended = self.num_read = 0

    def begin(self, name, script, readers):
        self.of[name], self.waits_for[name] = script, set(readers)

    def script(self, name):
        return self.of[name]

    def read(self, name, reader):
        """A reader has the whole stream."""
        with self.lock:
            if reader not in self.waits_for[name]:
                raise AssertionError(f"{reader} has the end of {name} twice")
            self.waits_for[name].remove(reader)
            self.num_read += 1

    def is_read(self, name):
        return not self.waits_for[name]

    def failed(self, who, error):
        self.errors.append(f"{who}: {type(error).__name__}: {error}")


class EnginePart(Part):
    def __init__(self, streams, number, uri):
        super().__init__(streams, f"engine {number}")
        self.number, self.uri = number, uri
        self.ended_max = ENDED_MAX[number % 2]
        self.num_rounds = self.num_begun = self.reattached = 0

    def work(self):
        with specd.Engine(self.uri, vocab_size=V, max_draft=DRAFT, max_sequences=self.ended_max + 2 * NUM_LIVE,
                          max_batch=NUM_LIVE, reconnect_ms=60_000) as engine:
            rows = engine.rows(NUM_LIVE * (DRAFT + 1))
            live, ended = {}, {}
            while not self.streams.is_over.is_set() or live or ended:
                # Readers that are behind hold engines up: what they have not read stays open.
                while len(live) < NUM_LIVE and len(ended) < self.ended_max and not self.streams.is_over.is_set():
                    self.open(engine, live)
                if live:
                    self.round(engine, rows, live, ended)
                else:
                    engine.stats()  # a call takes an idle engine to the next daemon, where its readers wait
                    time.sleep(.01)
                for name in [name for name in ended if self.streams.is_read(name)]:
                    ended.pop(name).close()
            self.reattached = engine.stats()["reattached"]

    def open(self, engine, live):
        self.num_begun += 1
        name = f"{self.number}.{self.num_begun}"
        script = self.streams.scripts[self.num_begun * 7 % len(self.streams.scripts)]
        readers = ["texts", "ids"] + (["http"] if self.num_begun % 2 else [])
        self.streams.begin(name, script, readers)
        live[name] = [engine.open(script.params, request_id=name), ()]

    def round(self, engine, rows, live, ended):
        names, records = list(live), []
        for k, name in enumerate(names):
            sequence, text = live[name]
            draft, rows[k * (DRAFT + 1):(k + 1) * (DRAFT + 1)] = self.streams.script(name).part(text)
            records.append(record(sequence, draft, k * (DRAFT + 1)))
        results = engine.submit(None, records).result(60_000)
        self.num_rounds += 1
        for name, result in zip(names, results):
            expected = self.streams.script(name)
            assert result.status == "ok", (name, result)
            sequence, text = live[name]
            text = live[name][1] = text + tuple(result.tokens.tolist())
            self.streams.num_tokens += len(result.tokens)
            assert text == expected.tokens[:len(text)], (name, text, expected.tokens)
            assert result.total_kept == len(text), (name, result)
            if result.finish_reason:
                assert text == expected.tokens, (name, "ends early")
                final = sequence.final()
                assert (final.finish_reason, final.kept_tokens) == ("length", len(text)), (name, final)
                assert final.cumulative_logprob == expected.sum, (name, final, expected.sum)
                self.streams.num_ended += 1
                ended[name] = live.pop(name)[0]


class SoakTest(HttpCase):
    BROKEN = (http.client.HTTPException, OSError)

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def start_all(self):
        (self.folder / "subscriber.py").write_text(SUBSCRIBER)
        self.start_daemon()
        self.start_detok()
        self.start_http()
        self.subscriber = Subscriber(self)

    def start_daemon(self):
        self.specd = self.daemon("--detokenizer=process", "--threads=1")

    def start_detok(self):
        self.detok = self.start("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}")

    # ---- each kills one and starts its successor

    def strike_kill(self):
        self.kill(self.specd)
        self.start_daemon()

    def strike_stop(self):
        self.stop(self.specd)
        self.start_daemon()

    def strike_detok(self):
        self.kill(self.detok)
        self.start_detok()

    def strike_http(self):
        self.kill(self.http)
        self.start_http(listen=f"127.0.0.1:{self.port}")

    def strike_subscriber(self):
        self.await_progress(lambda: self.subscriber.process.lines["stdout"], "an event")
        self.kill(self.subscriber.process)
        self.num_given += self.subscriber.check(self.streams)
        self.subscriber = Subscriber(self)

    def forget_the_dead(self):
        """A long soak has thousands of them."""
        for process in [process for process in self._processes if not process.running()]:
            process.close()
            self._processes.remove(process)

    def soak(self, kills):
        draws = random.Random(SEED)
        counts, victims = collections.Counter(), []
        rounds_at_daemon = [0] * NUM_ENGINES
        for _ in range(kills):
            # A kill comes at any moment, also while the victims before it are still missed.
            target = self.streams.num_tokens + draws.choice((0, 0, 10, 40, 100))
            self.await_progress(lambda: self.streams.num_tokens >= target, "tokens")
            if not victims:
                victims = draws.sample(VICTIMS, len(VICTIMS))
            victim = victims.pop()
            if victim in ("kill", "stop"):
                # An engine gives up after five daemons in a row that answered nothing.
                self.await_progress(lambda: all(engine.num_rounds > before for engine, before in
                                                zip(self.engines, rounds_at_daemon)), "a round of each engine")
                rounds_at_daemon = [engine.num_rounds for engine in self.engines]
            getattr(self, f"strike_{victim}")()
            counts[victim] += 1
            self.forget_the_dead()
            if sum(counts.values()) % 100 == 0:
                self.report(counts)
        return counts

    def await_progress(self, condition, what):
        try:
            wait_until(lambda: condition() or self.streams.errors, what)
        except AssertionError as error:
            waiting = {name: readers for name, readers in list(self.streams.waits_for.items()) if readers}
            raise AssertionError(f"{error}; who has not read which streams: {waiting}") from None
        self.assertEqual(self.streams.errors, [])

    def test_nothing_is_lost_and_nothing_comes_twice(self):
        self.streams = Streams([Script(number) for number in range(10)])
        self.num_given = 0
        self.start_all()
        self.followers = [Follower(self.streams, f"unix:{self.socket}", ids) for ids in (False, True)]
        self.browser = HttpFollower(self.streams, self)
        self.engines = [EnginePart(self.streams, number, f"unix:{self.socket}") for number in range(NUM_ENGINES)]
        for follower in self.followers:
            follower.start()
            self.await_progress(follower.is_ready.is_set, "the subscriptions")
        for part in (self.browser, *self.engines):
            part.start()
        counts = self.soak(KILLS)
        self.streams.is_over.set()
        self.await_progress(lambda: not any(part.is_alive() for part in (self.browser, *self.engines)),
                            "the end of all streams")
        self.kill(self.subscriber.process)
        self.num_given += self.subscriber.check(self.streams)
        self.kill(self.http)
        self.kill(self.detok)
        self.stop(self.specd)
        self.report(counts)
        self.assertEqual(self.streams.errors, [])
        self.assertEqual(self.streams.num_ended, len(self.streams.of))
        self.assertEqual([name for name in self.streams.of if not self.streams.is_read(name)], [])
        self.assertGreater(sum(engine.reattached for engine in self.engines), counts["kill"])
        self.assertGreater(self.num_given, 0)

    def report(self, counts):
        struck = ", ".join(f"{counts[victim]} {victim}" for victim in VICTIMS)
        print(f"{sum(counts.values())} kills ({struck}): {len(self.streams.of)} streams begun, "
              f"{self.streams.num_ended} ended with {self.streams.num_tokens} tokens, {self.streams.num_read} read to "
              f"their end; {self.browser.num_returns} returns over HTTP, {self.num_given} beginnings to subscribers "
              f"that were killed; {len(self.streams.errors)} errors", file=sys.stderr, flush=True)


if __name__ == "__main__":
    arguments = [sys.argv[0]]
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        if name == "--kills":
            KILLS = int(value)
        elif name == "--seed":
            SEED = int(value)
        else:
            arguments.append(argument)
    unittest.main(argv=arguments)
