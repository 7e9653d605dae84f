"""Results of a round: plain objects that own their numpy arrays."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from . import _library as c
from . import _structs as s
from .dlpack import Array

if TYPE_CHECKING:
    from .sequence import Sequence as OpenSequence

_Results = TypeVar("_Results")

STATUSES = ("ok", "finished", "bad_distribution", "unknown_sequence", "invalid", "device_error",
            "aborted", "not_ready")
METHODS = (None, "greedy", "exact_match", "token", "block", "tree", "traversal", "target_only",
           "typical", "relaxed", "threshold", "synthetic")
FIRST_LOSSY, LAST_LOSSY = METHODS.index("typical"), METHODS.index("synthetic")
_NO_ROW = 2**32 - 1
PHASES = ("open", "pending", "failed", "ended")
FINISH_REASONS = (None, "stop", "length", "abort", "error")


class RoundError(c.Error):
    """A part of a call was not done, such as a row without a distribution. `results` has what the
    call returns with strict=False, the other parts included: their tokens are kept. `code_name` is
    such as "SPECD_STATUS_BAD_DISTRIBUTION", and `code` is its number."""

    def __init__(self, status: str, text: str, results: Any):
        super().__init__(STATUSES.index(status), f"SPECD_STATUS_{status.upper()}", text)
        self.results = results


def checked(results: _Results, what: str, statuses: Sequence[str],
            details: Sequence[str | None] | None = None) -> _Results:
    """`results`, unless one of the statuses is bad. A sequence that has finished is not: a stop
    string may have ended it before the engine knew. Nor is one that is pending."""
    bad = [i for i, status in enumerate(statuses) if status not in ("ok", "finished", "not_ready")]
    if not bad:
        return results
    first = bad[0]
    detail = details[first] if details is not None else None
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    raise RoundError(statuses[first],
                     f"{what}[{first}] of {len(statuses)} is {statuses[first]}"
                     f"{': ' + detail if detail else ''}{more}; RoundError.results has all answers, "
                     "and strict=False returns them", results)


def checked_round(results: list[Result]) -> list[Result]:
    """`checked` for a round: the error names place and row too."""
    return checked(results, "drafts", [each.status for each in results],
                   [_where(each) for each in results])


def _where(result: Result) -> str | None:
    if result.status != "bad_distribution" or result.detail is None:
        return result.detail
    row = "" if result.bad_row is None else f", row {result.bad_row}"
    return f"at place {len(result.tokens)}{row}: {result.detail}"


SCORE = np.dtype([("id", np.int32), ("value", np.float32), ("rank", np.int32)])


@dataclasses.dataclass
class Logprob:
    """vLLM's Logprob: the score of an id and its rank, 1 + the number of ids with a greater
    score."""

    logprob: float
    rank: int
    # What the id adds to a text, as OpenAI's `bytes`: maybe a part of a character. None where no
    # tokenizer is.
    token_bytes: bytes | None = None


def logprobs_of(scores: Array | None,
                bytes_of: Callable[[int, int, int], bytes] | None = None
                ) -> list[dict[int, Logprob]] | None:
    """Returns {id: Logprob} for each token. bytes_of: the bytes of an id, of its token and its place
    among the scores."""
    if scores is None:
        return None
    return [{int(s["id"]): Logprob(float(s["value"]), int(s["rank"]),
                                   bytes_of(int(s["id"]), token, place) if bytes_of else None)
             for place, s in enumerate(row) if s["id"] >= 0} for token, row in enumerate(scores)]


class State(NamedTuple):
    """The state of a sequence: its finish reason or None. Once the sequence has finished, also the
    number of kept tokens and the sum of their logprobs (as in Result)."""

    finish_reason: str | None
    kept_tokens: int
    cumulative_logprob: float | None


class Text(NamedTuple):
    """The text that became certain: whole characters, without text that may still become a stop
    string. byte_offset is the size in bytes of the text before it. ends has for each token, from
    output token token_offset on, the size in bytes of the sequence's text after that token, with text
    that is held back. stop is the stop string or pattern that ended the text, or None. `reasoning` is
    the front of text that is of the model's thought, its end marker included, and reasoning_tokens the
    number of the thought's tokens among all outputs."""

    text: str
    byte_offset: int
    token_offset: int
    ends: Array
    stop: str | None
    finish_reason: str | None
    reasoning: str = ""
    reasoning_tokens: int = 0


