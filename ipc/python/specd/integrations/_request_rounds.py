"""RequestRounds runs the rounds of another engine, with one sequence of specd for each of its requests."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from .._library import Error, refusal
from ..arrays import integer
from ..batch import BatchResults
from ..engine import Engine
from ..params import SamplingParams
from ..results import FINISH_REASONS
from ..row_types import Ids
from ..sequence import Sequence

_NAME_BYTES_MAX = 128  # of a request_id of specd
# An id that the other engine has not read yet.
_UNREAD = -1
# The longest wait for a round, unless the user sets another. An estimate: far more than the longest round.
TIMEOUT_MS = 60_000


def checked_timeout(timeout_ms: int, name: str = "timeout_ms") -> int:
    """The longest wait for a round in milliseconds (-1: without limit), or a refusal where it is set."""
    return integer(timeout_ms, name, -1, 2**31 - 1)


class Opening(NamedTuple):
    """What a request's sequence is opened with. output_ids: what the request has generated already.
    An id of -1 among them is one that specd has kept."""

    params: SamplingParams
    prompt_ids: Ids = ()
    output_ids: Ids = ()


class OutputEnd(NamedTuple):
    """How many ids a request has generated, the last of them, and how often the engine took ids back."""

    num_tokens: int
    last_id: int
    num_retractions: int = 0


class Request(NamedTuple):
    """A request of the other engine. parts: the objects that stand for it, which are others once its
    parameters or its prompt are. output_ids: what it has generated, if the engine takes tokens back.
    output_end: the same for an engine whose list of ids may be a round late."""

    name: str
    parts: tuple[Any, ...]
    output_ids: list[int] | None = None
    output_end: OutputEnd | None = None


@dataclasses.dataclass
class _Opened:
    """A request with its sequence. tokens: the output of the sequence. has_ended: specd has ended it, or
    its last round failed or was given up."""

    request: Request
    sequence: Sequence
    tokens: list[int]
    has_ended: bool = False

    def agrees(self, request: Request) -> bool:
        """Whether the sequence has the parameters and the tokens of the request."""
        ids, end, kept = request.output_ids, request.output_end, len(self.tokens)
        retractions = self.request.output_end.num_retractions if self.request.output_end else 0
        return all(mine is its for mine, its in zip(self.request.parts, request.parts)) and (
            ids is None or len(ids) == kept or len(ids) > kept and ids[kept] == _UNREAD) and (
            end is None or kept > 0 and end == (kept, self.tokens[-1], retractions))


class RequestRounds:
    """The sequences of the requests that an engine has. opening: the Opening of a request. timeout_ms: the
    longest wait for a round, as in Engine.verify_batch."""

    def __init__(self, engine: Engine, opening: Callable[[Request], Opening], timeout_ms: int):
        self.engine, self._opening, self._timeout_ms = engine, opening, timeout_ms
        self._opened: dict[str, _Opened] = {}
        # The other engine ends its requests. One of specd without EOS ids refuses ignore_eos.
        self._ignore_eos = True

    def close_where(self, is_gone: Callable[[Request], bool]) -> None:
        """Closes the sequences of requests that have gone."""
        for name in [name for name, each in self._opened.items() if is_gone(each.request)]:
            _close(self._opened.pop(name).sequence)

    def verify(self, requests: Iterable[Request], rows: Any, q: Any = None, discard: Any = None,
               **drafts: Any) -> BatchResults:
        """A round of these requests. A sequence is opened at the first round of its request, and again
        where the request has other parameters or other tokens. rows, q: tensors of torch. The rest is
        that of Engine.verify_batch. Each request that is not discarded gets a token at least."""
        opened = [self._of(request) for request in requests]
        try:
            found = self.engine.verify_batch(
                self._readable(rows), [each.sequence.handle for each in opened], q=self._readable(q),
                discard=discard, timeout_ms=self._timeout_ms, **drafts)
            _check_kept(opened, found, discard)
        except BaseException:
            # The round may have given these sequences tokens that their requests will not have, or may
            # give them later.
            for each in opened:
                each.has_ended = True
            raise
        for i, each in enumerate(opened):
            each.tokens.extend(found.kept(i).tolist())
            each.has_ended = bool(found.finish_reason[i])
        return found

    def _of(self, request: Request) -> _Opened:
        before = self._opened.get(request.name)
        agrees = before is not None and before.agrees(request)
        if before is not None and agrees and not before.has_ended:
            return before
        opening = self._opening(request)
        tokens = np.array(opening.output_ids, np.int64).tolist()
        if before is not None:
            tokens = before.tokens if agrees else [
                before.tokens[i] if token == _UNREAD else token for i, token in enumerate(tokens)]
            # If the next opening fails, the tokens are still here.
            before.has_ended = True
            _close(before.sequence)
        sequence = self._open(request.name, opening._replace(output_ids=tokens))
        self._opened[request.name] = _Opened(request, sequence, tokens)
        return self._opened[request.name]

    def _open(self, name: str, opening: Opening) -> Sequence:
        opening.params.ignore_eos = self._ignore_eos
        try:
            return self.engine.open(*opening, request_id=_request_id(name))
        except Error as error:
            if not self._ignore_eos or error.code_name != "SPECD_ERROR_UNSUPPORTED":
                raise
        opening.params.ignore_eos = False
        sequence = self.engine.open(*opening, request_id=_request_id(name))
        self._ignore_eos = False
        return sequence

    def _readable(self, rows: Any) -> Any:
        """The rows where specd reads them, and complete."""
        if rows is None or not rows.is_cuda:
            return rows
        if self.engine.uri == "embedded:cpu":
            return rows.cpu()
        importlib.import_module("torch").cuda.current_stream(rows.device).synchronize()
        return rows


def _check_kept(opened: list[_Opened], found: BatchResults, discard: Any) -> None:
    for i, each in enumerate(opened):
        if not found.num_kept[i] and (discard is None or not discard[i]):
            raise refusal(
                f"request_id: the sequence of {each.request.name!r} had ended already "
                f"({FINISH_REASONS[found.finish_reason[i]]}), so its round has no token; do not "
                "abort it in specd, but in the engine that generates it")


def _close(sequence: Sequence) -> None:
    """Closes a sequence that may be closed already."""
    try:
        sequence.close()
    except Error as error:
        if error.code_name != "SPECD_ERROR_NOT_FOUND":
            raise


def _request_id(name: str) -> str:
    """The name, or its hash where specd refuses it: a client of the other engine may choose any."""
    data = name.encode(errors="surrogatepass")
    fits = 0 < len(data) <= _NAME_BYTES_MAX and data.decode(errors="replace") == name
    if fits and not any(byte < 0x20 or byte == 0x7f for byte in data):
        return name
    return "sha256-" + hashlib.sha256(data).hexdigest()
