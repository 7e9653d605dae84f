"""Rounds and openings as arrays, against the calls for single sequences with the same seeds.

SPECD_TEST_URI names a daemon; without it the engines are embedded.
"""

import dataclasses
import types
import unittest

import numpy as np

import specd
from specd import results
import tensors
from door_case import URI, V, one_hot

K, B = 3, 6


class Tensor:
    """As numpy sees a tensor of torch in the memory of the CPU: an object that becomes an array."""

    def __init__(self, array):
        self.array = array

    def __array__(self, *_, **__):
        return self.array


class BatchCase(unittest.TestCase):
    def setUp(self):
        self.engine = self.make_engine()

    def make_engine(self):
        engine = specd.Engine(URI, vocab_size=V, max_batch=B, max_sequences=32, max_draft=K,
                              max_scores_per_token=4)
        self.addCleanup(engine.close)
        return engine

    def assert_same(self, found, i, wanted):
        """Element i of the arrays against the Result of a single sequence."""
        self.assertEqual(found.status_names[i], wanted.status)
        self.assertEqual(results.FINISH_REASONS[found.finish_reason[i]], wanted.finish_reason)
        self.assertEqual(results.METHODS[found.verify[i]], wanted.verify)
        self.assertEqual(found.kept(i).tolist(), wanted.tokens.tolist())
        self.assertTrue((found.tokens[i, found.num_kept[i]:] == -1).all())
        path = wanted.path.tolist()
        self.assertEqual(found.path[i].tolist(), path + [-1] * (found.path.shape[1] - len(path)))
        self.assertEqual(found.num_accepted[i], wanted.num_accepted)
        self.assertEqual(found.total_kept[i], wanted.total_kept)
        self.assertEqual(found.stop_token[i],
                         -1 if wanted.stop_token is None else wanted.stop_token)
        self.assertEqual(found.detail_text(i), wanted.detail)
        self.assertEqual(found.bad_row[i], -1 if wanted.bad_row is None else wanted.bad_row)
        logprob = found.cumulative_logprob[i]
        self.assertEqual(None if np.isnan(logprob) else logprob, wanted.cumulative_logprob)
        if found.scores is not None:
            width = found.scores_per_token[i]
            self.assertEqual(width, 0 if wanted.scores is None else wanted.scores.shape[1])
            scores = found.scores[i, :found.num_kept[i], :width]
            if wanted.scores is not None:
                self.assertEqual(scores.tolist(), wanted.scores.tolist())
            self.assertTrue((found.scores["id"][i, found.num_kept[i]:] == -1).all())


