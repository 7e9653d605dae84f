"""Drafts that are trees, from the scores of a draft model and from a sequence's own text
(<specd/trees.h>). No engine is needed.

>>> tokens, parents = specd.draft_ngram(sequence_ids, num_nodes=16, width=3)
>>> engine.verify(rows, [specd.Draft(sequence, tokens, parents=parents)])
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _library as c
from . import _structs as s
from ._library import check, refusal
from .arrays import floats, id_array, integer, integers, pointer, set_pointer

if TYPE_CHECKING:
    from .row_types import Array, Ids

_NODES_MAX = 64


class GrownTree(NamedTuple):
    """nodes[i] is the candidate that draft token i is, and parents[i] its parent, for specd.Draft."""

    nodes: Array
    parents: Array


class NgramDraft(NamedTuple):
    """Draft tokens and their parents, for specd.Draft."""

    tokens: Array
    parents: Array


def grow_tree(parents: Ids, scores: Any, num_nodes: int, max_depth: int = 0) -> GrownTree:
    """Chooses the num_nodes candidates with the best scores, of equal ones the earlier ones.

    parents: for each candidate an earlier candidate, or -1 for the kept tokens
    scores: for each candidate the product of the draft model's probabilities on its path, or the sum
      of their logarithms, as float32
    max_depth: candidates further from the root are left out; 0: none is

    A drafter of EAGLE's kind also calls it after each step, with the candidates of that step and parents
    of -1, for those that it expands next.
    """
    above, values = id_array(parents, "parents"), floats(scores, np.float32, "scores")
    if values.shape != above.shape:
        raise refusal(f"scores: {values.size} for {above.size} parents; one for each is needed")
    struct = c.initialised(s.Growth, "specd_growth_init")
    struct.num_candidates = len(above)
    set_pointer(struct, "parents", above)
    set_pointer(struct, "scores", values)
    struct.num_nodes = integer(num_nodes, "num_nodes", 1)
    struct.max_depth = integer(max_depth, "max_depth")
    nodes, found = np.empty(_NODES_MAX, np.uint32), _Nodes()
    check(c.load().specd_grow_tree(ctypes.byref(struct), pointer(nodes, ctypes.c_uint32),
                                   *found.places()))
    return GrownTree(nodes[:found.count.value].astype(np.int64), found.parents())


def static_tree(widths: Ids) -> Array:
    """The parents of a tree in which each place at depth i has widths[i] children, level by level."""
    levels, found = integers(widths, np.uint32, "widths"), _Nodes()
    if levels.ndim != 1:
        raise refusal("widths: a list of numbers is needed, one for each level")
    check(c.load().specd_static_tree(pointer(levels, ctypes.c_uint32), len(levels), *found.places()))
    return found.parents()


def draft_ngram(text: Ids, num_nodes: int = 8, *, min_ngram: int = 2, max_ngram: int = 8,
                max_depth: int = 8, width: int = 1) -> NgramDraft:
    """Proposes the tokens that followed the end of a text where it occurred before: the longest n-gram
    at the end, of min_ngram to max_ngram ids, is looked for. text: prompt and output ids of the
    sequence. width: children of one place; 1 is a chain. The tokens are one-hot drafts."""
    ids, found = id_array(text, "text"), _Nodes()
    struct = c.initialised(s.Ngrams, "specd_ngrams_init")
    struct.text.items, struct.text.count = pointer(ids, ctypes.c_int32), len(ids)
    for name, value in (("num_nodes", num_nodes), ("min_ngram", min_ngram),
                        ("max_ngram", max_ngram), ("max_depth", max_depth), ("width", width)):
        setattr(struct, name, integer(value, name))
    tokens = np.empty(_NODES_MAX, np.int32)
    check(c.load().specd_draft_ngram(ctypes.byref(struct), pointer(tokens, ctypes.c_int32),
                                     *found.places()))
    return NgramDraft(tokens[:found.count.value].copy(), found.parents())


class _Nodes:
    """Where a call writes parents and their number."""

    def __init__(self) -> None:
        self._parents = np.empty(_NODES_MAX, np.int32)
        self.count = ctypes.c_uint32()

    def places(self) -> tuple[Any, Any]:
        return pointer(self._parents, ctypes.c_int32), ctypes.byref(self.count)

    def parents(self) -> Array:
        parents: Array = self._parents[:self.count.value].copy()
        return parents
