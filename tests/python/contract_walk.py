"""The verification of a chain: CONTRACT §5 in double precision. Trees are in contract_trees.py."""

import dataclasses

import numpy as np

import contract_rows as rows_of
from contract_rows import INF, BadRow, Distribution, Place
from philox import Coins


@dataclasses.dataclass
class Draft:
    """What a drafter brings. sampled: the kinds, or booleans. q_rows[i] is the draft row of place i, which
    is read where its children were sampled; q_sides[i] = (weight, mass) of draft i. parents: None is a
    chain."""

    tokens: list
    sampled: list
    q_rows: list | None = None
    q_sides: list | None = None
    parents: list | None = None

    @property
    def is_tree(self):
        return self.parents is not None and self.parents != list(range(-1, len(self.tokens) - 1))


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
        self.edited, self.targets, self.edited_drafts, self.drafts = {}, {}, {}, {}
        self.path = []  # the accepted draft tokens, by their index

    def run(self):
        """Returns (accepted tokens, final token or None where a row is bad)."""
        try:
            walk = {"greedy": self.compare, "exact_match": self.compare, "token": self.token,
                    "block": self.block}[self.method]
            accepted, final = walk()
        except BadRow as bad:
            accepted, final = bad.args[0], None
        self.path = list(range(accepted))
        return list(self.draft.tokens[:accepted]), final

    # ---- rows -----------------------------------------------------------------------------------

    def raw(self, index):
        return rows_of.load(self.target_rows[index], self.target_rules)

    def edited_logits(self, index):
        """Steps 1 to 6 at place `index`, with the draft prefix in the state."""
        if index not in self.edited:
            try:
                check_probabilities(self.target_rows[index], self.target_rules, self.params, self.place(index))
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
        return self.q_of_row(index)

    def q_of_row(self, index):
        """The distribution of the draft row at place `index`."""
        if index not in self.drafts:
            self.drafts[index] = rows_of.distribution(self.draft_logits(index),
                                                      self.params.draft_filters)
        return self.note(self.drafts[index])

    def draft_logits(self, index):
        if index not in self.edited_drafts:
            row = self.draft.q_rows[index]
            edits = (self.params, self.place(index)) if self.params.draft_edits else (
                rows_of.Params(), Place([], []))
            try:
                check_probabilities(row, self.draft_rules, *edits)
                self.edited_drafts[index] = rows_of.edit(rows_of.load(row, self.draft_rules), *edits)
            except BadRow:
                raise BadRow(index) from None
        return self.edited_drafts[index]

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

    def num_unusable(self, final):
        """How many draft tokens can be no tokens, at the places that the walk reached. final: what run
        returned."""
        accepted = len(self.path)
        return int(final is not None and accepted < len(self.draft.tokens) and
                   self.is_unusable(accepted, self.draft.tokens[accepted]))

    def is_unusable(self, index, token):
        """Is it outside the vocabulary, or masked? -1 is neither: no token was drawn."""
        if token == -1:
            return False
        if not 0 <= token < self.vocab_size:
            return True
        place = self.place(index)
        forced = rows_of.forced_by_budget(self.params, place)
        if forced is not None:
            return token != forced
        return not rows_of.mask_of(self.params, place, self.vocab_size)[token]

    def is_point_mass(self, index, token):
        if rows_of.forced_by_budget(self.params, self.place(index)) is not None:
            return False
        return self.edited_logits(index).values[token] == INF

    def place(self, index):
        mask = None if self.masks is None else self.masks[index]
        sequence = self.sequence
        return Place(sequence.prompt, sequence.output + self.prefix(index), mask, sequence.eos_ids)

    def prefix(self, index):
        """The draft tokens before place `index`."""
        return self.draft.tokens[:index]

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
            try:
                if kept < last:
                    h, h_error = self.block_threshold(kept, ratio, error)
            except BadRow:  # the side channel spoke for the row until now; the chain is cut here
                bad = last = kept
            if kept == last:
                h, h_error = ratio, error * ratio
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


def check_probabilities(row, rules, params=rows_of.Params(), place=None):
    """CONTRACT §6: probabilities sum to 1 within 1e-3 unless they are to be renormalised. The row of a forced
    token is not read."""
    if rows_of.forced_by_budget(params, place) is not None:
        return
    if rules.kind != "logits" and not rules.renormalise and not abs(np.sum(row) - 1) <= 1e-3:
        raise BadRow


def inequality_slack(left, right, relative_error):
    """Of left < right. Two zeros are exact; so is anything against zero."""
    if left == 0 or right == 0 or relative_error == 0:
        return INF
    return abs(left - right) / (relative_error * max(left, right))
