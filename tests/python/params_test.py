"""SamplingParams: its fields are the library's table of numbers and the lists, under vLLM's names."""

import ctypes
import dataclasses
import unittest

import specd
from specd import param_table, params

V = 8
# The names in errors of the fields that C has under other names.
NAMES_IN_ERRORS = {"bad_words": "bad_word_(ids|lengths)", "logit_bias": "logit_bias(_ids)?",
                   "thinking_token_budget": "thinking_budget"}
# A row that the library's table does not have.
NEW = param_table.Number(name="test_share", vllm_name="vllm_share", type="number", default=0.5,
                    maximum=1.0, choices=())


def sent(struct):
    """The numbers of a specd_params, by name."""
    numbers = struct.numbers
    return {numbers.items[i].name.decode(): numbers.items[i].value for i in range(numbers.count)}


class ParamsTest(unittest.TestCase):
    def test_fields_have_the_names_and_defaults_of_vllm(self):
        # vLLM's SamplingParams; what it leaves to its engine's configuration is not in it.
        defaults = {"n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0,
                    "repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0, "top_k": 0,
                    "min_p": 0.0, "seed": None, "stop": None, "stop_token_ids": None,
                    "bad_words": None, "ignore_eos": False, "max_tokens": 16, "min_tokens": 0,
                    "logprobs": None, "skip_special_tokens": True,
                    "include_stop_str_in_output": False, "logit_bias": None,
                    "allowed_token_ids": None, "thinking_token_budget": None}
        made = specd.SamplingParams()
        for name, default in defaults.items():
            with self.subTest(name):
                self.assertEqual(getattr(made, name), default)
                self.assertIs(type(getattr(made, name)), type(default))
        ours = {field.name for field in dataclasses.fields(made)} - set(defaults)
        self.assertIn("verify", ours)
        self.assertIn("draft_filter_order", ours)

    def test_what_is_set_is_sent_and_nothing_else(self):
        given = {"top_p": 0.25, "verify": "block", "ignore_eos": True, "max_tokens": 3,
                 "thinking_token_budget": 0, "include_stop_str_in_output": True, "logprobs": 0}
        struct, _ = params.to_struct(specd.SamplingParams(temperature=1, seed=2**64 - 1, **given))
        self.assertEqual(sent(struct), {"top_p": 0.25, "verify": 4, "ignore_eos": 1,
                                        "max_tokens": 3, "thinking_budget": 0, "include_stop": 1,
                                        "logprobs": 0})
        self.assertEqual((struct.seed, struct.has_seed), (2**64 - 1, 1))
        struct, _ = params.to_struct(specd.SamplingParams(max_tokens=None, top_p=None, n=None))
        self.assertEqual(sent(struct), {"max_tokens": 2**31 - 1})

    def test_values_of_another_type_are_refused_by_name(self):
        for name, value in (("temperature", "hot"), ("temperature", [1]), ("top_k", 1.5),
                            ("top_k", 2**60 + 1), ("top_k", 10**400), ("top_p", 10**400),
                             ("ignore_eos", 2),
                            ("skip_special_tokens", "no"), ("verify", 3), ("filter_order", "both"),
                            ("seed", 2**64), ("seed", -1), ("seed", 0.5)):
            with self.subTest(name), self.assertRaisesRegex(specd.Error, f"^{name}: "):
                params.to_struct(specd.SamplingParams(**{name: value}))

    def test_logprobs_of_minus_one_and_misspelt_attributes_are_refused(self):
        # Bug: logprobs=-1, all ids in vLLM, gave none; params.temprature = 3 changed nothing.
        with self.assertRaisesRegex(specd.Error, "^logprobs: -1 would be .* 0 .. 64, or None"):
            params.to_struct(specd.SamplingParams(logprobs=-1))
        made = specd.SamplingParams(temperature=0.5)
        made.temperature = 0.25
        with self.assertRaisesRegex(specd.Error, "^temprature: .*did you mean temperature?"):
            made.temprature = 3
        with self.assertRaisesRegex(specd.Error, "^best_of is refused: "):  # the library says what to do
            made.best_of = 3
        self.assertEqual(sent(params.to_struct(made)[0]), {"temperature": 0.25})
        for thing, name, near in ((specd.Draft(None), "sampeld", "sampled"),
                                  (specd.DraftRequest(None), "num_childs", "num_children")):
            with self.assertRaisesRegex(specd.Error, f"^{name}: .*did you mean {near}?"):
                setattr(thing, name, 1)
        with self.assertRaisesRegex(specd.Error, "^wieghts: .*"):
            specd.Draft(None).wieghts = [1]

    def test_a_new_row_of_the_table_is_a_field(self):
        made = params.make_sampling_params([*specd.SamplingParams.numbers.values(), NEW])
        self.assertEqual(made().vllm_share, 0.5)
        struct, kept = params.to_struct(made(vllm_share=0.25, top_p=0.5))
        self.assertEqual(sent(struct), {"test_share": 0.25, "top_p": 0.5})
        self.assertEqual(sent(params.to_struct(made())[0]), {})
        with self.assertRaisesRegex(specd.Error, "did you mean vllm_share?"):
            made(vllm_shore=1)
        # The library has no such row, and reads the name: it says which it may have been.
        with specd.Engine(vocab_size=V) as engine:
            infos = specd._library.sized(specd._structs.SequenceInfo, 1)
            code = specd.load().specd_open_sequence(engine.pointer, b"r", ctypes.byref(struct),
                                                    infos)
            self.assertLess(code, 0)
            self.assertIn("test_share is no parameter", specd.last_error())
            del kept

    def test_none_and_many(self):
        with specd.Engine(vocab_size=V, max_batch=4) as engine:
            self.assertEqual(len(engine.open_all(specd.SamplingParams(n=3))), 3)
            engine.open(specd.SamplingParams(n=None, top_k=2**40))  # vocab_size and more: off
            for n in (0, -1, 65, 2**40):
                with self.assertRaisesRegex(specd.Error, f"^n = {n} is outside 1 .. 64"):
                    engine.open_all(specd.SamplingParams(n=n))

    def test_check_refuses_what_an_engine_refuses_with_the_same_text(self):
        with specd.Engine(vocab_size=V, max_scores_per_token=params.MAX_SCORES) as engine:
            for fields in ({"temperature": 100.5}, {"temperature": float("nan")}, {"top_p": 0},
                           {"repetition_penalty": 100.5}, {"logprobs": 65}, {"logprobs": -1}, {"n": 65},
                           {"max_tokens": 0}, {"min_tokens": 17}, {"seed": -1}, {"top_k": 1.5},
                           {"bad_words": [[1]] * 129}, {"bad_words": [[1] * 1025]},
                           {"bad_words": [[]]}, {"stop_token_ids": [1] * 65},
                           {"logit_bias": dict.fromkeys(range(1025), 1)}, {"logit_bias": {1: 101}},
                           {"logprob_token_ids": [1] * 65}, {"processors": {"none": {}}},
                           {"allowed_token_ids": []}, {"allowed_token_ids": [-1]},
                           {"draft_temperature": 0}, {"thinking_token_budget": 2}):
                given = specd.SamplingParams(**fields)
                name = next(iter(fields))
                with self.subTest(fields), self.assertRaisesRegex(
                        specd.Error, rf"^{NAMES_IN_ERRORS.get(name, name)}\b") as checked:
                    given.check(vocab_size=V)
                with self.subTest(fields), self.assertRaises(specd.Error) as opened:
                    engine.open_all(given)
                self.assertEqual(str(checked.exception), str(opened.exception))

    def test_a_default_of_a_subclass_is_no_default_of_the_library(self):
        # Bug: the subclass's own default was taken for the library's and never sent.
        cold = dataclasses.dataclass(kw_only=True)(type("Cold", (specd.SamplingParams,), {
            "temperature": 0.0, "__annotations__": {"temperature": float}}))
        self.assertEqual(sent(params.to_struct(cold())[0]), {"temperature": 0.0})
        self.assertEqual(sent(params.to_struct(cold(temperature=1.0))[0]), {})

    def test_check_takes_what_some_engine_takes(self):
        for fields in ({}, {"n": 64}, {"temperature": 100, "repetition_penalty": 100}, {"logprobs": 64, "logprob_token_ids": [7] * 64},
                       {"logit_bias": dict.fromkeys(range(2**20 - 1024, 2**20), -100)},
                       {"bad_words": [[1] * 8] * 128}, {"verify": "block", "draft_top_k": 3}):
            specd.SamplingParams(**fields).check()
        specd.SamplingParams(ignore_eos=True).check(eos_token_ids=[2])
        with self.assertRaisesRegex(specd.Error, r"7 is outside 0 \.\. 6 \(vocab_size - 1\)"):
            specd.SamplingParams(allowed_token_ids=[7]).check(vocab_size=7)
        # Without a vocabulary, any id may be in it.
        specd.SamplingParams(bad_words=[[200000]]).check()
        with self.assertRaisesRegex(specd.Error, r"200000 is outside 0 \.\. 127999 \(vocab_size - 1\)"):
            specd.SamplingParams(bad_words=[[200000]]).check(vocab_size=128000)


if __name__ == "__main__":
    unittest.main()
