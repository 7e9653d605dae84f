"""The Python door itself: every way in and out, with answers that are seen without computing."""

import ctypes.util
import os
import subprocess
import sys
import unittest

import numpy as np

import specd
from door_case import URI, V, DoorCase, one_hot
from philox import LIBRARY, coin53


class DoorTest(DoorCase):
    # ---- rows ---------------------------------------------------------------------------------------

    def test_rows_are_taken_as_they_come(self):
        rows = one_hot(1, 2, 3)
        strided = np.zeros((3, V + 3), np.float32)[:, :V]
        strided[:] = rows
        for given in (rows, rows.astype(np.float64), rows.astype(np.float16), specd.bfloat16(rows),
                      np.asfortranarray(rows), strided, [rows], rows.astype(int)):
            self.assertEqual(self.tokens(given, {self.open(): [1, 2]}), [[1, 2, 3]])

    def test_rows_of_the_engine_are_read_in_place(self):
        for dtype in ("float32", "float16", "bfloat16"):
            rows = self.engine.rows(3, dtype=dtype, row_stride=V + 5)
            rows[:] = one_hot(1, 2, 3)
            sequence = self.open()
            self.assertEqual(self.tokens(rows, {sequence: [1]}), [[1, 2]])
            rows[0, 7] = np.float32(300)
            self.assertEqual(self.tokens(None, {sequence: []}), [[7]])

    def test_rows_for_each_draft_and_rows_by_index(self):
        a, b = self.open(), self.open()
        per_draft = [one_hot(1, 2), one_hot(3)]
        self.assertEqual(self.tokens(per_draft, {a: [1], b: []}), [[1, 2], [3]])
        drafts = [specd.Draft(a, [4], target_rows=[2, 0]), specd.Draft(b, target_rows=[2])]
        self.assertEqual(self.tokens(one_hot(5, 6, 4), drafts), [[4, 5], [4]])

    def test_more_rows_than_before_take_new_memory(self):
        sequences = [self.open() for _ in range(4)]
        self.tokens(one_hot(1), {sequences[0]: []})
        rows = one_hot(*range(8), *range(8))
        self.assertEqual(self.tokens(rows, {s: [-1, 0, 0] for s in sequences}),
                         [[0], [4], [0], [4]])

    def test_masks_argmax_and_discard(self):
        sequence = self.open(temperature=0)
        allowed = np.ones((2, V), bool)
        allowed[0, 1] = False
        self.assertEqual(self.tokens(one_hot(1, 2), {sequence: [1]}, masks=[allowed]), [[0]])
        self.assertEqual(self.tokens(one_hot(1, 2), {sequence: [1]}, masks=[None]), [[1, 2]])
        argmax = specd.Draft(sequence, [5], target_argmax=[5, 6])
        self.assertEqual(self.tokens(None, [argmax]), [[5, 6]])
        result, = self.engine.verify(None, [specd.Draft(sequence, discard=True)])
        self.assertEqual((result.status, len(result.tokens), result.total_kept), ("ok", 0, 5))

    def test_batches_of_every_size_fit_the_regions_of_a_session(self):
        with specd.Engine(vocab_size=V, max_batch=17, max_sequences=17, max_draft=1) as engine:
            params = specd.SamplingParams(verify="token", seed=1, max_tokens=None)
            sequences = [engine.open(params) for _ in range(17)]
            for count in range(1, 18):
                results = engine.verify(one_hot(*[1, 2] * count),
                                        {sequence: [1] for sequence in sequences[:count]},
                                        q=one_hot(*[1] * count),
                                        masks=[np.ones((2, V), bool)] * count)
                self.assertEqual([r.tokens.tolist() for r in results], [[1, 2]] * count)

    def test_more_rows_than_the_largest_round_fit_as_well(self):
        with specd.Engine(vocab_size=V, max_batch=1, max_draft=0) as engine:
            for count in (1, 2, 3, 100, 5000):
                rows = engine.rows(count)
                rows[:] = one_hot(6)
                self.assertEqual(engine.score(rows, [6] * count).statuses, ["ok"] * count)

    def test_mask_rows_of_the_engine_are_handed_out_in_order(self):
        a, b = self.open(temperature=0), self.open(temperature=0)
        masks = self.engine.rows(5, role="mask")
        masks[:] = -1
        masks[2] = 1 << 6
        for given in (masks, masks[:]):
            drafts = {a: [1], b: []}
            self.assertEqual(self.tokens(one_hot(1, 2, 3), drafts, masks=given), [[1, 2], [6]])
        drafts = [specd.Draft(a, [1], mask_rows=[-1, 2]), specd.Draft(b)]
        self.assertEqual(self.tokens(one_hot(1, 2, 3), drafts, masks=masks), [[1, 6], [3]])
        self.assertEqual(self.tokens(one_hot(3), {a: []}, masks=[specd.pack_mask(np.arange(V) == 4)]),
                         [[4]])
        few = self.engine.rows(2, role="mask")
        few[:] = -1
        children = self.engine.sample_draft(
            one_hot(3, 3), [self.open(verify="token", draft_edits=True) for _ in "ab"], masks=few)
        self.assertEqual([child.ids.tolist() for child in children], [[3], [3]])
        for make, texts in (
            (lambda: self.tokens(one_hot(1, 2, 3), {a: [1], b: []}, masks=few), ["masks", "2", "3"]),
            (lambda: self.tokens(one_hot(1, 2, 3), drafts, masks=[None, np.ones(V, bool)]),
             ["masks", "mask_rows"]),
        ):
            self.assert_refused(make, texts)

    def test_the_mask_bits_are_those_of_the_header(self):
        allowed = np.zeros((2, 40), bool)
        allowed[0, [0, 31, 33]] = allowed[1, 39] = True
        words = specd.pack_mask(allowed).view(np.uint32)
        self.assertEqual(words.tolist(), [[0x80000001, 2], [0, 0x80]])

    def test_bfloat16_rounds_to_even_and_keeps_nan(self):
        words = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7FFFFFFF, 0x7F800000], np.uint32)
        rounded = specd.bfloat16(words.view(np.float32)).view(np.uint16).tolist()
        self.assertEqual(rounded, [0x3F80, 0x3F82, 0x3F81, 0x7FFF, 0x7F80])

    # ---- sampled drafts, scores -----------------------------------------------------------------------

    def test_a_drafter_that_is_always_right_and_one_that_is_always_wrong(self):
        for verify in ("token", "block", "auto"):
            sequence = self.open(verify=verify)
            rows = one_hot(1, 2)
            self.assertEqual(self.tokens(rows, {sequence: [1]}, q=one_hot(1)), [[1, 2]])
            self.assertEqual(self.tokens(rows, {sequence: [4]}, q=one_hot(4)), [[1]])
            drafts = [specd.Draft(sequence, [1], weights=[1.0], masses=[1.0])]
            self.assertEqual(self.tokens(rows, drafts, q=one_hot(1)), [[1, 2]])

    def test_sample_draft_goes_into_a_draft(self):
        sequence = self.open(verify="token")
        children, = self.engine.sample_draft(one_hot(3), [sequence])
        self.assertEqual((children.status, children.ids.tolist(), children.q.tolist()),
                         ("ok", [3], [1.0]))
        masked = self.open(verify="token", draft_edits=True)
        request = specd.DraftRequest(masked, [3], 2, "top_k")
        allowed = np.arange(V) > 5
        children, = self.engine.sample_draft(one_hot(3), [request], masks=[allowed])
        self.assertEqual(children.ids.tolist(), [6, 7])

    # ---- errors ---------------------------------------------------------------------------------------

    def test_errors_say_which_field_and_what_to_do(self):
        sequence = self.open()
        for make, texts in (
            (lambda: specd.SamplingParams(best_of=3), ["best_of", "n"]),
            (lambda: specd.SamplingParams(max_new_tokens=3), ["max_new_tokens", "max_tokens"]),
            (lambda: specd.SamplingParams(temprature=3), ["temprature", "temperature?"]),
            (lambda: self.open(temperature=101.0), ["temperature", "101", "0 .. 100"]),
            (lambda: self.open(max_tokens=2**40), ["max_tokens", "1099511627776", "2147483647"]),
            (lambda: self.open(top_k=2**60 + 1), ["top_k", "1152921504606846977"]),
            (lambda: self.open(top_k=1.5), ["top_k", "1.5"]),
            (lambda: self.open(bad_words=["no"]), ["bad_words", "ids"]),
            (lambda: self.open(verify="fly"), ["verify", "'fly'", "block", "not built"]),
            (lambda: self.open(verify="typical"), ["verify", "typical", "allow_lossy"]),
            (lambda: self.open(stop=["x"]), ["stop"]),
            (lambda: self.open(logit_bias={V: 1.0}), ["logit_bias", "8"]),
            (lambda: self.open(n=2), ["n", "open_all"]),
            (lambda: self.engine.verify(one_hot(1), {sequence: [1]}), ["1", "2", "target rows"]),
            (lambda: self.engine.verify(np.zeros((1, V - 1)), {sequence: []}), ["7", "8"]),
            (lambda: self.engine.verify(one_hot(1), {sequence: [2**40]}), ["tokens", "1099511627776"]),
            (lambda: self.engine.rows(2, "tagret"), ["role", "'tagret'"]),
            (lambda: self.engine.rows(2, kind="probs"), ["kind", "probabilities"]),
            (lambda: specd.Engine(vocab_size=V, batch=3), ["batch", "max_batch"]),
            (lambda: specd.Engine(vocab_size=0), ["vocab_size", "0"]),
            (lambda: specd.Engine("embedded:cuda9", vocab_size=V), ["embedded:cuda9"]),
        ):
            self.assert_refused(make, texts)

    def assert_refused(self, make, texts):
        with self.assertRaises(specd.Error) as caught:
            make()
        for text in texts:
            self.assertIn(text, str(caught.exception))
        self.assertLess(caught.exception.code, 0)

    def test_arrays_that_do_not_fit_the_round_are_refused(self):
        a = self.open(verify="token", draft_edits=True)
        allowed = np.ones(V, bool)
        verify, sample = self.engine.verify, self.engine.sample_draft
        for make, texts in (
            (lambda: verify(one_hot(1, 2, 3), {a: [1]}), ["rows: 3 where 2"]),
            (lambda: verify(one_hot(1, 2), {a: [1]}, q=one_hot(1, 1)), ["q: 2 where 1"]),
            (lambda: verify(one_hot(1), {a: []}, masks=[np.ones((1, V))]), ["masks", "float64"]),
            (lambda: sample(one_hot(1, 2), [a]), ["rows", "2", "1"]),
            (lambda: sample(one_hot(1), [a, a]), ["rows", "1", "2"]),
            (lambda: sample(one_hot(1), [a], masks=allowed), ["masks", "8", "1"]),
            (lambda: sample(one_hot(1), [a], masks=[allowed, None]), ["masks", "2", "1"]),
            (lambda: sample(one_hot(1), [a], masks=[np.ones((2, V), bool)]), ["masks", "(2, 8)"]),
            (lambda: sample(one_hot(1), [a], masks=[allowed[:7]]), ["masks", "(7,)", "8"]),
            (lambda: verify(one_hot(1, 2), [specd.Draft(a, [1], weights=[1.0])]), ["masses"]),
            (lambda: verify(one_hot(1, 2), [specd.Draft(a, [1], masses=[1.0])]), ["weights"]),
        ):
            self.assert_refused(make, texts)
        rows = self.engine.rows(3)
        rows[:] = one_hot(1, 2, 3)
        self.assertEqual(self.tokens(rows, {a: []}), [[1]])

    def test_numbers_are_refused_where_c_would_cut_them_short(self):
        a = self.open(verify="token")
        rows, wide = one_hot(1, 2), np.array([2**32, 1])

        def child(**fields):
            return self.engine.sample_draft(rows[:1], [specd.DraftRequest(a, **fields)])

        def coin(*key):
            return lambda: a.set_coins({("sample", *key): 0.5})

        def draft(**fields):
            given = None if "target_argmax" in fields else rows
            return lambda: self.engine.verify(given, [specd.Draft(a, [1], **fields)])

        for name, calls in (
            ("seed", [lambda: a.fork(seed=-1), lambda: a.fork(seed=2**64), lambda: a.fork(seed=1.5),
                      lambda: specd.sample(rows, seed=2**64), lambda: specd.sample(rows, seed=-1),
                      lambda: specd.sample(rows, seed=1.5)]),
            ("target_rows", [draft(target_rows=wide), draft(target_rows=[0.5, 1]),
                             draft(target_rows=np.array([-1, 0]))]),
            ("draft_rows", [draft(draft_rows=wide[:1]), draft(draft_rows=[0.5])]),
            ("mask_rows", [draft(mask_rows=wide), draft(mask_rows=[0.5, 1])]),
            ("sampled", [draft(sampled=[256]), draft(sampled=[0.5])]),
            ("target_argmax", [draft(target_argmax=wide), draft(target_argmax=[1.5, 1])]),
            ("tokens", [lambda: self.engine.verify(rows, {a: [1.5]})]),
            ("sequence", [lambda: self.engine.verify(rows, {a.handle + 2**64: [1]})]),
            ("row", [lambda: child(row=2**32), lambda: child(row=-1), lambda: child(row=0.5)]),
            ("num_children", [lambda: child(num_children=2**32 + 1),
                              lambda: child(num_children=1.5)]),
            ("first_node", [lambda: child(first_node=2**32), lambda: child(first_node=-1)]),
            ("position", [coin(2**32, 0, 0), coin(-1, 0, 0), coin(0.5, 0, 0)]),
            ("round_base", [coin(0, 2**32, 0)]),
            ("node", [coin(0, 0, -1)]),
            ("top_k", [lambda: specd.top_k_mask(rows, 2.9), lambda: specd.sample(rows, top_k=2**32),
                       lambda: specd.top_k_renorm(rows, [1, 2.9]),
                       lambda: specd.top_k_mask(rows, np.array([1, 2**32 + 1]))]),
            ("num_top", [lambda: self.engine.score(rows, [1, 2], num_top=2**32)]),
            ("num_rows", [lambda: self.engine.rows(-1), lambda: self.engine.rows(1.5)]),
            ("max_batch", [lambda: specd.Engine(vocab_size=V, max_batch=2.5)]),
        ):
            for call in calls:
                self.assert_refused(call, [name])
        greatest = 2**64 - 1
        self.assertEqual(a.fork(seed=greatest).seed, greatest)
        self.assertEqual(specd.sample(rows, seed=[1, greatest], position=np.int64(3)).tolist(),
                         [1, 2])

    def test_text_with_a_nul_is_refused_and_not_cut_short(self):
        a = self.open()
        for make, name in (
            (lambda: self.open(stop=["a\0b"]), "stop"),
            (lambda: self.open(thinking_preset="a\0b"), "thinking_preset"),
            (lambda: self.open(processors={"a\0b": {}}), "processors"),
            (lambda: self.open(processors={"a": {"b\0": 1}}), "processors"),
            (lambda: self.engine.open(request_id="a\0b"), "request_id"),
            (lambda: a.fork(request_id="a\0b"), "request_id"),
            (lambda: specd.Engine(vocab_size=V, name="a\0b"), "name"),
            (lambda: specd.Engine("embedded:cpu\0", vocab_size=V), "uri"),
            (lambda: specd.Engine(vocab_size=V, name=3), "name"),
            (lambda: self.open(stop=["\ud800"]), "stop"),
        ):
            self.assert_refused(make, [name])

    def test_a_closed_engine_is_an_error_and_no_crash(self):
        sequence = self.open()
        self.engine.close()
        for call in (sequence.state, sequence.close, self.engine.stats,
                     lambda: self.engine.verify(one_hot(1), {sequence: []})):
            with self.assertRaises(specd.Error):
                call()

    def test_arrays_outlive_the_engine(self):
        """Reading rows() after close was a segmentation fault, which would end these tests too."""
        script = f"""
import gc, os
import numpy as np, specd
engine = specd.Engine({URI!r}, vocab_size={V}, max_batch=4, max_draft=3)
rows, mask, tokens = engine.rows(3), engine.rows(3, "mask"), engine.next_tokens()
rows[:] = np.eye({V})[[1, 2, 3]] * 50
view = rows[1:, 2:4]
result, = engine.verify(rows, {{engine.open(specd.SamplingParams(temperature=0, max_tokens=9)): [1, 2]}})
engine.close()
del engine
gc.collect()
print(rows.argmax(axis=1).tolist(), mask.sum(), tokens.max(), result.tokens.tolist())
rows[:] = 7  # it is the array's own
del rows
gc.collect()
print(view.sum())
maps = lambda: open("/proc/self/maps").read().count("memfd:specd-rows")
del mask, tokens, result  # a result knows its engine
gc.collect()
held = maps()
del view
gc.collect()
print(held - maps())  # the last view gives the memory back
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines(), ["[1, 2, 3] 0 3 [1, 2, 3]", "28.0", "1"])

    def test_a_library_that_is_not_there_or_is_another(self):
        for library, text in (("/nowhere/libspecd.so", "/nowhere/libspecd.so"),
                              (ctypes.util.find_library("c"), "has no specd_last_error")):
            done = subprocess.run(
                [sys.executable, "-c", "import specd; specd.version()"], capture_output=True,
                text=True, env={**os.environ, "SPECD_LIBRARY": library}, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(text, done.stderr)

    def test_sample_is_the_draw_of_a_sequence_with_a_coin_of_its_own(self):
        rows = np.random.default_rng(3).normal(size=(6, V)).astype(np.float32)
        sequence = self.open(seed=77, temperature=0.7, top_p=0.9)
        sequence.set_coins({("sample", i, 0, 0): coin53(77, i, 0, 0, LIBRARY) * 2.0**-53
                            for i in range(6)})
        drawn = [self.tokens(row[None, :], {sequence: []})[0][0] for row in rows]
        self.assertEqual(specd.sample(rows, seed=77, temperature=0.7, top_p=0.9).tolist(), drawn)


if __name__ == "__main__":
    unittest.main()
