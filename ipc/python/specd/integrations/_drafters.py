"""Drafters propose the next tokens of a sequence: an assistant model, or the text of the sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine import Engine
from ..results import Children
from ..rounds import Draft, DraftRequest
from ..sequence import Sequence as OpenSequence
from ..trees import draft_ngram, static_tree
from ._cached_model import CachedModel


_NODES_MAX = 64  # of a draft, as draft_ngram makes it


class AssistantDrafter:
    """Draws from the rows of an assistant model, through sample_draft. sampled: draft tokens are
    drawn, and carry their q. Otherwise each is the best id of its row, and counts as one-hot. `q` has
    the rows of the last draft's sampled tokens, or None.

    A draft ends after the first token whose probability in its row is below min_confidence. The token
    itself stays, and the next one is not drawn: no drawn token is ever dropped. The draft prefix alone
    decides where the draft ends, so the law of the output stays the target's (docs/ALGORITHMS.md, "Drafts").
    """

    q: Any = None

    def __init__(self, model: CachedModel, engine: Engine, longest: int, sampled: bool,
                 min_confidence: float):
        self.model, self.engine, self.sampled = model, engine, sampled
        self.min_confidence = min_confidence
        # Its own memory: rows of the engine would be void once another call on it binds some.
        self.rows = np.empty((max(longest, 1), engine.vocab_size), np.float32)
        self._tensor = model.torch.from_numpy(self.rows)

    def draft(self, sequence: OpenSequence, tokens: Sequence[int], count: int) -> Draft:
        """A draft of at most `count` tokens behind `tokens`, which are the prompt and what was kept."""
        self.model.keep(len(tokens) - 1)
        ids: list[int] = []
        weights: list[float] = []
        masses: list[float] = []
        sampling = "with_replacement" if self.sampled else "top_k"
        while len(ids) < count:
            place = len(ids)
            known = ids[-1:] or list(tokens[self.model.length:])
            self._tensor[place].copy_(self.model.forward(known, 1)[0])
            request = DraftRequest(sequence, prefix=ids, sampling=sampling)
            children, = self.engine.sample_draft(self.rows[place:place + 1], [request])
            if not len(children.ids):  # a stop string has ended the sequence
                break
            ids.append(int(children.ids[0]))
            weights.append(float(children.weights[0]))
            masses.append(float(children.masses[0]))
            if weights[-1] < self.min_confidence * masses[-1]:
                break
        if not self.sampled or not ids:
            self.q = None
            return Draft(sequence, ids)
        self.q = self.rows[:len(ids)]
        return Draft(sequence, ids, weights=weights, masses=masses)

    def settle(self, num_tokens: int, path: Sequence[int]) -> None:
        """Forgets rejected draft tokens. num_tokens is the number of tokens before the round, and path has
        the indices of the accepted draft tokens."""
        self.model.keep(num_tokens, path)


class TreeDrafter:
    """Draws trees from the rows of an assistant model: at depth i each place has widths[i] children.
    sampled: they are the best ids and one that is drawn from the rest ("mixed"). Otherwise they are the
    best ids. The assistant takes one forward for each depth. `q` is as in AssistantDrafter."""

    q: Any = None

    def __init__(self, model: CachedModel, engine: Engine, widths: Sequence[int], sampled: bool):
        self.model, self.engine, self.widths, self.sampled = model, engine, widths, sampled
        places = 1 + num_nodes(widths[:-1])
        self.rows = np.empty((places, engine.vocab_size), np.float32)
        self._tensor = model.torch.from_numpy(self.rows)

    def draft(self, sequence: OpenSequence, tokens: Sequence[int], count: int) -> Draft:
        """A tree of at most `count` levels behind `tokens`, which are the prompt and what was kept."""
        self.model.keep(len(tokens) - 1)
        ids: list[int] = []
        parents: list[int] = []
        kinds: list[int] = []
        begin = -1  # the last level has the nodes from `begin` on; -1 is the root
        for width in self.widths[:count]:
            level = range(begin, len(ids))
            rows = (self.model.forward(tokens[self.model.length:], 1) if begin < 0 else
                    self.model.forward_tree((), ids[begin:], parents))
            self._tensor[begin + 1:begin + 1 + len(level)].copy_(rows)
            begin = len(ids)
            children = self._children(sequence, ids, parents, level, width)
            for node, each in zip(level, children):
                ids += each.ids.tolist()
                kinds += each.sampled.tolist()
                parents += [node] * len(each.ids)
            if begin == len(ids):  # a stop string has ended the sequence
                break
        if not ids:
            self.q = None
            return Draft(sequence)
        # Row i is that of place i, which node i - 1 leads to.
        places = np.array(parents) + 1
        self.q = self.rows[:places.max() + 1] if self.sampled else None
        return Draft(sequence, ids, sampled=kinds, parents=parents,
                     draft_rows=places if self.sampled else None)

    def _children(self, sequence: OpenSequence, ids: list[int], parents: list[int], level: range,
                  width: int) -> list[Children]:
        """The children of each place of a level. If a place has fewer than `width`, coins are left out."""
        requests = [DraftRequest(
            sequence, prefix=[ids[each] for each in _path(node, parents)], num_children=width,
            row=i, sampling="mixed" if self.sampled else "top_k",
            first_node=len(ids) + 1 + i * width) for i, node in enumerate(level)]
        most, rows = self.engine.max_batch, self.rows[level.start + 1:level.stop + 1]
        return [each for first in range(0, len(requests), most)
                for each in self.engine.sample_draft(rows, requests[first:first + most])]

    def settle(self, num_tokens: int, path: Sequence[int]) -> None:
        self.model.keep(num_tokens, path)


class NgramDrafter:
    """Proposes what followed the last tokens of the sequence where they stood before: at most `longest`
    of them are looked up. widths: None, or the draft is a tree with as many nodes and as much depth as
    these widths give, and with as many children of a place as the largest of them."""

    q = None  # its tokens count as one-hot

    def __init__(self, longest: int, widths: Sequence[int] | None = None):
        self.longest, self.widths = longest, widths

    def draft(self, sequence: OpenSequence, tokens: Sequence[int], count: int) -> Draft:
        if not count:
            return Draft(sequence)
        nodes, width = count, 1
        if self.widths is not None:
            nodes, width = num_nodes(self.widths[:count]), max(self.widths)
        found = draft_ngram(tokens, min(nodes, _NODES_MAX), min_ngram=1, max_ngram=self.longest,
                            max_depth=min(count, _NODES_MAX), width=width)
        return Draft(sequence, found.tokens, parents=None if width == 1 else found.parents)

    def settle(self, num_tokens: int, path: Sequence[int]) -> None:
        """Nothing is kept that a rejection would change."""


def num_nodes(widths: Sequence[int]) -> int:
    """The draft tokens of a tree in which each place at depth i has widths[i] children."""
    return len(static_tree(list(widths)))


def _path(node: int, parents: Sequence[int]) -> list[int]:
    """The nodes from the root to a node."""
    path: list[int] = []
    while node >= 0:
        path.insert(0, node)
        node = parents[node]
    return path


def host_rows(rows: Any) -> Any:
    """Rows as an array in host memory, as every engine reads them. float32 holds every bfloat16. A copy
    from a GPU waits for the model's forward."""
    return rows.cpu().float().numpy()
