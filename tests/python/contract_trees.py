"""Drafts that are trees: CONTRACT §5 in double precision.

The target at a place is a vector t here, and each rejected child makes a new one, as the contract defines
it. Each number carries a bound of its error in the kernels, so that decisions have a slack
(contract_rows.py).
"""

import dataclasses

import numpy as np

import contract_drafts
import contract_rows as rows_of
from contract_rows import INF, ULP, BadRow
from contract_walk import Walk
from philox import ACCEPT, RESIDUAL, TREE

ONE_HOT, SAMPLED, SAMPLED_REST = 0, 1, 2


@dataclasses.dataclass
class Share:
    """A distribution, or what of it is left: p, with a bound of each element's error, and of a sum's."""

    p: np.ndarray
    error: np.ndarray
    sum_error: float


@dataclasses.dataclass
class Standing:
    """A place while its children are judged: t, and P with its error. fallen: how many children fell.
    bad: the row of the place, or that of its drawn children, has no distribution."""

    t: Share | None
    path: float = 1.0
    path_error: float = 0.0
    fallen: int = 0
    bad: bool = False


class TreeWalk(Walk):
    """The verification of one tree. Place i + 1 follows draft token i, and draft.q_rows[i] is the draft row
    of place i."""

    def __init__(self, sequence, draft, target_rows, target_rules, draft_rules, masks):
        self.parents = draft.parents or list(range(-1, len(draft.tokens) - 1))
        super().__init__(sequence, draft, target_rows, target_rules, draft_rules, masks)
        inside = [0 <= token < self.vocab_size for token in draft.tokens]
        self.children = [[i for i, parent in enumerate(self.parents) if parent + 1 == place and inside[i]]
                         for place in range(len(draft.tokens) + 1)]

    walks = {"greedy": "compare", "exact_match": "compare", "tree": "accept", "target_only": "choose_among",
             "traversal": "traverse"}

    def run(self):
        try:
            place, final = getattr(self, self.walks[self.method])()
        except BadRow as bad:
            place, final = bad.args[0], None
        self.path = self.path_to(place)
        return [self.draft.tokens[node] for node in self.path], final

    def path_to(self, place):
        path = []
        while place > 0:
            path.insert(0, place - 1)
            place = self.parents[place - 1] + 1
        return path

    def prefix(self, place):
        return [self.draft.tokens[node] for node in self.path_to(place)]

    def depth(self, place):
        return len(self.path_to(place))

    def num_unusable(self, final):
        reached = [0, *(node + 1 for node in self.path)]
        if final is None:  # the row of the last place was bad
            reached.pop()
        return sum(parent + 1 in reached and self.is_unusable(parent + 1, self.draft.tokens[node])
                   for node, parent in enumerate(self.parents))

    # ---- one place --------------------------------------------------------------------------------

    def coin(self, place, purpose, node):
        return self.coins.at(self.depth(place), node, purpose)

    def sample(self, place):
        p = self.p(place)
        token, slack = rows_of.draw(p.p, self.coins.sample(self.depth(place)), p.mass_error)
        self.slack = min(self.slack, slack)
        return token

    def target(self, place):
        p = self.p(place)
        return Share(p.p, p.p * (p.error + p.mass_error), p.mass_error)

    def in_order(self, place):
        """The children in the order in which they are judged."""
        return sorted(self.children[place], key=lambda node: self.draft.sampled[node] == ONE_HOT)

    def proposal(self, place, node):
        """The distribution that a child was drawn from."""
        kind, nothing = self.draft.sampled[node], np.zeros(self.vocab_size)
        if kind == ONE_HOT:
            point = nothing.copy()
            point[self.draft.tokens[node]] = 1
            return Share(point, nothing, 0.0)
        q = self.q_of_row(place)
        error = q.mass_error
        if kind == SAMPLED_REST:
            gone = [self.draft.tokens[i] for i in self.children[place]
                    if self.draft.sampled[i] == ONE_HOT or i < node]
            whole, logits = q, self.draft_logits(place)
            q = contract_drafts.without(logits, q, gone) if gone else q
            if q is None:
                raise BadRow(place)
            error = 2 * whole.mass_error / max(1 - whole.p[gone].sum(), 2.0**-40)
        return Share(q.p, q.p * (q.error + error), error)

    def share(self, place, node, is_first):
        """d(x) of a child, and its error. For the first drawn child the side channel speaks, and no row is
        read."""
        if is_first and self.draft.q_sides is not None and self.draft.sampled[node] != ONE_HOT:
            weight, mass = self.draft.q_sides[node]
            return weight / mass, 0.0
        d, token = self.proposal(place, node), self.draft.tokens[node]
        return d.p[token], d.error[token]

    def after(self, t, d, path=1.0, path_error=0.0):
        """(P t - d)+ and its sum: the vector is not divided yet."""
        left = np.maximum(path * t.p - d.p, 0)
        sum_error = path * t.sum_error + d.sum_error + path_error
        error = np.where(path * t.p + d.p > 0, path * t.error + d.error + t.p * path_error, 0)
        error[(d.p > 0) & (t.p == 0)] = 0  # nothing is left there in any precision
        mass = left.sum()
        if sum_error:  # it may round to nothing, and nothing to a little
            self.slack = min(self.slack, mass / sum_error)
        return Share(left, error, sum_error), mass

    def divided(self, left, mass):
        return Share(left.p / mass, (left.error + left.p / mass * left.sum_error) / mass,
                     2 * left.sum_error / mass)

    def judge(self, coin, bound, error):
        """coin < bound, where both sides are known up to `error`."""
        self.slack = min(self.slack, abs(coin - bound) / error if error else INF)
        return coin < bound

    def draw_left(self, place, t):
        """The token of a place whose children fell. t None: nothing is left."""
        coin = self.coin(place, RESIDUAL, place)
        if t is None:
            self.empty_residuals += 1
            t = self.target(place)
        token, slack = rows_of.draw(t.p, coin, t.sum_error)
        self.slack = min(self.slack, slack)
        return token

    # ---- methods ----------------------------------------------------------------------------------

    def compare(self):
        place = 0
        while True:
            if self.method == "greedy":
                token, slack = rows_of.argmax(self.edited_logits(place))
                self.slack = min(self.slack, slack)
            else:
                token = self.sample(place)
            named = [node for node in self.children[place] if self.draft.tokens[node] == token]
            if not named:
                return place, token
            place = named[0] + 1

    def accept(self):
        place = 0
        while True:
            t, found = self.target(place), None
            if not self.children[place]:
                return place, self.sample(place)
            for number, node in enumerate(self.in_order(place)):
                token = self.draft.tokens[node]
                d, d_error = self.share(place, node, number == 0)
                coin = self.coin(place, ACCEPT, node + 1)
                left, right = coin * d, t.p[token]
                error = coin * d_error + t.error[token]
                self.slack = min(self.slack, abs(left - right) / error if error else INF)
                if left < right:
                    found = node
                    break
                rest, mass = self.after(t, self.proposal(place, node))
                if mass <= 0:
                    return place, self.draw_left(place, None)
                t = self.divided(rest, mass)
            if found is None:
                return place, self.draw_left(place, t)
            place = found + 1

    def choose_among(self):
        place = 0
        while True:
            p = self.target(place)
            if not self.children[place]:
                return place, self.sample(place)
            coin, total, error = self.coin(place, TREE, place), 0.0, 0.0
            left, found = p.p.copy(), None
            for node in self.children[place]:
                token = self.draft.tokens[node]
                if left[token] <= 0:  # p is 0, or an earlier child has the id
                    continue
                total, error = total + p.p[token], error + p.error[token]
                left[token] = 0
                if self.takes(coin, total, error, p.p[token], p.error[token]):
                    found = node
                    break
            if found is None:
                rest = Share(left, p.error, p.sum_error) if left.sum() > 0 else None
                return place, self.draw_left(place, rest)
            place = found + 1

    def takes(self, coin, total, error, _p, _p_error):
        return self.judge(coin, total, error)

    def enter(self, place, path, path_error):
        try:
            return Standing(self.target(place), path, path_error)
        except BadRow:
            return Standing(None, path, path_error, bad=True)

    def traverse(self):
        """The places on the way down are a stack; `fallen` children of each are behind."""
        way = [(0, self.enter(0, 1.0, 0.0))]
        while True:
            place, here = way[-1]
            below = None if here.bad else self.next_below(place, here)
            if below is not None:
                way.append(below)
                continue
            above = self.parents[place - 1] + 1 if place else None
            if above is None or self.judge(self.coin(above, ACCEPT, place), here.path, here.path_error):
                break
            way.pop()
            self.fall(above, way[-1][1], place - 1)
        if here.bad:
            raise BadRow(place)
        if not here.fallen:
            return place, self.sample(place)
        return place, self.draw_left(place, here.t)

    def next_below(self, place, here):
        """The place after the next child, or None where the place is a leaf now."""
        while here.t is not None and here.fallen < len(self.children[place]):
            node = self.in_order(place)[here.fallen]
            token = self.draft.tokens[node]
            try:
                q, q_error = self.share(place, node, here.fallen == 0)
            except BadRow:
                here.bad = True
                return None
            t = here.t.p[token]
            if t == 0 or here.path == 0:
                ratio, error = 0.0, 0.0
            elif q == 0:
                ratio, error = 1.0, 0.0
            else:
                ratio = here.path * t / q
                error = ratio * (here.path_error / here.path + here.t.error[token] / t +
                                 q_error / q)
                ratio, error = (1.0, 0.0) if ratio > 1 + error else (min(1.0, ratio), error)
            if ratio > 0:
                return node + 1, self.enter(node + 1, ratio, error)
            self.fall(place, here, node)
            if here.bad:
                return None
        return None

    def fall(self, place, here, node):
        try:
            d = self.proposal(place, node)
        except BadRow:  # the side channel spoke for the row until now; the place is a leaf
            here.bad = True
            return
        rest, mass = self.after(here.t, d, here.path, here.path_error)
        here.fallen += 1
        whole = mass + 1 - here.path
        error = rest.sum_error
        here.t = self.divided(rest, mass) if mass > 0 else None
        if whole <= 0:
            here.path, here.path_error = 1.0, 0.0
        else:
            here.path_error = ((1 - here.path) * error + mass * here.path_error) / whole**2 + 8 * ULP * (
                mass / whole)
            here.path = mass / whole
