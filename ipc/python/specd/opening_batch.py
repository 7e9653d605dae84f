"""Openings of many sequences in one call, with arrays in and arrays out."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from . import _library as c
from . import _structs as s
from ._library import check, refusal, text_bytes
from .arrays import address, boolean, integer, set_pointer
from .batch_arrays import numbers_of, ragged
from .dlpack import Array
from .engine_handle import NAME_DIGITS, EngineHandle
from .params import SamplingParams, to_struct
from .sequence import Sequence

if TYPE_CHECKING:
    from .engine import Engine
    from .row_types import Numbers

_OPENINGS_MAX = 1024
OPEN_PENDING = 1  # a flag of specd_openings
_NO_OPENING = 2**32 - 1
_INFO: Any = np.dtype(s.SequenceInfo)


@dataclasses.dataclass
class BatchOpening:
    """The sequences that open_batch opened. sequences has their handles, for verify_batch. verify
    has the numbers of C, and warnings what the constraints do not enforce."""

    sequences: Array
    seeds: Array
    verify: Array
    warnings: list[str]
    _engine: Engine
    _infos: Any
    _names: _Names
    _has_text: list[bool]

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def request_ids(self) -> list[str]:
        return [self._names.items[i].decode() for i in range(len(self))]

    def sequence(self, i: int) -> Sequence:
        """Sequence i as a specd.Sequence, to fork, abort and close it, and to read its text."""
        i = integer(i, "i", 0, len(self) - 1)
        return Sequence(self._engine, self._infos[i], self._names.items[i].decode(),
                        has_text=self._has_text[i])


class OpeningRefused(c.Error):
    """An opening of a batch was refused, and none was opened. `index` is its place in the batch."""

    def __init__(self, error: c.Error, index: int):
        super().__init__(error.code, error.code_name, error.text)
        self.index = index


class _RefusedHere(OpeningRefused, c.Refusal):
    """An opening of a batch that this package refuses itself, before the library is asked."""


class BatchOpenings(EngineHandle):
    """The part of Engine that opens many sequences in one call."""

    def open_batch(self, count: int,
                   params: SamplingParams | Items[SamplingParams] | None = None, *,
                   prompt_ids: Numbers | None = None, prompt_offsets: Numbers | None = None,
                   output_ids: Numbers | None = None, output_offsets: Numbers | None = None,
                   seeds: Numbers | None = None, request_ids: Items[str] | None = None,
                   wait: bool = True, **fields: Numbers) -> BatchOpening:
        """Opens `count` sequences in one call, all or none, and returns a BatchOpening.

        params: the SamplingParams that all have in common, or a list of one for each sequence.
          A list takes longer, because the package packs each of them
        fields: parameters of SamplingParams that are numbers, such as temperature=[0.7, 1.0]: one
          value for each sequence, or one for all. A value of a choice, such as verify, is its index
          in specd.SamplingParams.numbers["verify"].choices
        prompt_ids, prompt_offsets: prompt_ids[prompt_offsets[i]:prompt_offsets[i + 1]] is the prompt
          of sequence i. An array of (count, length) needs no offsets. output_ids: the same
        seeds: one for each sequence; without them specd draws seeds
        wait: False: the sequences are pending, as Engine.open says; each fails or opens by itself
        If an opening is refused, OpeningRefused names its index, and nothing is opened.
        """
        count = integer(count, "count", 1, _OPENINGS_MAX)
        table = _ParamTable(count, params, fields)
        table.put_seeds(seeds)
        table.put_ids("prompt_ids", prompt_ids, prompt_offsets)
        table.put_ids("output_ids", output_ids, output_offsets)
        names = _Names(self, count, request_ids)
        records = (s.SequenceInfo * count)()
        infos: Any = np.frombuffer(memoryview(records), _INFO)
        infos["struct_size"] = ctypes.sizeof(s.SequenceInfo)
        openings = c.initialised(s.Openings, "specd_openings_init")
        openings.num_openings = openings.max_infos = count
        openings.request_ids = names.items
        set_pointer(openings, "params", table.rows)
        openings.infos = records
        openings.flags = 0 if boolean(wait, "wait") else OPEN_PENDING
        try:
            check(c.load().specd_open_sequences(self.pointer, ctypes.byref(openings)))
        except c.Error as error:
            if openings.refused == _NO_OPENING:
                raise
            raise OpeningRefused(error, openings.refused) from None
        return BatchOpening(infos["sequence"].copy(), infos["seed"].copy(), infos["verify"].copy(),
                            c.opening_warnings(self.pointer), cast("Engine", self), records, names,
                            [self.makes_text(each) for each in table.params])


class _ParamTable:
    """An array of specd_params: the parameters that all have in common, or a list of one for each,
    and columns of their own."""

    def __init__(self, count: int, params: SamplingParams | Items[SamplingParams] | None,
                 fields: dict[str, Any]):
        self.count = count
        self.kept: list[object] = []
        _check_columns(fields)
        self.rows = np.empty((count, ctypes.sizeof(s.Params)), np.uint8)
        self.params: Items[SamplingParams]  # of each sequence
        if params is None or isinstance(params, SamplingParams):
            shared = SamplingParams() if params is None else params
            self.params = (shared,) * count
            self.rows[:] = np.frombuffer(self._pack(shared, fields), np.uint8)
        else:
            if not isinstance(params, Items):
                raise refusal(f"params: {type(params).__name__} where specd.SamplingParams or a list "
                              "of them is needed")
            if len(params) != count:
                raise refusal(f"params: {len(params)} where {count} are needed")
            self.params = params
            for i, own in enumerate(params):
                try:
                    self.rows[i] = np.frombuffer(self._pack(own, fields), np.uint8)
                except c.Refusal as error:
                    text = f"openings[{i}]: {error.text}"
                    raise _RefusedHere(c.Error(error.code, error.code_name, text), i) from None
        for name, values in fields.items():
            self._put_number(SamplingParams.numbers[name].name, name, values)

    def _pack(self, params: SamplingParams, columns: Iterable[str]) -> bytes:
        """The bytes of its specd_params, in which columns still have their defaults."""
        if not isinstance(params, SamplingParams):
            raise refusal(f"params: {type(params).__name__} where specd.SamplingParams is needed")
        own: Any = copy.copy(params)
        if own.n not in (1, None):
            raise refusal(_WITH_N)
        for name in columns:
            # At its default the name does not travel, and leaves its place to the column.
            setattr(own, name, SamplingParams.numbers[name].python_default)
        struct, kept = to_struct(own)
        self.kept += kept
        return bytes(struct)

    def put_seeds(self, seeds: Any) -> None:
        if seeds is None:
            return
        self._column("seed", np.uint64)[:] = self._for_each(seeds, np.uint64, "seeds")
        self._column("has_seed", np.uint32)[:] = 1

    def put_ids(self, field: str, ids: Any, offsets: Any) -> None:
        """A list of ids for each row: its pointer and its length."""
        if ids is None:
            return
        ids, offsets = ragged(ids, offsets, self.count, field, field.replace("_ids", "_offsets"))
        self.kept.append(ids)
        words = self._column(field, np.dtype([("items", np.uint64), ("count", np.uint64)]))
        begins = offsets.astype(np.uint64)
        words["items"] = np.uint64(address(ids)) + np.uint64(ids.itemsize) * begins[:-1]
        words["count"] = begins[1:] - begins[:-1]

    def _put_number(self, field: str, name: str, values: Any) -> None:
        dtype = _NUMBER_FIELDS.get(field)
        if dtype is None:
            raise refusal(f"{name}: give it in params")
        self._column(field, dtype)[:] = self._for_each(values, dtype, name)

    def _for_each(self, values: Any, dtype: Any, name: str) -> Array:
        array = numbers_of(values, dtype, name)
        if array.shape not in ((), (self.count,)):
            raise refusal(f"{name}: {array.shape} values where {self.count} are needed")
        return array

    def _column(self, field: str, dtype: Any) -> Array:
        place = getattr(s.Params, field)
        column: Array = self.rows[:, place.offset:place.offset + place.size].view(dtype)[:, 0]
        return column


_WITH_N = "n: several sequences of one opening are opened by engine.open_all"


def _check_columns(names: Iterable[str]) -> None:
    params: Any = SamplingParams()
    for name in names:
        if name == "n":
            raise refusal(_WITH_N)
        if name not in SamplingParams.numbers:
            known = any(name == field.name for field in dataclasses.fields(params))
            raise refusal(f"{name}: it is no number; give it in params"
                          if known else params.why_unknown(name))


# The fields of specd_params that are one number.
_NUMBER_FIELDS = {name: np.dtype(kind) for name, kind, *_ in s.Params._fields_
                  if isinstance(kind, type) and issubclass(kind, ctypes._SimpleCData) and
                  kind not in (ctypes.c_char_p, ctypes.c_void_p)}


class _Names:
    """The request ids of a batch: those of the caller, or numbers behind the engine's prefix."""

    def __init__(self, engine: EngineHandle, count: int, given: Items[str] | None):
        self.items: Any
        if given is not None:
            if len(given) != count:
                raise refusal(f"request_ids: {len(given)} where {count} are needed")
            self.items = (ctypes.c_char_p * count)(*(text_bytes(name, "request_ids")
                                                     for name in given))
            return
        # Texts of one length each, with a NUL behind each.
        first = engine.take_names(count)
        digits = max(NAME_DIGITS, len(str(first + count - 1)))
        text = f"{engine.request_id_prefix}%0{digits}d\0".encode()
        self.texts = np.frombuffer(text * count % tuple(range(first, first + count)), np.uint8)
        length = len(self.texts) // count
        self.addresses = address(self.texts) + np.arange(count, dtype=np.uint64) * np.uint64(length)
        self.items = ctypes.cast(address(self.addresses), ctypes.POINTER(ctypes.c_char_p))
