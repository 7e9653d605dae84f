"""specd as the samplers of vLLM's V2 model runner: tensors and metadata of its shapes.

Expected tokens are the argmax; expected laws are computed in numpy.
"""

import collections
import inspect
import os
import unittest
from unittest import mock

import numpy as np
import torch

import specd
from laws import chi_square, law
from specd.integrations._vllm_v2 import V2RejectionSampler, V2Sampler
from specd.integrations.vllm import use_specd
from v2_runner import Runner, kept
from vllm import SamplingParams
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.states import RequestState

# Chi-square with 15 degrees of freedom passes 56.5 once in a million.
LIMIT_15 = 56.5


def params(**fields):
    """max_tokens is never reached."""
    return SamplingParams(max_tokens=400, **fields)


def spikes(ids, vocab=32):
    made = np.full((len(ids), vocab), -100.0)
    made[np.arange(len(ids)), ids] = 100
    return made


class V2Test(unittest.TestCase):
    def runner(self, *requests, **options):
        runner = Runner(**options)
        use_specd(runner)
        for i, asked in enumerate(requests):
            runner.add(f"r{i}", asked)
        return runner

    def test_greedy_drafts_are_kept_as_long_as_they_are_the_argmax(self):
        for drafts, best, expected, rejected in (
                ([[1, 2, 3]], [1, 2, 3, 4], [[1, 2, 3, 4]], [0]),
                ([[1, 2, 3]], [1, 5, 3, 4], [[1, 5]], [2]),
                ([[1, 2], [], [3]], [1, 2, 5, 8, 6, 7], [[1, 2, 5], [8], [6]], [0, 0, 1])):
            runner = self.runner(*[params(temperature=0)] * len(drafts))
            made = runner.sample(spikes(best), {f"r{i}": tokens for i, tokens in enumerate(drafts)})
            self.assertEqual(kept(made), expected)
            self.assertEqual(made.num_rejected.tolist(), rejected)
            self.assertEqual((made.sampled_token_ids.dtype, made.sampled_token_ids.shape),
                             (torch.int64, (len(drafts), 4)))
            self.assertEqual({made.num_sampled.dtype, made.num_rejected.dtype}, {torch.int32})
            self.assertIsNone(made.logprobs_tensors)
            self.assertIsNone(made.num_nans)

    def test_the_last_request_is_closed_without_another_round(self):
        runner = self.runner(params(temperature=0), params(temperature=0))
        runner.sample(spikes([4, 6]), {"r0": [], "r1": []})
        opened = runner.sampler._rounds._opened
        last = opened["r1"].sequence
        runner.finish("r0")
        self.assertEqual(list(opened), ["r1"])
        runner.finish("r1")
        self.assertFalse(opened)
        with self.assertRaisesRegex(specd.Error, "NOT_FOUND"):
            last.close()
        # vLLM's own runner forgets requests there, also in a step without tokens.
        self.assertTrue(callable(GPUModelRunner.finish_requests))

    def test_without_drafts_there_is_one_column(self):
        runner = self.runner(params(temperature=0), params(temperature=0))
        made = runner.sample(spikes([4, 6]), {"r0": [], "r1": []})
        self.assertEqual(made.sampled_token_ids.tolist(), [[4], [6]])
        self.assertEqual((made.num_sampled.tolist(), made.num_rejected.tolist()), ([1, 1], [0, 0]))

    def test_the_law_does_not_depend_on_drafts(self):
        # Draft logits are those before the temperature, by request state and step.
        rng = np.random.default_rng(5)
        first, seconds, draft = rng.normal(size=4), rng.normal(size=(4, 4)), rng.normal(size=4)
        for method in ("standard", "block"):
            for has_rows in (True, False):
                for fields in ({"temperature": 0.5}, {"temperature": 1.5, "top_k": 3, "min_p": 0.1},
                               {"top_p": 0.8}):
                    q = law(draft, temperature=fields.get("temperature", 1))
                    counts, accepted = collections.Counter(), 0
                    runner = self.runner(vocab=4, drafts=1, method=method)
                    for step in range(150):
                        names = [f"{step}.{i}" for i in range(8)]
                        for i, name in enumerate(names):
                            runner.add(name, params(seed=8 * step + i, **fields))
                        drafts = {name: [int(rng.choice(4, p=q))] for name in names}
                        rows = np.stack([row for token, in drafts.values()
                                         for row in (first, seconds[token])])
                        cached = torch.from_numpy(np.tile(draft, (8, 1, 1)).astype(np.float32))
                        made = kept(runner.sample(rows, drafts, cached if has_rows else None))
                        accepted += sum(len(tokens) == 2 for tokens in made)
                        more = kept(runner.sample(np.stack([seconds[tokens[0]] for tokens in made]),
                                                  dict.fromkeys(names, ())))
                        counts.update(tuple((a + b)[:2]) for a, b in zip(made, more))
                        for name in names:
                            runner.finish(name)
                    expected = {(a, b): p * each for a, p in enumerate(law(first, **fields))
                                for b, each in enumerate(law(seconds[a], **fields))}
                    self.assertLess(chi_square(counts, expected), LIMIT_15, (method, has_rows, fields))
                    self.assertTrue(60 < accepted < 1150, accepted)

    def test_draft_rows_are_those_of_state_and_step(self):
        # With q = p in these places, and another law in all others, every draft token is kept.
        runner, rng = self.runner(params(seed=1), params(temperature=0.5, seed=2)), np.random.default_rng(6)
        rows = rng.normal(size=(7, 32))
        cached = rng.normal(size=(8, 3, 32)) * 5
        states = [runner.req_states.req_id_to_index[name] for name in ("r0", "r1")]
        cached[states[0], :3], cached[states[1], :2] = rows[:3], rows[4:6]
        for _ in range(40):
            drafts = {"r0": [int(rng.choice(32, p=law(row))) for row in rows[:3]],
                      "r1": [int(rng.choice(32, p=law(row, temperature=0.5))) for row in rows[4:6]]}
            made = runner.sample(rows, drafts, torch.from_numpy(cached.astype(np.float32)))
            self.assertEqual([tokens[:-1] for tokens in kept(made)], list(drafts.values()))

    def test_placeholders_and_forbidden_drafts_end_a_draft(self):
        runner = self.runner(params(temperature=0), params(temperature=0))
        invalid = torch.tensor([False, False, True, False, False, False, False, False])
        made = runner.sample(spikes([1, 2, 3, 4, 1, 2, 3, 4]),
                             {"r0": [1, 2, 3], "r1": [1, 2, 3]}, invalid=invalid)
        # The token behind the first draft token is the argmax, whatever the forbidden one was.
        self.assertEqual(kept(made), [[1, 2], [1, 2, 3, 4]])
        self.assertEqual(made.num_rejected.tolist(), [2, 0])
        runner.computed["r0"] = 0  # the step begins within the prompt
        made = runner.sample(spikes([1, 2, 3, 4, 1, 2, 3, 4]), {"r0": [1, 2, 3], "r1": [1, 2, 3]})
        self.assertEqual(kept(made), [[1], [1, 2, 3, 4]])

    def test_unfinished_prompts_have_no_token(self):
        runner = self.runner(params(temperature=0), params(temperature=0))
        made = runner.sample(spikes([4, 6]), {"r0": [], "r1": []}, unfinished=["r0"])
        self.assertEqual(kept(made), [[], [6]])
        self.assertEqual(made.num_rejected.tolist(), [0, 0])

    def test_logprobs_have_a_row_for_each_row_of_logits(self):
        runner = self.runner(params(temperature=0, logprobs=2), params(temperature=0),
                             params(temperature=0, logprob_token_ids=[9]))
        logits = np.random.default_rng(7).normal(size=(6, 32))
        best = logits.argmax(1)
        drafts = {"r0": [int(best[0]), 0], "r1": [], "r2": [int(best[4])]}
        made = runner.sample(logits, drafts)
        self.assertEqual(kept(made), [best[:2].tolist(), [best[3]], best[4:].tolist()])
        scores, values = made.logprobs_tensors, np.log(law(logits))
        self.assertEqual(scores.cu_num_generated_tokens, [0, 3, 4, 6])
        self.assertEqual((scores.logprob_token_ids.shape, scores.selected_token_ranks.shape), ((6, 3), (6,)))
        for row in (0, 1):
            order = np.argsort(-logits[row])[:2]
            ids = [best[row], *order]
            self.assertEqual(scores.logprob_token_ids[row].tolist(), ids)
            np.testing.assert_allclose(scores.logprobs[row], values[row, ids], atol=1e-5)
        for row in (4, 5):
            self.assertEqual(scores.logprob_token_ids[row, :2].tolist(), [best[row], 9])
        self.assertEqual(scores.selected_token_ranks.tolist(), [1, 1, 0, 0, 1, 1])
        made = runner.sample(logits[:3], dict.fromkeys(drafts, ()))
        self.assertIsNone(made.logprobs_tensors.cu_num_generated_tokens)

    def test_a_preempted_request_comes_back_with_its_outputs(self):
        runner, asked = self.runner(), params(temperature=0, presence_penalty=2.0)
        rows = np.zeros((1, 32))
        rows[0, [4, 6]] = 3, 4
        runner.add("r", asked, prompt=[4])
        self.assertEqual(kept(runner.sample(rows, {"r": []})), [[6]])
        runner.finish("r")
        runner.add("r", asked, prompt=[4], output=[6])
        # 6 was kept before. 4 is in the prompt, which presence_penalty does not count.
        self.assertEqual([kept(runner.sample(rows, {"r": []})) for _ in range(2)], [[[4]], [[6]]])

    def test_the_replaced_sampler_is_kept_up(self):
        runner = Runner()
        replaced = runner.sampler
        use_specd(runner)
        asked = params()
        runner.add("r", asked)
        self.assertEqual((list(replaced.params.values()), replaced.writes), ([asked], 1))
        self.assertIs(runner.sampler.sampling_states, replaced.sampling_states)

    def test_what_is_not_honoured_is_refused(self):
        def refused(words, runner):
            with self.assertRaisesRegex(specd.Error, words):
                use_specd(runner)
        refused("enable_adaptive_verification: True", Runner(adaptive=True))
        refused("rejection_sample_method: 'fly'", Runner(method="fly"))
        runner = Runner(ranks={"pipeline_parallel_size": 2})
        runner.sampler = None  # as in all ranks but the last
        refused("pipeline_parallel_size: 2 ranks", runner)
        refused("tensor_parallel_size: 4", Runner(ranks={"tensor_parallel_size": 4}))
        runner = Runner()
        runner.sampler.return_sampling_mask = True
        refused("return_sampling_mask: True", runner)
        with mock.patch.dict(os.environ, VLLM_COMPUTE_NANS_IN_LOGITS="1"):
            refused("VLLM_COMPUTE_NANS_IN_LOGITS: 1", Runner())
        runner = Runner()
        runner.sampler.logits_processors = [type("MyProcessor", (), {})()]
        refused("logits_processors: MyProcessor is code", runner)
        runner = Runner()
        runner.sampler.__class__ = type("GPUWatermarkSampler", (type(runner.sampler),), {})
        refused("sampler: GPUWatermarkSampler does more", runner)
        runner = self.runner(params(thinking_token_budget=3))
        with self.assertRaisesRegex(specd.Error, "thinking_token_budget: 3"):
            runner.sample(np.zeros((1, 32)), {"r0": []})

    def test_the_stand_ins_have_the_parts_of_vllms_classes(self):
        source = inspect.getsource(Sampler.__init__) + inspect.getsource(RequestState.__init__)
        for name in ("sampling_states", "penalties_state", "req_states", "logprobs_mode", "compute_nans",
                     "return_sampling_mask", "logits_processors", "prompt_len", "prefill_len",
                     "all_token_ids", "req_id_to_index"):
            self.assertIn(f"self.{name}", source)
        for theirs, ours in ((Sampler.__call__, V2Sampler.__call__),
                             (Sampler.add_request, V2Sampler.add_request),
                             (Sampler.apply_staged_writes, V2Sampler.apply_staged_writes),
                             (RejectionSampler.__call__, V2RejectionSampler.__call__)):
            self.assertEqual(list(inspect.signature(ours).parameters),
                             list(inspect.signature(theirs).parameters))


if __name__ == "__main__":
    unittest.main()
