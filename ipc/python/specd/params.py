"""SamplingParams has the parameters of a sequence under vLLM's names, and refuses others by
name."""

from __future__ import annotations

import ctypes
import dataclasses
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as c
from . import _structs as s
from .arrays import floats, id_array, pointer
from .attributes import Known, known_dataclass, nearest
from ._library import check, refusal
from .options import to_options
from .param_table import NUMBERS, PYTHON_TYPES, Number, refused
from .structured import StructuredOutputs

if TYPE_CHECKING:
    from .row_types import Ids
    from .sampling_params import SamplingParams as SamplingParams


# The most that an engine reports for a token: max_scores_per_token of specd_options.
MAX_SCORES = 129


@dataclasses.dataclass
class _Lists(Known):
    """The parameters that are no numbers, and the seed, which has 64 bits."""

    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_regex: str | Sequence[str] | None = None
    stop_token_ids: Ids | None = None
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Ids | None = None
    disallowed_token_ids: Ids | None = None
    bad_words: Sequence[Ids] | None = None
    no_repeat_ngram_whitelist: Ids | None = None
    logprob_token_ids: Ids | None = None
    synthetic_rates: Sequence[float] | None = None
    thinking_preset: str | None = None
    thinking_end_ids: Ids | None = None
    processors: Mapping[str, Mapping[str, float]] | None = None
    structured_outputs: StructuredOutputs | None = None

    def check(self: Any, *, vocab_size: int | None = None, **options: Any) -> None:
        """Refuses what an embedded engine would refuse when it opens a sequence, with the same Error. No
        engine is opened. Call it where requests come in.

        vocab_size: that of the model. Without it, any id may be in the vocabulary: an id such as that of a
          bad word is refused only when the sequence is opened
        options: those of Engine that parameters depend on. ignore_eos needs eos_token_ids, and
          structured_outputs need tokenizer, which each call reads. Stop strings need a daemon, so they
          are refused: leave them out.
        """
        numbers = self.numbers
        if vocab_size is None:
            vocab_size = int(numbers["thinking_start_id"].maximum) + 1
        widest = {"max_sequences": int(numbers["n"].maximum), "max_scores_per_token": MAX_SCORES}
        model, kept_options = to_options({"vocab_size": vocab_size, **widest, **options})
        struct, kept = to_struct(self)
        check(c.load().specd_params_check(ctypes.byref(struct), ctypes.byref(model)))
        del kept, kept_options


def make_sampling_params(numbers: Iterable[Number]) -> Any:
    """The class SamplingParams of a library with these Numbers."""
    # Those of a constraint are keywords of StructuredOutputs.
    numbers = [number for number in numbers if not number.name.startswith("grammar_")]
    fields = [(number.python_name, PYTHON_TYPES[number.type] | None, number.python_default)
              for number in numbers]
    made: Any = dataclasses.make_dataclass("SamplingParams", fields, bases=(_Lists,))
    generated = made.__init__
    names = tuple(field.name for field in dataclasses.fields(made))

    def init(self: Any, **given: Any) -> None:
        for name in given:
            if name not in names:
                raise refusal(_unknown(name, names))
        generated(self, **given)

    def why_unknown(self: Any, name: str) -> str:
        return _unknown(name, names)

    made.__init__, made.why_unknown = init, why_unknown
    made.__module__ = __name__
    made.numbers = {number.python_name: number for number in numbers}
    return known_dataclass(made)


if not TYPE_CHECKING:  # which takes the fields from sampling_params.pyi
    SamplingParams = make_sampling_params(NUMBERS)
SamplingParams.__doc__ = """How the tokens of a sequence are chosen. Keyword arguments only; an
unknown name is an Error that says what to do, here and where an attribute is set later. Fields have vLLM's names, meanings and defaults;
docs/PARAMETERS.md gives the ranges. The library checks them when a sequence is opened, and `check()` does before.

    >>> specd.SamplingParams(temperature=0.7, top_p=0.95, seed=1, stop_token_ids=[2])
    >>> specd.SamplingParams(temperature=0, logprobs=5, bad_words=[[17], [4, 9]])

What vLLM has not: `verify` (auto, greedy, exact_match, token, block, and others), `rng` (philox, sglang), `filter_order` (sequential,
joint), `disallowed_token_ids`, `no_repeat_ngram_*`, `thinking_*`, `processors` ({name: {key:
number}}), `logprobs_mode` of each sequence, `structured_outputs` (a specd.StructuredOutputs), and
`draft_*`: the steps that the drafter applied to its own rows before it drew from them. `bad_words` are lists of ids, because an engine has no tokenizer here.
A number that is None has its default, and max_tokens=None is no bound. logprobs=-1, which is all
ids in vLLM, is refused: None is none.
"""


