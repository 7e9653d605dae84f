"""The grammar engine alone: a tokenizer and a constraint in, rows of allowed ids out
(<specd/grammar.h>).

>>> tokenizer = specd.Tokenizer("tokenizer.json", vocab_size=128256, eos_token_ids=[128001])
>>> grammar = specd.Grammar(tokenizer, json={"type": "object"})
>>> matcher = grammar.matcher()
>>> logits = specd.apply_mask(logits, matcher.mask())  # -inf where an id may not come
>>> matcher.accept(int(logits.argmax()))
True

A mask row has one bit for each id, in ceil(vocab_size / 32) words of int32: bit i % 32 of word
i // 32 is 1 where id i may come next. Tokenizers and grammars may be used by any number of threads
at once, a matcher by one at a time. Objects keep what they need, so they may be closed in any
order.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from types import TracebackType
from typing import Any, Iterable, Sequence, TypeVar

import numpy as np

from . import _library as c
from . import _structs as s
from ._library import check, refusal, text_bytes
from .arrays import id_array, integer, pointer
from .dlpack import Array
from .structured import StructuredOutputs


_Self = TypeVar("_Self", bound="_Object")


class _Object:
    """A handle of the library, freed by close() or with the Python object."""

    def _adopt(self, handle: ctypes.c_void_p, free: str) -> None:
        self._handle = handle
        self._freer = weakref.finalize(self, getattr(c.load(), free), handle)

    @property
    def handle(self) -> ctypes.c_void_p:
        """The library's pointer; an Error if the object is closed."""
        if not self._freer.alive:
            raise refusal(f"the {type(self).__name__.lower()} is closed; make a new one")
        return self._handle

    def close(self) -> None:
        """Frees the object now. Objects that were made from it live on."""
        self._freer()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class Tokenizer(_Object):
    """The texts of a model's ids, and the width of its logits.

    Give a path to a tokenizer file of a kind that docs/DAEMON.md, "Text", lists, the
    text of a tokenizer.json or tekken.json as json=, or each id's bytes as tokens= (None for an id
    without a text), with special_token_ids= for control tokens. vocab_size is the number of columns
    of a row of logits; it may be more than the tokenizer has ids, and added tokens past it are never
    drawn. eos_token_ids end every text.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, vocab_size: int,
                 eos_token_ids: Iterable[int] = (), json: str | None = None,
                 tokens: Sequence[bytes | None] | None = None,
                 special_token_ids: Iterable[int] = ()):
        struct = c.initialised(s.TokenizerOptions, "specd_tokenizer_options_init")
        struct.vocab_size = integer(vocab_size, "vocab_size")
        eos = id_array(list(eos_token_ids), "eos_token_ids")
        struct.eos_token_ids = s.Ids(pointer(eos, ctypes.c_int32), len(eos))
        if path is not None:
            struct.path = text_bytes(os.fspath(path), "path")
        if json is not None:
            struct.json = text_bytes(json, "json")
        if tokens is not None:
            struct.tokens = _tokens(tokens, list(special_token_ids))
        elif list(special_token_ids):
            raise refusal("special_token_ids: a tokenizer.json names its own; leave them out")
        handle = ctypes.c_void_p()
        check(c.load().specd_tokenizer_new(ctypes.byref(struct), ctypes.byref(handle)))
        self._adopt(handle, "specd_tokenizer_free")
        self.vocab_size: int = struct.vocab_size
        self.eos_token_ids: list[int] = eos.tolist()

    @property
    def num_mask_words(self) -> int:
        return (self.vocab_size + 31) // 32


class Grammar(_Object):
    """A constraint, compiled for a tokenizer: exactly one of json, regex, choice, grammar,
    json_object and structural_tag, with the options of specd.StructuredOutputs.

    >>> specd.Grammar(tokenizer, regex="[0-9]{3}-[0-9]{4}")

    A specd.StructuredOutputs may be given in their place. `warnings` says what lenient=True dropped
    and formats that the standard does not name.
    """

    def __init__(self, tokenizer: Tokenizer, constraint: StructuredOutputs | None = None,
                 **options: Any):
        if not isinstance(tokenizer, Tokenizer):
            raise refusal(f"tokenizer: {tokenizer!r} is no specd.Tokenizer")
        if constraint is None:
            constraint = StructuredOutputs(**options)
        elif options or not isinstance(constraint, StructuredOutputs):
            raise refusal(f"constraint: give a specd.StructuredOutputs alone, not {constraint!r} and "
                          f"{', '.join(options) or 'nothing'}")
        struct = c.initialised(s.GrammarOptions, "specd_grammar_options_init")
        for name, number in constraint.numbers().items():
            setattr(struct, name, number)
        struct.lenient = int(constraint.lenient)
        text = constraint.text_bytes()
        struct.text, struct.text_bytes = text, len(text)
        handle = ctypes.c_void_p()
        check(c.load().specd_grammar_compile(tokenizer.handle, ctypes.byref(struct),
                                             ctypes.byref(handle)))
        self._adopt(handle, "specd_grammar_free")
        self.tokenizer, self.constraint = tokenizer, constraint

    @classmethod
    def compile(cls, tokenizer: Tokenizer, **options: Any) -> Grammar:
        """The same as specd.Grammar(tokenizer, ...)."""
        return cls(tokenizer, **options)

    @property
    def warnings(self) -> list[str]:
        warnings = self._info().warnings
        return [warnings.items[i].decode() for i in range(warnings.count)]

    @property
    def size_bytes(self) -> int:
        """Of the compiled grammar now, without masks; it grows as it is used."""
        return int(self._info().size_bytes)

    def matcher(self, stop_token_ids: Iterable[int] = ()) -> Matcher:
        """A matcher at the beginning of a text. These ids and the tokenizer's EOS ids end it."""
        return Matcher(self, stop_token_ids)

    def _info(self) -> Any:
        info = c.sized(s.GrammarInfo, 1)
        check(c.load().specd_get_grammar_info(self.handle, info))
        return info[0]


