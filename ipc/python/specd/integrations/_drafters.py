"""Drafters propose the next tokens of a sequence: an assistant model, or the n-grams of the sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine import Engine
from ..rounds import Draft, DraftRequest
from ..sequence import Sequence as OpenSequence
from ._cached_model import CachedModel


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
        self.model.crop(len(tokens) - 1)
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

    def settle(self, num_tokens: int, num_accepted: int) -> None:
        """Forgets rejected draft tokens. num_tokens is the number of tokens before the round."""
        self.model.crop(num_tokens + num_accepted)


class NgramDrafter:
    """Looks up the last tokens of the sequence where they stood before, and proposes what followed
    there: of the longest n-gram that is found, the latest place."""

    q = None  # its tokens count as one-hot

    def __init__(self, longest: int):
        self.ends: list[dict[tuple[int, ...], int]] = [{} for _ in range(longest)]
        self.known = 0  # tokens whose n-grams are in `ends`

    def draft(self, sequence: OpenSequence, tokens: Sequence[int], count: int) -> Draft:
        # The n-gram at the very end is looked up, so it is no place yet.
        for end in range(self.known + 1, len(tokens)):
            for n, ends in enumerate(self.ends, 1):
                if n <= end:
                    ends[tuple(tokens[end - n:end])] = end
        self.known = max(self.known, len(tokens) - 1)
        for n in range(min(len(self.ends), len(tokens)), 0, -1):
            place = self.ends[n - 1].get(tuple(tokens[-n:]))
            if place is not None:
                return Draft(sequence, list(tokens[place:place + count]))
        return Draft(sequence)

    def settle(self, num_tokens: int, num_accepted: int) -> None:
        """Nothing is kept that a rejection would change."""


def host_rows(rows: Any) -> Any:
    """Rows as an array in host memory, as every engine reads them. float32 holds every bfloat16. A copy
    from a GPU waits for the model's forward."""
    return rows.cpu().float().numpy()