@dataclasses.dataclass
class Result:
    """One sequence in one round.

    tokens: the kept tokens: num_accepted draft tokens, then specd's own (int32 array)
    path: the accepted draft tokens by their index in the draft (int32 array); in a chain 0, 1, ...
    scores: for each kept token itself, the best ids and logprob_token_ids, as rows of (id, value,
      rank). If a row has fewer ids than were asked for, id is -1. None without logprobs
    finish_reason: None, "stop", "length", "abort", "error"; stop_token is the id that finished it.
      With stop strings that a daemon's text side finds both are provisional: Sequence.final waits
      for its last word
    status: "ok", "finished", "bad_distribution", "unknown_sequence", "invalid", "device_error",
      "not_ready" (the sequence is pending: nothing changed, submit it again later), or "aborted":
      the daemon stopped in the middle of a long round, or a page of the bound memory was missing
      (the session then ends); nothing of the round is kept.
      detail says in words why it is "invalid" or "bad_distribution", and in embedded mode
      "device_error". A daemon logs why a device failed
    bad_row: the row that is no distribution, counted in the rows that the call got (or in the array
      from engine.rows): a draft row if detail begins with "draft_rows", else a target row. Its
      place in the draft is len(tokens). None if no row is to blame
    cumulative_logprob: the sum of the logprobs of the tokens kept since the sequence was opened, to
      rank samples by; None without logprobs, and where their mode gives logits
    verify: the method of this round, which shows what "auto" chose; None if nothing was verified
    lossy: that method changes the distribution of the output (allow_lossy)
    text: the text that became certain with this round, in an embedded engine that has a tokenizer, for
      a sequence with stop or stops="inline"; None otherwise
    text_offset: the size in bytes of the sequence's text before `text`
    text_ends: for each kept token, the size in bytes of the sequence's text after it, with text that is
      held back because it may become a stop string (uint64 array)
    stop_string: the stop string or pattern that ended the sequence in this round
    reasoning: the front of `text` that is of the model's thought, its end marker included
    """

    sequence: OpenSequence
    status: str
    finish_reason: str | None
    tokens: Array
    num_accepted: int
    path: Array
    total_kept: int
    stop_token: int | None
    scores: Array | None
    detail: str | None
    cumulative_logprob: float | None
    verify: str | None = None
    bad_row: int | None = None
    lossy: bool = False
    text: str | None = None
    text_offset: int | None = None
    text_ends: Array | None = None
    stop_string: str | None = None
    reasoning: str | None = None

    @property
    def logprobs(self) -> list[dict[int, Logprob]] | None:
        """For each kept token {id: Logprob}, the token itself first, as in vLLM. If the sequence's rounds
        make text, each has its bytes."""
        if self.text is None:
            return logprobs_of(self.scores)
        engine = self.sequence.engine
        return logprobs_of(self.scores, lambda token, *place: engine.token_bytes(token))


ChildrenStatus = Literal["ok", "finished", "unknown_sequence", "bad_distribution", "not_ready"]


@dataclasses.dataclass
class Children:
    """Draft tokens that specd drew: distinct ids, and how often each was drawn. `sampled` is theirs in
    specd.Draft, and `weights` and `masses` its side channel: weight / mass is the probability that an id was
    drawn with, and q(id) for a one-hot id. status: "ok", or "finished", "unknown_sequence" or
    "bad_distribution"; the arrays are then empty. detail says what is wrong with a bad row."""

    sequence: OpenSequence
    status: ChildrenStatus
    ids: Array
    counts: Array
    weights: Array
    masses: Array
    sampled: Array
    detail: str | None = None

    @property
    def q(self) -> Array:
        quotients: Array = self.weights / self.masses
        return quotients


@dataclasses.dataclass
class Scores:
    """values[i]: rows of (id, value, rank) for id i: the id itself, the best ids, the chosen ones.
    statuses[i] is "ok" or "bad_distribution"; if it is the latter, the ids of values[i] are -1, and
    details[i] says what is wrong with the row."""

    values: Array
    statuses: list[str]
    details: list[str | None]


def _copied(pointer: Any, count: int, dtype: Any) -> Array:
    """Returns a separate array: the library's own result is valid only until the next call."""
    if count == 0:
        return np.zeros(0, dtype)
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer(ctypes.string_at(pointer, size), dtype)


def number_or_none(value: float) -> float | None:
    """C says NaN if there is none."""
    return None if math.isnan(value) else value


def state_of(struct: s.SequenceState) -> State:
    return State(FINISH_REASONS[struct.finish_reason], struct.kept_tokens,
                 number_or_none(struct.cumulative_logprob))


