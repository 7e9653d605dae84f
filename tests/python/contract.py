"""One sequence, round by round, in double precision: CONTRACT §2 and §4 to §7 in plain Python.

The oracle that the kernels are held against. It is written from the contract, and from what
docs/ALGORITHMS.md decides where the contract leaves a choice, never from the kernels; every step is
taken in the most obvious way. Rows are in contract_rows.py, drafts that specd draws in
contract_drafts.py, coins in philox.py. Each outcome carries the least slack of the decisions on its
way (contract_rows.py says what that is).
"""

import dataclasses
import math

import numpy as np

import contract_rows as rows_of
from contract_rows import INF, ULP, BadRow, Distribution, Place
from philox import Coins

OK, FINISHED, BAD_DISTRIBUTION = "ok", "finished", "bad_distribution"


@dataclasses.dataclass
class Draft:
    """What a drafter brings. q_rows[i] is read where sampled[i]; q_sides[i] = (weight, mass)."""

    tokens: list
    sampled: list
    q_rows: list | None = None
    q_sides: list | None = None


@dataclasses.dataclass
class Scores:
    """Every id's score in one row, with its error; the ranks follow from `values`."""

    values: np.ndarray
    error: np.ndarray


@dataclasses.dataclass
class Outcome:
    status: str = OK
    finish_reason: str | None = None
    stop_token: int | None = None
    tokens: list = dataclasses.field(default_factory=list)
    num_accepted: int = 0
    scores: list = dataclasses.field(default_factory=list)
    slack: float = INF
    empty_residuals: int = 0
    invalid_drafts: int = 0
    point_masses: int = 0


