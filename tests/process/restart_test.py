"""Engines go on when their daemon is killed or restarted: the same tokens, ends and sums as undisturbed.

The reference is a run of the same engine whose daemon nobody touches. Rows are a function of a sequence's
text alone, so any token, seed, coin or rule that a restart lost would change what follows.
"""

import functools
import hashlib
import json
import signal
import threading
import time
import unittest

import numpy as np

import specd
from activation_test import ActivationCase
from support import ProcessTest, TOKENIZER, wait_until

V = 2048
DRAFT = 3
PROMPT = [300, 301, 302, 303]


def row(text, salt):
    return row_of(tuple(text), salt)


# Many engines have the same texts.
@functools.lru_cache(maxsize=4096)
def row_of(text, salt):
    digest = hashlib.sha256(repr((list(text), salt)).encode()).digest()
    values = np.random.default_rng(int.from_bytes(digest[:8], "little")).normal(size=V) * 3
    values[0] = -50  # <|endoftext|> comes where max_tokens has not ended the text before
    return values.astype(np.float32)


def params(name, **fields):
    return name, specd.SamplingParams(seed=7, max_tokens=40, **fields)


CASES = [
    params("greedy", temperature=0, repetition_penalty=1.3, frequency_penalty=0.4, logprobs=2),
    params("block", temperature=0.9, top_p=0.95, logprobs=1),
    params("token", verify="token", temperature=1.1, top_k=50, presence_penalty=0.5, min_tokens=9),
    params("tree", verify="traversal", temperature=0.8, min_p=0.01),
    params("match", verify="exact_match", temperature=1.0, bad_words=[[300], [301, 302]]),
    params("regex", structured_outputs=specd.StructuredOutputs(regex="[a-z ]{5,400}"), temperature=1),
    params("stop", temperature=0.7, stop_token_ids=list(range(301, 2000, 60)), logprobs=0),
]


class Run:
    """The engine of a run. `disturb` is called with the number of the moment, at every moment at which a
    daemon may go. `prefix` begins its request ids, which are unique among the engines of a daemon."""

    def __init__(self, engine, disturb, prefix=""):
        self.engine, self.disturb, self.prefix, self.moment = engine, disturb, prefix, 0
        self.texts, self.ends, self.live = {}, {}, {}
        self.overlaps = False
        self.rows = engine.rows(64 * (DRAFT + 1))
        self.q = engine.rows(64, "draft")

    def pause(self):
        self.moment += 1
        self.disturb(self.moment)

    def open(self, name, params, outputs=()):
        self.texts[name] = list(outputs)
        self.live[name] = self.engine.open(params, PROMPT, outputs, request_id=self.prefix + name)

    def draft(self, names):
        """Draws DRAFT tokens for each sequence, one place after another."""
        drafts = {name: [] for name in names}
        for _ in range(DRAFT):
            requests = []
            for k, name in enumerate(names):
                text = self.texts[name] + drafts[name]
                self.q[k] = row(text, "p") + row(text, "noise") / 4
                requests.append(specd.DraftRequest(self.live[name], drafts[name], row=k))
            self.pause()
            for name, children in zip(names, self.engine.sample_draft(None, requests)):
                drafts[name].append(int(children.ids[0]))
        return drafts

    def submit(self, names, first):
        """A round of these sequences over rows from `first` on."""
        drafts, records = self.draft(names), []
        for k, name in enumerate(names, first):
            at, text = k * (DRAFT + 1), self.texts[name] + drafts[name]
            for place in range(DRAFT + 1):
                end = len(text) - DRAFT + place
                self.rows[at + place] = row(text[:end], "p")
                if place < DRAFT:
                    self.q[k * DRAFT + place] = row(text[:end], "p") + row(text[:end], "noise") / 4
            records.append(specd.Draft(
                self.live[name], drafts[name], sampled=[True] * DRAFT,
                target_rows=range(at, at + DRAFT + 1), draft_rows=range(k * DRAFT, (k + 1) * DRAFT)))
        self.pause()
        round = self.engine.submit(None, records)
        self.pause()
        return round

    def take(self, names, round):
        results = round.result(60_000)
        self.pause()
        for name, result in zip(names, results):
            assert result.status == "ok", (name, result)
            self.texts[name] += result.tokens.tolist()
            assert result.total_kept == len(self.texts[name]), (name, result)
            if result.finish_reason:
                sequence = self.live.pop(name)
                self.ends[name] = (result.finish_reason, result.stop_token, sequence.final())
                # Handles of ended sequences stay valid too, until they are closed.
                self.pause()
                assert sequence.state() == self.ends[name][2], name
                sequence.close()

    def step(self):
        names = list(self.live)
        if len(names) > 5 and self.overlaps:
            # Two rounds are in flight: no call comes between them.
            halves = names[:4], names[4:]
            rounds = [self.plain(half, first) for half, first in zip(halves, (0, 4))]
            for half, round in zip(halves, rounds):
                self.take(half, round)
            return
        self.take(names, self.submit(names, 0))

    def plain(self, names, first):
        """A round without drafts."""
        records = []
        for k, name in enumerate(names, first):
            self.rows[k] = row(self.texts[name], "p")
            records.append(specd.Draft(self.live[name], target_rows=[k]))
        round = self.engine.submit(None, records)
        self.pause()
        return round

    def run(self):
        for name, params in CASES:
            self.open(name, params)
        self.open("again", CASES[1][1], outputs=[310, 311])
        for number in range(60):
            if number == 3:
                self.texts["fork"] = list(self.texts["block"])
                self.live["fork"] = self.live["block"].fork(request_id=self.prefix + "fork", seed=11)
            if number == 4:
                self.live.pop("match").close()
                self.open("late", CASES[0][1])
            if not self.live:
                return self.texts, self.ends
            self.overlaps = number % 3 == 1
            self.step()
        raise AssertionError("the sequences do not end")


