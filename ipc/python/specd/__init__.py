"""specd from Python: verify speculative drafts and sample tokens, with numpy in and out.

>>> import numpy as np, specd
>>> engine = specd.Engine("embedded:cpu", vocab_size=4)
>>> params = specd.SamplingParams(temperature=0, logprobs=2)
>>> sequence = engine.open(params, prompt_ids=[3, 1])
>>> result, = engine.verify(np.eye(4) * 5, {sequence: [0, 1, 1]})
>>> result.tokens, result.num_accepted
(array([0, 1, 2], dtype=int32), 2)

Nothing is compiled: the package uses ctypes over libspecd. _library.py says where it looks for the
library. The other files are:

  engine.py     Engine, with its parts:
  engine_handle.py its opening and its end
  round_calls.py its rounds
  in_flight.py  Awaited, a round in flight, such as a Round, and the waits for it
  sequence.py   Sequence
  member.py     Member, a tensor-parallel rank
  options.py    the options of Engine
  params.py     SamplingParams
  attributes.py the refusal of attributes that a class does not have
  param_table.py the library's table of parameters and refused names
  structured.py StructuredOutputs, a constraint of SamplingParams
  rounds.py     Draft and DraftRequest
  batch.py      rounds of many sequences, as arrays
  draft_batch.py draft tokens of many sequences, as arrays
  opening_batch.py openings of many sequences, as arrays
  batch_arrays.py what both need
  quick_rounds.py rounds like the one before, without the work that such a round repeats
  result_block.py the arrays of results, in one block of memory
  row_space.py  the rows of a role: the caller's, used in place, and copies
  row_memory.py the memory of rows, and the places of copies in it
  lent_rows.py  tensors in device memory that a call brings
  dlpack.py     tensors of other packages
  cuda_stream.py CUDA streams of other packages
  row_types.py  the types of what rounds take
  slot_memory.py draft tokens and slot outputs, by slot
  bfloat.py     BFloat16, an array of bfloat16 numbers
  results.py    the results of a round
  ops.py        functions that need no engine
  grammar.py    Tokenizer, Grammar and matchers: masks of allowed ids, without an engine
  trees.py      drafts that are trees, of scores and of text, without an engine
  subscribe.py  subscribe: the text or the ids that a daemon publishes, without an engine
  stream_reader.py the streams behind a subscription: what each has had, and what is missing
  stream_output.py joins a stream's events: deltas, all so far, or all at the end; and how often
"""

from __future__ import annotations

import os

from ._library import Error, check, last_error, load, refusal
from .arrays import pack_mask
from .batch import BatchResults, BatchRound
from .bfloat import BFloat16, bfloat16
from .draft_batch import BatchChildren
from .engine import Engine
from .cuda_stream import CudaStream
from .dlpack import SupportsDlpack
from .grammar import Grammar, Matcher, Tokenizer, apply_mask, fill_masks
from .in_flight import Awaited, Round, RoundTimeout
from .member import Member
from .opening_batch import BatchOpening, OpeningRefused
from .ops import argmax, sample, softmax, top_k_mask, top_k_renorm, top_p_renorm
from .params import SamplingParams
from .results import Children, Logprob, Result, RoundError, Scores
from .rounds import Draft, DraftRequest
from .sequence import Sequence
from .stream_reader import StreamEvent
from .structured import StructuredOutputs
from .subscribe import Subscription, subscribe
from .trees import DraftLength, GrownTree, NgramDraft, draft_ngram, grow_tree, static_tree


def version() -> str:
    """The version of the library, such as "0.1.0"."""
    text: bytes = load().specd_version()
    return text.decode()


def load_backends(path: str | os.PathLike[str]) -> None:
    """Loads a shared object with sampler backends (docs/BACKENDS.md), for the URI "embedded:NAME" and
    the device NAME of sample, softmax and their like."""
    file = os.fsencode(path)
    if b"\0" in file:
        raise refusal(f"path: {path!r} has a NUL character; remove it")
    check(load().specd_load_backends(os.path.abspath(file)))


__all__ = [
    "Awaited", "BFloat16", "BatchChildren", "BatchOpening", "BatchResults", "BatchRound", "Children", "CudaStream",
    "Draft", "DraftLength", "DraftRequest", "Engine", "Error", "Grammar", "GrownTree", "Logprob", "Matcher",
    "Member", "NgramDraft", "OpeningRefused", "Result", "Round", "RoundError", "RoundTimeout", "SamplingParams", "Scores",
    "Sequence", "StreamEvent", "StructuredOutputs", "Subscription", "SupportsDlpack", "Tokenizer", "apply_mask",
    "argmax", "bfloat16", "draft_ngram", "fill_masks", "grow_tree", "last_error", "load_backends", "pack_mask",
    "sample", "softmax", "static_tree", "subscribe", "top_k_mask", "top_k_renorm", "top_p_renorm", "version",
]
