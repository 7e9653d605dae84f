"""EngineHandle is the part of Engine that opens and closes the library's engine."""

from __future__ import annotations

import ctypes
import secrets
import string
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _library as c
from ._library import check, refusal, text_bytes
from .in_flight import InFlight
from .options import to_options

if TYPE_CHECKING:
    from .params import SamplingParams

_Self = TypeVar("_Self", bound="EngineHandle")

# A request id of the package has 15 bytes up to a million of them, which C++ keeps without
# allocating memory.
_TOKEN_CHARACTERS = string.ascii_lowercase + string.digits
NAME_DIGITS = 6


def _close(function: Callable[[Any], None], handle: ctypes.c_void_p) -> None:
    """Closes the engine. The handle is NULL from then on, which the library refuses."""
    pointer, handle.value = handle.value, None
    function(pointer)


class EngineHandle:
    """See the head of the file."""

    def __init__(self, uri: str, vocab_size: int, options: dict[str, Any]):
        struct, kept = to_options({"vocab_size": vocab_size, **options})
        handle = ctypes.c_void_p()
        check(c.load().specd_open(text_bytes(uri, "uri"), ctypes.byref(struct),
                                  ctypes.byref(handle)))
        del kept
        self.uri, self.vocab_size = uri, int(struct.vocab_size)
        self.max_batch, self.max_draft = int(struct.max_batch), int(struct.max_draft)
        self.max_path = int(struct.max_path) or self.max_draft
        self.max_sequences = int(struct.max_sequences) or self.max_batch
        self.max_scores_per_token = int(struct.max_scores_per_token)
        self._pointer = handle
        # Also run when the interpreter ends, so that a daemon is told at once.
        self._closer = weakref.finalize(self, _close, c.load().specd_close, handle)
        self._in_flight = InFlight(self)
        # The engines of one daemon share its log and its events. No two may use the same ids.
        token = "".join(secrets.choice(_TOKEN_CHARACTERS) for _ in range(6))
        self.request_id_prefix = f"py{token}-"
        self._names = 0

    @property
    def pointer(self) -> ctypes.c_void_p:
        """The library's engine, for a call that follows at once: no other thread is in one."""
        if not self._closer.alive:
            raise refusal("the engine is closed")
        self._in_flight.pause()
        return self._pointer

    def makes_text(self, params: SamplingParams) -> bool:
        """Whether the rounds of such a sequence make text that the engine has."""
        return self.uri.startswith("embedded:") and (bool(params.stop or params.stop_regex) or
                                                     params.stops == "inline")

    def token_bytes(self, token: int) -> bytes:
        """What an id adds to a text: maybe a part of a character. Of an embedded engine with a
        tokenizer."""
        place, size = ctypes.c_char_p(), ctypes.c_uint64()
        check(c.load().specd_token_bytes(self.pointer, token, ctypes.byref(place),
                                         ctypes.byref(size)))
        return ctypes.string_at(place, size.value)

    def next_request_id(self) -> str:
        return f"{self.request_id_prefix}{self.take_names(1):0{NAME_DIGITS}}"

    def take_names(self, count: int) -> int:
        """The first of `count` numbers that no request id has yet."""
        first = self._names + 1
        self._names += count
        return first

    def close(self) -> None:
        """Detaches the engine and aborts open sequences. Arrays from rows(), slot_output(),
        next_tokens() and draft_tokens() keep their memory, which nothing reads any more."""
        self._in_flight.close()
        self._closer()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
