"""Pending openings, embedded and through a real daemon: the call returns at once, rounds of a pending
sequence are answered "not_ready" and change nothing, a failed compile fails its sequences alone, and
pending sequences go to the next daemon.

Bug that this would catch: an opening with a new constraint held its engine until it was compiled.
"""

import asyncio
import json
import signal
import threading
import unittest

import numpy as np

import specd
from support import TOKENIZER, ProcessTest

VOCAB_SIZE = 1 + max(json.loads(TOKENIZER.read_text())["model"]["vocab"].values())
WRONG = "(a"


def constrained(pattern, **params):
    return specd.SamplingParams(structured_outputs=specd.StructuredOutputs(regex=pattern), **params)


def slow(number, **params):
    """A constraint that takes a fifth of a second to compile, another one for each number below 100."""
    grammar = 'root ::= "x"' + " [a]?" * (2600 + number)
    return specd.SamplingParams(structured_outputs=specd.StructuredOutputs(grammar=grammar), **params)


def refusal_of(call):
    try:
        call()
    except specd.Error as error:
        return error.code_name, error.text
    raise AssertionError("nothing was refused")


def engine_that_waits(engine, params):
    try:
        engine.open(params)
    except specd.Error:
        pass  # its daemon stops


class PendingCase:
    def connect(self, **options):
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        self.rows = np.random.default_rng(3).normal(size=(4, VOCAB_SIZE)).astype(np.float32)
        self.engine = self.connect()

    def tokens(self, sequence, count=8):
        engine = sequence.engine
        return [engine.verify(self.rows[i % 4:i % 4 + 1], {sequence: []})[0].tokens.tolist()
                for i in range(count)]

    def test_rounds_of_another_sequence_go_on_and_those_of_the_pending_one_change_nothing(self):
        other = self.engine.open(specd.SamplingParams(seed=1, max_tokens=1 << 20, ignore_eos=True))
        pending = self.engine.open(slow(3, seed=5, max_tokens=50), wait=False)
        num_rounds = 0
        while pending.phase == "pending":
            mine, its = self.engine.verify(self.rows[:2], {other: [], pending: []})
            self.assertEqual((mine.status, len(mine.tokens)), ("ok", 1))
            if its.status == "ok":  # it was opened after the look
                break
            self.assertEqual((its.status, its.total_kept, its.finish_reason), ("not_ready", 0, None))
            num_rounds += 1
        # If the call had waited, there would be none.
        self.assertGreater(num_rounds, 10)
        self.assertTrue(pending.await_open())
        self.assertEqual(pending.phase, "open")
        # No coin was used: the same seed gives the text of an opening that waits. Its first round may
        # have been the last one above.
        num_kept = 0 if its.status == "not_ready" else 1
        waited = self.engine.open(slow(3, seed=5, max_tokens=50))
        if num_kept:
            self.engine.verify(self.rows[1:2], {waited: []})
        self.assertEqual(self.tokens(pending), self.tokens(waited))

    def test_calls_of_a_pending_sequence(self):
        pending = self.engine.open(slow(4), wait=False, request_id="name")
        self.assertEqual(pending.phase, "pending")
        self.assertFalse(pending.await_open(0))
        for call in (pending.fork, lambda: pending.set_coins({}), lambda: self.engine.forced(pending)):
            code, text = refusal_of(call)
            self.assertEqual(code, "SPECD_ERROR_STATE")
            self.assertIn("is pending", text)
        self.assertIn("request_id", refusal_of(lambda: self.engine.open(request_id="name"))[1])
        pending.abort()
        self.assertEqual((pending.phase, pending.state().finish_reason), ("ended", "abort"))
        self.assertEqual(self.engine.verify(self.rows[:1], {pending: []})[0].status, "finished")
        pending.close()
        # A closed one gives its name back, and a late compile finds nothing of it.
        closed = self.engine.open(slow(5), wait=False, request_id="name")
        closed.close()
        again = self.engine.open(specd.SamplingParams(seed=2), request_id="name")
        self.assertEqual(self.engine.verify(self.rows[:1], {again: []})[0].status, "ok")
        self.assertEqual(again.phase, "open")

    def test_a_failed_compile_fails_its_sequences_alone_with_the_sentence_of_one_that_waits(self):
        wanted = refusal_of(lambda: self.engine.open(constrained(WRONG)))
        self.assertIn("grammar: ", wanted[1])
        wrong = self.engine.open_all(constrained(WRONG, n=2), wait=False, request_id="wrong")
        right = self.engine.open(constrained("a+", seed=3), wait=False)
        self.assertEqual(refusal_of(wrong[0].await_open), wanted)
        self.assertEqual(refusal_of(wrong[1].await_open), wanted)
        self.assertEqual((wrong[0].phase, wrong[0].state().finish_reason), ("failed", "error"))
        self.assertTrue(right.await_open())
        answers = self.engine.verify(self.rows[:2], {wrong[0]: [], right: []})
        self.assertEqual([each.status for each in answers], ["finished", "ok"])
        for sequence in wrong:
            sequence.close()
        self.engine.open(request_id="wrong")
        # A parameter out of its range is refused by the call.
        for params in (specd.SamplingParams(temperature=101), specd.SamplingParams(n=2)):
            code, text = refusal_of(lambda: self.engine.open(params, wait=False))
            self.assertEqual((code, text), refusal_of(lambda: self.engine.open(params)))

    def test_a_batch_opens_pending_and_several_compile_at_once(self):
        params = [slow(31), slow(32), constrained(WRONG), constrained("ab")] + [slow(i) for i in range(33, 37)]
        opened = self.engine.open_batch(len(params), params, wait=False)
        sequences = [opened.sequence(i) for i in range(len(params))]
        # The short ones do not wait for those before them.
        self.assertTrue(sequences[3].await_open())
        self.assertIn("grammar: ", refusal_of(sequences[2].await_open)[1])
        self.assertEqual(sequences[-1].phase, "pending")
        for i in (0, 1, *range(4, len(params))):
            self.assertTrue(sequences[i].await_open())

    def test_warnings_come_with_the_end_of_the_opening(self):
        schema = {"type": "object", "properties": {"a": {"type": "string", "format": "none such"}}}
        params = specd.SamplingParams(structured_outputs=specd.StructuredOutputs(
            json=schema, lenient=True))
        waited = self.engine.open(params)
        pending = self.engine.open(params, wait=False)
        self.assertTrue(pending.await_open())
        self.assertTrue(waited.warnings)
        self.assertEqual(pending.warnings, waited.warnings)

    def test_a_coroutine_opens_while_others_have_rounds(self):
        async def rounds(sequence, opened):
            count = 0
            while not opened.done():
                (result,) = await self.engine.averify(self.rows[:1], {sequence: []})
                count += result.status == "ok"
            return count

        async def both():
            other = self.engine.open(specd.SamplingParams(seed=1, max_tokens=1 << 20, ignore_eos=True))
            opened = asyncio.ensure_future(self.engine.aopen(slow(6, seed=7)))
            await asyncio.sleep(0)
            count = await rounds(other, opened)
            with self.assertRaises(specd.Error):
                await self.engine.aopen(constrained(WRONG), request_id="again")
            await self.engine.aopen(constrained("a"), request_id="again")
            return count, opened.result()

        count, sequence = asyncio.run(both())
        self.assertGreater(count, 10)
        self.assertEqual(sequence.phase, "open")


