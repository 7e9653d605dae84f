"""Packs a round: the records of its drafts, and the rows that they name."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _library as c
from . import _structs as s
from .arrays import boolean, floats, id_array, integer, integers, mask_words, pointer, set_pointer
from .attributes import Known, known_dataclass
from .dlpack import Array, as_array
from .params import LOGPROBS_MODE
from .row_space import MASKS_IN_PLACE, Parts, RowSpace, bound_names, copied_now
from ._library import refusal

if TYPE_CHECKING:
    from .engine_handle import EngineHandle
    from .row_types import Drafts, Ids
    from .sequence import Sequence as OpenSequence

SAMPLING = {"with_replacement": 0, "without_replacement": 1, "top_k": 2, "mixed": 3}
DISCARD = 1
DRAFTS_BY_SLOT = 2
PARENTS_BY_SLOT = 4


@known_dataclass
@dataclasses.dataclass
class Draft(Known):
    """A sequence's part of a round. Only `sequence` is needed: without tokens it is plain sampling.

    tokens: draft ids; -1 ends the draft, and so does any other id outside the vocabulary
    sampled: for each token, True if it was drawn from a draft row, and 2 if it was drawn from that row
      without the ids of all one-hot siblings and of the earlier siblings of this kind
      (SPECD_SAMPLED_REST). Default: True, if verify gets q
    target_rows, draft_rows, mask_rows: indices into the rows that the call gets (or, if it gets none,
      into the array from engine.rows), in place of the order in which rows stand; a mask row of -1
      is unconstrained
    weights, masses: the side channel, from sample_draft: the probability that tokens[i] was drawn with
      is weights[i] / masses[i]; both or neither
    target_argmax: K + 1 argmax ids in place of target rows, for greedy sequences
    discard: rows are padding or an unfinished prefill: nothing is sampled
    by_slot: the number of draft tokens at the sequence's slot in engine.draft_tokens(), in place of
      `tokens`; None: the draft tokens are in `tokens`
    parents: for each token the index of the earlier one that it follows, or -1 for the kept tokens.
      None: a chain, in which each token follows the one before. Drawn siblings name one row, that of
      their place, in draft_rows
    parents_by_slot: with by_slot: the draft is a tree whose parents lie at the slot in
      engine.draft_tree(). Draft row i is then that of place i, not of token i
    """

    sequence: OpenSequence | int
    tokens: Ids = ()
    sampled: Sequence[bool | int] | Array | None = None
    target_rows: Ids | None = None
    draft_rows: Ids | None = None
    mask_rows: Ids | None = None
    weights: npt.ArrayLike | None = None
    masses: npt.ArrayLike | None = None
    target_argmax: Ids | None = None
    discard: bool = False
    by_slot: int | None = None
    parents: Ids | None = None
    parents_by_slot: bool = False


@known_dataclass
@dataclasses.dataclass
class DraftRequest(Known):
    """A row of the draft model to draw from: num_children ids after `prefix`, with sampling
    "with_replacement", "without_replacement", "top_k" or "mixed" (the best num_children - 1 ids, and one
    drawn from the rest; recommended for trees). `row` is an index into the draft rows; its default is
    the index in the list. The coins are those of nodes first_node, first_node + 1, ...; 0: as in a
    chain. Requests may be about several nodes of one sequence."""

    sequence: OpenSequence | int
    prefix: Ids = ()
    num_children: int = 1
    sampling: str = "with_replacement"
    row: int | None = None
    first_node: int = 0


class DraftRecords:
    """The drafts of one round and the row indices that they name. on_stream: a CUDA stream is still
    writing the rows."""

    def __init__(self, engine: EngineHandle, drafts: Drafts, on_stream: bool = False):
        if isinstance(drafts, Mapping):
            drafts = [Draft(sequence, tokens) for sequence, tokens in drafts.items()]
        self.engine, self.drafts = engine, list(drafts)
        self.kept: list[Array] = []
        self.on_stream = on_stream
        for draft in self.drafts:
            if not isinstance(draft, Draft):
                raise refusal("drafts: {sequence: ids} or a list of specd.Draft is needed, not "
                              f"{type(draft).__name__}")
        self.tokens = [id_array(draft.tokens, "tokens") for draft in self.drafts]
        for draft, tokens in zip(self.drafts, self.tokens):
            boolean(draft.discard, "discard")
            if draft.by_slot is not None and len(tokens):
                raise refusal("tokens: they are given with by_slot, which takes them from "
                              "engine.draft_tokens(); leave one of the two")
        self.counts = [len(tokens) if draft.by_slot is None else
                       integer(draft.by_slot, "by_slot", 0, engine.max_draft)
                       for draft, tokens in zip(self.drafts, self.tokens)]
        self.target: list[Array | None] = [None] * len(self.drafts)
        self.draft: list[Array | None] = [None] * len(self.drafts)
        self.masks: list[Array | None] = [None] * len(self.drafts)
        # by role: the bound row of each row that a draft may name
        self.named: dict[str, Array] = {}

    def names(self, role: str) -> bool:
        """Tells whether a draft names rows of the role by index."""
        return any(getattr(draft, f"{role}_rows") is not None for draft in self.drafts)

    def place(self, space: RowSpace, rows: Any, role: str) -> None:
        """Writes the rows of a role and gives them to the drafts, in order."""
        name = "rows" if role == "target" else "q"
        needs = [0 if self._brings_its_own(i, role) else count + (role == "target")
                 for i, count in enumerate(self.counts)]
        if isinstance(rows, (list, tuple)):
            rows = [as_array(part, name) for part in rows]
        if isinstance(rows, list) and len(rows) == len(needs) and \
                not np.isscalar(rows[0] if rows else 0) and _is_per_draft(rows):
            for i, (part, need) in enumerate(zip(rows, needs)):
                if part is None:
                    needs[i] = 0
                elif len(part) != need:
                    raise refusal(f"{name}: draft {i} brings {len(part)} and needs {need}")
            rows = Parts(part for part in rows if part is not None and len(part))
        self.named[role] = indices = space.write(
            rows, sum(needs), self.names(role), "K + 1 target rows and K draft rows for K draft "
            "tokens; none for a draft with discard", name, not self.on_stream)
        _share_out(indices, needs, self.target if role == "target" else self.draft)

    def _brings_its_own(self, i: int, role: str) -> bool:
        draft = self.drafts[i]
        if role == "target":
            return draft.discard or draft.target_rows is not None or draft.target_argmax is not None
        return draft.discard or draft.draft_rows is not None

    def place_masks(self, space: RowSpace, masks: Any) -> None:
        masks = as_array(masks, "masks")
        named = [draft.mask_rows is not None for draft in self.drafts]
        if space.holds(masks):
            needs = [0 if draft.discard or own else count + 1
                     for draft, own, count in zip(self.drafts, named, self.counts)]
            self.named["mask"] = indices = space.write(
                masks, sum(needs), True, "K + 1 for K draft tokens", "masks").astype(np.int32)
            _share_out(indices, needs, self.masks)
            return
        if len(masks) != len(self.drafts):
            raise refusal(f"masks: {len(masks)} for {len(self.drafts)} drafts; None where a draft "
                          "is unconstrained")
        packed = [np.zeros((0, space.columns()), np.int32) if mask is None else
                  mask_words(mask, self.engine.vocab_size, count + 1, "masks")
                  for mask, count in zip(masks, self.counts)]
        needs = [len(words) for words in packed]
        if any(named) and any(needs):
            raise refusal("masks: they are copied to memory of their own, where mask_rows names "
                          "nothing; write all masks into engine.rows(n, 'mask')")
        if any(needs):
            if self.on_stream:
                raise copied_now("masks", MASKS_IN_PLACE)
            indices = space.copy(np.concatenate(packed), 0).astype(np.int32)
            _share_out(indices, needs, self.masks)
        elif any(named):
            space.name_home()  # the names are those of engine.rows

    def structs(self) -> Any:
        table = c.sized(s.Draft, len(self.drafts))
        for i, (record, draft) in enumerate(zip(table, self.drafts)):
            count = self.counts[i]
            record.sequence, record.num_nodes = _handle(draft.sequence), count
            record.flags = DISCARD if draft.discard else 0
            if draft.by_slot is None:
                self._put(record, "tokens", self.tokens[i])
            else:
                record.flags |= DRAFTS_BY_SLOT
            if boolean(draft.parents_by_slot, "parents_by_slot"):
                record.flags |= PARENTS_BY_SLOT
            if draft.parents is not None:
                self._put_list(record, "parents", draft.parents, np.int32, count)
            self._rows(record, i, draft, count)
            if (draft.weights is None) != (draft.masses is None):
                raise refusal(f"weights, masses: draft {i} brings one without the other; "
                              "q(token) is their quotient")
            if draft.weights is not None:
                self._put_list(record, "draft_weights", draft.weights, np.float32, count, "weights")
                self._put_list(record, "draft_masses", draft.masses, np.float64, count, "masses")
            if draft.target_argmax is not None:
                self._put_list(record, "target_argmax", draft.target_argmax, np.int32, count + 1)
        return table

    def _rows(self, record: Any, i: int, draft: Draft, count: int) -> None:
        target = self._by_name("target", draft.target_rows, self.target[i])
        drawn = self._by_name("draft", draft.draft_rows, self.draft[i])
        masks = self._by_name("mask", draft.mask_rows, self.masks[i])
        sampled: Any = draft.sampled
        if sampled is None and (drawn is not None or draft.weights is not None):
            sampled = np.ones(count, np.uint8)
        if target is not None:
            self._put_list(record, "target_rows", target, np.uint32, count + 1)
        if sampled is not None:
            self._put_list(record, "kinds", np.asarray(as_array(sampled, "sampled")), np.uint8, count,
                           "sampled")
        if drawn is not None:
            self._put_list(record, "draft_rows", drawn, np.uint32, count)
        if masks is not None:
            self._put_list(record, "mask_rows", masks, np.int32, count + 1)

    def _by_name(self, role: str, named: Any, otherwise: Array | None) -> Array | None:
        """The bound rows of a draft."""
        bound = self.named.get(role)
        if named is None or bound is None:
            return otherwise if named is None else named
        return bound_names(role, named, bound)

    def _put_list(self, record: Any, field: str, values: Any, dtype: Any, count: int,
                  name: str | None = None) -> None:
        name = name or field
        try:
            array = (floats(values, dtype, name) if issubclass(dtype, np.floating)
                     else integers(values, dtype, name))
        except c.Error:
            raise
        except (OverflowError, TypeError, ValueError) as error:
            raise refusal(f"{name}: {error}") from None
        if array.shape != (count,):
            raise refusal(f"{name}: {array.shape} values where {count} are needed")
        self._put(record, field, array)

    def _put(self, record: Any, field: str, array: Array) -> None:
        self.kept.append(array)
        set_pointer(record, field, array)


def _handle(sequence: Any) -> int:
    return integer(getattr(sequence, "handle", sequence), "sequence", 0, 2**64 - 1)


def _share_out(indices: Array, needs: list[int], places: list[Array | None]) -> None:
    """Gives the next needs[i] indices to place i, and none if it needs none."""
    begin = 0
    for i, need in enumerate(needs):
        if need:
            places[i] = indices[begin:begin + need]
        begin += need


def _is_per_draft(rows: Any) -> bool:
    return all(part is None or np.ndim(part) == 2 for part in rows)


def _child_mask_rows(count: int, masks: Any, space: RowSpace) -> list[int]:
    """The mask row of each request, -1 if there is none."""
    if masks is None:
        return [-1] * count
    masks = as_array(masks, "masks")
    if space.holds(masks):
        held: list[int] = space.write(masks, count, True, "one for each request", "masks").tolist()
        return held
    if len(masks) != count:
        raise refusal(f"masks: {len(masks)} for {count} requests; None where one is unconstrained")
    words = [None if mask is None else mask_words(mask, space.engine.vocab_size, 1, "masks")[0]
             for mask in masks]
    given = [word for word in words if word is not None]
    numbers = iter(space.copy(np.array(given), 0).tolist() if given else ())
    return [-1 if word is None else next(numbers) for word in words]


def child_records(requests: list[DraftRequest], space: RowSpace, rows: Any, masks: Any,
                  mask_space: RowSpace) -> Any:
    """specd_draft_request for each request."""
    table, kept = c.sized(s.DraftRequest, len(requests)), []
    in_order = [i for i, request in enumerate(requests) if request.row is None]
    indices = space.write(rows, max(in_order, default=-1) + 1, len(in_order) < len(requests),
                          "one for each request")
    mask_rows = _child_mask_rows(len(requests), masks, mask_space)
    for i, (record, request) in enumerate(zip(table, requests)):
        prefix = id_array(request.prefix, "prefix")
        kept.append(prefix)
        if request.sampling not in SAMPLING:
            raise refusal(f"sampling: {request.sampling!r} is not one of {', '.join(SAMPLING)}")
        record.sequence = _handle(request.sequence)
        record.row = indices[i] if request.row is None else _bound_row(indices, request.row)
        record.mask_row = mask_rows[i]
        set_pointer(record, "prefix", prefix)
        record.num_prefix = len(prefix)
        record.sampling = SAMPLING[request.sampling]
        record.num_children = integer(request.num_children, "num_children")
        record.first_node = integer(request.first_node, "first_node")
    table.kept = kept
    return table


def _bound_row(indices: Array, row: int) -> int:
    """The bound row of a row that a request names. The library refuses one that is not there."""
    row = integer(row, "row")
    return int(indices[row]) if row < len(indices) else 2**32 - 1


def score_records(ids: Array, indices: Array, num_top: int, chosen: Array,
                  mode: str) -> tuple[Any, object]:
    """Makes a specd_score_request for each id, so that each row has a status of its own."""
    if mode not in LOGPROBS_MODE:
        raise refusal(f"mode: {mode!r} is not one of raw_logprobs, raw_logits")
    rows = np.ascontiguousarray(indices[:len(ids)], dtype=np.uint32)
    table = c.sized(s.ScoreRequest, len(ids))
    for i, record in enumerate(table):
        record.rows = pointer(rows[i:], ctypes.c_uint32)
        record.ids = pointer(ids[i:], ctypes.c_int32)
        record.num_ids, record.mode, record.num_top = 1, LOGPROBS_MODE[mode], num_top
        record.chosen_ids = s.Ids(pointer(chosen, ctypes.c_int32), len(chosen))
    return table, (rows, ids, chosen)
