"""Random scenes for rounds_test.py: an engine's shape, sequences with parameters, rounds over them.

Everything is drawn from one numpy generator, so a seed is a scene. Features are switched on apart
and together; ids come often from a few, so that penalties, bad words and n-grams find something.
"""

import dataclasses

import numpy as np

import specd
from contract_rows import Params, Rules

_OUR_NAMES = {f.name for f in dataclasses.fields(specd.SamplingParams)}


@dataclasses.dataclass
class Scene:
    """What holds for one engine. `kind` and `dtype` are those of the target rows; draft rows are
    of the same dtype, and logits unless draft_kind says otherwise."""

    vocab_size: int
    max_draft: int
    dtype: str
    kind: str
    draft_kind: str
    scale: float
    cap: float
    renormalise: bool
    row_stride: int
    degenerate: bool

    @property
    def target_rules(self):
        return Rules(self.kind, self.scale, self.cap, self.renormalise)

    @property
    def draft_rules(self):
        return Rules(self.draft_kind, 1.0, 0.0, False)


def make_scene(rng):
    size = rng.random()
    vocab_size = int(rng.integers(8, 80) if size < 0.55 else rng.integers(80, 601) if size < 0.94
                     else 2049 if size < 0.985 else 5000)
    kind = rng.choice(["logits", "probabilities", "final_probabilities"], p=[0.82, 0.11, 0.07])
    draft_kind = "final_probabilities" if kind[0] == "f" and rng.random() < 0.7 else "logits"
    if rng.random() < 0.1:
        draft_kind = "probabilities"
    logits_only = kind == draft_kind == "logits"
    dtype = rng.choice(["float32", "bfloat16", "float16"], p=[0.6, 0.2, 0.2])
    scaled = kind == "logits" and rng.random() < 0.15
    return Scene(
        vocab_size=vocab_size, max_draft=int(rng.integers(0, 7)),
        dtype=str(dtype) if logits_only else "float32", kind=str(kind), draft_kind=draft_kind,
        scale=float(rng.choice([0.5, 0.73, 2.0])) if scaled else 1.0,
        cap=float(rng.choice([5.0, 30.0])) if scaled and rng.random() < 0.6 else 0.0,
        renormalise=bool(kind == "probabilities" and rng.random() < 0.3),
        row_stride=vocab_size + int(rng.integers(0, 9)), degenerate=bool(rng.random() < 0.25))


# ---- parameters -----------------------------------------------------------------------------------


def make_params(rng, scene):
    """The fields of specd.SamplingParams and contract Params that are not at their default."""
    some = lambda chance=0.25: rng.random() < chance
    few = lambda most: [int(x) for x in rng.permutation(scene.vocab_size)[:rng.integers(1, most)]]
    fields = {"seed": int(rng.integers(0, 2**64, dtype=np.uint64)),
              "max_tokens": int(rng.integers(1, 24))}
    if some(0.6):
        fields["verify"] = str(rng.choice(["exact_match", "token", "block"]))
    if some():
        fields["stop_token_ids"] = few(4)
    if some(0.5):
        fields |= make_logprobs(rng, few)
    if scene.draft_kind != "final_probabilities":
        fields |= make_draft_params(rng, some)
    if scene.kind == "final_probabilities":
        return fields
    if some(0.15):
        fields["temperature"] = 0.0
        if fields.get("verify") in ("token", "block"):
            del fields["verify"]
    elif some(0.6):
        fields["temperature"] = float(rng.choice([0.1, 0.5, 0.8, 1.3, 2.0, 100.0]))
    fields |= make_filters(rng, some, scene.vocab_size)
    if fields.get("verify") in ("token", "block") and fields.get("top_k") == 1:
        del fields["verify"]
    fields |= make_edits(rng, some, few, scene.vocab_size, fields["max_tokens"])
    return fields


def make_lossy(rng, fields):
    """A lossy method in place of another. Its numbers are never at their limits, where one rounding decides."""
    is_greedy = fields.get("temperature", 1) == 0 or fields.get("top_k") == 1
    method = str(rng.choice(["relaxed", "synthetic", *(() if is_greedy else ("typical", "threshold"))]))
    number = lambda: float(rng.random())
    if method == "typical":
        made = {"typical_epsilon": number() ** 2, "typical_delta": 2 * number()}
    elif method == "relaxed":
        made = {"relaxed_n": int(rng.integers(0, 9)), "relaxed_delta": number()}
        if rng.random() < 0.3:
            made["relaxed_thinking"] = True
            made |= {"thinking_start_id": 1, "thinking_end_ids": [2, 3]} if (
                "thinking_start_id" not in fields) else {}
    elif method == "threshold":
        made = {"threshold_single": number(), "threshold_acc": number()}
    else:
        made = {"synthetic_rates": [number() for _ in range(rng.integers(1, 5))]}
    return {"verify": method, **made}


def make_logprobs(rng, few):
    mode = str(rng.choice(["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits",
                           "unfiltered_logprobs"]))
    fields = {"logprobs": int(rng.integers(0, 6)), "logprobs_mode": mode}
    if rng.random() < 0.4:
        fields["logprob_token_ids"] = few(4)
    return fields


def make_draft_params(rng, some):
    fields = {}
    if some(0.4):
        # With both temperatures at 100, p and q differ by so little that the h of block is a quotient of
        # rounding errors: the oracle in double then meets other coins, though the law moves by rounding alone.
        fields["draft_temperature"] = float(rng.choice([0.3, 0.7, 1.6]))
    if some(0.15):
        fields["draft_top_p"] = float(rng.choice([0.5, 0.9]))
    if some(0.15):
        fields["draft_top_k"] = int(rng.integers(1, 9))
    if some(0.1):
        fields["draft_min_p"] = 0.1
    if some(0.2):
        fields["draft_filter_order"] = "joint"
    if some(0.3):
        fields["draft_edits"] = True
    return fields


