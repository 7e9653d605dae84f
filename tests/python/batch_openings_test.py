"""Openings as arrays, against the calls for single sequences with the same seeds.

SPECD_TEST_URI names a daemon; without it the engines are embedded.
"""

import dataclasses
import unittest

import numpy as np

import specd
from batch_case import BatchCase
from door_case import V


class OpeningsTest(BatchCase):
    def play(self, engine, handles):
        random = np.random.default_rng(3)
        return np.hstack([engine.verify_batch(
            random.normal(0, 2, (len(handles), V)).astype(np.float32), handles).tokens
            for _ in range(15)])

    def test_columns_of_parameters_open_what_single_openings_open(self):
        prompts = [[3, 3, 1], [], [7]]
        temperatures, seeds = [0, 0.8, 1.5], [5, 2**64 - 1, 7]
        ids, offsets = np.array([3, 3, 1, 7]), np.array([0, 3, 3, 4])
        shared = specd.SamplingParams(repetition_penalty=1.8, disallowed_token_ids=[2],
                                      temperature=0.3)
        single = self.make_engine()
        opened = [single.open(specd.SamplingParams(
            repetition_penalty=1.8, disallowed_token_ids=[2], seed=seed, temperature=temperature,
            max_tokens=40, verify=verify), prompt_ids=prompt, output_ids=[4])
            for seed, temperature, prompt, verify in zip(
                seeds, temperatures, prompts, ("auto", "token", "exact_match"))]
        choices = specd.SamplingParams.numbers["verify"].choices
        batch = self.engine.open_batch(
            3, shared, prompt_ids=ids, prompt_offsets=offsets, output_ids=[[4], [4], [4]],
            seeds=np.array(seeds, np.uint64), temperature=temperatures, max_tokens=40,
            verify=[choices.index(name) for name in ("auto", "token", "exact_match")])
        self.assertEqual(batch.seeds.tolist(), seeds)
        self.assertEqual(len(set(batch.sequences.tolist())), 3)
        self.assertEqual(shared.temperature, 0.3)  # the caller's own is as it was
        self.assertEqual(self.play(self.engine, batch.sequences).tolist(),
                         self.play(single, np.array([s.handle for s in opened], np.uint64)).tolist())
        self.assertEqual([batch.sequence(i).verify for i in range(3)],
                         [sequence.verify for sequence in opened])

    def test_each_opening_may_have_parameters_of_its_own(self):
        own = [specd.SamplingParams(disallowed_token_ids=[0, 1], temperature=0.8, seed=3),
               specd.SamplingParams(logit_bias={5: 4.0}, temperature=1.5, top_k=4),
               specd.SamplingParams(allowed_token_ids=[2, 6, 7], stop_token_ids=[6], seed=9)]
        seeds = [3, 2**40, 9]
        single = self.make_engine()
        opened = [single.open(dataclasses.replace(params, seed=seed, max_tokens=40))
                  for params, seed in zip(own, seeds)]
        batch = self.engine.open_batch(3, own, seeds=seeds, max_tokens=[40, 40, 40])
        self.assertEqual(self.play(self.engine, batch.sequences).tolist(),
                         self.play(single, np.array([s.handle for s in opened], np.uint64)).tolist())
        without = self.engine.open_batch(3, tuple(own))
        self.assertEqual(without.seeds[[0, 2]].tolist(), [3, 9])
        self.assertEqual(own[1].top_k, 4)  # the caller's own is as it was

    def test_each_opening_has_a_thinking_preset_of_its_own(self):
        # The prompt opens a thought of each model (speculative/processors/thinking_budget.cc), which a
        # budget of 0 ends with the model's newline and its end.
        ends = {None: [0, 0], "glm-4.5": [198, 151351], "qwen3": [198, 151668], "deepseek-r1": [201, 128799]}
        presets = list(ends) * 7
        engine = specd.Engine(vocab_size=160_000, max_batch=28, max_sequences=28)
        self.addCleanup(engine.close)
        own = [specd.SamplingParams(temperature=0, **({} if preset is None else {
            "thinking_preset": preset, "thinking_token_budget": 0})) for preset in presets]
        opened = engine.open_batch(28, own, prompt_ids=[[151350, 151667, 128798]] * 28)
        rows = np.zeros((28, 160_000), np.float32)
        rows[:, 0] = 1
        tokens = [engine.verify_batch(rows, opened.sequences).tokens[:, 0] for _ in range(2)]
        self.assertEqual(np.stack(tokens, axis=1).tolist(), [ends[preset] for preset in presets])

    def test_parameters_in_a_list_are_refused_by_their_place(self):
        good = specd.SamplingParams()
        for bad, text, is_ours in ((specd.SamplingParams(allowed_token_ids=[]), "allowed_token_ids", True),
                                   (specd.SamplingParams(n=2), "n: several sequences", True),
                                   (specd.SamplingParams(top_p=0), "top_p", False),
                                   (None, "params: NoneType where specd.SamplingParams", True)):
            with self.assertRaisesRegex(specd.OpeningRefused, r"openings\[1\]: " + text) as caught:
                self.engine.open_batch(3, [good, bad, good])
            self.assertEqual(caught.exception.index, 1)
            # What the package refuses itself is a ValueError.
            self.assertEqual(isinstance(caught.exception, ValueError), is_ours)
        with self.assertRaisesRegex(ValueError, "params: int where specd.SamplingParams or a list"):
            self.engine.open_batch(3, 3)
        with self.assertRaisesRegex(specd.OpeningRefused, "allowed_token_ids") as caught:
            self.engine.open_batch(1, [specd.SamplingParams(allowed_token_ids=[])])
        self.assertEqual(caught.exception.index, 0)
        # A mistake of the call is that of no opening.
        with self.assertRaisesRegex(specd.Error, "temprature: no such parameter") as caught:
            self.engine.open_batch(3, [good, good, good], temprature=1)
        self.assertNotIsInstance(caught.exception, specd.OpeningRefused)
        with self.assertRaisesRegex(specd.Error, "params: 2 where 3 are needed"):
            self.engine.open_batch(3, [good, good])
        self.assertEqual(len(self.engine.open_batch(32)), 32)  # none was opened

    def test_names_are_unique_and_may_be_given(self):
        first = self.engine.open_batch(3)
        second = self.engine.open_batch(2)
        one = self.engine.open()
        names = first.request_ids + second.request_ids + [one.request_id]
        self.assertEqual(len(set(names)), 6)
        self.assertEqual(first.sequence(2).request_id, first.request_ids[2])
        given = self.engine.open_batch(2, request_ids=["left", "right"])
        self.assertEqual(given.request_ids, ["left", "right"])
        with self.assertRaises(specd.OpeningRefused) as caught:
            self.engine.open_batch(3, request_ids=["a", "b", "left"])
        self.assertEqual(caught.exception.index, 2)
        self.assertIn('openings[2]: request_id = "left"', str(caught.exception))
        given.sequence(0).close()
        self.engine.open_batch(3, request_ids=["a", "b", "left"])

    def test_an_index_outside_the_batch_is_refused(self):
        # The texts of specd's own request ids were read before their array, where -1 is no index.
        for names in (None, ["left", "right"]):
            batch = self.engine.open_batch(2, request_ids=names)
            for i in (-1, 2, 2**32):
                with self.assertRaisesRegex(ValueError, rf"^i: {i} does not fit: 0 \.\. 1 are allowed"):
                    batch.sequence(i)
            with self.assertRaisesRegex(ValueError, "^i: 1.0 is not an integer"):
                batch.sequence(1.0)
            self.assertEqual(batch.sequence(np.int64(1)).request_id, batch.request_ids[1])

    def test_a_refused_opening_is_named_and_none_is_opened(self):
        for index, fields, text in (
                (1, {"temperature": [1, -1, 1]}, r"openings\[1\]: temperature"),
                (2, {"top_p": [1, 1, 0]}, r"openings\[2\]: top_p"),
                (0, {"prompt_ids": [[V], [1], [1]]}, r"openings\[0\]: prompt\[0\] = 8"),
                (0, {"max_tokens": 0}, r"openings\[0\]: max_tokens")):
            with self.assertRaisesRegex(specd.OpeningRefused, text) as caught:
                self.engine.open_batch(3, **fields)
            self.assertEqual(caught.exception.index, index)
            self.assertEqual(caught.exception.code_name, "SPECD_ERROR_INVALID_ARGUMENT")
        with self.assertRaisesRegex(specd.Error, "max_sequences") as caught:
            self.engine.open_batch(33)
        self.assertNotIsInstance(caught.exception, specd.OpeningRefused)
        self.engine.open_batch(32)  # all slots were free

    def test_refusals_name_the_field(self):
        def refused(pattern, *arguments, **rest):
            with self.assertRaisesRegex(specd.Error, pattern):
                self.engine.open_batch(*arguments, **rest)

        refused("count: 0 does not fit: 1 .. 1024", 0)
        refused("count: 1025 does not fit", 1025)
        refused("temperature: .* where 3 are needed", 3, temperature=[1, 2])
        refused("top_k: float64 where integers are needed", 2, top_k=[1.5, 2])
        refused("top_k: 2147483648 does not fit", 1, top_k=[2**31])
        refused("seeds: -1 does not fit", 1, seeds=[-1])
        refused("stop_token_ids: it is no number; give it in params", 1, stop_token_ids=[[2]])
        refused("temprature: no such parameter", 1, temprature=1)
        refused("best_of", 1, best_of=2)
        refused("n: several sequences", 1, n=2)
        refused("n: several sequences", 1, specd.SamplingParams(n=2))
        refused("prompt_offsets: they are needed", 2, prompt_ids=[1, 2, 3])
        refused("prompt_ids: lists of different lengths", 2, prompt_ids=[[1, 2], [3]])
        refused("prompt_offsets: they go from 0 to 3", 2, prompt_ids=[1, 2, 3],
                prompt_offsets=[0, 2, 4])
        refused("request_ids: 1 where 2 are needed", 2, request_ids=["a"])
        self.assertEqual(len(self.engine.open_batch(32)), 32)


if __name__ == "__main__":
    unittest.main()
