"""Draft tokens for many sequences in one call, with arrays in and arrays out."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from . import _library as c
from . import _structs as s
from . import results
from ._library import check, refusal
from .arrays import address, integer, mask_words
from .attributes import nearest
from .batch_arrays import handles, numbers_of, ragged
from .dlpack import Array, as_array
from .round_calls import RoundCalls
from .rounds import SAMPLING
from .row_space import bound_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .row_types import Numbers, RowArray


class DraftArrays(TypedDict, total=False):
    """The arrays that Engine.sample_draft_batch takes by name."""

    num_children: Numbers | int
    draft_rows: Numbers | None
    first_nodes: Numbers | None
    masks: RowArray | None
    mask_rows: Numbers | None


_ARRAYS = tuple(DraftArrays.__annotations__)


def _as_dtype(struct: Any) -> Any:
    """The elements of a C array of structs, with pointers as numbers."""
    names = [name for name, *_ in struct._fields_]
    formats = [np.uint64 if hasattr(kind, "contents") else np.dtype(kind)
               for _, kind, *_ in struct._fields_]
    offsets = [getattr(struct, name).offset for name in names]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets,
                     "itemsize": ctypes.sizeof(struct)})


_REQUEST, _ANSWER, _CHILD = (_as_dtype(struct) for struct in
                             (s.DraftRequest, s.DraftChildren, s.DraftChild))


@dataclasses.dataclass
class BatchChildren:
    """Draft tokens that specd drew, as arrays; element i is of request i. The fields mean what those of
    specd.Children mean.

    status, detail: the numbers of C; status_names has names
    num_children: how many distinct ids request i has
    ids, counts, weights, masses, sampled: arrays of (requests, most children of a request). Beyond
      the children of a request ids are -1, counts, weights and sampled 0, and masses 1
    """

    sequences: Array
    status: Array
    detail: Array
    num_children: Array
    ids: Array
    counts: Array
    weights: Array
    masses: Array
    sampled: Array

    def __len__(self) -> int:
        return len(self.status)

    @property
    def status_names(self) -> Array:
        """Such as "ok" and "finished", as an array."""
        names: Array = np.array(results.STATUSES)[self.status]
        return names

    @property
    def q(self) -> Array:
        """The probability that each id was drawn with, and 0 beyond the children."""
        quotients: Array = self.weights / self.masses
        return quotients

    def detail_text(self, i: int) -> str | None:
        """What is wrong with the row of request i, or None."""
        return results.detail_of(int(self.detail[i]))


class BatchDrafts(RoundCalls):
    """The part of Engine that draws the draft tokens of many sequences."""

    def sample_draft_batch(self, rows: RowArray | None, sequences: Numbers,
                           prefixes: Numbers | None = None, prefix_offsets: Numbers | None = None, *,
                           sampling: str = "with_replacement", strict: bool = True,
                           **arrays: Unpack[DraftArrays]) -> BatchChildren:
        """Draws draft tokens as sample_draft does, and returns a BatchChildren. A request is a row of
        the draft model; several may be about nodes of one sequence. Arrays are of numpy, lists, or
        tensors with __dlpack__. Only `rows` may lie in device memory.

        rows: a row for each request, in their order, or None: the bound rows
        sequences: the handle of each request's sequence, such as BatchOpening.sequences
        prefixes: the draft tokens before each request's place, one after another, or an array of
          (requests, tokens); without them the first token after the kept ones is drawn
        prefix_offsets: one number more than requests: prefixes[prefix_offsets[i]:prefix_offsets[i + 1]]
          is the prefix of request i. Not needed for an array of (requests, tokens)
        sampling: that of all requests; specd.DraftRequest names them
        strict: as in verify. A sequence that has finished gets no children.

        These are given by name, with one element for each request:
        num_children: an array, or one number for all; default 1
        draft_rows, mask_rows: indices into the rows and masks that the call gets
        first_nodes: the first node of each request; 0: as in a chain
        masks: rows of booleans or of packed words, or engine.rows(n, "mask")
        """
        for name in arrays:
            if name not in _ARRAYS:
                raise refusal(f"{name}: sample_draft_batch has no such array{nearest(name, _ARRAYS)} The "
                              f"arrays are {', '.join(_ARRAYS)}")
        asked = handles(sequences)
        table = _table(asked, prefixes, prefix_offsets, sampling, arrays)
        self.drain()
        self._name_rows(table.requests, rows, arrays.get("draft_rows"))
        self._name_masks(table.requests, arrays.get("masks"), arrays.get("mask_rows"))
        answers = np.zeros(len(asked), _ANSWER)
        answers["struct_size"] = _ANSWER.itemsize
        check(c.load().specd_sample_draft(
            self.pointer, _pointer(table.requests, s.DraftRequest), len(asked),
            _pointer(answers, s.DraftChildren)))
        found = _found(asked, answers)
        return _checked(found) if strict else found

    def _name_rows(self, requests: Array, rows: Any, named: Any) -> None:
        """Writes the rows, and puts the bound row of each request."""
        need = 0 if named is not None else len(requests)
        bound = self._space("draft").write(rows, need, named is not None, "one for each request")
        requests["row"] = (bound[:need] if named is None else
                           bound_names("draft", _each(named, np.uint32, len(requests), "draft_rows"),
                                       bound))

    def _name_masks(self, requests: Array, masks: Any, named: Any) -> None:
        """The same for masks."""
        requests["mask_row"] = -1
        masks, space = as_array(masks, "masks"), self._space("mask")
        if named is not None:
            named = _each(named, np.int32, len(requests), "mask_rows")
        if masks is None:
            if named is not None:
                space.name_home()
                requests["mask_row"] = named
            return
        if space.holds(masks):
            need = 0 if named is not None else len(requests)
            bound = space.write(masks, need, True, "one for each request", "masks")
        else:
            need = len(masks) if named is not None else len(requests)
            bound = space.copy(mask_words(masks, self.vocab_size, need, "masks"), 0)
        bound = bound.astype(np.int32)
        requests["mask_row"] = (bound[:len(requests)] if named is None else
                                bound_names("mask", named, bound))


@dataclasses.dataclass
class _Table:
    requests: Array
    kept: list[Array]  # what the requests point to


def _table(sequences: Array, prefixes: Any, offsets: Any, sampling: str, arrays: Any) -> _Table:
    """specd_draft_request for each sequence, but for its rows."""
    count = len(sequences)
    requests = np.zeros(count, _REQUEST)
    requests["struct_size"] = _REQUEST.itemsize
    requests["sequence"] = sequences
    if sampling not in SAMPLING:
        raise refusal(f"sampling: {sampling!r} is not one of {', '.join(SAMPLING)}")
    requests["sampling"] = SAMPLING[sampling]
    num_children = arrays.get("num_children", 1)
    if np.ndim(num_children) == 0 and not hasattr(num_children, "__dlpack__"):
        requests["num_children"] = integer(num_children, "num_children")
    else:
        requests["num_children"] = _each(num_children, np.uint32, count, "num_children")
    if arrays.get("first_nodes") is not None:
        requests["first_node"] = _each(arrays["first_nodes"], np.uint32, count, "first_nodes")
    if prefixes is None:
        if offsets is not None:
            raise refusal("prefixes: prefix_offsets are given without them; give both")
        return _Table(requests, [])
    ids, begins = ragged(prefixes, offsets, count, "prefixes", "prefix_offsets")
    begins = begins.astype(np.int64, copy=False)
    requests["num_prefix"] = begins[1:] - begins[:-1]
    requests["prefix"] = (address(ids) + 4 * begins[:-1]).astype(np.uint64)
    return _Table(requests, [ids])


def _each(values: Any, dtype: Any, count: int, name: str) -> Array:
    array = numbers_of(values, dtype, name)
    if array.shape != (count,):
        raise refusal(f"{name}: {array.shape} values where {count} are needed")
    return array


def _pointer(table: Array, struct: Any) -> Any:
    return ctypes.cast(address(table), ctypes.POINTER(struct))


def _found(sequences: Array, answers: Array) -> BatchChildren:
    """Copies the children: the library's own are valid only until the next call."""
    counts = answers["num_children"].astype(np.int64)
    owners = np.repeat(np.arange(len(counts)), counts)
    places_of = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    children = _children_at(answers["children"][owners] + (places_of * _CHILD.itemsize).astype(np.uint64))
    shape = (len(counts), int(counts.max(initial=0)))

    def spread(field: str, dtype: Any, beyond: int) -> Array:
        array = np.full(shape, beyond, dtype)
        array[owners, places_of] = children[field]
        return array

    return BatchChildren(
        sequences=sequences, status=answers["status"].copy(), detail=answers["detail"].copy(),
        num_children=counts, ids=spread("id", np.int32, -1),
        counts=spread("count", np.uint32, 0), weights=spread("weight", np.float32, 0),
        masses=spread("mass", np.float64, 1), sampled=spread("kind", np.uint8, 0))


class _Memory:
    """The words from the lowest of some addresses to the highest, as numpy takes memory. Only words at
    those addresses may be read: others may not exist."""

    def __init__(self, lowest: int, num_words: int):
        self.__array_interface__ = {"data": (lowest, True), "shape": (num_words,), "typestr": "<u8",
                                    "version": 3}


def _children_at(addresses: Array) -> Array:
    """Copies of the children at these addresses, which are multiples of a word."""
    words = _CHILD.itemsize // 8
    if not len(addresses):
        return np.zeros(0, _CHILD)
    lowest = addresses.min()
    places = ((addresses - lowest) // 8).astype(np.int64)
    memory = np.asarray(_Memory(int(lowest), int(places.max()) + words))
    children: Array = memory[places[:, np.newaxis] + np.arange(words)].view(_CHILD)
    return children[:, 0]


def _checked(found: BatchChildren) -> BatchChildren:
    """`found`, unless a row was bad or a sequence unknown."""
    if not np.count_nonzero(found.status > 1):
        return found
    return results.checked(found, "sequences", found.status_names.tolist(),
                           [found.detail_text(i) for i in range(len(found))])
