"""Packs a round: the place of its rows, and the records that name them."""

import ctypes
import dataclasses

import numpy as np

from . import _library as c
from . import _structs as s
from .arrays import (BFloat16, KINDS, as_rows, dtype_code, id_array, integer, integers,
                     item_size, mask_words, numpy_view, pointer)
from .attributes import Known, known_dataclass
from .ops import set_rules
from .params import LOGPROBS_MODE
from .regions import import_device, unregister
from ._library import check, refusal

_ROLES = {"target": 1, "draft": 2, "mask": 3}
_SAMPLING = {"with_replacement": 0, "without_replacement": 1, "top_k": 2}
_DTYPE_NAMES = ("float32", "bfloat16", "float16")
_DISCARD = 1
_DRAFTS_BY_SLOT = 2


@known_dataclass
@dataclasses.dataclass
class Draft(Known):
    """A sequence's part of a round. Only `sequence` is needed: without tokens it is plain sampling.

    tokens: draft ids; -1 ends the draft
    sampled: for each token, True if it was drawn from a draft row. Default: all, if verify gets q
    target_rows, draft_rows, mask_rows: indices into the bound arrays, in place of the order in which
      rows stand; a mask row of -1 is unconstrained
    weights, masses: the side channel q(tokens[i]) = weights[i] / masses[i], from sample_draft; both
      or neither
    target_argmax: K + 1 argmax ids in place of target rows, for greedy sequences
    discard: rows are padding or an unfinished prefill: nothing is sampled
    by_slot: the number of draft tokens at the sequence's slot in engine.draft_tokens(), in place of
      `tokens`; None: the draft tokens are in `tokens`
    parents: for each token the index of the earlier one that it follows, or -1 for the kept tokens.
      None: a chain, in which each token follows the one before. This version refuses other trees
      (Result.detail)
    """

    sequence: object
    tokens: object = ()
    sampled: object = None
    target_rows: object = None
    draft_rows: object = None
    mask_rows: object = None
    weights: object = None
    masses: object = None
    target_argmax: object = None
    discard: bool = False
    by_slot: int | None = None
    parents: object = None


@known_dataclass
@dataclasses.dataclass
class DraftRequest(Known):
    """A row of the draft model to draw from: num_children ids after `prefix`, with sampling
    "with_replacement", "without_replacement" or "top_k". `row` is an index into the draft rows; its
    default is the index in the list. The coins are those of nodes first_node, first_node + 1, ...;
    0: as in a chain."""

    sequence: object
    prefix: object = ()
    num_children: int = 1
    sampling: str = "with_replacement"
    row: int | None = None
    first_node: int = 0


