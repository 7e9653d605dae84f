"""One row, from the logits as they arrive to what is sampled from: CONTRACT §3, in double precision.

Written from the contract in the most obvious way, over whole vocabulary vectors; nothing here looks
at how the kernels do it. Kernels work in fp32 and integers (CONTRACT §9), so they may decide
otherwise where a decision is very near. Therefore each decision here comes with its *slack*: the
distance to the nearest other outcome, divided by how far the kernels' numbers may be off. Below 1
the other outcome is legitimate.
"""

import dataclasses
import math

import numpy as np

ULP = 2.0**-24  # the error of one fp32 rounding, relative
INF = math.inf


@dataclasses.dataclass
class Params:
    """Field names are those of specd.SamplingParams, which are vLLM's where vLLM has the field."""

    verify: str = "auto"
    typical_epsilon: float = 0.09
    typical_delta: float = 0.3
    relaxed_n: int = 10
    relaxed_delta: float = 0.6
    relaxed_thinking: bool = False
    threshold_single: float = 1.0
    threshold_acc: float = 1.0
    synthetic_rates: tuple = ()
    seed: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    filter_order: str = "sequential"
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict = dataclasses.field(default_factory=dict)
    allowed_token_ids: tuple = ()
    disallowed_token_ids: tuple = ()
    bad_words: tuple = ()
    no_repeat_ngram_size: int = 0
    no_repeat_ngram_window: int = 0
    no_repeat_ngram_whitelist: tuple = ()
    thinking_token_budget: int = -1
    thinking_start_id: int = -1
    thinking_end_ids: tuple = ()
    thinking_newline_id: int = -1
    max_tokens: int = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple = ()
    logprobs: int | None = None
    logprobs_mode: str = "raw_logprobs"
    logprob_token_ids: tuple = ()
    draft_temperature: float = 1.0
    draft_top_p: float = 1.0
    draft_top_k: int = 0
    draft_min_p: float = 0.0
    draft_filter_order: str = "sequential"
    draft_edits: bool = False

    @property
    def greedy(self):
        return self.temperature < 1e-5 or self.top_k == 1

    @property
    def filters(self):
        return Filters(self.temperature, self.top_p, self.top_k, self.min_p, self.filter_order)

    @property
    def draft_filters(self):
        return Filters(self.draft_temperature, self.draft_top_p, self.draft_top_k,
                       self.draft_min_p, self.draft_filter_order)


