"""specd as the samplers of vLLM's V1 model runner, with vLLM's own classes around it.

Expected tokens are those of vLLM's sampler, or the argmax; expected laws are computed in numpy.
"""

import collections
import unittest

import numpy as np
import torch

import specd
from laws import chi_square, law
from specd.integrations.vllm import WorkerExtension
from v1_runner import Runner, params, spec_metadata, specd_runner, spikes
from vllm.v1.sample.rejection_sampler import RejectionSampler

# Chi-square with 7 degrees of freedom passes 40.5 once in a million.
LIMIT_7 = 40.5


class V1Test(unittest.TestCase):
    # ---- without drafts

    def test_greedy_tokens_and_logprobs_are_those_of_vllm(self):
        rng = np.random.default_rng(1)
        tokenized = params(temperature=0, bad_words=["x"])
        tokenized._bad_words_token_ids = [[3], [4, 5]]
        stops = params(temperature=0, min_tokens=5, stop_token_ids=[2, 9])
        stops._all_stop_token_ids = {2, 9}
        requests = [
            params(temperature=0, logprobs=3),
            params(temperature=0, presence_penalty=1.57, frequency_penalty=0.53),
            params(temperature=0, repetition_penalty=1.7, logprobs=0),
            params(temperature=0, allowed_token_ids=[1, 6, 7, 30]),
            params(temperature=0, logit_bias={4: 3.1, 11: -2.1}, repetition_penalty=1.3),
            tokenized, stops, params(temperature=0, top_k=5, top_p=0.2)]
        native, ours, lengths = Runner(drafts=0), specd_runner(drafts=0), set()
        for runner in (native, ours):
            for i, asked in enumerate(requests):
                runner.add(f"r{i}", asked, prompt=[7, 6, i])
        for step in range(60):
            # Values far apart: neither a tie nor a rounding decides a token.
            logits = rng.permuted(np.tile(np.arange(32) / 4 - 3, (8, 1)), axis=1)
            expected, found = native.sample(logits), ours.sample(logits)
            self.assertEqual(found.sampled_token_ids.dtype, expected.sampled_token_ids.dtype)
            np.testing.assert_array_equal(found.sampled_token_ids, expected.sampled_token_ids)
            for row, columns in ((0, 4), (2, 1)):
                for name in ("logprob_token_ids", "logprobs"):
                    np.testing.assert_allclose(
                        getattr(found.logprobs_tensors, name)[row, :columns],
                        getattr(expected.logprobs_tensors, name)[row, :columns], atol=2e-6)
                self.assertEqual(found.logprobs_tensors.selected_token_ranks[row],
                                 expected.logprobs_tensors.selected_token_ranks[row])
            for name in ("logprob_token_ids", "logprobs", "selected_token_ranks"):
                mine, theirs = (getattr(made.logprobs_tensors, name) for made in (found, expected))
                self.assertEqual((mine.shape, mine.dtype), (theirs.shape, theirs.dtype), name)
            for runner in (native, ours):
                tokens = dict(zip(runner.input_batch.req_ids, expected.sampled_token_ids[:, 0].tolist()))
                for name, token in tokens.items():
                    runner.requests[name].output_token_ids.append(token)
                if tokens["r6"] in (2, 9):  # a stop id, where vLLM's scheduler ends the request
                    lengths.add(len(runner.requests["r6"].output_token_ids))
                    runner.finish("r6")
                    runner.add("r6", requests[6])
        self.assertTrue(lengths and min(lengths) > 5, lengths)

    def test_the_law_of_random_rows(self):
        logits = np.linspace(-1, 1.5, 8)
        for fields in ({"temperature": 0.7}, {"top_k": 4}, {"top_p": 0.7}, {"min_p": 0.3},
                       {"temperature": 1.3, "top_k": 6, "top_p": 0.8, "min_p": 0.05}):
            runner = specd_runner(vocab=8, rows=8, drafts=0)
            counts = collections.Counter()
            for i in range(8):
                runner.add(f"r{i}", params(seed=i, **fields))
            for _ in range(400):
                counts.update(token for row in runner.tokens(np.tile(logits, (8, 1))) for token in row)
            self.assertLess(chi_square(counts, law(logits, **fields)), LIMIT_7, fields)

    def test_logprob_token_ids_take_the_place_of_the_best(self):
        for mode in ("raw_logprobs", "raw_logits"):
            runner = specd_runner([params(temperature=0, logprob_token_ids=[5, 2]),
                                  params(temperature=0, logprobs=3),
                                  params(temperature=0)], drafts=0, logprobs_mode=mode)
            logits = np.random.default_rng(3).normal(size=(3, 32)).astype(np.float32)
            made = runner.sample(logits).logprobs_tensors
            values = logits if mode == "raw_logits" else np.log(law(logits))
            best = logits.argmax(1)
            self.assertEqual(made.logprob_token_ids[0].tolist(), [best[0], 5, 2, 0])
            np.testing.assert_allclose(made.logprobs[0], [*values[0, [best[0], 5, 2]], -np.inf],
                                       atol=1e-5)
            order = np.argsort(-logits[1])[:3].tolist()
            self.assertEqual(made.logprob_token_ids[1].tolist(), [best[1], *order])
            self.assertTrue(torch.isneginf(made.logprobs[2]).all())

    # ---- with drafts

    def test_greedy_drafts_are_kept_as_long_as_they_are_the_argmax(self):
        greedy = params(temperature=0)
        for drafts, best, expected in (
                ([[1, 2, 3]], [1, 2, 3, 4], [[1, 2, 3, 4]]),
                ([[1, 2, 3]], [1, 5, 3, 4], [[1, 5, -1, -1]]),
                ([[1, 2], [3]], [1, 2, 5, 3, 7], [[1, 2, 5], [3, 7, -1]]),
                ([[1]], [1, 2], [[1, 2]]),
                ([[]], [5], [[5]]),
                ([[1], [], [2, 3]], [4, 6, 7, 2, 3, 9], [[4, -1, -1], [7, -1, -1], [2, 3, 9]]),
                ([[1, -1, -1]], [1, 6, 7, 8], [[1, 6, -1, -1]])):
            runner = specd_runner([greedy] * len(drafts))
            made = runner.sample(spikes(best), drafts)
            self.assertEqual(made.sampled_token_ids.tolist(), expected, drafts)
            self.assertIsNone(made.logprobs_tensors)

    def test_rows_are_found_by_their_indices(self):
        runner = specd_runner([params(temperature=0)] * 2)
        metadata = spec_metadata([[1, 2], [3]])
        order = np.array([4, 2, 0, 3, 1])  # the row of each place
        metadata.target_logits_indices = torch.tensor([4, 2, 3])
        metadata.bonus_logits_indices = torch.tensor([0, 1])
        rows = np.empty((5, 32))
        rows[order] = spikes([1, 2, 5, 3, 7])
        made = runner.sample(rows, [[1, 2], [3]], metadata=metadata)
        self.assertEqual(made.sampled_token_ids.tolist(), [[1, 2, 5], [3, 7, -1]])

    def test_rows_may_be_those_of_a_model_in_bfloat16(self):
        runner = specd_runner([params(temperature=0, logprobs=0)])
        logits = torch.from_numpy(np.random.default_rng(2).normal(size=(3, 32))).bfloat16()
        best = logits.argmax(1).tolist()
        made = runner.rejection_sampler(spec_metadata([best[:2]]), None, logits,
                                        runner.input_batch.sampling_metadata)
        self.assertEqual(made.sampled_token_ids.tolist(), [best])
        expected = logits.float().log_softmax(1)[range(3), best]
        torch.testing.assert_close(made.logprobs_tensors.logprobs[:, 0], expected)

    def test_drafts_drawn_from_the_targets_law_are_all_kept(self):
        runner = specd_runner([params(seed=1), params(temperature=0.5, seed=2)])
        rng = np.random.default_rng(4)
        rows = rng.normal(size=(8, 32))
        q = np.concatenate([law(rows[0:3]), law(rows[4:7], temperature=0.5)])
        for _ in range(50):
            drafts = [[int(rng.choice(32, p=row)) for row in q[i:i + 3]] for i in (0, 3)]
            made = runner.tokens(rows, drafts, torch.from_numpy(q.astype(np.float32)))
            self.assertEqual([tokens[:3] for tokens in made], drafts)

    def test_the_law_does_not_depend_on_drafts(self):
        # Two places: the joint law of the kept tokens, with drafts from another law and without rows.
        rng = np.random.default_rng(5)
        first, seconds, q = rng.normal(size=4), rng.normal(size=(4, 4)), law(rng.normal(size=(2, 4)))
        for method in ("standard", "block"):
            for has_rows in (True, False):
                for fields in ({"temperature": 0.8}, {"top_k": 3, "min_p": 0.1}, {"top_p": 0.8},
                               {"presence_penalty": 1.0, "frequency_penalty": -0.5}):
                    counts, accepted = collections.Counter(), 0
                    runner = specd_runner(vocab=4, drafts=1, method=method)
                    discard = runner.discard_request_mask.np
                    for step in range(150):
                        for i in range(8):
                            runner.add(f"r{step}.{i}", params(seed=8 * step + i, **fields))
                        drafts = [[int(rng.choice(4, p=q[0]))] for _ in range(8)]
                        rows = np.stack([row for draft, in drafts for row in (first, seconds[draft])])
                        made = runner.tokens(
                            rows, drafts, torch.from_numpy(np.tile(q[0], (8, 1)).astype(np.float32))
                            if has_rows else None)
                        accepted += sum(len(tokens) == 2 for tokens in made)
                        # One more step where the draft was rejected.
                        discard[:] = [len(tokens) == 2 for tokens in made]
                        more = runner.tokens(np.stack([seconds[tokens[0]] for tokens in made]))
                        discard[:] = False
                        counts.update(tuple(a + b) for a, b in zip(made, more))
                        for name in list(runner.requests):
                            runner.finish(name)
                    expected = law_of_pairs(first, seconds, **fields)
                    self.assertEqual(set(map(len, counts)), {2})
                    # 15 degrees of freedom at most: 56.5 is passed once in a million.
                    self.assertLess(chi_square(counts, expected), 56.5, (method, has_rows, fields))
                    self.assertTrue(60 < accepted < 1100, accepted)

    def test_penalties_and_bad_words_see_the_draft_prefix(self):
        asked = params(temperature=0, bad_words=["x"], presence_penalty=2.0)
        asked._bad_words_token_ids = [[1, 2]]
        runner = specd_runner([asked])
        rows = np.zeros((4, 32))
        rows[0, 1], rows[1, 2], rows[1, 1], rows[1, 7] = 9, 9, 8.5, 8
        # Behind the draft token 1 the word [1, 2] is banned and 1 has a penalty of 2, so 7 is best.
        self.assertEqual(runner.tokens(rows, [[1, 2, 3]]), [[1, 7]])
        rows[0, 7], rows[0, 9] = 9.5, 8
        # What was kept counts in the next round.
        self.assertEqual(runner.tokens(rows[:1]), [[9]])

    def test_logprobs_of_kept_tokens(self):
        runner = specd_runner([params(temperature=0, logprobs=2), params(temperature=0),
                              params(temperature=0, logprobs=1)])
        rows = spikes([1, 5, 3, 4, 8, 1, 2, 3]) / 50
        drafts = [[1, 2, 3], [], [1, 2]]
        made = runner.sample(rows, drafts)
        self.assertEqual(made.sampled_token_ids.tolist(),
                         [[1, 5, -1, -1], [8, -1, -1, -1], [1, 2, 3, -1]])
        tokens, lists = RejectionSampler.parse_output(made.sampled_token_ids, 32,
                                                      logprobs_tensors=made.logprobs_tensors)
        self.assertEqual(tokens, [[1, 5], [8], [1, 2, 3]])
        values = np.log(law(rows))
        for request, (first, count, columns) in enumerate(((0, 2, 3), (4, 1, 0), (5, 3, 2))):
            part = lists.slice_request(request, count)
            for place in range(count if columns else 0):
                row, token = first + place, tokens[request][place]
                ids = [token, token, 15][:columns]
                self.assertEqual(part.logprob_token_ids[place, :columns].tolist(), ids)
                np.testing.assert_allclose(part.logprobs[place, :columns], values[row, ids], atol=1e-5)
                self.assertEqual(part.sampled_token_ranks[place], 1)

    # ---- requests

    def test_seeds_give_the_text(self):
        def text(seed, others):
            runner = specd_runner([params(seed=seed)] + [params()] * others)
            rows = np.random.default_rng(6).normal(size=(1 + others, 32))
            return [runner.tokens(rows)[0][0] for _ in range(20)]
        self.assertEqual(text(-5, 0), text(-5, 3))
        self.assertNotEqual(text(1, 0), text(2, 0))

    def test_unfinished_prompts_change_nothing(self):
        rows = np.random.default_rng(7).normal(size=(2, 32))
        texts = []
        for discards in ([], [0, 1, 4]):
            runner, text = specd_runner([params(seed=1), params(seed=2)]), []
            for step in range(9):
                runner.discard_request_mask.np[0] = step in discards
                made = runner.tokens(rows)
                self.assertEqual(len(made[0]), step not in discards)
                self.assertEqual(len(made[1]), 1)
                text += made[0]
            texts.append(text[:6])
        self.assertEqual(*texts)

    def test_rows_move_and_preempted_requests_go_on(self):
        # The same steps, with the request in another row and out of the batch meanwhile.
        rows = np.random.default_rng(8).normal(size=(3, 32))
        alone = specd_runner([params(seed=9)])
        expected = [alone.tokens(rows[:1])[0] for _ in range(6)]
        runner = specd_runner([params(), params(), params(seed=9)])
        moved = np.stack([rows[0]] * 3)
        text = [runner.tokens(moved)[2]]
        runner.finish("r0")  # condense moves r2 to row 0
        self.assertEqual(runner.input_batch.req_ids, ["r2", "r1"])
        text += [runner.tokens(moved[:2])[0] for _ in range(2)]
        runner.preempt("r2")
        runner.tokens(moved[:1])
        runner.resume("r2")
        text += [runner.tokens(moved[:2])[1] for _ in range(3)]
        self.assertEqual(text, expected)

    def test_finished_requests_free_their_sequences(self):
        engine = specd.Engine(vocab_size=32, max_batch=2, max_sequences=2)
        self.addCleanup(engine.close)
        runner = specd_runner(drafts=0, rows=2, engine=engine)
        for i in range(6):
            runner.add(f"a{i}", params())
            runner.tokens(np.zeros((1, 32)))
            runner.finish(f"a{i}")

    def test_a_request_with_outputs_is_opened_with_them(self):
        runner = specd_runner([])
        runner.add("r", params(temperature=0, presence_penalty=2.0), output=[4])
        rows = np.zeros((1, 32))
        rows[0, [4, 6]] = 3, 2
        self.assertEqual(runner.tokens(rows), [[6]])

    def test_a_worker_has_the_method(self):
        worker = type("Worker", (WorkerExtension,), {})()
        worker.model_runner = Runner(drafts=0)
        worker.use_specd()
        worker.model_runner.add("r", params(temperature=0))
        self.assertEqual(worker.model_runner.tokens(spikes([3])), [[3]])
        self.assertTrue(torch.equal(worker.model_runner.sampler.compute_logprobs(torch.zeros(1, 2)),
                                    torch.zeros(1, 2).log_softmax(-1)))


def law_of_pairs(first, seconds, **fields):
    """The joint law of two tokens. Penalties count the first at the second place."""
    penalty = fields.pop("presence_penalty", 0) + fields.pop("frequency_penalty", 0)
    pairs = {}
    for a, p in enumerate(law(first, **fields)):
        row = seconds[a].copy()
        row[a] -= penalty
        pairs.update({(a, b): p * each for b, each in enumerate(law(row, **fields))})
    return pairs


if __name__ == "__main__":
    unittest.main()
