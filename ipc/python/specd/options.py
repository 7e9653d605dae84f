"""to_options turns the keyword arguments of Engine into specd_options."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

from . import _library as c
from . import _structs as s
from ._library import refusal, text_bytes
from .arrays import id_array, integer, pointer
from .attributes import nearest
from .cuda_stream import stream_address


def to_options(given: Mapping[str, Any]) -> tuple[s.Options, list[object]]:
    """Returns (struct, the arrays that must outlive it) for options by name."""
    struct = c.initialised(s.Options, "specd_options_init")
    kept: list[object] = []
    fields = [name for name, *_ in s.Options._fields_
              if name != "struct_size" and not name.startswith("reserved")]
    for name, value in given.items():
        if name not in fields:
            raise refusal(f"{name}: no such option{nearest(name, fields)} The options are "
                          f"{', '.join(fields)}")
        if name in ("name", "reasoning_start", "reasoning_end", "profile", "trace_options"):
            setattr(struct, name, None if value is None else text_bytes(value, name))
        elif name in ("tokenizer", "profile_file", "trace"):
            setattr(struct, name, None if value is None else text_bytes(os.fspath(value), name))
        elif name == "eos_token_ids":
            ids = id_array([] if value is None else value, name)
            kept.append(ids)
            struct.eos_token_ids = s.Ids(pointer(ids, ctypes.c_int32), len(ids))
        elif name == "eos_tokens":
            texts = [text_bytes(text, name) for text in _texts(value)]
            table = (ctypes.c_char_p * len(texts))(*texts)
            kept.append(table)
            struct.eos_tokens = s.Strings(
                ctypes.cast(table, ctypes.POINTER(ctypes.c_char_p)), len(texts))
        elif name == "cuda_stream":
            struct.cuda_stream = None if value is None else stream_address(value)
        else:
            setattr(struct, name, integer(value, name))
    return struct, kept


def _texts(value: str | list[str] | None) -> list[str]:
    """One text or a list of texts."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else value