class RowSpace:
    """The rows of one role: memory of specd, and how it is bound."""

    def __init__(self, engine, role):
        self.engine, self.role = engine, role
        self.buffer, self.region = None, None
        self.device_region = None  # of rows in device memory; there is then no array
        self.array, self.bound, self.rules = None, None, {}

    def columns(self):
        if self.role == "mask":
            return (self.engine.vocab_size + 31) // 32
        return self.engine.vocab_size

    def bind(self, num_rows, dtype, row_stride, rules):
        self.rules = dict(rules)
        code = 0 if self.role == "mask" else dtype_code(dtype)
        row_stride = integer(row_stride or self.columns(), "row_stride")
        self._bind(integer(num_rows, "num_rows", 1, 2**31 - 1), code, row_stride)
        return self.array

    def bind_device(self, address, num_rows, dtype, row_stride, rules):
        """Binds rows that are in device memory already. Memory that was bound before may be freed
        afterwards."""
        self.rules = dict(rules)
        code = 0 if self.role == "mask" else dtype_code(dtype)
        row_stride = integer(row_stride or self.columns(), "row_stride")
        num_rows = integer(num_rows, "num_rows", 1, 2**31 - 1)
        size = ((num_rows - 1) * row_stride + self.columns()) * item_size(code)
        region = import_device(self.engine, address, size)
        try:
            self._bind_region(region, num_rows, code, row_stride)
        except c.Error:
            unregister(self.engine, region)
            raise
        self.array = None
        self._release_device(region)

    def write(self, rows, need, or_more, rule, name="rows"):
        """Makes `rows` the rows of this role and returns their indices. The bound array itself is
        used in place and may be larger than `need`. Any other array is copied into it, and must
        have exactly `need` rows unless or_more."""
        in_place = rows is None or self.is_bound(rows)
        if in_place:
            count = self.bound[0] if self.bound else 0
        else:
            array, code = as_rows(rows, self.columns(), name)
            count = len(array)
        if count < need or count > need and not (in_place or or_more):
            raise refusal(f"{name}: {count} where {need} are needed: {rule}")
        if not in_place:
            self.reserve(count, code)
            self.array[:count] = array
        return np.arange(count, dtype=np.uint32)

    def reserve(self, num_rows, code):
        """Binds at least num_rows rows without gaps."""
        columns = self.columns()
        if (self.array is None or self.bound[0] < num_rows or
                self.bound[1:] != (code, columns)):
            self._bind(max(num_rows, 1), code, columns)

    def is_bound(self, rows):
        """Tells whether it is the array that `bind` returned, or another view of all of it."""
        if self.array is None or not isinstance(rows, np.ndarray) or rows.size == 0:
            return False
        same = rows.__array_interface__["data"] == self.array.__array_interface__["data"]
        return same and rows.shape == self.array.shape and rows.strides == self.array.strides

    def _bind(self, num_rows, code, row_stride):
        size = num_rows * row_stride * item_size(code)
        if self.buffer is None or len(self.buffer) < size:
            region = self._allocate(size, row_stride)
            self.buffer = (ctypes.c_char * region.size_bytes).from_address(region.data)
            self.region = region.id
        self._bind_region(self.region, num_rows, code, row_stride)
        self._release_device(None)
        if self.role == "mask":
            words = np.frombuffer(self.buffer, np.int32, num_rows * row_stride)
            self.array = words.reshape(num_rows, row_stride)[:, :self.columns()]
        else:
            self.array = numpy_view(self.buffer, num_rows, row_stride, self.engine.vocab_size, code)

    def _bind_region(self, region, num_rows, code, row_stride):
        tensor = c.initialised(s.Tensor, "specd_tensor_init")
        tensor.region, tensor.dtype, tensor.num_rows = region, code, num_rows
        tensor.row_stride = row_stride
        if self.role != "mask":
            set_rules(tensor, self.rules)
        check(c.load().specd_bind(self.engine.pointer, _ROLES[self.role], ctypes.byref(tensor)))
        self.bound = (num_rows, code, row_stride)

    def _release_device(self, region):
        """Ends the device region that was bound until now: none of its rows are read any more."""
        if self.device_region is not None:
            unregister(self.engine, self.device_region)
        self.device_region = region

    def _allocate(self, size, row_stride):
        """Returns a region that holds `size` bytes. A session has 16 regions for its three roles
        and keeps each until it closes. Regions therefore grow eightfold, up to the largest round;
        larger ones grow twofold. If memory is short, the region has just `size` bytes."""
        held = 0 if self.buffer is None else len(self.buffer)
        largest_round = self.engine.max_batch * (self.engine.max_draft + 1) * row_stride * 4
        roomy = min(8 * held, largest_round) if size <= largest_round else 2 * held
        region = s.Region()
        allocate = c.load().specd_alloc
        if roomy <= size or allocate(self.engine.pointer, roomy, ctypes.byref(region)) < 0:
            check(allocate(self.engine.pointer, size, ctypes.byref(region)))
        return region