def text_of(struct: s.Text) -> Text:
    # A field of type char* ends at the first 0 byte, and a text may have some inside.
    place = ctypes.c_void_p.from_buffer(struct, s.Text.text.offset)
    text = ctypes.string_at(place, struct.size_bytes)
    return Text(text.decode(), struct.byte_offset,
                struct.token_offset, _copied(struct.ends, struct.num_tokens, np.uint64),
                None if struct.stop_string is None else struct.stop_string.decode(),
                FINISH_REASONS[struct.finish_reason], text[:struct.reasoning_bytes].decode(),
                struct.reasoning_tokens)


def detail_of(number: int) -> str | None:
    return c.load().specd_detail_text(number).decode() if number else None


def caller_row(row: int, detail: str, named: Mapping[str, Array]) -> int:
    """The index that a bound row has for the caller."""
    bound = named.get("draft" if detail.startswith("draft_rows") else "target", np.zeros(0))
    found = np.flatnonzero(bound == row)
    return int(found[0]) if len(found) else row


def caller_rows(bad_row: Array, detail: Array, named: Mapping[str, Array]) -> Array:
    """The bad rows of a batch as the caller counts rows."""
    if not np.count_nonzero(bad_row >= 0):
        return bad_row
    counted = bad_row.copy()
    for i in np.flatnonzero(bad_row >= 0).tolist():
        counted[i] = caller_row(int(bad_row[i]), detail_of(int(detail[i])) or "", named)
    return counted


def result_of(struct: Any, sequence: Any, named: Mapping[str, Array], why: str = "") -> Result:
    """`why`: why the device failed, if it did."""
    scores = None
    if struct.scores_per_token:
        count = struct.num_kept * struct.scores_per_token
        scores = _copied(struct.scores, count, SCORE).reshape(-1, struct.scores_per_token)
    numbers = (struct.status, struct.finish_reason, struct.num_accepted, struct.num_kept,
               struct.total_kept, struct.stop_token, struct.detail, struct.bad_row, struct.verify,
               struct.cumulative_logprob)
    return made_of(numbers, sequence, _copied(struct.tokens, struct.num_kept, np.int32),
                   _copied(struct.path, struct.num_accepted, np.int32), scores, named, why)


def made_of(numbers: tuple[Any, ...], sequence: Any, tokens: Array, path: Array, scores: Array | None,
            named: Mapping[str, Array], why: str) -> Result:
    """The Result that these make. `numbers` are those of a batch's arrays, in their order."""
    (status, finish_reason, num_accepted, _, total_kept, stop_token, number, bad_row, verify,
     cumulative_logprob) = numbers
    detail = detail_of(number) if number else None
    if STATUSES[status] == "device_error":
        detail = why or None
    row = None if detail is None or bad_row == _NO_ROW else caller_row(bad_row, detail, named)
    result = Result(sequence, STATUSES[status], FINISH_REASONS[finish_reason], tokens, num_accepted,
                    path, total_kept, None if stop_token < 0 else stop_token, scores, detail,
                    number_or_none(cumulative_logprob), METHODS[verify], row,
                    FIRST_LOSSY <= verify <= LAST_LOSSY)
    # A round that changes nothing makes no text.
    if getattr(sequence, "has_text", False) and result.status in ("ok", "bad_distribution") and (
            len(tokens) or finish_reason):
        text = sequence.text()
        result.text, result.text_offset, result.text_ends = text.text, text.byte_offset, text.ends
        result.stop_string, result.reasoning = text.stop, text.reasoning
    return result


_CHILD: Any = np.dtype(s.DraftChild)


def children_of(struct: Any, sequence: Any) -> Children:
    children = _copied(struct.children, struct.num_children, _CHILD)
    status: Any = STATUSES[struct.status]
    return Children(sequence, status, children["id"], children["count"],
                    children["weight"], children["mass"], children["kind"].astype(np.uint8),
                    detail_of(struct.detail))


def scores_of(struct: Any, per_token: int) -> tuple[str, Array, str | None]:
    """Returns (status, rows of SCORE, detail) for a request with one id."""
    if struct.num_scored == 0:
        missing = np.zeros(per_token, SCORE)
        missing["id"], missing["value"] = -1, np.nan
        return STATUSES[struct.status], missing, detail_of(struct.detail)
    return STATUSES[struct.status], _copied(struct.scores, struct.scores_per_token, SCORE), None
