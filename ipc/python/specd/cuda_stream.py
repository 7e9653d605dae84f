"""A CUDA stream as Python has it: an address, or an object that knows one."""

from __future__ import annotations

from typing import Protocol, SupportsIndex, Union

from ._library import refusal
from .arrays import integer


class TorchStream(Protocol):
    """torch.cuda.Stream, and what else keeps the address in this attribute."""

    @property
    def cuda_stream(self) -> int: ...


class StreamProtocol(Protocol):
    """The protocol of cuda.core: a version and the address."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


CudaStream = Union[SupportsIndex, TorchStream, StreamProtocol]

# CUDA and torch call the default stream 0. For the library NULL is no stream.
CUDA_STREAM_LEGACY = 1


def stream_address(stream: CudaStream) -> int:
    """The address of a CUDA stream, or a refusal that names cuda_stream. 0, as a number or as that of
    an object, is CUDA's default stream."""
    address: object = stream
    if hasattr(stream, "__cuda_stream__"):
        version, address = stream.__cuda_stream__()
        if version != 0:
            raise refusal(f"cuda_stream: __cuda_stream__ has version {version}, and 0 is known here; "
                          "give the address")
    elif hasattr(stream, "cuda_stream"):
        address = stream.cuda_stream
    return integer(address, "cuda_stream", 0, 2**64 - 1) or CUDA_STREAM_LEGACY