class DraftRecords:
    """The drafts of one round and the row indices that they name."""

    def __init__(self, engine, drafts):
        if isinstance(drafts, dict):
            drafts = [Draft(sequence, tokens) for sequence, tokens in drafts.items()]
        self.engine, self.drafts, self.kept = engine, list(drafts), []
        for draft in self.drafts:
            if not isinstance(draft, Draft):
                raise refusal("drafts: {sequence: ids} or a list of specd.Draft is needed, not "
                              f"{type(draft).__name__}")
            if draft.by_slot is not None and len(draft.tokens):
                raise refusal("tokens: they are given with by_slot, which takes them from "
                              "engine.draft_tokens(); leave one of the two")
        self.tokens = [id_array(draft.tokens, "tokens") for draft in self.drafts]
        self.counts = [len(tokens) if draft.by_slot is None else
                       integer(draft.by_slot, "by_slot", 0, engine.max_draft)
                       for draft, tokens in zip(self.drafts, self.tokens)]
        self.target = [None] * len(self.drafts)
        self.draft = [None] * len(self.drafts)
        self.masks = [None] * len(self.drafts)

    def place(self, space, rows, role):
        """Writes the rows of a role and gives them to the drafts, in order."""
        needs = [0 if self._brings_its_own(i, role) else count + (role == "target")
                 for i, count in enumerate(self.counts)]
        if isinstance(rows, (list, tuple)) and len(rows) == len(needs) and \
                not np.isscalar(rows[0] if rows else 0) and _is_per_draft(rows):
            for i, (part, need) in enumerate(zip(rows, needs)):
                if part is None:
                    needs[i] = 0
                elif len(part) != need:
                    raise refusal(f"{role} rows: draft {i} brings {len(part)} and needs {need}")
            parts = [part for part in rows if part is not None and len(part)]
            rows = _stacked(parts, space.columns())
        named = any(getattr(draft, f"{role}_rows") is not None for draft in self.drafts)
        indices = space.write(rows, sum(needs), named, "K + 1 target rows and K draft rows for K "
                              "draft tokens; none for a draft with discard", f"{role} rows")
        _share_out(indices, needs, self.target if role == "target" else self.draft)

    def _brings_its_own(self, i, role):
        draft = self.drafts[i]
        if role == "target":
            return draft.discard or draft.target_rows is not None or draft.target_argmax is not None
        return draft.discard or draft.draft_rows is not None

    def place_masks(self, space, masks):
        named = [draft.mask_rows is not None for draft in self.drafts]
        if space.is_bound(masks):
            needs = [0 if draft.discard or own else count + 1
                     for draft, own, count in zip(self.drafts, named, self.counts)]
            indices = space.write(masks, sum(needs), True, "K + 1 for K draft tokens", "masks")
            _share_out(indices.astype(np.int32), needs, self.masks)
            return
        if len(masks) != len(self.drafts):
            raise refusal(f"masks: {len(masks)} for {len(self.drafts)} drafts; None where a draft "
                          "is unconstrained")
        packed = [np.zeros((0, space.columns()), np.int32) if mask is None else
                  mask_words(mask, self.engine.vocab_size, count + 1, "masks")
                  for mask, count in zip(masks, self.counts)]
        needs = [len(words) for words in packed]
        if any(named) and any(needs):
            raise refusal("masks: they would be copied over the rows that mask_rows names; write "
                          "all masks into engine.rows(n, 'mask')")
        if any(needs):
            space.reserve(sum(needs), 0)
            space.array[:sum(needs)] = np.concatenate(packed)
        _share_out(np.arange(sum(needs), dtype=np.int32), needs, self.masks)

    def structs(self):
        table = c.sized(s.Draft, len(self.drafts))
        for i, (record, draft) in enumerate(zip(table, self.drafts)):
            count = self.counts[i]
            record.sequence, record.num_nodes = _handle(draft.sequence), count
            record.flags = _DISCARD if draft.discard else 0
            if draft.by_slot is None:
                record.tokens = self._keep(self.tokens[i], ctypes.c_int32)
            else:
                record.flags |= _DRAFTS_BY_SLOT
            if draft.parents is not None:
                record.parents = self._list(draft.parents, np.int32, ctypes.c_int32, count,
                                            "parents")
            self._rows(record, i, draft, count)
            if (draft.weights is None) != (draft.masses is None):
                raise refusal(f"weights, masses: draft {i} brings one without the other; "
                              "q(token) is their quotient")
            if draft.weights is not None:
                record.draft_weights = self._list(draft.weights, np.float32, ctypes.c_float,
                                                  count, "weights")
                record.draft_masses = self._list(draft.masses, np.float64, ctypes.c_double,
                                                 count, "masses")
            if draft.target_argmax is not None:
                record.target_argmax = self._list(draft.target_argmax, np.int32, ctypes.c_int32,
                                                  count + 1, "target_argmax")
        return table

    def _rows(self, record, i, draft, count):
        target = self.target[i] if draft.target_rows is None else draft.target_rows
        drawn = self.draft[i] if draft.draft_rows is None else draft.draft_rows
        masks = self.masks[i] if draft.mask_rows is None else draft.mask_rows
        sampled = draft.sampled
        if sampled is None and (drawn is not None or draft.weights is not None):
            sampled = np.ones(count, np.uint8)
        if target is not None:
            record.target_rows = self._list(target, np.uint32, ctypes.c_uint32, count + 1,
                                            "target_rows")
        if sampled is not None:
            record.kinds = self._list(np.asarray(sampled), np.uint8, ctypes.c_uint8, count,
                                      "sampled")
        if drawn is not None:
            record.draft_rows = self._list(drawn, np.uint32, ctypes.c_uint32, count, "draft_rows")
        if masks is not None:
            record.mask_rows = self._list(masks, np.int32, ctypes.c_int32, count + 1, "mask_rows")

    def _list(self, values, dtype, ctype, count, name):
        try:
            array = (np.ascontiguousarray(values, dtype) if np.issubdtype(dtype, np.floating)
                     else integers(values, dtype, name))
        except (OverflowError, TypeError, ValueError) as error:
            raise refusal(f"{name}: {error}") from None
        if array.shape != (count,):
            raise refusal(f"{name}: {array.shape} values where {count} are needed")
        return self._keep(array, ctype)

    def _keep(self, array, ctype):
        self.kept.append(array)
        return pointer(array, ctype)


