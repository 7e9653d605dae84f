"""The rounds of an engine's requests (specd.integrations): nothing is lost where a round or an opening fails."""

import types
import unittest

import numpy as np

import specd
from specd.integrations._draft_columns import DraftColumns
from specd.integrations._request_rounds import Opening, Request, RequestRounds
from door_case import V, DoorCase, one_hot


class Rows(np.ndarray):
    """Rows in host memory, as torch says it."""

    is_cuda = False


def rows(*ids):
    return one_hot(*ids).view(Rows)


class RequestRoundsTest(DoorCase):
    def setUp(self):
        super().setUp()
        self.max_tokens = 4
        self.rounds = RequestRounds(self.engine, self.opening, -1)

    def opening(self, _request):
        return Opening(specd.SamplingParams(temperature=0, max_tokens=self.max_tokens))

    def play(self, *requests):
        """A round in which request i gets the token i + 1."""
        found = self.rounds.verify(requests, rows(*range(1, len(requests) + 1)))
        return [specd.results.FINISH_REASONS[reason] for reason in found.finish_reason]

    def test_a_round_of_which_one_request_gets_nothing_counts_for_none(self):
        left, right = Request("left", ()), Request("right", ())
        self.assertEqual(self.play(left, right), [None, None])
        self.rounds._opened["left"].sequence.abort()
        with self.assertRaisesRegex(specd.Error, "request_id: the sequence of 'left' had ended"):
            self.play(left, right)
        # One token of four was kept, so three rounds are left.
        self.assertEqual([self.play(right)[0] for _ in range(3)], [None, None, "length"])

    def test_tokens_outlive_an_opening_that_fails(self):
        request = Request("one", ())
        self.assertEqual([self.play(request)[0] for _ in range(2)], [None, None])
        self.rounds._opened["one"].has_ended = True
        self.max_tokens = -1
        for _ in range(2):  # the second time its sequence is closed already
            with self.assertRaisesRegex(specd.Error, "max_tokens"):
                self.play(request)
        self.max_tokens = 4
        self.assertEqual([self.play(request)[0] for _ in range(2)], [None, "length"])
        self.rounds.close_where(lambda _: True)
        self.assertEqual(self.engine.stats()["rounds"], 4)


class Tensor(np.ndarray):
    """A tensor in host memory, as torch says it."""

    def cpu(self):
        return self

    def numpy(self):
        return np.asarray(self)


class DraftColumnsTest(DoorCase):
    IDS = np.array([6, 1, 7])

    def drafter(self, offsets):
        return types.SimpleNamespace(model=types.SimpleNamespace(
            draft_id_to_target_id=np.asarray(offsets).view(Tensor)))

    def kept(self, drafter, kind, full):
        """The texts of rounds with draft rows of all ids."""
        engine = specd.Engine("embedded:cpu", vocab_size=V, max_batch=4, max_draft=3)
        self.addCleanup(engine.close)
        columns, rng, texts = DraftColumns(engine, drafter, kind), np.random.default_rng(3), []
        for seed in range(40):
            sequence = engine.open(specd.SamplingParams(seed=seed))
            tokens = rng.choice(self.IDS, 3)
            found = engine.verify_batch(rng.normal(size=(4, V)), [sequence.handle], tokens=tokens,
                                        draft_offsets=[0, 3], q=columns.of(full))
            texts.append(found.kept(0).tolist())
            sequence.close()
        return texts, columns.of(full).shape

    def test_a_narrow_drafter_gives_the_texts_of_all_columns(self):
        rng = np.random.default_rng(4)
        for kind, empty in (("logits", -np.inf), ("final_probabilities", 0)):
            narrow = rng.normal(size=(3, 3)).astype(np.float32)
            if kind != "logits":
                narrow = np.exp(narrow) / np.exp(narrow).sum(1, keepdims=True)
            full = np.full((3, V), empty, np.float32)
            full[:, self.IDS] = narrow
            wide = self.kept(None, kind, full)
            self.assertEqual(wide[1], (3, V))
            texts, shape = self.kept(self.drafter(self.IDS - np.arange(3)), kind, full)
            self.assertEqual((texts, shape), (wide[0], (3, 3)))
            self.assertGreater(sum(len(text) - 1 for text in texts), 20)
            # Rows of the drafter's own columns stay as they are.
            self.assertEqual(self.kept(self.drafter(self.IDS - np.arange(3)), kind, narrow)[0], texts)

    def test_a_drafter_of_all_ids_has_no_map(self):
        full = np.zeros((3, V), np.float32)
        self.assertEqual(self.kept(self.drafter(np.zeros(V, int)), "logits", full)[1], (3, V))
        self.assertIsNone(DraftColumns(self.engine, None, "logits").of(None))


if __name__ == "__main__":
    unittest.main()