class Walk:
    """The verification of one chain: which drafts stand, and the final token."""

    def __init__(self, sequence, draft, target_rows, target_rules, draft_rules, masks):
        self.sequence, self.params = sequence, sequence.params
        self.target_rows, self.target_rules = target_rows, target_rules
        self.draft_rules, self.masks = draft_rules, masks
        self.vocab_size = len(target_rows[0])
        # An id outside the vocabulary ends the draft, -1 among them.
        stop = next((i for i, token in enumerate(draft.tokens)
                     if not 0 <= token < self.vocab_size), len(draft.tokens))
        self.draft, self.num_drafts = draft, stop
        self.coins = Coins(sequence.seed, len(sequence.output), len(sequence.output))
        self.method = sequence.method_for(draft)
        self.slack, self.empty_residuals = INF, 0
        self.edited, self.targets, self.drafts = {}, {}, {}

    def run(self):
        """Returns (accepted tokens, final token or None where a row is bad)."""
        try:
            walk = {"greedy": self.compare, "exact_match": self.compare, "token": self.token,
                    "block": self.block}[self.method]
            accepted, final = walk()
        except BadRow as bad:
            accepted, final = bad.args[0], None
        return list(self.draft.tokens[:accepted]), final

    # ---- rows -----------------------------------------------------------------------------------

    def raw(self, index):
        return rows_of.load(self.target_rows[index], self.target_rules)

    def edited_logits(self, index):
        """Steps 1 to 6 at place `index`, with the draft prefix in the state."""
        if index not in self.edited:
            try:
                check_probabilities(self.target_rows[index], self.target_rules)
                self.edited[index] = rows_of.edit(self.raw(index), self.params,
                                                  self.place(index))
            except BadRow:
                raise BadRow(index) from None
        return self.edited[index]

    def p(self, index):
        """The target distribution at place `index`. It is judged here: BadRow(index)."""
        if index not in self.targets:
            self.targets[index] = rows_of.distribution(self.edited_logits(index),
                                                       self.params.filters)
        return self.note(self.targets[index])

    def q(self, index):
        """The distribution that draft `index` was drawn from: 1 at its id where it is one-hot."""
        if not self.draft.sampled[index]:
            p = np.zeros(self.vocab_size)
            p[self.draft.tokens[index]] = 1
            return Distribution(p, np.zeros(self.vocab_size), 0.0)
        if index not in self.drafts:
            row = self.draft.q_rows[index]
            try:
                check_probabilities(row, self.draft_rules)
                edits = (self.params, self.place(index)) if self.params.draft_edits else (
                    rows_of.Params(), Place([], []))
                self.drafts[index] = rows_of.distribution(
                    rows_of.edit(rows_of.load(row, self.draft_rules), *edits),
                    self.params.draft_filters)
            except BadRow:
                raise BadRow(index) from None
        return self.note(self.drafts[index])

    def note(self, distribution):
        self.slack = min(self.slack, distribution.slack)
        return distribution

    def p_of_draft(self, index):
        """p(x) of draft `index` and its relative error."""
        token, p = self.draft.tokens[index], self.p(index)
        return p.p[token], p.error[token] + p.mass_error

    def q_of_draft(self, index):
        """The same of q. With the side channel no row is read."""
        token = self.draft.tokens[index]
        if not self.draft.sampled[index]:
            return 1.0, 0.0
        if self.draft.q_sides is not None:
            weight, mass = self.draft.q_sides[index]
            return weight / mass, 0.0
        q = self.q(index)
        return q.p[token], q.error[token] + q.mass_error

    def rejected_unusable(self, accepted):
        """Was the draft that the walk stopped at outside the vocabulary, or masked? -1 is neither:
        no token was drawn."""
        if accepted >= len(self.draft.tokens) or self.draft.tokens[accepted] == -1:
            return False
        token = self.draft.tokens[accepted]
        if not 0 <= token < self.vocab_size:
            return True
        place = self.place(accepted)
        forced = rows_of.forced_by_budget(self.params, place)
        if forced is not None:
            return token != forced
        allowed = rows_of.mask_of(self.params, place, self.vocab_size)
        return not allowed[token]

    def is_point_mass(self, index, token):
        if rows_of.forced_by_budget(self.params, self.place(index)) is not None:
            return False
        return self.edited_logits(index).values[token] == INF

    def place(self, index):
        mask = None if self.masks is None else self.masks[index]
        sequence = self.sequence
        return Place(sequence.prompt, sequence.output + self.draft.tokens[:index], mask,
                     sequence.eos_ids)

    # ---- methods --------------------------------------------------------------------------------

    def choose(self, index):
        """The token of `greedy` and `exact_match` at place `index`."""
        if self.method == "greedy":
            token, slack = rows_of.argmax(self.edited_logits(index))
        else:
            p = self.p(index)
            token, slack = rows_of.draw(p.p, self.coins.sample(index), p.mass_error)
        self.slack = min(self.slack, slack)
        return token

    def compare(self):
        for index in range(self.num_drafts):
            chosen = self.choose(index)
            if chosen != self.draft.tokens[index]:
                return index, chosen
        return self.num_drafts, self.choose(self.num_drafts)

    def bonus(self):
        p = self.p(self.num_drafts)
        token, slack = rows_of.draw(p.p, self.coins.sample(self.num_drafts), p.mass_error)
        self.slack = min(self.slack, slack)
        return token

    def token(self):
        for index in range(self.num_drafts):
            p, p_error = self.p_of_draft(index)
            q, q_error = self.q_of_draft(index)
            coin = self.coins.accept(index)
            self.slack = min(self.slack, inequality_slack(coin * q, p, p_error + q_error))
            if not coin * q < p:
                return index, self.residual(index, 1.0, 0.0)
        return self.num_drafts, self.bonus()

    def block(self):
        """Sun et al. 2025, from the last place down. A chain is cut before its first bad row."""
        prefix, last = [(1.0, 0.0)], self.num_drafts
        bad = None
        for index in range(self.num_drafts + 1):
            try:
                self.p(index)
                if index < self.num_drafts and self.needs_draft_row(index):
                    self.q(index)
            except BadRow:
                bad, last = index, index
                break
        for index in range(last):
            prefix.append(self.prefix_ratio(index, *prefix[-1]))
        for kept in range(last, 0, -1):
            ratio, error = prefix[kept]
            if kept == last:
                h, h_error = ratio, error * ratio
            else:
                h, h_error = self.block_threshold(kept, ratio, error)
            coin = self.coins.accept(kept - 1)
            self.slack = min(self.slack, (abs(coin - h) / h_error) if h_error else INF)
            if coin < h:
                break
        else:
            kept = 0
        if kept == last:
            if bad is not None:
                raise BadRow(kept)
            return kept, self.bonus()
        return kept, self.residual(kept, *prefix[kept])

    def needs_draft_row(self, index):
        return self.draft.sampled[index] and self.draft.q_sides is None

    def prefix_ratio(self, index, before, before_error):
        """P_i of block verification and its relative error."""
        p, p_error = self.p_of_draft(index)
        q, q_error = self.q_of_draft(index)
        if before == 0 or p == 0:
            return 0.0, 0.0
        error = before_error + p_error + q_error
        if q == 0:
            return 1.0, 0.0
        if before * p / q > 1 + error:
            return 1.0, 0.0
        return min(1.0, before * p / q), error

    def block_threshold(self, kept, ratio, error):
        """h_i below the end of the chain, and its absolute error."""
        p, q = self.p(kept), self.q(kept)
        left = np.maximum(ratio * p.p - q.p, 0).sum()
        rest = left + 1 - ratio
        if rest <= 0:
            return 1.0, 0.0
        left_error = ratio * (2 * p.mass_error + error) + 2 * q.mass_error
        return left / rest, ((1 - ratio) * left_error + left * ratio * error) / rest**2

    def residual(self, index, ratio, error):
        """The final token after a rejection at place `index`: from (ratio * p - q)+."""
        p, q = self.p(index), self.q(index)
        left = np.maximum(ratio * p.p - q.p, 0)
        mass_error = ratio * (2 * p.mass_error + error) + 2 * q.mass_error
        coin = self.coins.residual(index)
        if left.sum() > 0:
            token, slack = rows_of.draw(left, coin, mass_error)
            slack = min(slack, left.sum() / mass_error if mass_error else INF)
        else:
            self.empty_residuals += 1
            token, slack = rows_of.draw(p.p, coin, p.mass_error)
        self.slack = min(self.slack, slack)
        return token