def make_filters(rng, some, vocab_size):
    fields = {}
    if some(0.35):
        fields["top_k"] = int(rng.choice([-1, 1, 2, 3, 5, 20, vocab_size - 1, vocab_size + 1]))
    if some(0.35):
        fields["top_p"] = float(rng.choice([1e-6, 0.1, 0.5, 0.8, 0.95, 0.999]))
    if some(0.25):
        fields["min_p"] = float(rng.choice([0.01, 0.05, 0.3, 1.0]))
    if some(0.3):
        fields["filter_order"] = "joint"
    return fields


def make_edits(rng, some, few, vocab_size, max_tokens):
    fields = {}
    if some():
        fields["repetition_penalty"] = float(rng.choice([0.01, 0.5, 1.2, 2.0, 100.0]))
    if some():
        fields["frequency_penalty"] = float(rng.choice([-1.5, 0.3, 2.0]))
    if some():
        fields["presence_penalty"] = float(rng.choice([-2.0, 0.7, 1.0]))
    if some():
        fields["logit_bias"] = {x: float(rng.choice([-100, -1.5, 0.25, 3.3, 100])) for x in few(6)}
    if some(0.12):
        fields["allowed_token_ids"] = few(vocab_size)
    if some(0.15):
        banned = [x for x in few(8) if x not in fields.get("allowed_token_ids", ())]
        if banned:
            fields["disallowed_token_ids"] = banned
    if some(0.2):
        word = lambda: [int(x) for x in rng.integers(0, 8, rng.integers(1, 4))]
        fields["bad_words"] = [word() for _ in range(rng.integers(1, 5))]
    if some(0.15):
        fields["no_repeat_ngram_size"] = int(rng.integers(1, 4))
        if some(0.5):
            fields["no_repeat_ngram_window"] = int(rng.integers(3, 12))
        if some(0.3):
            fields["no_repeat_ngram_whitelist"] = few(5)
    if some(0.15):
        fields |= {"thinking_token_budget": int(rng.integers(0, 6)), "thinking_start_id": 1,
                   "thinking_end_ids": [2, 3, 2, 5][:rng.integers(1, 5)]}
        if some(0.5):
            fields["thinking_newline_id"] = 4
    if some(0.2):
        fields["min_tokens"] = int(rng.integers(0, max_tokens + 1))
    return fields


def both(fields):
    """The same parameters for specd and for the oracle."""
    assert set(fields) <= _OUR_NAMES
    return specd.SamplingParams(**fields), Params(**fields)


# ---- rows -----------------------------------------------------------------------------------------


def make_logits(rng, num_rows, vocab_size, degenerate):
    rows = rng.normal(size=(num_rows, vocab_size)) * rng.choice([0.3, 1.0, 3.0, 8.0])
    if rng.random() < 0.5:
        rows[:, :min(8, vocab_size)] += rng.choice([1.0, 4.0])
    style = rng.random()
    if style < 0.12:
        rows = np.round(2 * rows) / 2  # ties
    elif style < 0.15:
        rows[:] = 1.5
    elif style < 0.22:
        rows[rng.random(rows.shape) < 0.5] = -np.inf
    elif style < 0.26:
        rows[:, rng.integers(vocab_size)] += 60
    if degenerate:
        for row in rows:
            kind = rng.random()
            if kind < 0.06:
                row[rng.integers(vocab_size)] = np.nan
            elif kind < 0.09:
                row[:] = -np.inf
            elif kind < 0.13:
                row[rng.integers(0, vocab_size, 2)] = np.inf
    return rows


def softmax(rows):
    weights = np.exp(rows - rows.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def make_rows(rng, scene, num_rows, kind, like=None):
    """Rows as float32 of what the dtype can hold. `like`: near these logits, as a drafter is."""
    rows = make_logits(rng, num_rows, scene.vocab_size, scene.degenerate)
    if like is not None:
        close = rng.choice([0.0, 0.3, 1.0])
        with np.errstate(invalid="ignore"):
            near = like + close * rng.normal(size=like.shape)
        rows = np.where(rng.random((num_rows, 1)) < 0.8, near, rows)
    if kind != "logits":
        usable = np.isfinite(rows).any(axis=1, keepdims=True) & ~np.isnan(rows).any(
            axis=1, keepdims=True) & ~np.isposinf(rows).any(axis=1, keepdims=True)
        p = softmax(np.where(usable, rows, 0.0))
        if scene.degenerate:
            p = np.where(rng.random((num_rows, 1)) < 0.05, p * 1.1, p)
        return p.astype(np.float32), rows
    with np.errstate(over="ignore", invalid="ignore"):
        return quantised(rows, scene.dtype), rows


def quantised(rows, dtype):
    rows = rows.astype(np.float32)
    if dtype == "float16":
        return rows.astype(np.float16)
    return specd.bfloat16(rows) if dtype == "bfloat16" else rows


def exact(rows):
    """The rows as doubles, bit for bit what the kernel reads."""
    if isinstance(rows, specd.BFloat16):
        words = rows.view(np.uint16).astype(np.uint32) << 16
        return np.asarray(words).view(np.float32).astype(np.float64)
    return np.asarray(rows).astype(np.float64)


def make_masks(rng, scene, num_rows, stop_ids):
    masks = rng.random((num_rows, scene.vocab_size)) < rng.choice([0.2, 0.5, 0.95])
    masks[np.arange(num_rows), rng.integers(0, scene.vocab_size, num_rows)] = True
    if stop_ids and rng.random() < 0.3:
        masks[:] = False
        masks[:, list(stop_ids)] = True
    return masks
