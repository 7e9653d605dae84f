"""specd as the verifier and the sampler of SGLang, with SGLang's own classes around it.

Expected tokens are the argmax; expected laws are computed in numpy.
"""

import collections
import os
import signal
import types
import unittest
from unittest import mock

import numpy as np
import torch

import specd
from batches import Batch, accepted, chain, play, request, rows, spikes
from laws import chi_square, law
from specd.integrations import _sglang_params as own
from specd.integrations.sglang import EagleVerifier, make_sampler, plugin, specd_params, use_specd
from support import ProcessTest, TOKENIZER
from sglang.srt.layers.logprob_processor import compute_spec_logprobs
from sglang.srt.layers.sampler import Sampler, create_sampler
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.runtime_context import get_context, get_parallel, get_spec
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative import eagle_utils, eagle_worker_common, spec_utils
from tokenizers import Tokenizer

# Chi-square with 7 and with 15 degrees of freedom passes these once in a million.
LIMIT_7, LIMIT_15 = 40.5, 56.5


class VerifyTest(unittest.TestCase):
    def test_greedy_drafts_are_kept_as_long_as_they_are_the_argmax(self):
        for drafts, best, expected in (
                ([[1, 2, 3]], [1, 2, 3, 4], [[1, 2, 3, 4]]),
                ([[1, 2, 3]], [1, 5, 3, 4], [[1, 5]]),
                ([[1, 2], [3, 4]], [1, 2, 5, 6, 4, 7], [[1, 2, 5], [6]])):
            reqs = [request(f"r{i}", temperature=0) for i in range(len(drafts))]
            predict, lens, index = EagleVerifier("embedded:cpu")(
                chain(drafts), Batch(reqs, 32), rows(spikes(best)))
            width = len(drafts[0]) + 1
            self.assertEqual(accepted((predict, lens, index)), expected)
            self.assertEqual(lens.tolist(), [len(tokens) for tokens in expected])
            self.assertEqual(index.tolist(), [
                [i * width + j if j < len(tokens) else -1 for j in range(width)]
                for i, tokens in enumerate(expected)])
            self.assertEqual({each.dtype for each in (predict, lens, index)}, {torch.int32})
            self.assertEqual(predict.shape, (len(drafts) * width,))

    def test_rows_are_found_by_retrieve_index(self):
        drafts = chain([[1, 2], [3, 4]])
        # The second request's rows come first, and those of the first one backwards.
        drafts.retrieve_index = torch.tensor([[5, 4, 3], [0, 1, 2]])
        logits = np.empty((6, 32))
        logits[[5, 4, 3, 0, 1, 2]] = spikes([1, 2, 5, 6, 4, 7])
        reqs = [request(name, temperature=0) for name in "ab"]
        answer = EagleVerifier("embedded:cpu")(drafts, Batch(reqs, 32), rows(logits))
        self.assertEqual(accepted(answer), [[1, 2, 5], [6]])
        self.assertEqual(answer[2].tolist(), [[5, 4, 3], [0, -1, -1]])

    def test_drafts_drawn_from_the_targets_law_are_all_kept(self):
        rng = np.random.default_rng(1)
        logits, reqs = rng.normal(size=(8, 32)), [request("a"), request("b", temperature=0.5)]
        q = np.stack([law(logits[0:3]), law(logits[4:7], temperature=0.5)])
        verify = EagleVerifier("embedded:cpu")
        for _ in range(50):
            drafts = [[int(rng.choice(32, p=row)) for row in each] for each in q]
            answer = verify(chain(drafts, q), Batch(reqs, 32), rows(logits))
            self.assertEqual([tokens[:3] for tokens in accepted(answer)], drafts)

    def test_the_law_does_not_depend_on_drafts(self):
        rng = np.random.default_rng(2)
        first, seconds, q = rng.normal(size=4), rng.normal(size=(4, 4)), law(rng.normal(size=4))
        for has_rows, block in ((True, False), (True, True), (False, False)):
            for fields in ({"temperature": 0.8}, {"top_k": 3, "top_p": 0.9}, {"min_p": 0.2}):
                with get_spec().override(speculative_use_block_verification=block):
                    verify, counts, kept = EagleVerifier("embedded:cpu"), collections.Counter(), 0
                    for step in range(200):
                        reqs = [request(f"{step}.{i}", **fields) for i in range(8)]
                        drafts = [[int(rng.choice(4, p=q))] for _ in range(8)]
                        logits = [row for draft, in drafts for row in (first, seconds[draft])]
                        made = play(verify, drafts, reqs, logits,
                                    np.tile(q, (8, 1, 1)) if has_rows else None)
                        kept += sum(len(tokens) == 2 for tokens in made)
                        # One more step where the draft was rejected: its first token.
                        more = play(verify, [[-1]] * 8, reqs, [
                            row for tokens in made for row in (seconds[tokens[0]],) * 2])
                        counts.update(tuple((a + b)[:2]) for a, b in zip(made, more))
                expected = {(a, b): p * each for a, p in enumerate(law(first, **fields))
                            for b, each in enumerate(law(seconds[a], **fields))}
                self.assertLess(chi_square(counts, expected), LIMIT_15, (has_rows, block, fields))
                self.assertTrue(80 < kept < 1500, kept)

    def test_sglangs_own_steps_come_before(self):
        reqs = [request("a", temperature=0, frequency_penalty=1.5),
                request("b", temperature=0, logit_bias={"6": 5.5}),
                request("c", temperature=0, repetition_penalty=2.0)]
        batch = Batch(reqs, 32)
        orchestrator = batch.sampling_info.penalizer_orchestrator
        orchestrator.cumulate_output_tokens(torch.tensor([4, 4, 4]))
        batch.sampling_info.update_penalties()
        logits = np.zeros((6, 32))
        logits[:, 4], logits[:, 5], logits[:, 6] = 3, 2, -2
        output = rows(logits)

        class Mask:
            def apply(self, given):
                given[:, 5] = -np.inf  # a grammar

        answer = EagleVerifier("embedded:cpu")(chain([[4], [6], [4]]), batch, output)
        # 4 has 3 - 1.5; 6 has -2 + 5.5; 4 has 3 / 2.
        self.assertEqual(accepted(answer), [[5], [6, 6], [5]])
        # SGLang's logprobs read the rows afterwards.
        self.assertEqual(output.next_token_logits[[0, 2, 4], [4, 6, 4]].tolist(), [1.5, 3.5, 1.5])
        masked = EagleVerifier("embedded:cpu")(chain([[4], [6], [4]]), batch, rows(logits), Mask())
        self.assertEqual(accepted(masked), [[4, 4], [6, 6], [4, 4]])

    def test_sglang_computes_the_logprobs_of_kept_tokens(self):
        batch, output = Batch([request("a", temperature=0)], 32), rows(spikes([1, 5, 3]) / 50)
        batch.top_logprobs_nums, batch.token_ids_logprobs = [2], [None]
        predict, _, index = EagleVerifier("embedded:cpu")(chain([[1, 2]]), batch, output)
        compute_spec_logprobs(batch, output, predict, accept_index=index)
        expected = np.log(law(spikes([1, 5, 3]) / 50))
        np.testing.assert_allclose(output.next_token_logprobs[0, :2],
                                   [expected[0, 1], expected[1, 5]], atol=1e-5)

    def test_an_idle_batch_has_no_tokens(self):
        batch = types.SimpleNamespace(forward_mode=ForwardMode.IDLE, device="cpu")
        for tensor in EagleVerifier("embedded:cpu")(None, batch, None):
            self.assertEqual((tensor.shape, tensor.dtype), ((0,), torch.int32))