def check_probabilities(row, rules):
    """CONTRACT §6: probabilities sum to 1 within 1e-3 unless they are to be renormalised."""
    if rules.kind != "logits" and not rules.renormalise and not abs(np.sum(row) - 1) <= 1e-3:
        raise BadRow


def inequality_slack(left, right, relative_error):
    """Of left < right. Two zeros are exact; so is anything against zero."""
    if left == 0 or right == 0 or relative_error == 0:
        return INF
    return abs(left - right) / (relative_error * max(left, right))


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
        return Scores(values, error)
    normaliser = top + math.log(np.exp(values - top).sum())
    spread = 4 * ULP * np.where(np.isfinite(values), np.abs(values - top), 0)
    mass_error = (np.exp(values - normaliser) * (spread + error)).sum()
    return Scores(values - normaliser, error + spread + mass_error + 32 * ULP)


def filtered_logits(edited, distribution):
    """After step 11: the logits over the temperature, -inf where a filter took the id away."""
    values = np.where(distribution.kept, edited.values / distribution.temperature, -INF)
    return rows_of.Logits(values, edited.error / distribution.temperature)


class Sequence:
    """One generated stream."""

    def __init__(self, params, prompt=(), output=(), eos_ids=()):
        self.params, self.seed = params, params.seed
        self.prompt, self.output = list(prompt), list(output)
        self.eos_ids = tuple(eos_ids)
        self.finish_reason = self.stop_token = None

    def method_for(self, draft):
        """CONTRACT §5: auto is exact_match for one-hot drafts and block for sampled ones."""
        if self.params.greedy:
            return "greedy"
        if self.params.verify == "auto":
            return "block" if any(draft.sampled) else "exact_match"
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
        walk = Walk(self, draft, target_rows, target_rules, draft_rules, masks)
        accepted, final = walk.run()
        confirmed = accepted + ([] if final is None else [final])
        outcome = Outcome(empty_residuals=walk.empty_residuals)
        outcome.invalid_drafts = int(final is not None and walk.rejected_unusable(len(accepted)))
        outcome.point_masses = sum(map(walk.is_point_mass, range(len(confirmed)), confirmed))
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
        outcome.num_accepted = min(len(accepted), len(outcome.tokens))
        if self.params.logprobs is not None:
            outcome.scores = [self.score(walk, i) for i in range(len(outcome.tokens))]
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
        if walk.method != "greedy":
            p = walk.p(index)
            if mode.startswith("unfiltered"):  # step 8 alone
                p = rows_of.distribution(edited, rows_of.Filters(self.params.temperature))
        return score_rows(mode, walk.raw(index), edited, p)
