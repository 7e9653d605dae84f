"""Rounds like the one before them, which take a shorter way: their answers are those of usual rounds."""

import copy
import dataclasses
import pickle
import unittest

import numpy as np

import specd
from door_case import URI
from interrupts import interrupted_after

V, B, K = 40, 6, 3
GREEDY = specd.SamplingParams(temperature=0, max_tokens=2**31 - 1)


def usual_only(engine):
    """The engine, without its shorter way."""
    for rounds in (engine._quick_arrays, engine._quick_drafts):
        rounds._round_of = lambda *shape: None
    return engine


class QuickRoundsTest(unittest.TestCase):
    def make_engine(self, **options):
        engine = specd.Engine(URI, vocab_size=V, max_batch=B, max_sequences=64, max_draft=K,
                              max_scores_per_token=4, **options)
        self.addCleanup(engine.close)
        return engine

    def setUp(self):
        self.engine = self.make_engine()
        self.rows = self.engine.rows(B * (K + 1))
        self.rows[:] = 0

    def put(self, *ids):
        """Row i has the best id ids[i]."""
        self.rows[:] = 0
        self.rows[np.arange(len(ids)), list(ids)] = 50

    def open(self, count=1):
        return [self.engine.open(GREEDY) for _ in range(count)]

    @staticmethod
    def handles(sequences):
        return np.array([sequence.handle for sequence in sequences], np.uint64)

    def assert_quick(self, rounds=None):
        self.assertIsNotNone((rounds or self.engine._quick_arrays)._round)

    def test_each_round_has_its_own_ids(self):
        sequences = self.handles(self.open(2))
        found = []
        for i in range(6):
            self.put(i, i + 10)
            found.append(self.engine.verify_batch(self.rows, sequences))
        self.assert_quick()
        for i, each in enumerate(found):  # a later round leaves the arrays of an earlier one alone
            self.assertEqual(each.tokens.tolist(), [[i], [i + 10]])
            self.assertEqual(each.total_kept.tolist(), [i + 1, i + 1])
            self.assertEqual(each.sequences.tolist(), sequences.tolist())

    def test_drafts_are_those_of_the_call(self):
        sequences = self.handles(self.open(2))
        for i in range(5):
            best = [(7 * i + place) % V for place in range(2 * (K + 1))]
            self.put(*best)
            drafts = np.array([best[:K], best[K + 1:2 * K + 1]], np.int32)
            drafts[1, 1] = (drafts[1, 1] + 1) % V
            found = self.engine.verify_batch(
                self.rows, sequences, drafts if i < 4 else drafts.astype(np.int64))
            self.assertEqual(found.num_accepted.tolist(), [K, 1])
            self.assertEqual(found.tokens.tolist(), [best[:K + 1], best[K + 1:K + 3] + [-1, -1]])
            self.assertEqual(found.path.tolist(), [[0, 1, 2, -1], [0, -1, -1, -1]])
        self.assert_quick()

    def test_rows_may_be_another_view_each_time(self):
        sequence = self.handles(self.open())
        self.put(*range(8))
        for i in (3, 5, 0, 7, 3):
            self.assertEqual(self.engine.verify_batch(self.rows[i:i + 1], sequence).tokens.tolist(), [[i]])
        apart = self.rows[2:7:4]
        for two in (self.rows[4:6], apart, apart[::-1], self.rows[6:8]):
            sequences = self.handles(self.open(2))
            best = two.argmax(1)
            for _ in range(3):
                found = self.engine.verify_batch(two[:], sequences)
                self.assertEqual(found.tokens[:, 0].tolist(), best.tolist())
        for view in (self.rows[3:4], self.rows[5]):
            view.flags.writeable = False
            for _ in range(2):
                found = self.engine.verify_batch(view, sequence)
                self.assertEqual(found.tokens.tolist(), [[view.argmax()]])
        same = self.rows[2:3]
        for _ in range(3):
            self.assertEqual(self.engine.verify_batch(same, sequence).tokens.tolist(), [[2]])
        for rows in (None, self.rows):
            self.assertEqual(self.engine.verify_batch(rows, sequence).tokens.tolist(), [[0]])
        self.assert_quick()

    def test_rows_of_the_caller_are_copied_each_time(self):
        sequence, rows = self.handles(self.open()), np.zeros((1, V), np.float32)
        for i in range(5):
            rows[:] = 0
            rows[0, i] = 9
            self.assertEqual(self.engine.verify_batch(rows, sequence).tokens.tolist(), [[i]])

    def test_rows_that_a_call_has_bound_meanwhile_are_left_again(self):
        one, (other,) = self.handles(self.open()), self.open()
        self.put(4)
        for _ in range(3):
            self.assertEqual(self.engine.verify_batch(self.rows, one).tokens.tolist(), [[4]])
        copied = np.zeros((1, V), np.float32)
        copied[0, 9] = 9
        self.assertEqual(self.engine.verify(copied, {other: ()})[0].tokens.tolist(), [9])
        self.assertEqual(self.engine.verify_batch(self.rows, one).tokens.tolist(), [[4]])
        self.rows = self.engine.rows(2)
        self.put(7)
        self.assertEqual(self.engine.verify_batch(self.rows, one).tokens.tolist(), [[7]])

    def test_an_array_of_another_shape_is_refused_as_ever(self):
        sequences = self.handles(self.open(2))
        self.put(1, 2)
        calls = [lambda: self.engine.verify_batch(self.rows[:1], sequences),
                 lambda: self.engine.verify_batch(self.rows[:, :V - 1], sequences),
                 lambda: self.engine.verify_batch(self.rows, sequences, timeout_ms=-2),
                 lambda: self.engine.verify_batch(self.rows, sequences, scores=7)]
        before = []
        for call in calls:
            with self.assertRaises(specd.Error) as caught:
                call()
            before.append(str(caught.exception))
        for _ in range(3):
            self.engine.verify_batch(self.rows, sequences)
        self.assert_quick()
        for call, text in zip(calls, before):
            with self.assertRaises(specd.Error) as caught:
                call()
            self.assertEqual(str(caught.exception), text)
        self.assertEqual(self.engine.verify_batch(self.rows, sequences).tokens.tolist(), [[1], [2]])

    def test_a_bad_row_is_named_as_the_caller_counts_rows(self):
        sequences = self.handles(self.open(2))
        view = self.rows[4:6]
        self.put(0, 0, 0, 0, 5, 6)
        for _ in range(3):
            self.engine.verify_batch(view, sequences)
        self.assert_quick()
        self.rows[5] = np.nan
        with self.assertRaises(specd.RoundError) as caught:
            self.engine.verify_batch(view, sequences)
        found = caught.exception.results
        self.assertEqual((found.status.tolist(), found.bad_row.tolist()), ([0, 2], [-1, 1]))
        self.assertEqual(found.tokens.tolist(), [[5], [-1]])
        self.assertIn("sequences[1] of 2 is bad_distribution", str(caught.exception))
        found = self.engine.verify_batch(view, sequences, strict=False)
        self.assertEqual(found.status_names.tolist(), ["ok", "finished"])

    def test_a_closed_engine_refuses_as_ever(self):
        sequences = self.handles(self.open(2))
        for _ in range(3):
            self.engine.verify_batch(self.rows, sequences)
        # As the interpreter closes it at its end, and as the caller does.
        for close in (self.engine._closer, self.engine.close):
            close()
            # Bug: the quick way asked the library with the address of an engine that was gone.
            self.assertIsNone(self.engine._pointer.value)
            for _ in range(3):
                with self.assertRaisesRegex(specd.Error, "the engine is closed"):
                    self.engine.verify_batch(self.rows, sequences)

    def test_an_interrupted_round_goes_on_and_is_not_overwritten(self):
        sequences = self.handles(self.open(2))
        for name, is_called, kept in (("specd_submit_batch", True, 1), ("specd_submit_batch", False, 0),
                                      ("specd_poll_batch", True, 1)):
            for _ in range(3):
                before = self.engine.verify_batch(self.rows, sequences).total_kept[0]
            self.assert_quick()
            with interrupted_after(name, is_called), self.assertRaises(KeyboardInterrupt):
                self.engine.verify_batch(self.rows, sequences)
            self.assertEqual(len(self.engine._in_flight.pending), kept)
            found = self.engine.verify_batch(self.rows, sequences)
            self.assertEqual(found.total_kept.tolist(), [before + kept + 1] * 2)
            self.assertEqual(self.engine._in_flight.pending, {})

    def test_a_time_of_another_type_is_refused_as_ever(self):
        (sequence,) = self.open()
        for _ in range(4):
            for call in (lambda time: self.engine.verify_batch(self.rows, self.handles([sequence]), timeout_ms=time),
                         lambda time: self.engine.verify(self.rows[:1], {sequence: ()}, timeout_ms=time)):
                call(-1)
                with self.assertRaisesRegex(specd.Error, "timeout_ms: -1.0 is not an integer"):
                    call(-1.0)

    def test_words_of_bfloat16_rows_are_refused_as_ever(self):
        rows, sequence = self.engine.rows(4, dtype="bfloat16"), self.handles(self.open())
        rows[:] = 0
        for _ in range(3):
            self.engine.verify_batch(rows[:1], sequence)
            with self.assertRaisesRegex(specd.Error, "dtype uint16"):
                self.engine.verify_batch(np.ndarray.view(rows, np.ndarray)[:1], sequence)

    def test_an_array_that_becomes_another_is_looked_at_again(self):
        # As int32 the words of -1.0 and -0.5 are -1082130432 and -1090519040 (IEEE 754).
        sequence = self.handles(self.open())
        self.rows[:] = -1
        self.rows[:, 4] = -0.5
        view = self.rows[:1]
        for _ in range(3):
            self.assertEqual(self.engine.verify_batch(view, sequence).tokens.tolist(), [[4]])
        view.dtype = np.int32
        self.assertEqual(self.engine.verify_batch(view, sequence).tokens.tolist(), [[0]])

    def test_rules_of_a_call_that_failed_hold_as_they_do_for_usual_rounds(self):
        found = []
        for engine, rows in self.both():
            sequences = self.handles([engine.open(GREEDY)])
            rows[:] = 1 / V
            rows[0, 2] = 0.5
            for _ in range(3):
                engine.verify_batch(rows, sequences)
            with self.assertRaises(specd.Error):
                engine.rows(2**31 - 1, kind="probabilities")
            rows[0, 2] = -1  # no probability
            found.append(engine.verify_batch(rows, sequences, strict=False).status_names.tolist())
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], ["bad_distribution"])

    def test_a_result_keeps_its_own_ids_and_no_more(self):
        sequences = self.open(B)
        for _ in range(3):
            found = self.engine.verify(self.rows[:B], dict.fromkeys(sequences, ()))
        self.assert_quick(self.engine._quick_drafts)
        self.assertEqual({len(each.tokens.base) for each in found}, {4})

    def test_a_round_in_flight_comes_first(self):
        sequences, (other,) = self.handles(self.open(2)), self.open()
        self.put(1, 2)
        for _ in range(3):
            self.engine.verify_batch(self.rows, sequences)
        round = self.engine.submit(self.rows[:1], {other: ()})
        self.assertEqual(self.engine.verify_batch(self.rows, sequences).total_kept.tolist(), [4, 4])
        self.assertTrue(round.done())
        self.assertEqual(round.result()[0].tokens.tolist(), [1])

    def test_results_can_be_copied_and_compared_field_by_field(self):
        sequences = self.handles(self.open(2))
        self.put(1, 2)
        for _ in range(3):
            found = self.engine.verify_batch(self.rows, sequences)
        self.assertEqual([field.name for field in dataclasses.fields(found)][:2], ["sequences", "status"])
        for other in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found)),
                      dataclasses.replace(found)):
            self.assertIs(type(other), specd.BatchResults)
            for field in dataclasses.fields(found):
                one, two = getattr(found, field.name), getattr(other, field.name)
                self.assertEqual(one is None, two is None)
                self.assertTrue(one is None or one.dtype == two.dtype and np.array_equal(
                    one, two, equal_nan=one.dtype.kind == "f"), field.name)
        self.assertIn("tokens=array([[1],", repr(found))
        with self.assertRaises(AttributeError):
            found.token

    # ---- the same rounds on an engine that has the usual way only ------------------------------------

    def both(self, **options):
        engines = self.make_engine(**options), usual_only(self.make_engine(**options))
        return [(engine, engine.rows(B * (K + 1))) for engine in engines]

    def assert_same(self, one, two, where):
        self.assertIs(type(one), type(two))
        for field in dataclasses.fields(one):
            a, b = getattr(one, field.name), getattr(two, field.name)
            if field.name in ("sequence", "sequences"):
                continue
            if isinstance(b, np.ndarray):
                self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape), (where, field.name))
                if b.dtype.names:
                    self.assertEqual(a.tolist(), b.tolist(), (where, field.name))
                else:
                    np.testing.assert_array_equal(a, b, str((where, field.name)))
            else:
                self.assertIs(type(a), type(b), (where, field.name))
                self.assertEqual(a, b, (where, field.name))

    def test_random_rounds_answer_as_usual_ones(self):
        random = np.random.default_rng(5)
        params = [specd.SamplingParams(seed=i, temperature=(0, .8)[i % 2], logprobs=(None, 2, 0)[i % 3],
                                       max_tokens=(9, 1000)[i % 4 > 0], stop_token_ids=[5] if i == 4 else [],
                                       logit_bias={3: 2.0} if i == 5 else None) for i in range(B)]
        pairs = [(engine, rows, [engine.open(each) for each in params]) for engine, rows in self.both()]
        for i in range(60):
            count, length = (1, 3, B)[i // 4 % 3], (0, K)[i // 12 % 2]
            logits = random.standard_normal((B * (K + 1), V)).astype(np.float32) * 3
            if i % 17 == 16:
                logits[length] = np.inf * np.array([1, -1])[i % 2]
            drafts = random.integers(-1 if i % 5 == 0 else 0, V, (count, length), np.int32)
            found = []
            for engine, rows, sequences in pairs:
                rows[:] = logits
                need = count * (length + 1)
                asked = dict(zip(sequences[:count], drafts if i % 3 else drafts.tolist()))
                found.append(engine.verify(rows[:need], asked, strict=False))
            for one, two in zip(*found):
                self.assert_same(one, two, i)
            found = []
            for engine, rows, sequences in pairs:
                found.append(engine.verify_batch(
                    rows, self.handles(sequences[:count]), drafts if length else None, strict=False))
            self.assert_same(*found, i)
        self.assert_quick(pairs[0][0]._quick_drafts)
        self.assert_quick(pairs[0][0]._quick_arrays)

    def test_sequences_that_are_not_verified_are_answered_as_usual(self):
        foreign = self.open()[0]
        found, texts = [], []
        for engine, rows in self.both():
            sequences = [engine.open(GREEDY) for _ in range(3)]
            rows[:] = 0
            for _ in range(3):
                engine.verify(rows[:3], dict.fromkeys(sequences, ()))
            asked = dict.fromkeys([sequences[0], foreign, sequences[2]], ())
            found += [engine.verify(rows[:3], asked, strict=False)]
            with self.assertRaises(specd.RoundError) as caught:
                engine.verify(rows[:3], asked)
            texts.append(str(caught.exception))
            sequences[2].close()
            found[-1] += engine.verify(rows[:3], asked, strict=False)
        self.assertEqual([each.status for each in found[0]], ["ok", "invalid", "ok", "ok", "invalid",
                                                              "unknown_sequence"])
        for one, two in zip(*found):
            self.assert_same(one, two, one.status)
        self.assertEqual(*texts)

    def test_drafts_that_are_refused_are_refused_as_usual(self):
        texts = []
        for engine, rows in self.both():
            sequence = engine.open(GREEDY)
            for ids in ([1], [2], [3]):
                engine.verify(rows[:2], {sequence: ids})
            for ids in ([0.5], ["a"], [2**40], np.zeros((1, 1), np.int32), np.zeros(1), 3, [1, 2]):
                try:
                    engine.verify(rows[:2], {sequence: ids})
                    texts.append("")
                except (specd.Error, TypeError) as error:
                    texts.append(str(error))
        half = len(texts) // 2
        self.assertEqual(texts[:half], texts[half:])
        self.assertNotIn("", texts[:half])


if __name__ == "__main__":
    unittest.main()
