"""to_options turns the keyword arguments of Engine into specd_options."""

import os

import numpy as np

from . import _library as c
from ._library import refusal, text_bytes
from .arrays import id_array, integer, pointer


def to_options(given):
    """Returns (struct, the array that must outlive it) for options by name."""
    struct, eos = c.initialised(c.Options, "specd_options_init"), np.zeros(0, np.int32)
    fields = [name for name, _ in c.Options._fields_ if name not in ("struct_size", "reserved")]
    for name, value in given.items():
        if name not in fields:
            raise refusal(f"{name}: no such option; the options are {', '.join(fields)}")
        if name in ("name", "reasoning_start", "reasoning_end", "trace_options"):
            setattr(struct, name, None if value is None else text_bytes(value, name))
        elif name in ("tokenizer", "trace"):
            setattr(struct, name, None if value is None else text_bytes(os.fspath(value), name))
        elif name == "eos_token_ids":
            eos = id_array([] if value is None else value, name)
            struct.eos_token_ids = c.Ids(pointer(eos, c.c_int32), len(eos))
        else:
            setattr(struct, name, integer(value, name))
    return struct, eos