@dataclasses.dataclass
class Filters:
    """Steps 8 to 11."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    order: str = "sequential"


@dataclasses.dataclass
class Rules:
    """How the elements of a tensor are to be read (CONTRACT §2)."""

    kind: str = "logits"  # or probabilities, final_probabilities
    scale: float = 1.0
    cap: float = 0.0
    renormalise: bool = False


class BadRow(Exception):
    """BAD_DISTRIBUTION of CONTRACT §6."""


@dataclasses.dataclass
class Logits:
    """A row at some step. `error` bounds what fp32 roundings may have moved each logit by. edits: the
    numbers of steps 2 and 4, a column for each id; None: no step has any."""

    values: np.ndarray
    error: np.ndarray
    edits: np.ndarray | None = None


def equals(row, identity):
    """The ids whose value is that of an id in every precision. Other steps round otherwise, so values that
    other steps made equal may differ in fp32."""
    equal = row.values == row.values[identity]
    return equal if row.edits is None else equal & (row.edits == row.edits[:, [identity]]).all(axis=0)


@dataclasses.dataclass
class Distribution:
    """What is sampled from. `error` bounds the relative error of each p, `mass_error` the absolute
    one of any sum of them; `slack` is that of the filters' decisions. `kept` is what the filters
    left, also where p is 0 by rounding."""

    p: np.ndarray
    error: np.ndarray
    mass_error: float
    slack: float = INF
    kept: np.ndarray | None = None
    temperature: float = 1.0


def load(row, rules):
    """The row as it arrived, scaled and capped: what `raw` logprobs speak of."""
    values = np.asarray(row, dtype=np.float64)
    if rules.kind != "logits":
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where((values >= 0) & (values < 2.0**-126), -INF, np.log(values))
        return Logits(values, np.where(np.isfinite(values), 8 * ULP * (1 + np.abs(values)), 0))
    error = np.zeros(values.shape)
    if rules.scale != 1:
        values = values * np.float32(rules.scale).astype(np.float64)
        error = np.where(np.isfinite(values), ULP * np.abs(values), 0)
    if rules.cap:
        error = error + 8 * ULP * abs(rules.cap)
        # An id that an engine masked before the cap stays masked (docs/ALGORITHMS.md).
        values = np.where(np.isinf(values), values, rules.cap * np.tanh(values / rules.cap))
    return Logits(values, np.where(np.isfinite(values), error, 0))


@dataclasses.dataclass
class Place:
    """What the place of a row in the stream decides: the tokens before it and its grammar mask."""

    prompt: list
    output: list  # kept tokens, then the draft prefix
    mask: np.ndarray | None = None  # booleans; None: unconstrained
    eos_ids: tuple = ()


def edit(raw, params, place):
    """Steps 1 to 6. Raises BadRow as CONTRACT §6 says."""
    forced = forced_by_budget(params, place)
    if forced is not None:  # over every step, so that the row is not read
        values = np.full(raw.values.shape, -INF)
        values[forced] = INF
        return Logits(values, np.zeros(values.shape))
    allowed = mask_of(params, place, len(raw.values))
    values = np.where(allowed, raw.values, -INF)
    if np.isnan(values).any() or values.max() == -INF:
        raise BadRow
    edits = edits_of(params, place, len(values))
    widest = np.abs(values)
    values = values + edits[0]
    widest = np.fmax(widest, np.abs(values))
    values = hold_back_the_end(values, params, place)
    for values in penalised(values, *edits[1:]):
        widest = np.fmax(widest, np.abs(values))
    touched = (edits.T != (0, 1, 0, 0)).any(axis=1) & np.isfinite(values)
    values = ban_words(values, params, place)
    values = ban_ngrams(values, params, place)
    if values.max() == -INF:
        raise BadRow
    with np.errstate(invalid="ignore"):
        error = np.where(touched, 2 * raw.error + 5 * ULP * widest, raw.error)
    return Logits(values, np.where(np.isfinite(values), error, 0), edits)


def mask_of(params, place, vocab_size):
    """Step 1."""
    allowed = np.ones(vocab_size, bool)
    if place.mask is not None:
        allowed &= place.mask
    if params.allowed_token_ids:
        listed = np.zeros(vocab_size, bool)
        listed[list(params.allowed_token_ids)] = True
        allowed &= listed
    allowed[list(params.disallowed_token_ids)] = False
    return allowed


def edits_of(params, place, vocab_size):
    """What steps 2 and 4 do to each id: a bias, a divisor, and two numbers that are subtracted."""
    bias = np.zeros(vocab_size)
    for token, number in params.logit_bias.items():
        bias[token] += np.float32(number)
    output = np.array([t for t in place.output if 0 <= t < vocab_size], dtype=np.int64)
    count = np.bincount(output, minlength=vocab_size)
    seen = count > 0
    seen[[t for t in place.prompt if 0 <= t < vocab_size]] = True
    repetition, frequency, presence = (
        float(np.float32(x)) for x in
        (params.repetition_penalty, params.frequency_penalty, params.presence_penalty))
    return np.stack([bias, np.where(seen, repetition, 1.0), frequency * count,
                     np.where(count > 0, presence, 0.0)])


def hold_back_the_end(values, params, place):
    """Step 3; it yields where step 1 leaves nothing but ends. (A bias takes no id away.)"""
    ends = np.zeros(len(values), bool)
    ends[list(params.stop_token_ids)] = True
    ends[list(place.eos_ids)] = True
    if len(place.output) >= params.min_tokens or not (values[~ends] > -INF).any():
        return values
    return np.where(ends, -INF, values)


def penalised(values, repetition, frequency, presence):
    """Step 4, rounding by rounding."""
    repeated = np.where(values > 0, values / repetition, values * repetition)
    return repeated, repeated - frequency, repeated - frequency - presence


def ban_words(values, params, place):
    """Step 5: the last id of a word whose other ids are the end of the output."""
    values = values.copy()
    for word in params.bad_words:
        prefix = list(word[:-1])
        if not prefix or place.output[-len(prefix):] == prefix:
            values[word[-1]] = -INF
    return values


def ban_ngrams(values, params, place):
    """Step 6: ids that would complete an n-gram that begins inside the window."""
    size, window = params.no_repeat_ngram_size, params.no_repeat_ngram_window
    history = place.prompt + place.output
    if size <= 0:
        return values
    values = values.copy()
    prefix = history[len(history) - (size - 1):] if size > 1 else []
    first = max(0, len(history) - window) if window > 0 else 0
    for start in range(first, len(history) - size + 1):
        *head, last = history[start:start + size]
        if head == prefix and last not in params.no_repeat_ngram_whitelist:
            if 0 <= last < len(values):
                values[last] = -INF
    return values


def forced_by_budget(params, place):
    """Step 6: the one id that a spent thinking budget leaves, or None."""
    if params.thinking_token_budget < 0:
        return None
    history, end = place.prompt + place.output, list(params.thinking_end_ids)
    starts = [i for i, token in enumerate(history) if token == params.thinking_start_id]
    if not starts:
        return None
    thought = history[starts[-1] + 1:]
    if any(thought[i:i + len(end)] == end for i in range(len(thought) - len(end) + 1)):
        return None
    if len(thought) < params.thinking_token_budget:
        return None
    for done in range(len(end) - 1, 0, -1):
        if thought[-done:] == end[:done]:
            return end[done]
    newline = params.thinking_newline_id
    just_emitted = place.output[-1:] == [newline]
    return end[0] if newline < 0 or just_emitted else newline


def argmax(logits):
    """Step 7: the token and its slack."""
    values = logits.values
    token = int(np.argmax(values))
    if values[token] == INF:
        return token, INF
    return token, order_slack(logits, np.array([token]), np.arange(len(values)) != token)


def order_slack(logits, inside, outside):
    """How surely every id of `inside` stands before every id of `outside`. Logits that are equal in every
    precision are sure, because their ids decide."""
    low = logits.values[inside].min()
    last = np.flatnonzero(logits.values == low)
    sure = last.size == 0 or equals(logits, last[0])[last].all()
    rivals = logits.values[outside]
    rivals = rivals[rivals < low if sure else rivals <= low]
    if not rivals.size or not math.isfinite(low) or not math.isfinite(rivals.max()):
        return INF
    error = 2 * logits.error[np.isfinite(logits.values)].max()
    return (low - rivals.max()) / error if error else INF


def distribution(logits, filters):
    """Steps 8 to 11."""
    values, temperature = logits.values, filters.temperature
    top = values.max()
    if top == INF:
        p = np.zeros(values.shape)
        p[np.argmax(values)] = 1
        return Distribution(p, np.zeros(values.shape), 0.0, INF, p > 0, temperature)
    x = (values - top) / temperature * math.log2(math.e)
    weights = np.where(x < -126, 0, np.exp2(np.maximum(x, -200)))
    # docs/ALGORITHMS.md, "Numbers": the error of a probability; logits may be off already.
    error = np.where(x < -126, 0, ULP * (22 - 2.1 * np.maximum(x, -200)) +
                     2 * logits.error / temperature)
    p = weights / weights.sum()
    full = Distribution(p, error, float((p * error).sum()))
    return apply_filters(logits, x, full, filters)


def apply_filters(logits, x, full, filters):
    """Steps 9 to 11 on a distribution of step 8; x = log2(p / p_max)."""
    vocab_size = len(full.p)
    order = np.lexsort((np.arange(vocab_size), -logits.values))
    slack, joint = INF, filters.order == "joint"
    alive = logits.values > -INF
    if filters.min_p > 0:
        bound = math.log2(filters.min_p)
        keep = x >= bound
        error = full.error + full.error.min() + 4 * ULP * (1 + abs(bound))
        slack = min(slack, np.min(np.abs(np.maximum(x, -200) - bound) / error))
        alive &= keep
    if 0 < filters.top_k < vocab_size:
        pool = order if joint else order[alive[order]]
        keep = np.zeros(vocab_size, bool)
        keep[pool[:filters.top_k]] = True
        slack = min(slack, order_slack(logits, pool[:filters.top_k], pool[filters.top_k:]))
        alive &= keep
    if filters.top_p < 1:
        pool = order if joint else order[alive[order]]
        prefix = np.cumsum(full.p[pool])
        if not joint:
            prefix /= prefix[-1]
        count = min(int(np.searchsorted(prefix, filters.top_p, side="left")) + 1, len(pool))
        keep = np.zeros(vocab_size, bool)
        keep[pool[:count]] = True
        slack = min(slack, order_slack(logits, pool[:count], pool[count:]))
        # Mass beyond the last id that has any decides nothing.
        decides = full.p[pool[1:]] > 0
        if decides.any():
            distances = np.abs(prefix[:-1][decides] - filters.top_p)
            slack = min(slack, distances.min() / (2 * full.mass_error + 2.0**-40 * vocab_size))
        alive &= keep
    p = np.where(alive, full.p, 0)
    p /= p.sum()
    return Distribution(p, full.error, float((p * full.error).sum()), float(slack), alive,
                        filters.temperature)


def draw(weights, coin, mass_error):
    """The inverse CDF in the order of ids: the token and its slack. weights need not sum to 1;
    mass_error is in their unit."""
    prefix = np.cumsum(weights)
    target = coin * prefix[-1]
    token = int(np.searchsorted(prefix, target, side="right"))
    below, above = target - (prefix[token] - weights[token]), prefix[token] - target
    if prefix[token] - weights[token] <= 0:
        below = INF
    if prefix[token] >= prefix[-1]:
        above = INF
    return token, min(below, above) / (mass_error + 2.0**-40 * len(weights))