class RefusalTest(unittest.TestCase):
    def refused(self, words, drafts=None, batch=None):
        with self.assertRaisesRegex(specd.Error, words):
            EagleVerifier("embedded:cpu")(drafts or chain([[1]]), batch or Batch([request("a")], 32),
                                          rows(np.zeros((2, 32))))

    def test_what_changes_the_law_is_refused(self):
        for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
            with get_spec().override(**{name: 0.5}):
                self.refused(f"{name}: 0.5 changes the law")
        with mock.patch.object(spec_utils, "SIMULATE_ACC_LEN", 2.0):
            self.refused("SGLANG_SIMULATE_ACC_LEN: 2.0")
        with get_parallel().override(tp_size=2, attn_tp_size=2, moe_tp_size=2,
                                     tp_group=types.SimpleNamespace(world_size=2)):
            self.refused("tp_size: 2 ranks")
            with self.assertRaisesRegex(specd.Error, "tp_size: 2 ranks"):
                make_sampler()
        for field, words in (("has_custom_logit_processor", "custom_logit_processor: it is code"),
                             ("has_watermark_candidates", "watermark: a request of the batch")):
            batch = Batch([request("a")], 32)
            setattr(batch.sampling_info, field, True)
            self.refused(words, batch=batch)
        req = request("a")
        req.return_sampling_mask = True
        self.refused("return_sampling_mask: True is not honoured", batch=Batch([req], 32))

    def test_every_field_that_is_not_honoured_is_refused(self):
        for fields, words in (({"beam_width": 4}, "beam_width: 4 is not honoured: beam search"),
                              ({"watermark": {"enabled": True}}, "watermark: .* is not honoured")):
            with self.assertRaisesRegex(specd.Error, words):
                specd_params(SamplingParams(**fields))

    def test_the_door_refuses_what_the_library_refuses(self):
        for fields, words in (({"temperature": 101.0}, r"^temperature = 101 is outside 0 \.\. 100"),
                              ({"top_p": 1.5}, r"^top_p = 1.5 is outside above 0 \.\. 1"),
                              ({"min_p": -1.0}, r"^min_p = -1 is outside 0 \.\. 1"),
                              ({"top_k": -5}, r"^top_k = -5 is outside -1 or more")):
            with self.assertRaisesRegex(specd.Error, words) as at_the_door:
                specd_params(SamplingParams(**fields))
            with self.assertRaises(specd.Error) as in_the_scheduler:
                EagleVerifier("embedded:cpu")(chain([[1]]), Batch([request("a", **fields)], 32),
                                              rows(np.zeros((2, 32))))
            self.assertEqual(str(at_the_door.exception), str(in_the_scheduler.exception))
        most = specd_params(SamplingParams(temperature=2.0, top_k=1 << 30, sampling_seed=-1), block=True)
        self.assertEqual((most.temperature, most.verify), (2, "block"))

    def test_every_field_of_sglang_has_a_place(self):
        known = {*own._SAME, *own._READ, *own._IN_THE_ROWS, *own._OUTSIDE, *own._REFUSED}
        self.assertEqual(known, set(SamplingParams.__struct_fields__))


class SamplerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        use_specd()
        cls.sampler = create_sampler("specd")

    def tokens(self, batch, logits, positions=None, sampler=None, **options):
        output = rows(logits)
        asked = {"return_logprob": False, "top_logprobs_nums": [0] * len(logits),
                 "token_ids_logprobs": [None] * len(logits), **options}
        ids = (sampler or self.sampler)(
            output, batch.sampling_info, positions=torch.as_tensor(
                np.zeros(len(logits), np.int64) if positions is None else positions), **asked)
        return ids, output

    def test_it_is_a_sampler_of_sglang(self):
        self.assertIsInstance(self.sampler, Sampler)

    def test_the_law_of_random_rows(self):
        logits = np.linspace(-1, 1.5, 8)
        for fields in ({"temperature": 0.7}, {"top_k": 4}, {"top_p": 0.7}, {"min_p": 0.3},
                       {"temperature": 1.3, "top_k": 6, "top_p": 0.8}):
            batch = Batch([request(f"r{i}", **fields) for i in range(64)], 8)
            counts = collections.Counter()
            for _ in range(50):
                counts.update(self.tokens(batch, np.tile(logits, (64, 1)))[0].tolist())
            self.assertLess(chi_square(counts, law(logits, **fields)), LIMIT_7, fields)

    def test_greedy_rows_in_a_mixed_batch_and_logprobs_are_those_of_sglang(self):
        rng, native = np.random.default_rng(5), Sampler()
        batch = Batch([request("a", temperature=0), request("b", top_k=1), request("c", top_k=5)], 32)
        options = {"return_logprob": True, "top_logprobs_nums": [2, 0, 0]}
        for _ in range(20):
            logits = rng.normal(size=(3, 32))
            ids, output = self.tokens(batch, logits, **options)
            theirs, expected = self.tokens(batch, logits, sampler=native, **options)
            self.assertEqual(ids.dtype, theirs.dtype)
            self.assertEqual(ids[:2].tolist(), theirs[:2].tolist())
            torch.testing.assert_close(output.next_token_logprobs[:2], expected.next_token_logprobs[:2])

    def test_seeds_give_the_tokens(self):
        with get_context().override_server_args(
                sampling_backend="pytorch", enable_deterministic_inference=True):
            batch = Batch([request("a", sampling_seed=5), request("b", sampling_seed=5),
                           request("c", sampling_seed=6), request("d")], 32)
        logits = np.zeros((4, 32))
        def draws():
            return np.stack([self.tokens(batch, logits, [place] * 4)[0].numpy() for place in range(20)])
        first = draws()
        np.testing.assert_array_equal(first, draws())
        np.testing.assert_array_equal(first[:, 0], first[:, 1])
        self.assertTrue((first[:, 0] != first[:, 2]).any())
        self.assertGreater(len(set(first[:, 0])), 5)

    def test_sampling_masks_are_refused(self):
        req = request("a")
        req.return_sampling_mask = True
        with self.assertRaisesRegex(specd.Error, "return_sampling_mask: True is not honoured"):
            self.tokens(Batch([req], 32), np.zeros((1, 32)))


