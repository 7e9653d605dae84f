"""One sequence, round by round, in double precision: CONTRACT §2 and §4 to §7 in plain Python.

The oracle that the kernels are held against. It is written from the contract, and from what
docs/ALGORITHMS.md decides where the contract leaves a choice, never from the kernels; every step is
taken in the most obvious way. Rows are in contract_rows.py, chains in contract_walk.py, trees in
contract_trees.py, lossy methods in contract_lossy.py, drafts that specd draws in contract_drafts.py, coins in
philox.py. Each outcome carries the least slack of the decisions on its way (contract_rows.py says what that is).
"""

import dataclasses
import math

import numpy as np

import contract_rows as rows_of
from contract_rows import INF, ULP
from contract_lossy import LOSSY_METHODS, LossyWalk
from contract_trees import TreeWalk
from contract_walk import Draft, Walk

TREE_METHODS = ("tree", "traversal", "target_only")
OK, FINISHED, BAD_DISTRIBUTION = "ok", "finished", "bad_distribution"


@dataclasses.dataclass
class Scores:
    """Every id's score in one row, with its error; the ranks follow from `values`. edits: of the row."""

    values: np.ndarray
    error: np.ndarray
    edits: np.ndarray | None = None


@dataclasses.dataclass
class Outcome:
    status: str = OK
    finish_reason: str | None = None
    stop_token: int | None = None
    tokens: list = dataclasses.field(default_factory=list)
    path: list = dataclasses.field(default_factory=list)  # the accepted draft tokens, by their index
    scores: list = dataclasses.field(default_factory=list)
    slack: float = INF
    empty_residuals: int = 0
    invalid_drafts: int = 0
    point_masses: int = 0

    @property
    def num_accepted(self):
        return len(self.path)


def score_rows(mode, raw, edited, distribution):
    """Every id's score in one row (CONTRACT §3). distribution None: greedy."""
    kind, unit = mode.split("_")
    logits = raw
    if kind != "raw":
        logits = edited
        if distribution is not None:
            logits = filtered_logits(edited, distribution)
    values, error = logits.values, logits.error + 4 * ULP * (1 + np.abs(logits.values))
    error = np.where(np.isfinite(values), error, 0)
    top = values.max()
    if top == INF:  # a point mass: every other id is as far away as can be
        point = np.full(values.shape, -INF)
        point[np.argmax(values)] = INF if unit == "logits" else 0
        return Scores(point, np.zeros(values.shape))
    if unit == "logits":
        return Scores(values, error, logits.edits)
    normaliser = top + math.log(np.exp(values - top).sum())
    spread = 4 * ULP * np.where(np.isfinite(values), np.abs(values - top), 0)
    mass_error = (np.exp(values - normaliser) * (spread + error)).sum()
    return Scores(values - normaliser, error + spread + mass_error + 32 * ULP, logits.edits)


def filtered_logits(edited, distribution):
    """After step 11: the logits over the temperature, -inf where a filter took the id away."""
    values = np.where(distribution.kept, edited.values / distribution.temperature, -INF)
    return rows_of.Logits(values, edited.error / distribution.temperature, edited.edits)


class Sequence:
    """One generated stream."""

    def __init__(self, params, prompt=(), output=(), eos_ids=()):
        self.params, self.seed = params, params.seed
        self.prompt, self.output = list(prompt), list(output)
        self.eos_ids = tuple(eos_ids)
        self.finish_reason = self.stop_token = None

    def method_for(self, draft):
        """CONTRACT §5: auto is exact_match for one-hot drafts, and for sampled ones block, or tree."""
        if self.params.greedy and self.params.verify not in LOSSY_METHODS:
            return "greedy"
        if self.params.verify == "auto":
            sampled = "tree" if draft.is_tree else "block"
            return sampled if any(draft.sampled) else "exact_match"
        return self.params.verify

    def fork(self, seed):
        copy = Sequence(self.params, self.prompt, self.output, self.eos_ids)
        copy.seed, copy.finish_reason = seed, self.finish_reason
        return copy

    def round(self, draft, target_rows, target_rules=rows_of.Rules(), draft_rules=rows_of.Rules(),
              masks=None):
        """Verifies a draft and commits what is kept."""
        if self.finish_reason is not None:
            return Outcome(FINISHED, self.finish_reason, self.stop_token)
        method = self.method_for(draft)
        kind = LossyWalk if method in LOSSY_METHODS else (
            TreeWalk if draft.is_tree or method in TREE_METHODS else Walk)
        walk = kind(self, draft, target_rows, target_rules, draft_rules, masks)
        accepted, final = walk.run()
        confirmed = accepted + ([] if final is None else [final])
        outcome = Outcome(empty_residuals=walk.empty_residuals)
        outcome.invalid_drafts = walk.num_unusable(final)
        places = [0] + [node + 1 for node in walk.path]
        outcome.point_masses = sum(map(walk.is_point_mass, places, confirmed))
        for token in confirmed:
            outcome.tokens.append(token)
            self.output.append(token)
            self.finish_reason = self.finish_after(token)
            if self.finish_reason is not None:
                break
        if self.finish_reason == "stop":
            self.stop_token = outcome.stop_token = outcome.tokens[-1]
        if self.finish_reason is None and final is None:
            self.finish_reason = "error"
            outcome.status = BAD_DISTRIBUTION
        outcome.finish_reason = self.finish_reason
        outcome.path = walk.path[:len(outcome.tokens)]
        if self.params.logprobs is not None:
            outcome.scores = [self.score(walk, place) for place in places[:len(outcome.tokens)]]
        outcome.slack = walk.slack
        return outcome

    def finish_after(self, token):
        """CONTRACT §7, for the newest token."""
        count = len(self.output)
        ends = set(self.params.stop_token_ids)
        if not self.params.ignore_eos:
            ends |= set(self.eos_ids)
        if token in ends and count > self.params.min_tokens:
            return "stop"
        return "length" if count >= self.params.max_tokens else None

    def score(self, walk, index):
        mode = self.params.logprobs_mode
        if mode.startswith("raw"):
            return score_rows(mode, walk.raw(index), None, None)
        edited, p = walk.edited_logits(index), None
        if not self.params.greedy:
            p = walk.p(index)
            if mode.startswith("unfiltered"):  # step 8 alone
                p = rows_of.distribution(edited, rows_of.Filters(self.params.temperature))
        return score_rows(mode, walk.raw(index), edited, p)