class RoundsTest(BatchCase):
    PARAMS = [{"temperature": 0}, {"logprobs": 2}, {"temperature": 0.7, "top_p": 0.9},
              {"frequency_penalty": 1.5, "logprobs": 1}, {"top_k": 3, "stop_token_ids": [2]},
              {"verify": "token", "logprobs": 3}]

    def open_alike(self, engine):
        return [engine.open(specd.SamplingParams(seed=40 + i, max_tokens=60, **fields))
                for i, fields in enumerate(self.PARAMS)]

    def assert_rounds_alike(self, make_batch, make_drafts, scores=True):
        """Rounds of random rows and drafts: arrays for one engine, drafts for another."""
        random = np.random.default_rng(7)
        single = self.make_engine()
        drafted, batched = self.open_alike(single), self.open_alike(self.engine)
        handles = np.array([sequence.handle for sequence in batched], np.uint64)
        for _ in range(25):
            counts = random.integers(0, K + 1, B)
            offsets = np.concatenate([[0], np.cumsum(counts)])
            scene = types.SimpleNamespace(
                random=random, counts=counts, offsets=offsets, handles=handles, drafted=drafted,
                tokens=random.integers(0, V, offsets[-1]).astype(np.int32),
                rows=random.normal(0, 2, (offsets[-1] + B, V)).astype(np.float32),
                q=random.normal(0, 2, (offsets[-1], V)).astype(np.float32))
            found = make_batch(self.engine, scene)
            wanted = make_drafts(single, scene)
            self.assertEqual(len(found), B)
            self.assertEqual(found.tokens.shape, (B, counts.max() + 1))
            for i, each in enumerate(wanted):
                with self.subTest(i=i):
                    self.assert_same(found, i, each)

    @staticmethod
    def drafts(scene, **lists):
        """A specd.Draft for each sequence; lists: by name, one element for each token."""
        parts = [slice(scene.offsets[i], scene.offsets[i + 1]) for i in range(B)]
        return [specd.Draft(sequence, scene.tokens[part],
                            **{name: values[part] for name, values in lists.items()})
                for sequence, part in zip(scene.drafted, parts)]

    def test_rows_of_the_caller_and_scores(self):
        self.assert_rounds_alike(
            lambda engine, x: engine.verify_batch(x.rows, x.handles, x.tokens, x.offsets,
                                                  scores=True, strict=False),
            lambda engine, x: engine.verify(x.rows, self.drafts(x), strict=False))

    def test_rows_in_place_named_backwards(self):
        names = {}

        def batch(engine, x):
            if "rows" not in names:
                names["rows"] = engine.rows(B * (K + 1))
            names["rows"][:len(x.rows)] = x.rows
            order = np.arange(len(x.rows), dtype=np.uint32)[::-1]
            return engine.verify_batch(names["rows"], x.handles, x.tokens, x.offsets,
                                       target_rows=order, strict=False)

        def drafts(engine, x):
            found = engine.verify(x.rows[::-1], self.drafts(x), strict=False)
            for each in found:  # the array counts rows from its own beginning
                if each.bad_row is not None:
                    each.bad_row = len(x.rows) - 1 - each.bad_row
            return found

        self.assert_rounds_alike(batch, drafts)

    def test_sampled_drafts_with_rows_of_their_own(self):
        def kinds(x):
            return np.arange(len(x.tokens)) % 3 != 0

        self.assert_rounds_alike(
            lambda engine, x: engine.verify_batch(Tensor(x.rows), x.handles.view(np.int64),
                                                  Tensor(x.tokens.astype(np.int64)),
                                                  Tensor(x.offsets), q=Tensor(x.q),
                                                  sampled=kinds(x), strict=False),
            lambda engine, x: engine.verify(x.rows, self.drafts(x, sampled=kinds(x)), q=x.q,
                                            strict=False))

    def test_masks_side_channel_and_discards(self):
        def masks(x):
            allowed = (np.arange(V) + np.arange(len(x.rows))[:, np.newaxis]) % 4 != 0
            return allowed

        def side(x):
            probabilities = np.exp(x.q.astype(np.float64))
            weights = probabilities[np.arange(len(x.tokens)), x.tokens].astype(np.float32)
            return weights, probabilities.sum(1)

        def batch(engine, x):
            weights, masses = side(x)
            return engine.verify_batch(x.rows, x.handles, x.tokens, x.offsets, masks=masks(x),
                                       q=x.q, weights=weights, masses=masses,
                                       discard=np.arange(B) == 2, strict=False)

        def drafts(engine, x):
            weights, masses = side(x)
            made = self.drafts(x, weights=weights, masses=masses)
            made[2].discard = True
            places = [slice(x.offsets[i] + i, x.offsets[i + 1] + i + 1) for i in range(B)]
            # verify gives no rows to a draft with discard.
            keep = np.ones(len(x.rows), bool)
            keep[places[2]] = False
            each = masks(x)
            drawn = np.ones(len(x.q), bool)
            drawn[x.offsets[2]:x.offsets[3]] = False
            found = engine.verify(x.rows[keep], made, q=x.q[drawn],
                                  masks=[None if i == 2 else each[place]
                                         for i, place in enumerate(places)], strict=False)
            for one in found:
                one.bad_row = None
            return found

        self.assert_rounds_alike(batch, drafts)

    def test_argmax_ids_and_one_length(self):
        sequences = self.engine.open_batch(3, temperature=0).sequences
        found = self.engine.verify_batch(None, sequences, [[1, 2], [3, 4], [5, 6]],
                                         target_argmax=[1, 2, 7, 3, 5, 0, 6, 0, 0])
        self.assertEqual(found.tokens.tolist(), [[1, 2, 7], [3, 5, -1], [6, -1, -1]])
        self.assertEqual(found.num_accepted.tolist(), [2, 1, 0])
        found = self.engine.verify_batch(one_hot(4, 5, 6), sequences)
        self.assertEqual(found.tokens.tolist(), [[4], [5], [6]])

    def test_results_keep_their_memory_and_share_none(self):
        sequences = self.engine.open_batch(3, temperature=0, logprobs=1).sequences
        rows, drafts = one_hot(1, 2, 3, 4, 5, 6, 7, 0, 1), [[1, 2], [4, 5], [7, 1]]

        def arrays(found):
            fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
            return {name: array for name, array in fields.items() if name != "sequences"}

        first = arrays(self.engine.verify_batch(rows, sequences, drafts, scores=True))
        before = {name: array.copy() for name, array in first.items()}
        self.assertEqual(first["tokens"].tolist(), [[1, 2, 3], [4, 5, 6], [7, 0, -1]])
        for name, array in first.items():
            self.assertTrue(array.flags.aligned and array.flags.writeable, name)
            self.assertFalse(any(np.shares_memory(array, other) for other in first.values()
                                 if other is not array), name)
        # One array outlives the others and the rounds after it.
        for name in list(first):
            kept = first.pop(name)
            later = arrays(self.engine.verify_batch(rows, sequences, drafts, scores=True))
            self.assertFalse(any(np.shares_memory(kept, other) for other in later.values()), name)
            np.testing.assert_array_equal(kept, before[name])
            kept.view(np.uint8)[:] = 0xff  # which no other array shows
            for other, array in first.items():
                np.testing.assert_array_equal(array, before[other])

    def test_a_bad_sequence_fails_alone(self):
        opened = self.engine.open_batch(4, temperature=0)
        opened.sequence(1).close()
        rows = one_hot(1, 2, 3, 4)
        rows[2] = np.nan
        with self.assertRaises(specd.RoundError) as caught:
            self.engine.verify_batch(rows, opened.sequences)
        for part in ("sequences[1] of 4 is unknown_sequence", "and 1 more"):
            self.assertIn(part, str(caught.exception))
        found = caught.exception.results
        self.assertEqual(found.status_names.tolist(),
                         ["ok", "unknown_sequence", "bad_distribution", "ok"])
        self.assertEqual(found.tokens.tolist(), [[1], [-1], [-1], [4]])
        self.assertEqual(found.bad_row.tolist(), [-1, -1, 2, -1])
        self.assertIn("NaN", found.detail_text(2))
        held = self.engine.rows(4)
        held[:] = rows
        found = self.engine.verify_batch(held[2:4], opened.sequences[[3, 0]], strict=False,
                                         target_rows=[0, 1])
        self.assertEqual(found.bad_row.tolist(), [0, -1])  # as the call counts rows
        self.assertEqual(found.total_kept.tolist(), [1, 2])

    def test_refusals_name_the_field(self):
        sequences = self.engine.open_batch(2, temperature=0).sequences
        rows = one_hot(1, 2, 3, 4)

        def refused(pattern, *arguments, **rest):
            with self.assertRaisesRegex(specd.Error, pattern):
                self.engine.verify_batch(*arguments, **rest)

        refused("num_sequences = 0 is outside 1 .. 6", rows[:0], sequences[:0])
        refused("^rows: 3 where 4 are needed", rows[:3], sequences, [[1], [2]])
        refused("draft_offsets: they are needed", rows, sequences, [1, 2])
        refused("draft_offsets: they go from 0 to 2", rows, sequences, [1, 2], [0, 1, 3])
        refused("draft_offsets: they go from 0 to 2", rows, sequences, [1, 2], [0, 3, 2])
        refused("draft_offsets: .* where 3 are needed", rows, sequences, [1, 2], [0, 2])
        refused(r"draft_offsets\[1\] - draft_offsets\[0\] = 4", np.vstack([rows, rows])[:6],
                sequences, [1, 2, 3, 4], [0, 4, 4])
        refused("tokens: float64 where integers are needed", rows, sequences, [[1.5], [2.5]])
        refused("tokens: draft_offsets are given without them", rows, sequences, None, [0, 0, 0])
        refused("sequences: an array of 2 dimensions", rows, sequences[np.newaxis])
        refused("sampled: .* where 2 are needed", rows, sequences, [[1], [2]], sampled=[True])
        refused("weights, masses", rows, sequences, [[1], [2]], weights=[1, 1])
        refused("target_argmax: it takes the place of rows", rows, sequences,
                target_argmax=[1, 2])
        refused("discard: .* where 2 are needed", rows[:2], sequences, discard=[True])
        # Bug: every other value counted by its truth, so "no" discarded.
        for values, text in ((["no", "no"], "<U2 where booleans"), ([np.nan, 0], "float64 where booleans"),
                             ([True, None], "object where booleans"), ([0, 2], "2 is neither True nor False")):
            for name in ("discard", "by_slot"):
                refused(f"^{name}: {text}", rows[:2], sequences, **{name: values})
        for scores in ("all", 2, 1.0, None):
            refused(f"^scores: {scores!r} is neither True nor False", rows[:2], sequences, scores=scores)
        with self.assertRaisesRegex(specd.Error, "^discard: 'no' is neither True nor False"):
            self.engine.verify(None, [specd.Draft(int(sequences[0]), discard="no")])
        # Bug: a flag out of an array was refused.
        for discard in (np.int64(1), np.array(True), tensors.Tensor(np.array(True)), tensors.Tensor(np.array(1))):
            result, = self.engine.verify(None, [specd.Draft(int(sequences[0]), discard=discard)])
            self.assertEqual(result.tokens.tolist(), [])
        # Bug: the TypeError of a private function, without the argument that was meant.
        refused("^draft_row: .* did you mean draft_rows?", rows[:2], sequences, draft_row=[1])
        refused("^cuda_stream: .* give it to submit_batch", rows[:2], sequences, cuda_stream=0)
        with self.assertRaisesRegex(specd.Error, r"^timeout_ms: .* to result\(\)"):
            self.engine.submit_batch(rows[:2], sequences, timeout_ms=5)
        found = self.engine.verify_batch(rows[:2], sequences, discard=[0, np.int32(1)], scores=np.True_)
        self.assertEqual(found.total_kept.tolist(), [1, 0])  # nothing was kept before


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