class Matcher(_Object):
    """Follows one text through a grammar; Grammar.matcher() makes one. One thread at a time."""

    def __init__(self, grammar: Grammar, stop_token_ids: Iterable[int] = ()):
        if not isinstance(grammar, Grammar):
            raise refusal(f"grammar: {grammar!r} is no specd.Grammar")
        stops = id_array(list(stop_token_ids), "stop_token_ids")
        handle = ctypes.c_void_p()
        check(c.load().specd_matcher_new(grammar.handle, s.Ids(pointer(stops, ctypes.c_int32),
                                                               len(stops)), ctypes.byref(handle)))
        self._adopt(handle, "specd_matcher_free")
        self.grammar = grammar

    def fork(self) -> Matcher:
        """A matcher with the same history, which continues in its own way."""
        handle = ctypes.c_void_p()
        check(c.load().specd_matcher_fork(self.handle, ctypes.byref(handle)))
        made = Matcher.__new__(Matcher)
        made._adopt(handle, "specd_matcher_free")
        made.grammar = self.grammar
        return made

    def mask(self, out: Array | None = None) -> Array:
        """The row of ids that may come next; after a stop id, the stop ids. Written to `out` (int32,
        ceil(vocab_size / 32) adjacent words) if it is given."""
        words = self.grammar.tokenizer.num_mask_words
        if out is None:
            out = np.empty(words, np.int32)
        elif not _is_rows(out, 1):
            raise refusal(f"out: a numpy row of {words} adjacent int32 words is needed")
        check(c.load().specd_matcher_mask(self.handle, pointer(out, ctypes.c_int32), out.size))
        return out

    def accept(self, token_id: int) -> bool:
        """Advances over an id that the mask allows. False for any other, and nothing has changed."""
        token_id = integer(token_id, "token_id", -2**31, 2**31 - 1)
        return bool(check(c.load().specd_matcher_accept(self.handle, token_id)))

    def rollback(self, num_ids: int) -> None:
        """Takes back the last ids that were accepted."""
        check(c.load().specd_matcher_rollback(self.handle,
                                              integer(num_ids, "num_ids", 0, 2**64 - 1)))

    @property
    def num_accepted(self) -> int:
        count = ctypes.c_uint64()
        check(c.load().specd_matcher_num_accepted(self.handle, ctypes.byref(count)))
        return count.value

    @property
    def is_terminated(self) -> bool:
        """A stop id was accepted."""
        return bool(check(c.load().specd_matcher_is_terminated(self.handle)))

    @property
    def is_accepting(self) -> bool:
        """The text may end here."""
        return bool(check(c.load().specd_matcher_is_accepting(self.handle)))

    @property
    def is_finished(self) -> bool:
        """The text may end here and cannot go on."""
        return bool(check(c.load().specd_matcher_is_finished(self.handle)))

    def forced_text(self) -> bytes:
        """The bytes that every continuation begins with; none where there is a choice."""
        text, size = ctypes.c_void_p(), ctypes.c_uint64()
        check(c.load().specd_matcher_forced_text(
            self.handle, ctypes.cast(ctypes.byref(text), ctypes.POINTER(ctypes.c_char_p)),
            ctypes.byref(size)))
        return ctypes.string_at(text, size.value)

    def forced(self, max_ids: int = 64) -> list[int]:
        """At most max_ids ids that spell the beginning of the forced text. They are drafts: offer
        them to the model, which judges how the text is cut into tokens."""
        ids = np.empty(integer(max_ids, "max_ids", 0, 2**20), np.int32)
        count = ctypes.c_uint64()
        check(c.load().specd_matcher_forced_tokens(self.handle, pointer(ids, ctypes.c_int32),
                                                   len(ids), ctypes.byref(count)))
        forced: list[int] = ids[:count.value].tolist()
        return forced


