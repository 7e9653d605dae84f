"""specd as the samplers of vLLM with a drafter whose vocabulary is smaller than the model's (EAGLE-3).

vLLM's rows of such a drafter have a column for each id of the model: its EAGLE-3 head makes them here, of
narrow ones. Expected tokens are those of an engine that reads all of these columns.
"""

import types
import unittest

import numpy as np
import torch

import v1_runner
import v2_runner
from laws import law
from specd.integrations.vllm import use_specd
from vllm import SamplingParams
from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM

IDS = np.array([3, 7, 8, 30])  # of the drafter's columns
SHAPE_OF_OWN = (1, len(IDS))


def drafter():
    """Ids less their columns, as vLLM keeps d2t."""
    offsets = torch.from_numpy(IDS - np.arange(len(IDS)))
    return types.SimpleNamespace(model=types.SimpleNamespace(draft_id_to_target_id=offsets))


def wide(narrow):
    """The logits that vLLM's own head makes of those of its columns."""
    head = types.SimpleNamespace(
        lm_head=None, logits_processor=lambda _, logits: logits, **vars(drafter().model),
        config=types.SimpleNamespace(draft_vocab_size=len(IDS), vocab_size=32))
    flat = torch.from_numpy(narrow.astype(np.float32).reshape(-1, len(IDS)))
    return Eagle3LlamaForCausalLM.compute_logits(head, flat).reshape(*narrow.shape[:-1], 32)


def params(**fields):
    """max_tokens is never reached."""
    return SamplingParams(max_tokens=400, **fields)


class DraftersTest(unittest.TestCase):
    def test_v1_rows_of_probabilities(self):
        rng = np.random.default_rng(11)
        rows, narrow = rng.normal(size=(8, 32)), law(rng.normal(size=(6, len(IDS))))
        full = torch.softmax(wide(np.log(narrow)), dim=-1)
        runners = []
        for eagle in (None, drafter()):
            runner = v1_runner.Runner()
            runner.drafter = eagle
            use_specd(runner, "embedded:cpu", -1)
            for i in range(2):
                runner.add(f"r{i}", params(seed=i))
            runners.append(runner)
        accepted = 0
        for _ in range(60):
            drafts = [[int(rng.choice(IDS, p=row)) for row in narrow[i:i + 3]] for i in (0, 3)]
            of_all, of_own = (runner.tokens(rows, drafts, full) for runner in runners)
            self.assertEqual(of_own, of_all)
            accepted += sum(map(len, of_own)) - 2
        self.assertGreater(accepted, 20)
        engine = runners[1].sampler._requests._rounds.engine
        self.assertEqual(engine.rows(1, "draft").shape, SHAPE_OF_OWN)

    def test_v2_rows_of_logits(self):
        rng = np.random.default_rng(11)
        rows, narrow = rng.normal(size=(8, 32)), rng.normal(size=(8, 3, len(IDS))).astype(np.float32)
        full = wide(narrow)
        found = []
        for eagle in (None, drafter()):
            runner, choice = v2_runner.Runner(), np.random.default_rng(12)
            runner.speculator = eagle
            use_specd(runner)
            for i in range(2):
                runner.add(f"r{i}", params(seed=i))
            states = [runner.req_states.req_id_to_index[name] for name in ("r0", "r1")]
            found.append([v2_runner.kept(runner.sample(
                rows, {f"r{i}": [int(choice.choice(IDS, p=law(row))) for row in narrow[state]]
                       for i, state in enumerate(states)}, full))
                for _ in range(60)])
        self.assertEqual(*found)
        self.assertGreater(sum(len(tokens) - 1 for made in found[1] for tokens in made), 20)
        self.assertEqual(runner.sampler._rounds.engine.rows(1, "draft").shape, SHAPE_OF_OWN)


if __name__ == "__main__":
    unittest.main()
