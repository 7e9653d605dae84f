"""The Python door attached to a real daemon: what holds in one process holds in two.

The random rounds and the door's own test run over the daemon's rings; and a stop string cuts the sum of
logprobs for the engine and for readers of the text.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import unittest

import numpy as np

import specd
from support import PATIENCE_S, SOURCE, TOKENIZER, ProcessTest, wait_until

TESTS = SOURCE / "tests/python"


class AttachedTest(ProcessTest):
    def ids_only(self):
        """A daemon without a tokenizer serves every vocabulary."""
        daemon = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        self.assertTrue(daemon.running(), daemon.stderr)
        return f"unix:{self.socket}"

    def run_python(self, script, *arguments, **environment):
        done = subprocess.run([sys.executable, TESTS / script, *arguments], capture_output=True,
                              text=True, timeout=10 * PATIENCE_S, env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_random_rounds_drafts_scores_and_coins(self):
        output = self.run_python("rounds_test.py", "--rounds", "2000", "--uri", self.ids_only())
        self.assertIn("'sample_draft'", output)

    def test_the_door(self):
        uri = self.ids_only()
        for script in ("door_test.py", "door_scores_test.py", "door_sequences_test.py",
                       "parents_test.py", "trees_test.py", "in_flight_test.py", "asyncio_test.py", "dlpack_test.py",
                       "batch_test.py", "batch_openings_test.py", "batch_in_flight_test.py",
                       "quick_rounds_test.py"):
            self.run_python(script, SPECD_TEST_URI=uri)

    def test_constraints_with_the_tokenizer_of_the_daemon(self):
        self.daemon()
        self.run_python("structured_test.py", SPECD_TEST_URI=f"unix:{self.socket}")

    def test_a_trace_of_the_daemon_is_named_on_request(self):
        traces = self.folder / "traces"
        daemon = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off",
                            f"--trace={traces}", "--trace_options=flight=2")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        with specd.Engine(f"unix:{self.socket}", vocab_size=8) as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=10))
            for _ in range(3):
                engine.verify(np.eye(8)[[5]], {sequence: []})
            path, num_rounds, num_lost = engine.dump_trace()
            self.assertEqual((num_rounds, num_lost), (2, 0))
            self.assertTrue(path.startswith(f"{traces}/specd-"))
            self.assertTrue(os.path.exists(path))
        self.stop(daemon)
        with specd.Engine(vocab_size=8, trace=traces, trace_options="level=rows") as engine:
            path, num_rounds, _ = engine.dump_trace()
            self.assertEqual(num_rounds, 0)
        with specd.Engine(vocab_size=8) as engine:
            with self.assertRaisesRegex(specd.Error, "no trace is recorded"):
                engine.dump_trace()

    def test_the_log_says_that_a_sequence_was_aborted(self):
        daemon = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        with specd.Engine(f"unix:{self.socket}", vocab_size=8) as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0), request_id="given up")
            engine.verify(np.eye(8)[[3, 5]], {sequence: [3]})
            sequence.abort()
            wait_until(lambda: "was aborted" in daemon.stderr, "the line")
        self.assertRegex(daemon.stderr, r'"given up" \(stream \d+\) was aborted after 2 tokens')

    def test_the_log_says_which_row_is_no_distribution(self):
        # Bug: the line said that "a row was no distribution, or its constraint met a limit".
        daemon = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        with specd.Engine(f"unix:{self.socket}", vocab_size=8) as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=9),
                                   request_id="bad one")
            rows = np.eye(8, dtype=np.float32)[[3, 5]]
            rows[1, 2] = np.nan
            with self.assertRaisesRegex(specd.RoundError, "place 1, row 1: target_rows.*NaN"):
                engine.verify(rows, {sequence: [3]})
            wait_until(lambda: "ended by an error" in daemon.stderr, "the line")
        self.assertRegex(daemon.stderr, r'"bad one" \(stream \d+\) ended by an error after 1 tokens, '
                         r"at draft place 1, row 1: target_rows: .*NaN")

    def test_ranks_of_other_processes_read_what_rank_0_decided(self):
        uri = self.ids_only()
        with specd.Engine(uri, vocab_size=8, max_batch=2) as engine:
            token, bound = engine.group()
            self.assertEqual(bound, set())
            with self.assertRaisesRegex(specd.Error, "rank = 8 is outside 1 .. 7"):
                specd.Member(uri, token, rank=8)
            with self.assertRaisesRegex(specd.Error, "colour: no such option"):
                specd.Member(uri, token, rank=1, colour="red")
            member = specd.Member(uri, token, rank=3, name="three")
            with self.assertRaisesRegex(specd.Error, "num_rows"):
                member.next_tokens(1)
            kept = member.slot_output("kept_tokens", 2, engine.max_path + 1, dtype="int64")
            with self.assertRaisesRegex(specd.Error, "row_stride"):
                member.slot_output("kept_tokens", 2, engine.max_path)
            self.assertEqual(engine.group(), (token, set()))
            ids = member.next_tokens(2)
            self.assertEqual(engine.group(), (token, {3}))
            sequence = engine.open(specd.SamplingParams(temperature=0))
            for token_id in (5, 2):
                engine.verify(np.eye(8)[[token_id]], {sequence: []})
                self.assertEqual(ids[sequence.slot], token_id)
                self.assertEqual(kept[sequence.slot].tolist(),
                                 [token_id] + [-1] * engine.max_path)
            member.check()
            member.leave()
            member.leave()  # once is enough
            self.assertEqual(engine.group(), (token, set()))
            with self.assertRaisesRegex(specd.Error, "the member has left"):
                member.check()
            left = specd.Member(uri, token, rank=3)
        wait_until(lambda: self.has_ended(left), "the end of the session")
        with specd.Engine(vocab_size=8) as embedded:
            with self.assertRaisesRegex(specd.Error, "attach to a daemon"):
                embedded.group()

    def test_after_sigterm_the_engine_reads_shutdown_and_after_a_kill_disconnected(self):
        # Bug: the engine of a daemon that had been told to stop read "disconnected" too.
        for number, name in ((signal.SIGTERM, "SPECD_ERROR_SHUTDOWN"),
                             (signal.SIGKILL, "SPECD_ERROR_DISCONNECTED")):
            daemon = self.daemon("--detokenizer=off", "--vocab_size=2048")
            with specd.Engine(f"unix:{self.socket}", vocab_size=2048) as engine:
                sequence = engine.open(specd.SamplingParams(temperature=0))
                rows = np.zeros((1, 2048), np.float32)
                engine.verify(rows, {sequence: []})
                daemon.signal(number)
                daemon.wait()
                more_rows = np.zeros((9, 2048), np.float32)  # which allocate or bind first
                for call in (engine.open, sequence.abort,
                             lambda: engine.verify(rows, {sequence: []}),
                             lambda: engine.verify(rows, {sequence: []}),
                             lambda: engine.verify(more_rows, {sequence: [1] * 8})):
                    with self.assertRaises(specd.Error) as caught:
                        call()
                    self.assertEqual(caught.exception.code_name, name)

    def test_a_time_holds_while_the_daemon_stands_still_and_a_wait_ends_with_the_daemon(self):
        # Bug: Python waited without limit.
        daemon = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        with specd.Engine(f"unix:{self.socket}", vocab_size=8) as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0))
            rows = engine.rows(8)
            rows[:] = np.eye(8)
            daemon.stop()
            with self.assertRaises(specd.RoundTimeout) as caught:
                engine.verify(rows[3], {sequence: []}, timeout_ms=30)
            late = caught.exception.round

            async def wait():
                async with asyncio.timeout(0.03):
                    await late

            with self.assertRaises(TimeoutError):
                asyncio.run(wait())
            second = engine.submit(rows[5], {sequence: []})  # beside the late one
            self.assertFalse(second.poll())
            daemon.signal(signal.SIGCONT)
            self.assertEqual([each.result()[0].tokens.tolist() for each in (second, late)],
                             [[5], [3]])
            daemon.stop()
            rounds = [engine.submit(rows[6], {sequence: []}) for _ in range(2)]

            async def killed():
                waits = asyncio.gather(*rounds, return_exceptions=True)
                await asyncio.sleep(0.01)
                self.kill(daemon)
                return await waits

            for error in asyncio.run(killed()):
                self.assertEqual(error.code_name, "SPECD_ERROR_DISCONNECTED")
            with self.assertRaises(specd.Error) as caught:
                rounds[1].result()
            self.assertEqual(caught.exception.code_name, "SPECD_ERROR_DISCONNECTED")

    @staticmethod
    def has_ended(member):
        try:
            member.check()
        except specd.Error as error:
            return error.code_name == "SPECD_ERROR_DISCONNECTED"
        return False

    def test_a_stop_string_cuts_the_sum_for_engine_and_reader(self):
        self.daemon()
        client = self.client("--streams=1")
        tokenizer = json.loads(TOKENIZER.read_text())
        letters = [tokenizer["model"]["vocab"][letter] for letter in "abcd"]
        size = 1 + max(max(tokenizer["model"]["vocab"].values()),
                       max(token["id"] for token in tokenizer["added_tokens"]))
        rows = np.random.default_rng(7).normal(size=(4, size)).astype(np.float32)
        rows[range(4), letters] = 8
        with specd.Engine(f"unix:{self.socket}", vocab_size=size, max_draft=3) as engine:
            # max_tokens ends it after d; the stop string, found later, ends it after b.
            sequence = engine.open(specd.SamplingParams(
                temperature=0, max_tokens=4, logprobs=0, stop=["b"]), request_id="r")
            result, = engine.verify(rows, {sequence: letters[:3]})
            self.assertEqual((result.tokens.tolist(), result.finish_reason), (letters, "length"))
            values = [float(value) for value in result.scores["value"][:, 0]]
            self.assertEqual(result.cumulative_logprob,
                             values[0] + values[1] + values[2] + values[3])
            wait_until(lambda: sequence.state().finish_reason == "stop", "the stop string")
            self.assertEqual(sequence.state(), ("stop", 2, values[0] + values[1]))
            self.assertEqual(client.wait(), 0, client.stderr)
        end = self.ends(client)["r"]
        self.assertEqual((end["stop"], end["tokens"], end["late"]), ("b", 2, 2))
        self.assertEqual(end["cumulative_logprob"], values[0] + values[1])
        self.assertEqual(self.texts(client), {"r": "a"})

    def test_an_engine_with_another_tokenizer_is_refused_with_both_hashes(self):
        # Bug: a tokenizer of the same size attached, and its ids became the daemon's texts.
        self.daemon()
        uri = f"unix:{self.socket}"
        other = json.loads(TOKENIZER.read_text())
        vocab = other["model"]["vocab"]
        vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
        swapped = self.folder / "swapped.json"
        swapped.write_text(json.dumps(other))
        for accepted in ({}, {"tokenizer": TOKENIZER}):
            specd.Engine(uri, vocab_size=2048, **accepted).close()
        with self.assertRaises(specd.Error) as caught:
            specd.Engine(uri, vocab_size=2048, tokenizer=swapped)
        self.assertEqual(caught.exception.code_name, "SPECD_ERROR_VOCABULARY")
        hashes = re.findall(r"hash ([0-9a-f]{16}).* has ([0-9a-f]{16}),", str(caught.exception))
        self.assertEqual(len(hashes), 1)
        self.assertNotEqual(*hashes[0])
        self.assertIn("start the daemon with the tokenizer.json", str(caught.exception))

    def test_ignore_eos_without_an_eos_is_refused_with_the_flag(self):
        # Bug: the parameter was ignored in silence.
        with specd.Engine(self.ids_only(), vocab_size=8) as engine:
            with self.assertRaisesRegex(specd.Error, "--eos_token_ids") as caught:
                engine.open(specd.SamplingParams(ignore_eos=True))
            self.assertEqual(caught.exception.code_name, "SPECD_ERROR_UNSUPPORTED")


if __name__ == "__main__":
    unittest.main()
