"""to_options turns the keyword arguments of Engine into specd_options."""

import ctypes
import os

from . import _library as c
from . import _structs as s
from ._library import refusal, text_bytes
from .arrays import id_array, integer, pointer
from .attributes import nearest


def to_options(given):
    """Returns (struct, the arrays that must outlive it) for options by name."""
    struct, kept = c.initialised(s.Options, "specd_options_init"), []
    fields = [name for name, _ in s.Options._fields_ if name not in ("struct_size", "reserved")]
    for name, value in given.items():
        if name not in fields:
            raise refusal(f"{name}: no such option{nearest(name, fields)} The options are "
                          f"{', '.join(fields)}")
        if name in ("name", "reasoning_start", "reasoning_end", "profile", "trace_options"):
            setattr(struct, name, None if value is None else text_bytes(value, name))
        elif name in ("tokenizer", "profile_file", "trace"):
            setattr(struct, name, None if value is None else text_bytes(os.fspath(value), name))
        elif name == "eos_token_ids":
            kept.append(id_array([] if value is None else value, name))
            struct.eos_token_ids = s.Ids(pointer(kept[-1], c.c_int32), len(kept[-1]))
        elif name == "eos_tokens":
            texts = [text_bytes(text, name) for text in _texts(value)]
            kept.append((ctypes.c_char_p * len(texts))(*texts))
            struct.eos_tokens = s.Strings(
                ctypes.cast(kept[-1], ctypes.POINTER(ctypes.c_char_p)), len(texts))
        else:
            setattr(struct, name, integer(value, name))
    return struct, kept


def _texts(value):
    """One text or a list of texts."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else value
