"""The lossy methods of CONTRACT §5 in double precision, for chains and trees.

Each number that a draft token is compared with carries a bound of its error in the kernels, so that decisions
have a slack (contract_rows.py).
"""

import math

import numpy as np

import contract_rows as rows_of
from contract_rows import INF, ULP, Filters
from contract_trees import TreeWalk
from philox import ACCEPT

LOSSY_METHODS = ("typical", "relaxed", "threshold", "synthetic")


class LossyWalk(TreeWalk):
    """The verification of one draft; in a chain every place has one child."""

    walks = {"typical": "draw_or_accept", "relaxed": "draw_or_accept", "threshold": "choose_among",
             "synthetic": "by_rate"}

    def p(self, index):
        """In a greedy sequence p is that of temperature 1."""
        if not self.params.greedy:
            return super().p(index)
        if index not in self.targets:
            self.targets[index] = rows_of.distribution(self.edited_logits(index), Filters())
        return self.note(self.targets[index])

    def token_at(self, place):
        """The token of the place without a look at the draft."""
        if not self.params.greedy:
            return self.sample(place)
        token, slack = rows_of.argmax(self.edited_logits(place))
        self.slack = min(self.slack, slack)
        return token

    # ---- typical, relaxed -------------------------------------------------------------------------

    def draw_or_accept(self):
        place = 0
        while True:
            token = self.token_at(place)
            named = [node for node in self.children[place] if self.draft.tokens[node] == token]
            found = named[0] if named else next(
                (node for node in self.children[place] if self.accepts(place, self.draft.tokens[node])), None)
            if found is None:
                return place, token
            place = found + 1

    def accepts(self, place, token):
        p = self.p(place)
        if p.p[token] <= 0:
            return False
        if self.method == "typical":
            bound, error = self.typical_bound(p)
            tests = [self.reaches(p, token, bound, error)]
        elif self.params.relaxed_thinking and not self.is_in_thought(place):
            return False
        else:
            best = p.p.max()
            tests = [self.reaches(p, token, best - self.params.relaxed_delta, best * p.mass_error),
                     self.is_among_best(place, token)]
        holds = all(test for test, _ in tests)
        slacks = [slack for test, slack in tests if holds or not test]
        self.slack = min(self.slack, min(slacks) if holds else max(slacks))
        return holds

    @staticmethod
    def reaches(p, token, bound, bound_error):
        """p(x) >= bound, and the slack."""
        error = p.p[token] * (p.error[token] + p.mass_error) + bound_error
        return p.p[token] >= bound, abs(p.p[token] - bound) / error if error else INF

    def typical_bound(self, p):
        some = p.p > 0
        logs = np.log(p.p[some])
        entropy = -(p.p[some] * logs).sum()
        error = (p.p[some] * (p.error[some] + p.mass_error) * (1 + np.abs(logs))).sum()
        scaled = self.params.typical_delta * math.exp(-entropy)
        if scaled >= self.params.typical_epsilon:
            return self.params.typical_epsilon, scaled * error if scaled < 1.01 * self.params.typical_epsilon else 0
        return scaled, scaled * (error + 32 * ULP * (1 + entropy))

    def is_among_best(self, place, token):
        """Whether an id is among the first n in the order of §3.10, and the slack."""
        logits, n = self.edited_logits(place), min(self.params.relaxed_n, self.vocab_size)
        order = np.lexsort((np.arange(self.vocab_size), -logits.values))
        if not 0 < n < self.vocab_size:
            return n > 0, INF
        return token in order[:n], rows_of.order_slack(logits, order[:n], order[n:])

    def is_in_thought(self, place):
        """After the last start marker, until the end sequence is complete, and not forced (§3.6)."""
        where, end = self.place(place), list(self.params.thinking_end_ids)
        history = where.prompt + where.output
        if self.params.thinking_start_id not in history or rows_of.forced_by_budget(self.params, where) is not None:
            return False
        begin = len(history) - history[::-1].index(self.params.thinking_start_id)
        return not any(history[i:i + len(end)] == end for i in range(begin, len(history)))

    # ---- threshold, synthetic ---------------------------------------------------------------------

    def takes(self, coin, total, error, p, p_error):
        """target_only with a divided sum, or a p that is large enough by itself."""
        acc, single = max(self.params.threshold_acc, 1e-9), self.params.threshold_single
        tests = [(coin * acc < total, abs(coin * acc - total) / error if error else INF),
                 (p >= single, abs(p - single) / p_error if p_error else INF)]
        holds = any(test for test, _ in tests)
        slacks = [slack for test, slack in tests if test or not holds]
        self.slack = min(self.slack, max(slacks) if holds else min(slacks))
        return holds

    def by_rate(self):
        place = 0
        while True:
            self.p(place)  # the row is judged
            left = self.edited_logits(place).values
            child = next((node for node in self.children[place] if left[self.draft.tokens[node]] > -INF), None)
            rates = self.params.synthetic_rates
            rate = np.float32(rates[min(self.depth(place), len(rates) - 1)]) if len(rates) else 0
            if child is None or not self.coin(place, ACCEPT, child + 1) < rate:
                return place, self.token_at(place)
            place = child + 1
