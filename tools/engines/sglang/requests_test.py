"""Which tokens a request of SGLang has, how long it keeps its sequence, and when its sequence is closed.

Expected tokens are the argmax.
"""

import types
import unittest
from unittest import mock

import numpy as np

import specd
from batches import Batch, accepted, chain, play, request, rows, spikes
from specd.integrations.sglang import EagleVerifier, use_specd
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.speculative import eagle_worker_common


class RequestsTest(unittest.TestCase):
    def test_seeds_give_the_text_and_requests_keep_their_sequences(self):
        logits, drafts = np.random.default_rng(3).normal(size=(2, 32)), [[-1]]

        def text(seed, leaves):
            verify, req, made = EagleVerifier("embedded:cpu"), request("a", sampling_seed=seed), []
            for step in range(10):
                if step in leaves:  # retracted for a round
                    play(verify, drafts, [request(f"b{step}")], logits)
                made += play(verify, drafts, [req], logits)
            return made
        self.assertEqual(text(-7, ()), text(-7, (3, 6)))
        self.assertNotEqual(text(1, ()), text(2, ()))

    def test_requests_that_end_free_their_sequences(self):
        engine = specd.Engine(vocab_size=32, max_batch=1, max_sequences=1, max_draft=1)
        self.addCleanup(engine.close)
        verify = EagleVerifier(engine)
        for name in ("a", "b", "a"):
            req = request(name)
            verify(chain([[1]]), Batch([req], 32), rows(np.zeros((2, 32))))
            req.finished_reason = types.SimpleNamespace()
        verify(chain([[1]]), Batch([request("c")], 32), rows(np.zeros((2, 32))))

    def test_a_prompt_may_hold_an_image(self):
        # Its ids are beyond the vocabulary (MM_PAD_SHIFT_VALUE and a hash).
        verify, req = EagleVerifier("embedded:cpu"), request("a", temperature=0, prompt=(1, 1_000_077, 2))
        self.assertEqual(play(verify, [[4]], [req], spikes([4, 5])), [[4, 5]])
        self.assertEqual(play(verify, [[6]], [req], spikes([6, 7])), [[6, 7]])

    def test_tokens_that_sglang_has_not_read_are_in_the_output(self):
        # The overlap loop reads a round's tokens after the next round has begun.
        verify, req, made = EagleVerifier("embedded:cpu"), request("a", output=(), temperature=0), [[3]]
        opened = None
        for best in ([1, 2, 3], [4, 5, 6], [7, 8, 10]):
            batch = Batch([req], 32)
            batch.seq_lens += len(made[-1])
            made += accepted(verify(chain([best[:2]], last_ids=made[-1][-1:]), batch, rows(spikes(best))))
            req.output_ids.extend(made[-2])
            kept = verify._rounds._opened["a"]
            self.assertEqual(kept.tokens, sum(made, []))
            self.assertIs(kept.sequence, opened or kept.sequence)  # it is opened once
            opened = kept.sequence
        opened.abort()
        self.assertEqual(opened.state().kept_tokens, 10)

    def test_a_request_that_is_retracted_twice_has_the_tokens_of_both_prefills(self):
        # Number and last id are those of the round that was lost; the id between them is not.
        verify, req = EagleVerifier("embedded:cpu"), request("a", temperature=0)
        verify(chain([[5]], last_ids=[3]), Batch([req], 32), rows(spikes([5, 6])))  # 5 and 6 are lost
        req.output_ids.append(9)
        req.retraction_count += 2
        batch = Batch([req], 32)
        batch.seq_lens += 1  # 6 again, by the second prefill
        answer = verify(chain([[7]], last_ids=[6]), batch, rows(spikes([7, 8])))
        self.assertEqual(accepted(answer), [[7, 8]])
        self.assertEqual(verify._rounds._opened["a"].tokens, [3, 9, 6, 7, 8])

    def test_a_retracted_request_has_the_token_of_its_second_prefill(self):
        # The overlap loop drops the tokens of the last round before a retraction. The prefill afterwards
        # draws a token by the sampling backend.
        for lost, last in ((0, 6), (1, 6), (1, 1), (2, 2), (3, 3)):
            for is_read in (False, True):
                verify, req = EagleVerifier("embedded:cpu"), request("a", temperature=0)
                play(verify, [[4, 4, 4]], [req], spikes([4, 5, 0, 0]))
                if lost:
                    best = [*range(1, lost + 1), 0][:max(lost, 2)]
                    drafts = [[31]] if lost == 1 else [best[:-1]]
                    answer = verify(chain(drafts, last_ids=[5]), Batch([req], 32), rows(spikes(best)))
                    self.assertEqual(accepted(answer), [best[:lost]])
                expected = [*req.output_ids, last]
                batch = Batch([req], 32)
                batch.seq_lens += 1
                if is_read:
                    req.output_ids.append(last)
                answer = verify(chain([[7]], last_ids=[last]), batch, rows(spikes([7, 8])))
                self.assertEqual(accepted(answer), [[7, 8]])
                kept = verify._rounds._opened["a"]
                self.assertEqual(kept.tokens, [*expected, 7, 8], (lost, last, is_read))
                kept.sequence.abort()
                self.assertEqual(kept.sequence.state().kept_tokens, len(expected) + 2)

    def test_the_last_request_is_closed_before_the_scheduler_is_idle(self):
        HookRegistry.reset()
        engine = specd.Engine(vocab_size=32, max_batch=2, max_sequences=2, max_draft=1)
        self.addCleanup(engine.close)
        use_specd(engine)
        HookRegistry.apply_hooks()
        self.addCleanup(setattr, Scheduler, "on_idle", Scheduler.on_idle.__wrapped__)
        def idle():
            with self.assertRaisesRegex(RuntimeError, "the original"):
                Scheduler.on_idle(mock.Mock(**{"dp_attn_adapter.drop_sync_wait_carry.side_effect":
                                               RuntimeError("the original")}))
        idle()  # before the first round
        reqs = [request("a", temperature=0), request("b", temperature=0)]
        eagle_worker_common.eagle_sample(chain([[1], [1]]), Batch(reqs, 32), rows(spikes([1, 5] * 2)))
        for left in (1, 0):
            reqs[left].finished_reason = types.SimpleNamespace()
            idle()
            opened = engine.open_batch(2 - left)  # their slots are free
            with self.assertRaisesRegex(specd.Error, "max_sequences"):
                engine.open()
            for i in range(len(opened)):
                opened.sequence(i).close()


if __name__ == "__main__":
    unittest.main()
