"""Memory that rows lie in, and the places of copied rows in it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _library as c
from . import _structs as s
from .mapping import lasting_buffer
from .regions import unregister
from ._library import check

if TYPE_CHECKING:
    from .engine_handle import EngineHandle


class Memory:
    """Shared memory that grows. Memory that an array of the caller lies in is never given back."""

    def __init__(self, engine: EngineHandle, is_the_callers: bool):
        self.engine, self.is_the_callers = engine, is_the_callers
        self.buffer: Any = None
        self.region = 0  # of the buffer
        self.outgrown: list[int] = []  # regions that nothing but a binding may use

    def size_bytes(self) -> int:
        return 0 if self.buffer is None else len(self.buffer)

    def reserve(self, size: int, row_stride: int, hoped: int = 0) -> bool:
        """Makes room for `size` bytes, or raises Error. Makes room for `hoped` bytes if the machine
        and the daemon have them, and tells whether there is room for that many."""
        if self.buffer is not None and self.size_bytes() >= max(size, hoped):
            return True
        region = self._allocate(size, row_stride, hoped)
        if region is None:
            return False
        try:
            buffer = lasting_buffer(region)
        except OSError:
            unregister(self.engine, region.id)
            raise
        if self.buffer is not None and not self.is_the_callers:
            self.outgrown.append(self.region)
        self.buffer, self.region = buffer, region.id
        return self.size_bytes() >= hoped

    def release_outgrown(self) -> None:
        while self.outgrown:
            unregister(self.engine, self.outgrown.pop())

    @property
    def address(self) -> int:
        return ctypes.addressof(self.buffer)

    def _allocate(self, size: int, row_stride: int, hoped: int) -> s.Region | None:
        """Returns a region that holds `size` bytes. A session has few regions, so they grow
        eightfold, up to the largest round; larger ones grow twofold. If memory is short, the region
        has just `size` bytes; if the buffer holds those already, `hoped` bytes. None: memory is
        short for these too, and the buffer is enough."""
        held = self.size_bytes()
        largest_round = self.engine.max_batch * (self.engine.max_draft + 1) * row_stride * 4
        roomy = min(8 * held, largest_round) if size <= largest_round else 2 * held
        roomy = max(roomy, hoped)
        least = size if size > held else hoped
        region = s.Region()
        allocate = c.load().specd_alloc
        if roomy <= least or allocate(self.engine.pointer, roomy, ctypes.byref(region)) < 0:
            code = allocate(self.engine.pointer, least, ctypes.byref(region))
            if code < 0 and held >= size:
                return None
            check(code)
        return region


class _Place(NamedTuple):
    """Rows begin .. end - 1, which the round with this number reads."""

    number: int
    begin: int
    end: int


class CopiedRows:
    """The places of the copied rows of rounds in flight, in one Memory."""

    def __init__(self) -> None:
        self._places: list[_Place] = []

    def free_place(self, count: int, num_rows: int, in_flight: Iterable[int]) -> int | None:
        """The first of `count` rows, of num_rows, that no round in flight reads; None if there are
        no such rows."""
        self._forget(in_flight)
        for begin in (0, *(place.end for place in self._places)):
            if begin + count <= num_rows and all(
                    begin + count <= place.begin or place.end <= begin for place in self._places):
                return begin
        return None

    def take(self, number: int, begin: int, count: int) -> None:
        self._places.append(_Place(number, begin, begin + count))

    def num_taken(self, in_flight: Iterable[int]) -> int:
        self._forget(in_flight)
        return sum(place.end - place.begin for place in self._places)

    def _forget(self, in_flight: Iterable[int]) -> None:
        numbers = set(in_flight)
        self._places = [place for place in self._places if place.number in numbers]