# {value: its number in C}
VERIFY, FILTER_ORDER, LOGPROBS_MODE = (
    {choice: i for i, choice in enumerate(SamplingParams.numbers[name].choices)}
    for name in ("verify", "filter_order", "logprobs_mode"))


def _unknown(name: str, names: Sequence[str]) -> str:
    text = refused(name)
    if text is not None:
        return text
    return f"{name}: no such parameter{nearest(name, names)} The fields of specd.SamplingParams " \
        "are " + ", ".join(names)


def to_struct(params: SamplingParams, prompt_ids: Ids = (),
              output_ids: Ids = ()) -> tuple[s.Params, list[object]]:
    """Returns (struct, list of the objects that must outlive it)."""
    fill = _Filler()
    if params.logprobs == -1:
        most = int(params.numbers["logprobs"].maximum)
        raise refusal("logprobs: -1 would be the scores of all ids, as in vLLM; give 0 .. "
                      f"{most}, or None for none")
    fill.numbers(_changed_numbers(params), _named_defaults(params))
    if params.seed is not None:
        fill.seed(params.seed)
    for name in ("allowed_token_ids", "disallowed_token_ids", "no_repeat_ngram_whitelist",
                 "thinking_end_ids", "stop_token_ids", "logprob_token_ids"):
        fill.ids(name, getattr(params, name))
    if params.allowed_token_ids is not None and not fill.struct.allowed_token_ids.count:
        raise refusal("allowed_token_ids: an empty list allows nothing; None allows every id")
    if params.logit_bias:
        bias = params.logit_bias
        fill.ids("logit_bias_ids", [_as_int(k, "logit_bias") for k in bias], "logit_bias")
        fill.floats("logit_bias", list(bias.values()))
    if params.synthetic_rates is not None:
        fill.floats("synthetic_rates", list(params.synthetic_rates))
    if params.bad_words:
        _fill_bad_words(fill, params.bad_words)
    _fill_texts(fill, params)
    _fill_constraint(fill, params)
    fill.ids("prompt_ids", prompt_ids)
    fill.ids("output_ids", output_ids)
    return fill.struct, fill.kept


# The library's own; a subclass may have others.
_DEFAULTS = {name: getattr(SamplingParams, name) for name in SamplingParams.numbers}


def _changed_numbers(params: SamplingParams) -> dict[str, float]:
    """{name in C: number} of the parameters that differ from their defaults."""
    changed: dict[str, float] = {}
    for name, number in params.numbers.items():
        value = getattr(params, name)
        if value is None and name == "max_tokens":
            value = int(number.maximum)
        # The default itself needs no check.
        if value is None or name in _DEFAULTS and value is _DEFAULTS[name]:
            continue
        as_double = _value(number, value)
        if as_double != number.default:
            changed[number.name] = as_double
    return changed


def _fill_bad_words(fill: _Filler, words: Sequence[Ids]) -> None:
    for word in words:
        if isinstance(word, str):
            raise refusal(f"bad_words: {word!r} is text, and an engine has no tokenizer here; "
                          "give each word as a list of ids, with and without a leading space")
    arrays = [id_array(word, "bad_words") for word in words]
    fill.ids("bad_word_ids", np.concatenate(arrays), "bad_words")
    fill.ids("bad_word_lengths", [len(array) for array in arrays], "bad_words")


def _fill_texts(fill: _Filler, params: SamplingParams) -> None:
    stop = [params.stop] if isinstance(params.stop, str) else params.stop or []
    if stop:
        fill.strings("stop_strings", stop, "stop")
    patterns = params.stop_regex
    patterns = [patterns] if isinstance(patterns, str) else patterns or []
    if patterns:
        fill.strings("stop_regex", patterns, "stop_regex")
    if params.thinking_preset is not None:
        preset = c.text_bytes(params.thinking_preset, "thinking_preset")
        fill.kept.append(preset)
        fill.struct.thinking_preset = preset
    if params.processors:
        _fill_processors(fill, params.processors)


