"""Tensors in device memory as rows of a call, read where they lie: over the pretended device of
tests/tools/pretended_engine.cc, whose memory the CPU reaches too."""

import contextlib
import ctypes
import gc
import os
import sys
import types
import unittest
from unittest import mock

import numpy as np

import specd
from interrupts import interrupted_after
from specd.integrations import _sglang_sampler
from tensors import BFLOAT, CUDA, ROCM, Tensor, bfloat16_words, num_exports

V = 8
DEVICE = ctypes.CDLL(os.environ["SPECD_LIBRARY"])
DEVICE.pretended_allocate.restype = ctypes.c_uint64
DEVICE.pretended_allocate.argtypes = [ctypes.c_uint64]
DEVICE.pretended_create_stream.restype = ctypes.c_void_p
DEVICE.pretended_marked.restype = ctypes.c_void_p


def one_hot(*ids):
    return (np.eye(V, dtype=np.float32) * 50)[list(ids)]


def on_device(array):
    """A copy in device memory, as an array that the test may write."""
    address = DEVICE.pretended_allocate(array.nbytes)
    memory = np.frombuffer((ctypes.c_char * array.nbytes).from_address(address), array.dtype)
    memory = memory.reshape(array.shape)
    memory[:] = array
    return memory


class DeviceTensorsTest(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine("embedded:cuda", vocab_size=V, max_batch=4, max_sequences=16,
                                   max_draft=3)
        self.addCleanup(self.engine.close)

    def open(self, **fields):
        return self.engine.open(specd.SamplingParams(**{"temperature": 0, **fields}))

    def tokens(self, rows, drafts, **rest):
        return [result.tokens.tolist() for result in self.engine.verify(rows, drafts, **rest)]

    def test_rows_are_read_where_they_lie(self):
        words, wide = on_device(bfloat16_words(one_hot(1, 2))), on_device(np.zeros((2, V + 8), np.float32))
        wide[:, :V] = one_hot(1, 2)
        for array, kind in ((on_device(one_hot(1, 2)), None), (words, (BFLOAT, 16)),
                            (on_device(one_hot(1, 2).astype(np.float16)), None),
                            (wide[:, :V], None)):
            tensor = Tensor(array, kind, device=(CUDA, 0))
            sequence = self.open()
            self.assertEqual(self.tokens(tensor, {sequence: [1]}), [[1, 2]])
            array[0] = words[1] if kind else one_hot(2)[0]
            self.assertEqual(self.tokens(tensor, {sequence: [2]}), [[2, 2]])  # nothing was copied
            self.assertIsNone(self.engine._spaces["target"].copies.buffer)

    def test_rows_of_a_drafter_too(self):
        sequence = self.open(temperature=1, verify="token", seed=1)
        q = Tensor(on_device(one_hot(1)), device=(CUDA, 0))
        rows = Tensor(on_device(one_hot(1, 2)), device=(CUDA, 0))
        self.assertEqual(self.tokens(rows, {sequence: [1]}, q=q), [[1, 2]])
        self.assertEqual([child.ids.tolist() for child in self.engine.sample_draft(q, [sequence])],
                         [[1]])

    def test_a_tensor_is_kept_while_its_memory_is_bound_and_no_longer(self):
        first, second = (Tensor(on_device(one_hot(token)), device=(CUDA, 0)) for token in (3, 4))
        sequence = self.open()
        self.assertEqual(self.tokens(first, {sequence: []}), [[3]])
        self.assertEqual(self.tokens(first, {sequence: []}), [[3]])
        gc.collect()
        self.assertEqual((num_exports(first), num_exports(second)), (1, 0))
        self.assertEqual(self.tokens(second, {sequence: []}), [[4]])
        gc.collect()
        self.assertEqual((num_exports(first), num_exports(second)), (0, 1))
        self.assertEqual(self.tokens(one_hot(5), {sequence: []}), [[5]])
        gc.collect()
        self.assertEqual((num_exports(first), num_exports(second)), (0, 0))

    def test_the_tensor_that_is_bound_is_kept_through_an_interrupt(self):
        # Bug: after an interrupt in specd_bind the library read memory whose tensor was dropped.
        first, second = (Tensor(on_device(one_hot(token)), device=(CUDA, 0)) for token in (3, 4))
        sequence = self.open()
        self.assertEqual(self.tokens(first, {sequence: []}), [[3]])
        with interrupted_after("specd_bind"), self.assertRaises(KeyboardInterrupt):
            self.engine.verify(second, {sequence: []})
        gc.collect()
        self.assertEqual((num_exports(first), num_exports(second)), (0, 1))
        # The library is bound to the second, and what is bound is known.
        self.assertEqual(self.tokens(None, [specd.Draft(sequence, target_rows=[0])]), [[4]])
        self.assertEqual(self.tokens(first, {sequence: []}), [[3]])
        gc.collect()
        self.assertEqual((num_exports(first), num_exports(second)), (1, 0))

    def test_a_tensor_is_kept_while_it_is_bound_if_another_is_not_bound_after_all(self):
        first, second = (Tensor(on_device(one_hot(token)), device=(CUDA, 0)) for token in (3, 4))
        sequence = self.open(max_tokens=None)
        self.assertEqual(self.tokens(first, {sequence: []}), [[3]])
        for _ in range(100):  # no region is lost; a session has 64
            with interrupted_after("specd_bind", is_called=False), self.assertRaises(KeyboardInterrupt):
                self.engine.verify(second, {sequence: []})
        gc.collect()
        self.assertEqual((num_exports(first), num_exports(second)), (1, 0))
        self.assertEqual(self.tokens(second, {sequence: []}), [[4]])

    def test_a_closed_engine_keeps_no_tensor(self):
        tensor = Tensor(on_device(one_hot(3)), device=(CUDA, 0))
        self.assertEqual(self.tokens(tensor, {self.open(): []}), [[3]])
        self.engine.close()
        gc.collect()
        self.assertEqual(num_exports(tensor), 0)

    def test_many_tensors_take_no_more_regions_than_one(self):
        sequence = self.open(max_tokens=None)
        for i in range(300):  # a session has 64
            tensor = Tensor(on_device(one_hot(i % V)), device=(CUDA, 0))
            self.assertEqual(self.tokens(tensor, {sequence: []}), [[i % V]])

    def test_rounds_in_flight_over_one_tensor(self):
        array = on_device(one_hot(1, 2, 3))
        a, b = self.open(), self.open()
        tensor = Tensor(array, device=(CUDA, 0))
        rounds = [self.engine.submit(tensor, [specd.Draft(a, [1], target_rows=[0, 1])]),
                  self.engine.submit(tensor, [specd.Draft(b, target_rows=[2])])]
        self.assertEqual([round.done() for round in rounds], [False, False])
        self.assertEqual([round.result()[0].tokens.tolist() for round in rounds], [[1, 2], [3]])

    def test_a_batch_reads_them_where_they_lie(self):
        sequences = self.engine.open_batch(2, temperature=0).sequences
        array = on_device(one_hot(1, 2, 3))
        tensor = Tensor(array, device=(CUDA, 0))
        for _ in range(2):
            found = self.engine.verify_batch(tensor, sequences, [1], [0, 1, 1])
            self.assertEqual(found.tokens.tolist(), [[1, 2], [3, -1]])
        array[1] = one_hot(6)
        found = self.engine.verify_batch(tensor, sequences, target_rows=[2, 1])
        self.assertEqual(found.tokens.tolist(), [[3], [6]])
        self.assertIsNone(self.engine._spaces["target"].copies.buffer)

    def test_other_memory_is_bound_when_the_rounds_before_are_answered(self):
        tensors = [Tensor(on_device(one_hot(token)), device=(CUDA, 0)) for token in (3, 6)]
        sequence = self.open(max_tokens=None)
        for _ in range(100):  # a wait takes no region; a session has 64
            rounds = [self.engine.submit(tensor, {sequence: []}) for tensor in tensors]
            self.assertTrue(rounds[0].done())
            self.assertEqual([round.result()[0].tokens.tolist() for round in rounds], [[3], [6]])

    def test_what_cannot_be_read_there_is_refused_by_name(self):
        sequence = self.open()
        rows = on_device(one_hot(1, 2))
        for tensor, texts in (
            (Tensor(rows[:, ::-1], device=(CUDA, 0)), ["rows: ", "(8, -1)", "contiguous()"]),
            (Tensor(np.asfortranarray(rows), device=(CUDA, 0)), ["(1, 2)", "contiguous()"]),
            (Tensor(rows.astype(np.float64), device=(CUDA, 0)), ["float64", "bfloat16"]),
            (Tensor(rows[:, :5], device=(CUDA, 0)), ["(2, 5)", "8"]),
            (Tensor(rows, device=(ROCM, 1)), ["ROCm device 1", ".cpu()"]),
            (Tensor(rows[:1], device=(CUDA, 0)), ["1 where 2 are needed"]),
            (Tensor(one_hot(1, 2), device=(CUDA, 0)), ["address"]),  # memory of no device
        ):
            with self.assertRaises(specd.Error) as caught:
                self.engine.verify(tensor, {sequence: [1]})
            for text in texts:
                self.assertIn(text, str(caught.exception))
        self.assertEqual(self.tokens(Tensor(rows, device=(CUDA, 0)), {sequence: [1]}), [[1, 2]])


class LibraryCallsTest(unittest.TestCase):
    """specd.sample and its like: on the GPU where the rows are."""

    def setUp(self):
        self.host = np.random.default_rng(3).normal(0, 2, (70, 40)).astype(np.float32)  # two chunks
        self.rows = Tensor(on_device(self.host), device=(CUDA, 0))

    def on_gpu(self, call):
        """What the call returns; its work was on the device."""
        before = DEVICE.pretended_num_launches()
        result = call()
        self.assertGreater(DEVICE.pretended_num_launches(), before)
        return result

    def test_results_are_those_of_host_rows_bit_for_bit(self):
        indices = [69, 3, 3, 0]
        for call in (lambda rows: specd.softmax(rows, 0.7),
                     lambda rows: specd.top_k_renorm(rows, 5, indices),
                     lambda rows: specd.top_p_renorm(rows, 0.8),
                     lambda rows: specd.top_k_mask(rows, 5),
                     lambda rows: specd.argmax(rows, indices),
                     lambda rows: specd.sample(rows, seed=7, temperature=0.8, top_k=20, top_p=0.9)):
            before = DEVICE.pretended_num_launches()
            expected = call(self.host)
            self.assertEqual(DEVICE.pretended_num_launches(), before)
            found = self.on_gpu(lambda: call(self.rows))
            self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape))
            self.assertEqual(found.tobytes(), expected.tobytes())

    def test_one_row_strides_and_dtypes(self):
        whole = np.round(self.host)  # bfloat16 numbers, with ties
        words = on_device(bfloat16_words(whole))
        half = on_device(self.host.astype(np.float16))
        wide = on_device(np.full((70, 48), np.nan, np.float32))
        wide[:, :40] = self.host
        for found, expected in (
                (specd.argmax(Tensor(words, (BFLOAT, 16), device=(CUDA, 0))),
                 specd.argmax(bfloat16_words(whole).view(specd.BFloat16))),
                (specd.argmax(Tensor(half, device=(CUDA, 0))), specd.argmax(self.host.astype(np.float16))),
                (specd.softmax(Tensor(wide[:, :40], device=(CUDA, 0))), specd.softmax(self.host)),
                (specd.softmax(Tensor(on_device(self.host)[7], device=(CUDA, 0))),
                 specd.softmax(self.host[7]))):
            self.assertEqual(found.shape, expected.shape)
            self.assertEqual(found.tobytes(), expected.tobytes())

    def test_a_device_by_name(self):
        expected = specd.softmax(self.host).tobytes()
        for device in ("cuda", "cuda:0"):
            for rows in (self.rows, self.host):  # a GPU copies rows of the host
                found = self.on_gpu(lambda: specd.softmax(rows, device=device))
                self.assertEqual(found.tobytes(), expected)
        self.assertEqual(specd.softmax(self.host, device="cpu").tobytes(), expected)
        stream = DEVICE.pretended_create_stream()
        self.assertEqual(specd.softmax(self.rows, cuda_stream=stream).tobytes(), expected)

    def test_work_that_writes_the_tensor_comes_first(self):
        # Bug: tensors were exported without an order, so a call read rows that were still being written.
        expected = specd.softmax(self.host).tobytes()
        legacy = 1  # CUDA's legacy default stream, as DLPack writes it
        self.assertEqual(specd.softmax(self.rows).tobytes(), expected)
        self.assertEqual(self.rows.asked[-1]["stream"], legacy)
        self.assertEqual(DEVICE.pretended_marked(), legacy)
        # The caller names the CUDA stream that writes the rows: nothing else is waited for.
        stream = DEVICE.pretended_create_stream()
        self.assertEqual(specd.softmax(self.rows, cuda_stream=stream).tobytes(), expected)
        self.assertEqual(self.rows.asked[-1]["stream"], -1)
        self.assertEqual(DEVICE.pretended_marked(), stream)

    def test_what_is_refused(self):
        other = Tensor(on_device(self.host), device=(ROCM, 0))
        for call, text in (
                (lambda: specd.argmax(self.rows, device="cpu"), "memory of cuda:0"),
                (lambda: specd.argmax(self.rows, device="tpu"), "the backends are"),
                (lambda: specd.argmax(self.rows, device="cuda:1"), "devices 0 .. 0"),
                (lambda: specd.argmax(self.rows, device=0), "device: 0"),
                (lambda: specd.argmax(self.host, cuda_stream=5), "cuda_stream"),
                (lambda: specd.argmax(self.host, devise="cpu"), "device and cuda_stream"),
                (lambda: specd.argmax(self.rows, [70]), "0 .. 69"),
                (lambda: specd.argmax(other), "ROCm"),
                (lambda: specd.argmax(Tensor(on_device(self.host).T, device=(CUDA, 0))), "contiguous"),
                (lambda: specd.softmax(self.host, self.rows), "the CPU cannot read")):
            with self.assertRaisesRegex(specd.Error, text):
                call()


