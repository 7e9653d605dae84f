"""RequestRounds runs the rounds of another engine, with one sequence of specd for each of its requests."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..batch import BatchResults
from ..engine import Engine
from ..params import SamplingParams
from ..row_types import Ids
from ..sequence import Sequence


class Opening(NamedTuple):
    """What a request's sequence is opened with. output_ids: what the request has generated already."""

    params: SamplingParams
    prompt_ids: Ids = ()
    output_ids: Ids = ()


class Request(NamedTuple):
    """A request of the other engine: its id, and the object that stands for it as long as it lives."""

    name: str
    state: Any


class RequestRounds:
    """The sequences of the requests that an engine has. opening: the Opening of a request."""

    def __init__(self, engine: Engine, opening: Callable[[Request], Opening]):
        self.engine, self._opening = engine, opening
        self._open: dict[str, tuple[Request, Sequence]] = {}

    def close_where(self, is_gone: Callable[[Request], bool]) -> None:
        """Closes the sequences of requests that have gone."""
        for name in [name for name, (request, _) in self._open.items() if is_gone(request)]:
            self._close(name)

    def verify(self, requests: Iterable[Request], rows: Any, q: Any = None,
               **drafts: Any) -> BatchResults:
        """A round of these requests. A sequence is opened at the first round of its request. rows, q:
        tensors of torch. The rest is that of Engine.verify_batch."""
        handles = [self._sequence(request).handle for request in requests]
        return self.engine.verify_batch(self._readable(rows), handles, q=self._readable(q), **drafts)

    def _close(self, name: str) -> None:
        self._open.pop(name)[1].close()

    def _sequence(self, request: Request) -> Sequence:
        if request.name in self._open and self._open[request.name][0].state is not request.state:
            self._close(request.name)  # a later request has the same name
        if request.name not in self._open:
            sequence = self.engine.open(*self._opening(request), request_id=request.name)
            self._open[request.name] = request, sequence
        return self._open[request.name][1]

    def _readable(self, rows: Any) -> Any:
        """The rows where specd reads them, and complete."""
        if rows is None or not rows.is_cuda:
            return rows
        if self.engine.uri == "embedded:cpu":
            return rows.cpu()
        importlib.import_module("torch").cuda.current_stream(rows.device).synchronize()
        return rows