def _fill_processors(fill: _Filler, processors: Mapping[str, Mapping[str, float]]) -> None:
    table = (s.Processor * len(processors))()
    for entry, (name, values) in zip(table, processors.items()):
        entry.name = c.text_bytes(name, "processors")
        entry.values = c.text_bytes(
            ",".join(f"{key}={value!r}" for key, value in values.items()), "processors")
    fill.kept.append(table)
    fill.struct.processors = ctypes.cast(table, ctypes.POINTER(s.Processor))
    fill.struct.num_processors = len(processors)


def _fill_constraint(fill: _Filler, params: SamplingParams) -> None:
    constraint = params.structured_outputs
    if constraint is None:
        return
    if not isinstance(constraint, StructuredOutputs):
        raise refusal(f"structured_outputs: {constraint!r} is no specd.StructuredOutputs; write "
                      "specd.StructuredOutputs(json=..., ...)")
    fill.kept.append(constraint.fill(fill.struct))


def _named_defaults(params: SamplingParams) -> Sequence[str]:
    constraint = params.structured_outputs
    return constraint.named_defaults if isinstance(constraint, StructuredOutputs) else ()


def _value(number: Number, value: Any) -> float:
    """The value as the library's number. A value that no double holds is refused; the library
    checks the rest."""
    name = number.python_name
    if number.type == "choice":
        if value not in number.choices:
            text = refused(name, value) if isinstance(value, str) else None
            raise refusal(f"{name}: {value!r} is not one of {', '.join(number.choices)}" +
                          (f"; {text}" if text else ""))
        return number.choices.index(value)
    if number.type == "flag":
        if value not in (True, False):
            raise refusal(f"{name}: {value!r} is neither True nor False")
        return int(value)
    if number.type == "integer":
        value = _as_int(value, name)
    as_double: float | None
    try:
        as_double = float(value)
    except (TypeError, ValueError):
        raise refusal(f"{name}: {value!r} is not a number") from None
    except OverflowError:
        as_double = None
    if as_double is None or number.type == "integer" and as_double != value:
        raise refusal(f"{name}: {value} is further from 0 than any number of its range; "
                      "docs/PARAMETERS.md has the range")
    return as_double


class _Filler:
    """Fills the struct and refuses values that a C field would truncate; the library checks the
    rest."""

    def __init__(self) -> None:
        self.struct = c.initialised(s.Params, "specd_params_init")
        self.kept: list[object] = []

    def numbers(self, named: Mapping[str, float], named_defaults: Iterable[str]) -> None:
        """Sets these numbers, and those of the other names to their defaults, which are 0."""
        named = {**named, **{name: 0 for name in named_defaults}}
        table = (s.Number * len(named))(*(s.Number(name.encode(), value)
                                          for name, value in named.items()))
        self.kept.append(table)
        self.struct.numbers.items, self.struct.numbers.count = table, len(table)

    def seed(self, value: Any) -> None:
        value = _as_int(value, "seed")
        self.struct.seed, self.struct.has_seed = value, 1
        if self.struct.seed != value:
            raise refusal(f"seed: {value} is outside 0 .. 2^64 - 1")

    def ids(self, field: str, ids: Any, name: str | None = None) -> None:
        if ids is not None:
            self._list(field, id_array(ids, name or field), ctypes.c_int32)

    def floats(self, field: str, values: Any) -> None:
        self._list(field, floats(values, np.float32, field), ctypes.c_float)

    def strings(self, field: str, texts: Sequence[str], name: str) -> None:
        table = (ctypes.c_char_p * len(texts))(*(c.text_bytes(text, name) for text in texts))
        self.kept.append(table)
        target = getattr(self.struct, field)
        target.items = ctypes.cast(table, ctypes.POINTER(ctypes.c_char_p))
        target.count = len(texts)

    def _list(self, field: str, array: Any, ctype: Any) -> None:
        self.kept.append(array)
        target = getattr(self.struct, field)
        target.items, target.count = pointer(array, ctype), len(array)


def _as_int(value: Any, name: str) -> int:
    try:
        return operator.index(int(value) if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise refusal(f"{name}: {value!r} is not an integer") from None
