"""specd.integrations.transformers with drafts that are trees.

Expected texts are those without drafts; expected laws and rows are those of whole forwards.
"""

import collections
import copy
import itertools
import math
import pathlib
import types
import unittest

import torch
import transformers

import specd
from specd.integrations._cached_model import CachedModel
from specd.integrations.transformers import generate, stream
from support import ProcessTest

PROMPT, NEW = [3, 1, 2, 3, 1], 24


def llama(vocab_size, seed, **fields):
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{
        "vocab_size": vocab_size, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.6, **fields})).eval()


def like(model, noise):
    """An assistant whose rows are near those of the model."""
    torch.manual_seed(5)
    made = copy.deepcopy(model)
    with torch.no_grad():
        for each in made.parameters():
            each += noise * torch.randn_like(each)
    return made


def params(**fields):
    """EOS ends nothing, so that lengths are known."""
    return specd.SamplingParams(**{"temperature": 0, "max_tokens": NEW, "ignore_eos": True, **fields})


class RowsTest(unittest.TestCase):
    TREE = [-1, -1, 0, 0, 1, 3]  # paths 0-2, 0-3-5 and 1-4
    IDS = [4, 5, 6, 7, 8, 9]

    def whole(self, model, ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0, -1]

    def test_the_rows_of_a_tree_are_those_of_its_paths(self):
        model = llama(32, 1)
        for fed in (1, 3):  # the last text tokens come with the tree
            cached, text = CachedModel(model, "model", 2), list(PROMPT)
            cached.forward(text[:-fed], 1)
            rows = cached.forward_tree(text[-fed:], self.IDS, self.TREE)
            paths = [[], [4], [5], [4, 6], [4, 7], [5, 8], [4, 7, 9]]
            self.assertEqual(len(rows), len(paths))
            for row, path in zip(rows, paths):
                torch.testing.assert_close(row, self.whole(model, text + path), rtol=1e-4, atol=1e-4)

    def test_levels_may_be_fed_one_after_another(self):
        model, cached = llama(32, 1), CachedModel(llama(32, 1), "model", 1)
        cached.forward(PROMPT, 1)
        for first, end, paths in ((0, 2, ([4], [5])), (2, 5, ([4, 6], [4, 7], [5, 8])), (5, 6, ([4, 7, 9],))):
            rows = cached.forward_tree((), self.IDS[first:end], self.TREE[:end])
            for row, path in zip(rows, paths, strict=True):
                torch.testing.assert_close(row, self.whole(model, PROMPT + path), rtol=1e-4, atol=1e-4)

    def test_the_cache_keeps_the_accepted_path_alone(self):
        model = llama(32, 1)
        for path in ([], [0], [1], [0, 2], [1, 4], [0, 3, 5], [0, 3, 5, 6]):  # node 6 is never fed
            cached = CachedModel(model, "model", 2)
            cached.forward(PROMPT[:-1], 1)
            cached.forward_tree(PROMPT[-1:], self.IDS, self.TREE)
            cached.keep(len(PROMPT), path)
            text = PROMPT + [self.IDS[node] for node in path if node < 6]
            self.assertEqual((cached.length, cached.num_nodes, cached.cache.get_seq_length()),
                             (len(text), 0, len(text)))
            torch.testing.assert_close(cached.forward([11], 1)[0], self.whole(model, [*text, 11]),
                                       rtol=1e-4, atol=1e-4)


