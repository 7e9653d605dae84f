"""What specd refuses of requests and modes of vLLM's V1 model runner, each by the name of the field."""

import os
import types
import unittest
from unittest import mock

import numpy as np
import torch

import specd
from specd.integrations import _vllm_params as own
from specd.integrations.vllm import specd_params, use_specd
from v1_runner import Runner, params, specd_runner
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.sample.logits_processor import LogitsProcessor


class V1RefusalsTest(unittest.TestCase):
    def test_every_field_that_is_not_honoured_is_refused(self):
        untokenized = params(bad_words=["x"])
        constrained = params(min_tokens=3, structured_outputs=StructuredOutputsParams(regex="a"))
        constrained._all_stop_token_ids = {2}
        for given, words in (
                (params(thinking_token_budget=5), "thinking_token_budget: 5 is not honoured"),
                (params(watermarking=True), "watermarking: True is not honoured"),
                (params(trace_decode_token_ids=[1]), r"trace_decode_token_ids: \[1\]"),
                (untokenized, r"bad_words: \['x'\] have no ids"),
                (constrained, "structured_outputs: they are not honoured beside min_tokens = 3")):
            with self.assertRaisesRegex(specd.Error, words):
                specd_params(given)
        with self.assertRaisesRegex(specd.Error, "rejection_sample_method: 'fly'"):
            specd_params(params(), method="fly")
        unknown = types.SimpleNamespace
        later = type("Later", (unknown,), {"__struct_fields__": ("mirostat",), "mirostat": 0})
        with self.assertRaisesRegex(specd.Error, "mirostat: 2 is not honoured: this release"):
            specd_params(later(mirostat=2))

    def test_what_the_library_refuses_keeps_its_name(self):
        many_words = params(bad_words=["x"] * 129)
        many_words._bad_words_token_ids = [[1]] * 129
        bias = params()
        bias.logit_bias = {1: 101.0}  # vLLM's own check would cut it to 100
        for given, words in (
                (params(logprobs=-1), r"^logprobs: -1 .* 0 \.\. 64"),
                (params(logprobs=65), r"^logprobs = 65 is outside -1 \.\. 64"),
                (params(logprob_token_ids=[1] * 65), r"^logprob_token_ids.count = 65 is outside 0 \.\. 64"),
                (params(repetition_penalty=100.5), r"^repetition_penalty = 100.5 is outside 0.01 \.\. 100"),
                (many_words, r"^bad_word_lengths.count = 129 is outside 0 \.\. 128"),
                (bias, r"^logit_bias\[1\] = 101 is outside -100 \.\. 100"),
                (params(logit_bias=dict.fromkeys(range(1025), 1.0)),
                 r"^logit_bias_ids.count = 1025 is outside 0 \.\. 1024")):
            with self.assertRaisesRegex(specd.Error, words) as at_the_door:
                specd_params(given)
            with self.assertRaises(specd.Error) as in_the_worker:
                specd_runner([given]).sample(np.zeros((1, 32)))
            self.assertEqual(str(at_the_door.exception), str(in_the_worker.exception))

    def test_ids_beyond_the_vocabulary_are_refused_at_the_door_if_it_is_given(self):
        given = params(bad_words=["x"])
        given._bad_words_token_ids = [[200000]]
        specd_params(given)
        with self.assertRaisesRegex(specd.Error, r"^bad_words: 200000 is outside 0 \.\. 31"):
            specd_params(given, vocab_size=32)

    def test_the_most_that_is_allowed_passes_the_door(self):
        # vLLM's own SamplingParams refuse a temperature above 2.
        most = params(temperature=2.0, repetition_penalty=100.0, logprobs=64, bad_words=["x"] * 128,
                      logit_bias=dict.fromkeys(range(1024), 100.0), min_tokens=399, seed=-2)
        most._bad_words_token_ids = [[1]] * 128
        for method in ("standard", "block"):
            made = specd_params(most, method=method, draft_temperature=True)
            self.assertEqual((made.temperature, made.seed), (2, 2**64 - 2))

    def test_every_field_of_vllm_has_a_place(self):
        # A field that this release adds is refused only where it is set; here it is found at once.
        known = {*own._SAME, *own._READ, *own._OUTSIDE, *own._REFUSED}
        self.assertEqual(known, set(SamplingParams.__struct_fields__))

    def test_code_and_modes_are_refused(self):
        class Custom(LogitsProcessor):
            def __init__(self): pass
            def is_argmax_invariant(self): return False
            def apply(self, logits): return logits
            def update_state(self, batch_update): pass
        with self.assertRaisesRegex(specd.Error, "logitsprocs: Custom is code"):
            specd_runner([params()], processors=[Custom()]).sample(np.zeros((1, 32)))
        for name in ("tensor_parallel_size", "prefill_context_parallel_size", "pipeline_parallel_size"):
            with self.assertRaisesRegex(specd.Error, f"{name}: 2 ranks"):
                use_specd(Runner(ranks={name: 2}))
        for options, words in (({"method": "synthetic"}, "rejection_sample_method: 'synthetic'"),
                               ({"method": "fly"}, "rejection_sample_method: 'fly'")):
            with self.assertRaisesRegex(specd.Error, words):
                use_specd(Runner(**options))
        for name in ("VLLM_COMPUTE_NANS_IN_LOGITS", "VLLM_RAISE_ON_LOGIT_NANS"):
            with mock.patch.dict(os.environ, {name: "1"}), self.assertRaisesRegex(
                    specd.Error, "VLLM_COMPUTE_NANS_IN_LOGITS: 1 is not honoured"):
                use_specd(Runner())
        runner = specd_runner([params()])
        metadata = runner.input_batch.sampling_metadata
        for options, words in (({"predict_bonus_token": True}, "predict_bonus_token: True"),
                               ({"logprobs_mode_override": "raw_logits"}, "logprobs_mode_override")):
            with self.assertRaisesRegex(specd.Error, words):
                runner.sampler(torch.zeros(1, 32), metadata, **options)
        metadata.thinking_budget_state_holder = types.SimpleNamespace(has_tracked_requests=lambda: True)
        with self.assertRaisesRegex(specd.Error, "thinking_budget_state_holder"):
            runner.sampler(torch.zeros(1, 32), metadata)

    def test_prompt_embeddings_have_no_ids_to_penalise(self):
        runner = specd_runner([])
        runner.add("r", params(repetition_penalty=1.2), prompt=None)
        with self.assertRaisesRegex(specd.Error, "repetition_penalty: 1.2 needs the ids of the prompt"):
            runner.sample(np.zeros((1, 32)))

    def test_a_row_that_is_no_distribution_is_an_error(self):
        runner = specd_runner([params()] * 2)
        with self.assertRaisesRegex(specd.Error, r"sequences\[1\] of 2 is bad_distribution"):
            runner.sample(np.array([[0.0] * 32, [np.nan] * 32]))


if __name__ == "__main__":
    unittest.main()