class SglangSamplerTest(unittest.TestCase):
    """The sampler of specd.integrations.sglang, with a stand-in for torch."""

    def setUp(self):
        class Rows(Tensor):
            """Probabilities on a GPU. There is no cpu(), so nothing can copy them."""

            def __len__(self):
                return len(self.array)

        self.host = specd.softmax(np.random.default_rng(4).normal(0, 2, (6, 40)))
        self.rows = Rows(on_device(self.host), device=(CUDA, 0))
        self.stream = DEVICE.pretended_create_stream()
        moved = lambda ids: types.SimpleNamespace(to=lambda device: (ids, device))
        torch = types.SimpleNamespace(
            from_numpy=moved, cuda=types.SimpleNamespace(current_stream=lambda device: self.stream))
        patch = mock.patch.dict(sys.modules, torch=torch)
        patch.start()
        self.addCleanup(patch.stop)

    def ids(self, rows):
        """The ids, and the device where they are."""
        def on_host(values, dtype):
            array = np.array(values, dtype)
            return types.SimpleNamespace(cpu=lambda: types.SimpleNamespace(numpy=lambda: array))
        info = types.SimpleNamespace(
            sampling_mask_batch_indices=None, sampling_seed=on_host([7] * 6, np.int64),
            top_ks=on_host([1, 5, 40, 40, 3, 2], np.int32), top_ps=on_host([0.9] * 6, np.float32),
            min_ps=on_host([0.0] * 6, np.float32))
        found, none = _sglang_sampler._sample_from_probs(None, rows, info, on_host(range(6), np.int64), False)
        self.assertIsNone(none)
        return found[0].tolist(), found[1]

    @contextlib.contextmanager
    def probe(self, code_name):
        """The probe of a GPU ends with this error. Yields the devices that were probed."""
        def argmax(rows, device):
            probed.append(device)
            raise specd.Error(-1, code_name, "as the test says")
        probed = []
        _sglang_sampler._samples_on.cache_clear()
        self.addCleanup(_sglang_sampler._samples_on.cache_clear)
        with mock.patch.object(_sglang_sampler, "argmax", argmax):
            yield probed

    def expected(self):
        return specd.sample(self.host, seed=7, position=np.arange(6, dtype=np.uint64), kind="probabilities",
                            top_k=[1, 5, 40, 40, 3, 2], top_p=np.full(6, 0.9, np.float32)).tolist()

    def test_probabilities_are_read_where_they_lie_after_torchs_stream(self):
        before = DEVICE.pretended_num_launches()
        found = self.ids(self.rows)
        self.assertGreater(DEVICE.pretended_num_launches(), before)
        self.assertEqual(found, (self.expected(), (CUDA, 0)))
        self.assertEqual(DEVICE.pretended_marked(), self.stream)

    def test_a_library_without_cuda_gets_a_copy(self):
        self.rows.cpu = lambda: self.host
        with self.probe("SPECD_ERROR_UNSUPPORTED"):
            before = DEVICE.pretended_num_launches()
            self.assertEqual(self.ids(self.rows), (self.expected(), (CUDA, 0)))
            self.assertEqual(DEVICE.pretended_num_launches(), before)

    def test_the_gpu_of_the_probabilities_is_asked_and_only_a_lasting_answer_is_kept(self):
        # Bug: cuda:0 was asked for every GPU, and a moment without memory there meant copies for ever.
        for index in (0, 2):
            rows = type(self.rows)(self.rows.array, device=(CUDA, index))
            rows.cpu = lambda: self.host
            with self.probe("SPECD_ERROR_DEVICE") as probed:
                for _ in range(2):
                    with self.assertRaisesRegex(specd.Error, "as the test says"):
                        self.ids(rows)
            self.assertEqual(probed, [f"cuda:{index}"] * 2)
            with self.probe("SPECD_ERROR_UNSUPPORTED") as probed:
                for _ in range(2):
                    self.ids(rows)
            self.assertEqual(probed, [f"cuda:{index}"])


if __name__ == "__main__":
    unittest.main()