class TreesTest(ProcessTest):
    def every_draft(self, model, engine="embedded:cpu", **fields):
        """The tokens of each kind of draft that may change no text, and how many draft tokens stood."""
        near, asked = like(model, 0.03), params(**fields)
        made = [generate(model, PROMPT, params=asked, engine=engine, **options) for options in (
            {"k": 0}, {"drafts": "ngram"}, {"drafts": "ngram", "tree": (3, 2, 1)},
            *({"drafts": drafts, "tree": tree, "assistant_model": near}
              for drafts in ("best", "sampled") for tree in ((2,), (3, 2), (2, 1, 2, 1))))]
        return [each.tokens for each in made], [each.num_accepted for each in made]

    def attached(self):
        """A model as wide as the daemon of the tests, and its address."""
        self.daemon()
        return llama(2048, 2), f"unix:{self.socket}"

    def test_greedy_text_does_not_depend_on_trees(self):
        for model, engine in ((llama(32, 1), "embedded:cpu"), self.attached()):
            expected = model.generate(torch.tensor([PROMPT]), max_new_tokens=NEW, do_sample=False,
                                      eos_token_id=None, attention_mask=torch.ones(1, len(PROMPT)).long())
            texts, accepted = self.every_draft(model, engine)
            self.assertEqual(texts, [expected[0, len(PROMPT):].tolist()] * len(texts), engine)
            self.assertTrue(all(1 < each < NEW for each in accepted[3:]), accepted)

    def test_text_of_exact_match_does_not_depend_on_trees(self):
        for model, engine in ((llama(32, 1), "embedded:cpu"), self.attached()):
            texts, accepted = self.every_draft(model, engine, temperature=0.9, seed=7, verify="exact_match")
            self.assertEqual(texts, [texts[0]] * len(texts), engine)
            self.assertTrue(any(accepted[3:]), accepted)

    def test_an_assistant_that_is_the_model_is_right_at_every_depth(self):
        model = llama(32, 1)
        for fields, tree in (({}, (2, 2, 1)), ({"temperature": 0.8}, (2, 2, 1)),
                             ({"temperature": 0.8, "verify": "traversal"}, (3, 2))):
            steps = list(stream(model, PROMPT, assistant_model=model, params=params(seed=1, **fields), tree=tree))
            # The last round has room for fewer levels.
            self.assertEqual({step.num_accepted for step in steps[1:-1]}, {len(tree)}, fields)

    def test_the_law_is_the_models(self):
        model, other = llama(4, 3), llama(4, 4)
        length, num = 3, 1500
        with torch.no_grad():
            def law(ids):
                return torch.softmax(model(torch.tensor([[3, *ids]])).logits[0, -1], 0).tolist()
            rows = {ids: law(ids) for n in range(length) for ids in itertools.product(range(4), repeat=n)}
        expected = {ids: math.prod(rows[ids[:i]][ids[i]] for i in range(length))
                    for ids in itertools.product(range(4), repeat=length)}
        with specd.Engine(vocab_size=4, max_batch=6, max_draft=6, eos_token_ids=[0]) as engine:
            for verify in ("tree", "traversal", "target_only"):
                counts, accepted = collections.Counter(), collections.Counter()
                for seed in range(num):
                    made = generate(model, [3], assistant_model=other, tree=(2, 2), engine=engine,
                                    params=params(temperature=1, seed=seed, max_tokens=4, verify=verify))
                    counts[tuple(made.tokens[:length])] += 1
                    accepted[made.num_accepted] += 1
                chi2 = sum((counts[ids] - num * p) ** 2 / (num * p) for ids, p in expected.items())
                # 63 degrees of freedom: 131 is passed once in a million.
                self.assertLess(chi2, 131, (verify, counts))
                for each in range(3):  # every verdict is met
                    self.assertGreater(accepted[each], 30, (verify, accepted))

    def test_drafts_from_the_text_are_trees(self):
        model = llama(32, 1)
        steps = list(stream(model, [1, 2, 3, 1, 4, 5, 1], drafts="ngram", tree=(2, 2), params=params(
            logit_bias={1: 100})))
        # The first round makes a 1. A 1 was followed by 2, by 4 and by 1; the two latest are drafted, and 5
        # after 4. Nothing follows the last 1.
        self.assertEqual(steps[1].num_drafted, 3)

    def test_what_is_no_tree_is_refused(self):
        model = llama(32, 1)
        window = llama(32, 1)
        window.config.sliding_window = 8
        blind = types.SimpleNamespace(
            config=types.SimpleNamespace(is_encoder_decoder=False, vocab_size=32), training=False,
            get_output_embeddings=lambda: None, forward=lambda input_ids, attention_mask: None)
        for given, options, words in (
                (model, {"tree": ()}, r"tree: \[\] has no children at some depth"),
                (model, {"tree": (2, 0)}, r"tree: \[2, 0\] has no children at some depth"),
                (model, {"tree": (5, 5, 5)}, "more than 64 nodes"),
                (model, {"tree": (2, 2), "verify": "block"}, "verify"),
                (window, {"tree": (2, 2)}, "tree: model looks back 8 tokens, and the text may have 29"),
                (blind, {"tree": (2, 2)}, "tree: the forward of model, SimpleNamespace, takes no position_ids")):
            verify = options.pop("verify", "auto")
            with self.assertRaisesRegex(specd.Error, words):
                list(stream(given, PROMPT, params=params(temperature=1, verify=verify), drafts="ngram",
                            **options))


if __name__ == "__main__":
    unittest.main()
