"""Which tokens and parameters a request of the V1 runner has for specd.

Expected tokens are the argmax.
"""

import unittest

import numpy as np

import specd
from v1_runner import specd_runner, spikes
from vllm import SamplingParams
from vllm.v1.worker.gpu_model_runner import GPUModelRunner


def params(**fields):
    return SamplingParams(temperature=0, **fields)


class RequestsTest(unittest.TestCase):
    def test_vllm_alone_ends_requests(self):
        # The engine's EOS id, max_tokens and the ids that min_tokens masks end none.
        engine = specd.Engine(vocab_size=32, max_batch=8, max_draft=3, eos_token_ids=[2])
        self.addCleanup(engine.close)
        masked = params(min_tokens=2, ignore_eos=True)
        masked._all_stop_token_ids = {2, 4}
        runner = specd_runner([params(max_tokens=2), masked], engine=engine)
        drafts = [[2, 4, 2]] * 2
        texts = [[], []]
        for _ in range(3):
            for text, made in zip(texts, runner.tokens(spikes([2, 4, 2, 4] * 2), drafts)):
                text += made
        self.assertEqual(texts[0], [2, 4, 2, 4] * 3)
        # 15 is the second best. The sequence is opened again behind each of its ends.
        self.assertEqual(texts[1], [15, 15, 2])
        self.assertEqual(runner.tokens(spikes([5, 4]))[1], [4])

    def test_a_sequence_that_another_has_ended_is_an_error(self):
        runner = specd_runner([params(), params()])
        runner.tokens(np.zeros((2, 32)))
        runner.sampler._requests._rounds._opened["r1"].sequence.abort()
        with self.assertRaisesRegex(specd.Error, r"request_id: the sequence of 'r1' .*\(abort\)"):
            runner.tokens(np.zeros((2, 32)))

    def test_timeouts_outside_the_range_are_refused(self):
        for timeout_ms in (-2, 2**31, 1.5, "1"):
            with self.assertRaisesRegex(specd.Error, f"timeout_ms: .*{timeout_ms}"):
                specd_runner(timeout_ms=timeout_ms)
        for timeout_ms in (-1, 2**31 - 1):
            self.assertEqual(specd_runner([params()], timeout_ms=timeout_ms).tokens(spikes([5])), [[5]])

    def test_the_last_request_is_closed_without_another_round(self):
        runner = specd_runner([params(), params()])
        runner.tokens(spikes([5, 6]))
        opened = runner.sampler._requests._rounds._opened
        last = opened["r1"].sequence
        runner.finish("r0")
        self.assertEqual(list(opened), ["r1"])
        runner.finish("r1")
        self.assertFalse(opened)
        with self.assertRaisesRegex(specd.Error, "NOT_FOUND"):
            last.close()
        # vLLM's own runner forgets requests there, also in a step without tokens.
        self.assertTrue(callable(GPUModelRunner._update_states))

    def test_any_request_id_has_a_sequence(self):
        names = ("x" * 128, "x" * 129, "y" * 129, "a\nb", "\x7f", "\u00e9" * 65, "\ud800", "")
        runner = specd_runner([], rows=8)
        for i, name in enumerate(names):
            runner.add(name, params())
        self.assertEqual(runner.tokens(spikes(range(8))), [[i] for i in range(8)])
        ids = [each.sequence.request_id for each in runner.sampler._requests._rounds._opened.values()]
        self.assertEqual((len(set(ids)), ids[0]), (8, names[0]))

    def penalised(self, prompt, output, **options):
        """A request whose next token tells what its output is: of 4 .. 9 the least that is not in it."""
        runner = specd_runner([])
        runner.add("r", params(presence_penalty=2.0, **options), prompt, output)
        return runner

    def next_token(self, runner):
        rows = np.full((1, 32), -9.0)
        rows[0, 4:10] = np.linspace(1, 0.5, 6)
        (token,), = runner.tokens(rows)
        return token

    def test_tokens_that_vllm_takes_back_are_taken_back(self):
        # As after a failed load of keys and values, and a preemption that drops what is in flight.
        for is_read in (True, False):
            runner = self.penalised([1], [])
            state = runner.requests["r"]
            self.assertEqual([self.next_token(runner) for _ in range(3)], [4, 5, 6])
            if not is_read:  # vLLM schedules ahead, and has placeholders
                state.output_token_ids[:] = [-1] * 3
                self.assertEqual(self.next_token(runner), 7)
                state.output_token_ids[:] = [-1] * 6  # as if all draft tokens were right
                self.assertEqual(self.next_token(runner), 8)
            del state.output_token_ids[1:]
            self.assertEqual([self.next_token(runner) for _ in range(2)], [5, 6])
            state.output_token_ids.append(9)  # which another engine has generated
            self.assertEqual([self.next_token(runner) for _ in range(2)], [7, 8])

    def test_a_streaming_session_has_the_parameters_and_the_prompt_of_its_last_chunk(self):
        runner = self.penalised([1], [])
        state = runner.requests["r"]
        self.assertEqual([self.next_token(runner) for _ in range(2)], [4, 5])
        # As GPUModelRunner._update_streaming_request: what was generated is in the prompt.
        state.prompt_token_ids, state.output_token_ids[:] = [1, 4, 5, 7], []
        self.assertEqual([self.next_token(runner) for _ in range(2)], [4, 5])
        state.sampling_params = params()
        self.assertEqual([self.next_token(runner) for _ in range(2)], [4, 4])
        state.sampling_params = params(repetition_penalty=2.0)
        state.output_token_ids.clear()
        state.prompt_token_ids = [4, 5]
        self.assertEqual(self.next_token(runner), 6)
        state.output_token_ids.clear()
        state.prompt_token_ids = [6]
        self.assertEqual(self.next_token(runner), 4)


if __name__ == "__main__":
    unittest.main()
