"""TextPieces turns the ids of a growing sequence into text, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TextPieces:
    """tokenizer: anything with decode(ids, skip_special_tokens=True)."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        # Ids from _begin are decoded again each time, because the text of an id may depend on the one
        # before. The text of those before _end was handed out.
        self._begin = self._end = 0

    def add(self, ids: Sequence[int], is_last: bool) -> str:
        """The text that these ids complete. Bytes of an unfinished character wait for the next ids."""
        self._ids.extend(ids)
        before = self._decode(self._end)
        now = self._decode(len(self._ids))
        if len(now) <= len(before) or now.endswith("\ufffd") and not is_last:
            return ""
        self._begin, self._end = self._end, len(self._ids)
        return now[len(before):]

    def _decode(self, end: int) -> str:
        text: str = self._tokenizer.decode(self._ids[self._begin:end], skip_special_tokens=True)
        return text