class AttachedTest(ProcessTest):
    def text(self, engine):
        """Eight rounds of two requests with drafts that are often right. The daemon has 2048 ids."""
        verify, rng = EagleVerifier(engine), np.random.default_rng(6)
        reqs = [request("sampled", temperature=0.8, top_p=0.9, sampling_seed=4),
                request("greedy", temperature=0)]
        made = []
        for _ in range(8):
            logits = rng.normal(size=(6, 2048)) * 4
            drafts = [logits[first:first + 2].argmax(1).tolist() for first in (0, 3)]
            q = np.stack([law(logits[0:2]), law(logits[3:5])])
            made.append(play(verify, drafts, reqs, logits, q))
        return made

    def test_the_tokens_are_those_of_an_embedded_engine(self):
        self.daemon()
        attached = self.text(f"unix:{self.socket}")
        self.assertEqual(attached, self.text("embedded:cpu"))
        self.assertTrue(all(len(greedy) == 3 for _, greedy in attached))

    def test_the_eos_of_the_daemon_ends_no_request(self):
        self.daemon()
        eos = Tokenizer.from_file(str(TOKENIZER)).token_to_id("<|endoftext|>")
        verify, req = EagleVerifier(f"unix:{self.socket}"), request("a", temperature=0, ignore_eos=True)
        for _ in range(3):
            self.assertEqual(play(verify, [[5, eos]], [req], spikes([5, eos, 6], 2048)), [[5, eos, 6]])

    def test_a_sequence_that_another_has_ended_is_an_error(self):
        # SGLang's overlap loop would take an accept length of 0 for one.
        verify, reqs = EagleVerifier("embedded:cpu"), [request("a"), request("b")]
        play(verify, [[1], [2]], reqs, np.zeros((4, 32)))
        verify._rounds._opened["b"].sequence.abort()
        with self.assertRaisesRegex(specd.Error, r"request_id: the sequence of 'b' .*\(abort\)"):
            play(verify, [[1], [2]], reqs, np.zeros((4, 32)))

    def test_a_round_that_takes_too_long_is_an_error(self):
        daemon, logits = self.daemon(), spikes([5, 6, 7], 2048)
        verify = EagleVerifier(f"unix:{self.socket}", 1000)
        reqs, drafts = [request("a", temperature=0)], [[5, 6]]
        self.assertEqual(play(verify, drafts, reqs, logits), [[5, 6, 7]])
        daemon.stop()
        with self.assertRaisesRegex(specd.RoundTimeout, "not answered within 1000 ms"):
            play(verify, drafts, reqs, logits)
        daemon.signal(signal.SIGCONT)
        self.assertEqual(play(verify, drafts, reqs, logits), [[5, 6, 7]])
        # The request began with one token, and those of the late round are none of its own.
        sequence = verify._rounds._opened["a"].sequence
        sequence.abort()
        self.assertEqual(sequence.state().kept_tokens, 1 + 3 + 3)

    def test_a_later_round_may_be_as_wide_as_adaptive_drafts_become(self):
        with get_spec().override(speculative_adaptive=True, speculative_num_draft_tokens=2,
                                 max_speculative_num_draft_tokens=4):
            verify, req = EagleVerifier("embedded:cpu"), request("a", temperature=0)
            for drafts in ([1], [1, 2, 3], [1, 2]):
                best = [*drafts, 9]
                self.assertEqual(play(verify, [drafts], [req], spikes(best)), [best])