def fill_masks(matchers: Sequence[Matcher], rows: Array | None = None, *,
               indices: Iterable[int] | None = None, threads: int = 0) -> Array:
    """Writes the masks of many matchers, each to a row of its own: matcher i to rows[i], or to
    rows[indices[i]]. `rows` is int32, (number of rows, ceil(vocab_size / 32)), made here if it is
    not given. threads: 1 .. 16, 0 for one on each usable CPU. Returns the rows."""
    matchers = list(matchers)
    for i, matcher in enumerate(matchers):
        if not isinstance(matcher, Matcher):
            raise refusal(f"matchers[{i}]: {matcher!r} is no specd matcher")
    words = matchers[0].grammar.tokenizer.num_mask_words if matchers else 0
    if rows is None:
        rows = np.empty((len(matchers), words), np.int32)
    if not matchers:
        return rows
    if not _is_rows(rows, 2) or rows.shape[1] != words:
        raise refusal(f"rows: a numpy array of rows with {words} adjacent int32 words is needed")
    struct = c.initialised(s.MaskRows, "specd_mask_rows_init")
    struct.threads = integer(threads, "threads")
    struct.words, struct.num_rows = pointer(rows, ctypes.c_int32), rows.shape[0]
    struct.row_stride = rows.strides[0] // 4 if rows.shape[0] > 1 else words
    if indices is not None:
        chosen = np.array([integer(index, "indices") for index in indices], np.uint32)
        if len(chosen) != len(matchers):
            raise refusal(f"indices: {len(chosen)} rows for {len(matchers)} matchers")
        struct.indices = pointer(chosen, ctypes.c_uint32)
    handles = (ctypes.c_void_p * len(matchers))(*[matcher.handle.value for matcher in matchers])
    check(c.load().specd_fill_masks(handles, len(matchers), ctypes.byref(struct)))
    return rows


def apply_mask(logits: Array, mask: Array) -> Array:
    """Sets logits to -inf where the mask has no 1, in place, and returns them. One row, or rows
    beside rows; float32, float16 or float64."""
    if not isinstance(logits, np.ndarray) or logits.dtype.kind != "f":
        raise refusal("logits: a numpy array of floats is needed")
    mask = np.asarray(mask)
    shape = logits.shape[:-1] + ((logits.shape[-1] + 31) // 32,) if logits.ndim else ()
    if mask.dtype != np.int32 or mask.shape != shape:
        raise refusal(f"mask: {mask.shape} of {mask.dtype} where {shape} of int32 is needed")
    bits = np.unpackbits(np.ascontiguousarray(mask, "<i4").view(np.uint8), axis=-1,
                         count=logits.shape[-1], bitorder="little")
    logits[bits == 0] = -np.inf
    return logits


def _is_rows(array: Any, ndim: int) -> bool:
    """True for a writable int32 array whose rows have no gaps inside and do not overlap."""
    return bool(isinstance(array, np.ndarray) and array.dtype == np.int32 and array.ndim == ndim
            and array.flags.writeable and array.flags.aligned
            and (array.strides[-1] == 4 or array.shape[-1] <= 1)
            and (ndim == 1 or array.shape[0] <= 1
                 or array.strides[0] >= 4 * array.shape[1] and array.strides[0] % 4 == 0))


def _tokens(tokens: Sequence[bytes | None], special: Iterable[int]) -> s.Tokens:
    """The struct of a list of bytes. The list's bytes outlive it."""
    table = (s.Token * len(tokens))()
    for i, text in enumerate(tokens):
        if text is None:
            continue
        if not isinstance(text, bytes):
            raise refusal(f"tokens[{i}]: {text!r} is neither bytes nor None")
        table[i].bytes, table[i].size_bytes = text, len(text)
    for token_id in special:
        table[integer(token_id, "special_token_ids", 0, len(tokens) - 1)].special = 1
    return s.Tokens(table, len(tokens))