class RestartTest(ProcessTest):
    def serve(self):
        return self.daemon("--threads=1")

    def run_with(self, disturb, **options):
        engine = specd.Engine(f"unix:{self.socket}", vocab_size=V, max_draft=DRAFT, max_sequences=32,
                              **options)
        with engine:
            found = Run(engine, disturb).run()
            return found, engine.stats()["reattached"]

    def undisturbed(self):
        daemon = self.serve()
        moments = []
        found, reattached = self.run_with(moments.append)
        self.stop(daemon)
        self.assertEqual(reattached, 0)
        # Every case has something to lose, and drafts were accepted and rejected.
        self.assertGreater(min(len(text) for text in found[0].values()), 3)
        return found, moments[-1]

    def same(self, found, expected):
        for name, text in expected[0].items():
            self.assertEqual(found[0][name], text, name)
        self.assertEqual(repr(found[1]), repr(expected[1]))

    def test_a_daemon_that_is_killed_or_restarted_at_any_moment_changes_nothing(self):
        expected, num_moments = self.undisturbed()
        for end, every in ((self.kill, 5), (self.stop, 7)):
            running = [self.serve()]
            ends = []

            def disturb(moment):
                if moment % every == 0:
                    end(running.pop())
                    running.append(self.serve())
                    ends.append(moment)

            found, reattached = self.run_with(disturb, reconnect_ms=60_000)
            with self.subTest(end=end.__name__):
                self.same(found, expected)
                self.assertGreater(len(ends), 10)
                # A daemon that nothing was asked of goes unnoticed.
                self.assertGreaterEqual(len(ends), reattached)
                self.assertGreater(reattached, len(ends) // 2)
            self.stop(running.pop())
        self.assertGreater(num_moments, 50)

    def test_stop_strings_are_found_behind_a_restart(self):
        # The string begins before the daemon is killed and ends behind it.
        vocabulary = json.loads(TOKENIZER.read_text())["model"]["vocab"]
        text = [vocabulary[letter] for letter in "the-end-is-near"]
        for cut in (1, 5, 8, 11):
            running = [self.serve()]
            with specd.Engine(f"unix:{self.socket}", vocab_size=V, reconnect_ms=60_000) as engine:
                sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=60, logprobs=0,
                                                            stop=["end-is-n"]))
                total = 0
                for place, token in enumerate(text):
                    if place == cut:
                        self.kill(running.pop())
                        running.append(self.serve())
                    rows = np.zeros((1, V), np.float32)
                    rows[0, token] = 50
                    result, = engine.verify(rows, {sequence: []})
                    if result.status == "finished":
                        break
                    self.assertEqual(result.status, "ok")
                    total += 1
                    self.assertEqual(result.total_kept, total)
                wait_until(lambda: sequence.state().finish_reason == "stop", "the stop string")
                final = sequence.final()
                self.assertEqual((final.finish_reason, final.kept_tokens), ("stop", 12), cut)
                # An end that the text side has found is known to the next daemon too.
                self.kill(running.pop())
                running.append(self.serve())
                engine.stats()
                self.assertEqual(repr(sequence.final()), repr(final))
            self.stop(running.pop())

    def test_a_stop_string_that_nobody_had_looked_for_is_found_by_the_next_daemon(self):
        # The text side hears of tokens after the engine. A kill right behind the result is before that.
        vocabulary = json.loads(TOKENIZER.read_text())["model"]["vocab"]
        text = [vocabulary[letter] for letter in "xyz-abc"]
        for max_tokens in (60, len(text)):
            running = [self.serve()]
            with specd.Engine(f"unix:{self.socket}", vocab_size=V, max_draft=7, reconnect_ms=60_000) as engine:
                sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=max_tokens, stop=["z-a"]))
                rows = engine.rows(len(text))
                rows[:] = 0
                rows[np.arange(len(text)), text] = 50
                running[0].signal(signal.SIGSTOP)
                round = engine.submit(None, {sequence: text[:-1]})
                running[0].signal(signal.SIGCONT)
                round.result(60_000)
                self.kill(running.pop())
                running.append(self.serve())
                engine.stats()
                wait_until(lambda: sequence.state().finish_reason == "stop", "the stop string")
                self.assertEqual(sequence.final(), specd.results.State("stop", 5, None))
            self.stop(running.pop())

    def test_stop_strings_wait_for_the_detokenizer_of_the_next_daemon(self):
        detok = ("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}")
        daemon = self.daemon("--detokenizer=process")
        self.start(*detok)
        with specd.Engine(f"unix:{self.socket}", vocab_size=V, reconnect_ms=60_000) as engine:
            def opened():
                try:
                    return engine.open(specd.SamplingParams(temperature=0, max_tokens=60, stop=["ab"]))
                except specd.Error:
                    return None
            found = []
            wait_until(lambda: found.append(opened()) or found[-1], "the daemon to notice its detokenizer")
            vocabulary = json.loads(TOKENIZER.read_text())["model"]["vocab"]
            for letter in "xab":
                if letter == "b":
                    self.kill(daemon)
                    daemon = self.daemon("--detokenizer=process")
                rows = np.zeros((1, V), np.float32)
                rows[0, vocabulary[letter]] = 50
                engine.verify(rows, {found[-1]: []})
            wait_until(lambda: found[-1].state().finish_reason == "stop", "the stop string")
        self.stop(daemon)

    def test_what_cannot_go_on_is_refused_by_name(self):
        for options, words in (({"uri": "embedded:cpu"}, "reconnect_ms = 5 is for engines of a daemon"),
                               ({"reconnect_ms": 3_600_001}, "reconnect_ms = 3600001.*0 .. 3600000")):
            with self.subTest(words), self.assertRaisesRegex(specd.Error, words):
                specd.Engine(**{"uri": f"unix:{self.socket}", "vocab_size": V, "reconnect_ms": 5, **options})
        daemon = self.serve()
        with specd.Engine(f"unix:{self.socket}", vocab_size=V, reconnect_ms=300) as engine:
            sequence = engine.open(specd.SamplingParams(seed=1))
            with self.assertRaisesRegex(specd.Error, "coins.*reconnect_ms = 0"):
                sequence.set_coins({})
            with self.assertRaisesRegex(specd.Error, "marked.*reconnect_ms = 0"):
                engine.mark_drafts(1)
            engine.rows(1)[:] = 0
            round = engine.submit(None, {sequence: []})
            with self.assertRaisesRegex(specd.Error, "rounds are in flight.*then fork"):
                sequence.fork()
            round.result(60_000)
            self.kill(daemon)
            begin = time.monotonic()
            with self.assertRaisesRegex(specd.Error, "none took this engine within reconnect_ms = 300"):
                engine.verify(np.zeros((1, V), np.float32), {sequence: []})
            self.assertGreaterEqual(time.monotonic() - begin, 0.3)

    def test_a_daemon_of_another_model_ends_the_engine_by_name(self):
        daemon = self.serve()
        with specd.Engine(f"unix:{self.socket}", vocab_size=V, reconnect_ms=60_000,
                          tokenizer=TOKENIZER) as engine:
            sequence = engine.open()
            self.kill(daemon)
            other = json.loads(TOKENIZER.read_text())
            vocabulary = other["model"]["vocab"]
            vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
            path = self.folder / "other.json"
            path.write_text(json.dumps(other))
            self.daemon(f"--tokenizer={path}")
            with self.assertRaisesRegex(specd.Error, "does not take this engine: .*tokenizer") as raised:
                engine.verify(np.zeros((1, V), np.float32), {sequence: []})
            self.assertEqual(raised.exception.code_name, "SPECD_ERROR_DISCONNECTED")


class LateDaemonTest(ActivationCase):
    def test_an_engine_whose_calls_time_out_meanwhile_goes_on(self):
        # Its hellos wait in the queue of the socket longer than a call may take.
        listening = self.listening()
        daemon = self.activated(listening)
        with specd.Engine(f"unix:{self.socket}", vocab_size=V, reconnect_ms=60_000, timeout_ms=150) as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=9))
            rows = np.zeros((1, V), np.float32)
            rows[0, 300] = 50
            self.assertEqual(engine.verify(rows, {sequence: []})[0].total_kept, 1)
            self.kill(daemon)
            late = []
            start = threading.Timer(1, lambda: late.append(self.activated(listening)))
            start.start()
            self.assertEqual(engine.verify(rows, {sequence: []})[0].total_kept, 2)
            start.join()
        self.stop(late.pop())


if __name__ == "__main__":
    unittest.main()