class EmbeddedPendingTest(PendingCase, ProcessTest):
    def connect(self):
        engine = specd.Engine("embedded:cpu", vocab_size=VOCAB_SIZE, max_batch=4, max_sequences=16,
                              max_draft=4, tokenizer=str(TOKENIZER), eos_token_ids=[0])
        self.addCleanup(engine.close)
        return engine


class AttachedPendingTest(PendingCase, ProcessTest):
    def connect(self, **options):
        if not self.__dict__.get("has_daemon"):
            self.has_daemon = self.daemon()
        engine = specd.Engine(f"unix:{self.socket}", vocab_size=VOCAB_SIZE, max_batch=4,
                              max_sequences=16, max_draft=4, **options)
        self.addCleanup(engine.close)
        return engine

    def test_the_text_side_knows_the_sequence_when_it_is_open(self):
        client = self.client("--streams=1")
        pending = self.engine.open(constrained("ab", temperature=0, stop="b"), wait=False,
                                   request_id="stops")
        self.assertTrue(pending.await_open())
        while not pending.state().finish_reason:
            self.engine.verify(self.rows[:1], {pending: []})
        self.assertEqual(pending.final().finish_reason, "stop")
        client.wait()
        self.assertEqual(self.texts(client), {"stops": "a"})

    def test_a_pending_sequence_goes_to_the_next_daemon(self):
        engine = self.connect(reconnect_ms=60_000)
        open_one = engine.open(specd.SamplingParams(seed=4), request_id="open")
        before = self.tokens(open_one, 3)
        wrong = engine.open(constrained(WRONG), wait=False, request_id="wrong")
        wanted = refusal_of(wrong.await_open)
        pending = engine.open(slow(7, seed=9, max_tokens=50), wait=False,
                              request_id="pending")
        self.assertEqual(pending.phase, "pending")
        self.has_daemon.signal(signal.SIGKILL)
        self.has_daemon.wait()
        self.daemon()
        after = self.tokens(open_one, 3)
        self.assertTrue(pending.await_open())
        self.assertEqual(refusal_of(wrong.await_open), wanted)
        self.assertEqual(engine.stats()["reattached"], 1)
        waited = engine.open(slow(7, seed=9, max_tokens=50))
        self.assertEqual(self.tokens(pending), self.tokens(waited))
        twin = engine.open(specd.SamplingParams(seed=4))
        self.assertEqual(self.tokens(twin, 3) + self.tokens(twin, 3), before + after)

    def test_a_sequence_that_was_aborted_while_pending_stays_so_at_the_next_daemon(self):
        engine = self.connect(reconnect_ms=60_000)
        open_one = engine.open(specd.SamplingParams(seed=4), request_id="open")
        before = self.tokens(open_one, 2)
        params = dict(rng="sglang", seed=6)
        for prompt in ([1, VOCAB_SIZE], None):
            code, text = refusal_of(lambda: engine.open(
                specd.SamplingParams(**params), prompt_ids=prompt, wait=False))
            self.assertEqual((code, text), refusal_of(lambda: engine.open(
                specd.SamplingParams(**params), prompt_ids=prompt)))
            self.assertIn("prompt", text)
        slow_ones = [engine.open(slow(40 + i), prompt_ids=[1], wait=False) for i in range(8)]
        slow_ones[-1].abort()
        self.has_daemon.signal(signal.SIGKILL)
        self.has_daemon.wait()
        self.daemon()
        after = self.tokens(open_one, 2)
        self.assertEqual(slow_ones[-1].state().finish_reason, "abort")
        # Bug: the next daemon gave it a stream, whose opening and end went out to subscribers.
        listed = self.run_to_end("specctl", "list", "--json", f"--specd=unix:{self.socket}").stdout
        withdrawn = [(each["state"], each["stream"]) for each in json.loads(listed)["sequences"]
                     if each["request_id"] == slow_ones[-1].request_id]
        self.assertEqual(withdrawn, [("aborted", 0)])
        slow_ones[-1].close()
        self.assertTrue(slow_ones[0].await_open())
        twin = engine.open(specd.SamplingParams(seed=4))
        self.assertEqual(self.tokens(twin, 2) + self.tokens(twin, 2), before + after)

    def test_a_daemon_that_stops_fails_no_pending_sequence(self):
        engine = self.connect(reconnect_ms=60_000)
        pending = [engine.open(slow(50 + i), wait=False) for i in range(8)]
        # An opening that waits makes the stop last for a while.
        waits = threading.Thread(target=engine_that_waits, args=(self.connect(), slow(60)))
        waits.start()
        self.addCleanup(waits.join)
        self.stop(self.has_daemon)
        self.assertEqual({each.phase for each in pending} - {"open"}, {"pending"})
        self.daemon()
        for each in pending:
            self.assertTrue(each.await_open())

    def test_the_next_daemon_builds_a_failed_sequence_again_before_it_answers(self):
        self.stop(self.has_daemon)
        flags = ("--compile_ms=100",)
        self.has_daemon = self.daemon(*flags)
        engine = self.connect(reconnect_ms=60_000)
        too_long = engine.open(slow(8), wait=False)
        self.assertIn("compile_ms = 100", refusal_of(too_long.await_open)[1])
        self.has_daemon.signal(signal.SIGKILL)
        self.has_daemon.wait()
        self.daemon(*flags)
        self.assertIn("compile_ms = 100", refusal_of(too_long.await_open)[1])

    def test_a_wait_for_an_opening_keeps_its_time_without_a_daemon(self):
        engine = self.connect(reconnect_ms=5_000)
        pending = engine.open(slow(9), wait=False)
        self.has_daemon.signal(signal.SIGKILL)
        self.has_daemon.wait()
        self.assertFalse(pending.await_open(50))
        self.daemon()
        self.assertTrue(pending.await_open())


if __name__ == "__main__":
    unittest.main()