def _handle(sequence):
    return integer(getattr(sequence, "handle", sequence), "sequence", 0, 2**64 - 1)


def _share_out(indices, needs, places):
    """Gives the next needs[i] indices to place i, and none if it needs none."""
    begin = 0
    for i, need in enumerate(needs):
        if need:
            places[i] = indices[begin:begin + need]
        begin += need


def _is_per_draft(rows):
    return all(part is None or np.ndim(part) == 2 for part in rows)


def _stacked(parts, columns):
    if not parts:
        return np.zeros((0, columns), np.float32)
    is_bfloat16 = [isinstance(part, BFloat16) for part in parts]
    if any(is_bfloat16) and not all(is_bfloat16):
        raise refusal("rows: bfloat16 for some drafts and another dtype for others")
    stacked = np.concatenate([np.asarray(part) for part in parts])
    return stacked.view(BFloat16) if any(is_bfloat16) else stacked


def _child_mask_rows(count, masks, space):
    """The mask row of each request, -1 if there is none."""
    if masks is None:
        return [-1] * count
    if space.is_bound(masks):
        return space.write(masks, count, True, "one for each request", "masks").tolist()
    if len(masks) != count:
        raise refusal(f"masks: {len(masks)} for {count} requests; None where one is unconstrained")
    words = [None if mask is None else mask_words(mask, space.engine.vocab_size, 1, "masks")[0]
             for mask in masks]
    given = [word for word in words if word is not None]
    if given:
        space.reserve(len(given), 0)
        space.array[:len(given)] = given
    numbers = iter(range(len(given)))
    return [-1 if word is None else next(numbers) for word in words]


def child_records(requests, space, rows, masks, mask_space):
    """specd_draft_request for each request."""
    table, kept = c.sized(s.DraftRequest, len(requests)), []
    in_order = [i for i, request in enumerate(requests) if request.row is None]
    indices = space.write(rows, max(in_order, default=-1) + 1, len(in_order) < len(requests),
                          "one for each request")
    mask_rows = _child_mask_rows(len(requests), masks, mask_space)
    for i, (record, request) in enumerate(zip(table, requests)):
        prefix = id_array(request.prefix, "prefix")
        kept.append(prefix)
        if request.sampling not in _SAMPLING:
            raise refusal(f"sampling: {request.sampling!r} is not one of {', '.join(_SAMPLING)}")
        record.sequence = _handle(request.sequence)
        record.row = indices[i] if request.row is None else integer(request.row, "row")
        record.mask_row = mask_rows[i]
        record.prefix, record.num_prefix = pointer(prefix, ctypes.c_int32), len(prefix)
        record.sampling = _SAMPLING[request.sampling]
        record.num_children = integer(request.num_children, "num_children")
        record.first_node = integer(request.first_node, "first_node")
    table.kept = kept
    return table


def score_records(ids, indices, num_top, chosen_ids, mode):
    """Makes a specd_score_request for each id, so that each row has a status of its own."""
    if mode not in LOGPROBS_MODE:
        raise refusal(f"mode: {mode!r} is not one of raw_logprobs, raw_logits")
    ids, chosen = id_array(ids, "ids"), id_array(chosen_ids, "chosen_ids")
    rows = np.ascontiguousarray(indices[:len(ids)], dtype=np.uint32)
    table = c.sized(s.ScoreRequest, len(ids))
    for i, record in enumerate(table):
        record.rows = pointer(rows[i:], ctypes.c_uint32)
        record.ids = pointer(ids[i:], ctypes.c_int32)
        record.num_ids, record.mode, record.num_top = 1, LOGPROBS_MODE[mode], num_top
        record.chosen_ids = s.Ids(pointer(chosen, ctypes.c_int32), len(chosen))
    return table, (rows, ids, chosen)
