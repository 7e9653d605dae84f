"""vLLM's runners with specd in a daemon: the same tokens as embedded."""

import signal
import unittest

import numpy as np
import specd
import torch

from laws import law
from specd.integrations.vllm import use_specd
from support import ProcessTest, TOKENIZER
from tokenizers import Tokenizer
from v1_runner import Runner as V1Runner
from v2_runner import Runner as V2Runner, kept
from vllm import SamplingParams

VOCAB = 2048  # the ids of the daemon's tokenizer


class AttachedTest(ProcessTest):
    def texts(self, kind, engine):
        """Eight rounds of two requests with drafts that are often right, and their finish."""
        runner, rng = kind(vocab=VOCAB, rows=2, drafts=2), np.random.default_rng(3)
        use_specd(runner, engine)
        # A runner that is not collected yet keeps its sequences.
        name = f"{kind.__module__} {engine}"
        asked = {f"{name} sampled": SamplingParams(temperature=0.8, top_p=0.9, seed=4, max_tokens=400),
                 f"{name} greedy": SamplingParams(temperature=0, presence_penalty=0.5, logprobs=1, max_tokens=400)}
        for name, params in asked.items():
            runner.add(name, params, prompt=[5, 6])
        texts = {name: [] for name in asked}
        for _ in range(8):
            rows = rng.normal(size=(6, VOCAB)) * 4
            drafts = [rows[first:first + 2].argmax(1).tolist() for first in (0, 3)]
            if kind is V1Runner:
                q = torch.from_numpy(law(rows[[0, 1, 3, 4]]).astype(np.float32))
                made = runner.tokens(rows, drafts, q)
            else:
                cached = torch.zeros(2, 2, VOCAB)
                made = kept(runner.sample(rows, dict(zip(asked, drafts)), cached))
            for name, tokens in zip(asked, made):
                texts[name] += tokens
        return list(texts.values())

    def test_the_tokens_are_those_of_an_embedded_engine(self):
        self.daemon()
        for kind in (V1Runner, V2Runner):
            attached = self.texts(kind, f"unix:{self.socket}")
            self.assertEqual(attached, self.texts(kind, "embedded:cpu"), kind)
            self.assertTrue(all(len(tokens) >= 8 for tokens in attached), attached)

    def test_a_round_that_takes_too_long_is_an_error_and_gives_no_tokens(self):
        # presence_penalty tells which tokens the sequence has: of 5, 6, 7 the least that is none of them.
        daemon, rows = self.daemon(), np.full((1, VOCAB), -9.0)
        rows[0, 5:8] = [1, 0.9, 0.8]
        for kind in (V1Runner, V2Runner):
            runner, name = kind(vocab=VOCAB, rows=1, drafts=0), f"late {kind.__module__}"
            use_specd(runner, f"unix:{self.socket}", 1000)
            runner.add(name, SamplingParams(temperature=0, presence_penalty=2.0))

            def next_token():
                step = runner.sample(rows, *([] if kind is V1Runner else [{name: []}]))
                token = int(step.sampled_token_ids[0, 0])
                if kind is V1Runner:
                    runner.requests[name].output_token_ids.append(token)
                return token

            self.assertEqual(next_token(), 5)
            daemon.stop()
            with self.assertRaisesRegex(specd.RoundTimeout, "not answered within 1000 ms"):
                next_token()
            daemon.signal(signal.SIGCONT)
            self.assertEqual([next_token(), next_token()], [6, 7])

    def test_the_eos_of_the_daemon_ends_no_request(self):
        self.daemon()
        eos = Tokenizer.from_file(str(TOKENIZER)).token_to_id("<|endoftext|>")
        for kind in (V1Runner, V2Runner):
            runner, rows = kind(vocab=VOCAB, rows=1, drafts=2), np.zeros((3, VOCAB))
            use_specd(runner, f"unix:{self.socket}")
            name = kind.__module__
            runner.add(name, SamplingParams(temperature=0))
            rows[[0, 1, 2], [5, eos, 6]] = 1
            for _ in range(3):
                step = runner.sample(rows, [[5, eos]] if kind is V1Runner else {name: [5, eos]})
                tokens = step.sampled_token_ids[0].tolist()
                self.assertEqual(tokens, [5, eos, 6])
                if kind is V1Runner:
                    runner.requests[name].output_token_ids.extend(tokens)


if __name__ == "__main__":
    unittest.main()