class PluginTest(unittest.TestCase):
    def test_the_timeout_comes_from_the_environment(self):
        for text, wanted in (("", 60_000), ("250", 250), ("-1", -1)):
            with mock.patch.dict(os.environ, {"SPECD_SGLANG_ENGINE": "embedded:cpu",
                                              "SPECD_SGLANG_TIMEOUT_MS": text}), \
                    mock.patch("specd.integrations.sglang.use_specd") as use:
                plugin()
                use.assert_called_once_with("embedded:cpu", wanted)
        for text in ("-2", str(2**31), "1.5", "soon"):
            with mock.patch.dict(os.environ, {"SPECD_SGLANG_ENGINE": "embedded:cpu",
                                              "SPECD_SGLANG_TIMEOUT_MS": text}), \
                    self.assertRaisesRegex(specd.Error, f"SPECD_SGLANG_TIMEOUT_MS: .*{text}"):
                plugin()
        with self.assertRaisesRegex(specd.Error, "timeout_ms: -2 does not fit: -1 .. 2147483647"):
            EagleVerifier("embedded:cpu", -2)

    def test_the_hook_takes_the_place_of_eagle_sample(self):
        before = eagle_utils.eagle_sample
        with mock.patch.dict(os.environ, {"SPECD_SGLANG_ENGINE": ""}):
            HookRegistry._hooks.clear()
            plugin()
            self.assertFalse(HookRegistry._hooks)
        with mock.patch.dict(os.environ, {"SPECD_SGLANG_ENGINE": "embedded:cpu"}):
            plugin()
        HookRegistry.apply_hooks()
        self.assertIsNot(eagle_utils.eagle_sample, before)
        # The worker has imported the function by its name.
        self.assertIs(eagle_worker_common.eagle_sample, eagle_utils.eagle_sample)
        answer = eagle_worker_common.eagle_sample(
            chain([[1, 2]]), Batch([request("a", temperature=0)], 32), rows(spikes([1, 5, 3])), None,
            uno_target_max_top_k=None, watermark_state=None, watermark_full_mask=True)
        self.assertEqual(accepted(answer), [[1, 5]])


if __name__ == "__main__":
    unittest.main()
