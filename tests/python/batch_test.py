"""Rounds as arrays, against the calls for single sequences with the same seeds.

SPECD_TEST_URI names a daemon; without it the engines are embedded.
"""

import dataclasses
import types
import unittest

import numpy as np

import specd
from specd import results
import tensors
from batch_case import B, K, BatchCase
from door_case import V, one_hot


class Tensor:
    """As numpy sees a tensor of torch in the memory of the CPU: an object that becomes an array."""

    def __init__(self, array):
        self.array = array

    def __array__(self, *_, **__):
        return self.array


class RoundsTest(BatchCase):
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

if __name__ == "__main__":
    unittest.main()
