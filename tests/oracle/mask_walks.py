"""Random walks that compare specd's masks with a peer's, token by token.

A walk follows tokens that both allow. A token that one side alone allows is explained if the text that
ends with this token matches an entry of the differences, each of which has a reason. Any other
difference is an error, and so is an entry that explains nothing.
"""

import random
import re

EOS_TEXT = "<eos>"
SHOWN = 12  # unexplained tokens of a case


class MaskWalks:
    """A peer's matcher has allowed(), a set of ids, and accept(id), which says whether it took the
    id. With is_unmasked(id) it may say that it takes an id that its mask forbids: the side of
    such a difference is "unmasked"."""

    def __init__(self, probe, peer, differences, seed, num_walks, max_steps):
        self.probe = probe
        self._peer = peer
        self._seed, self._num_walks, self._max_steps = seed, num_walks, max_steps
        self._rng = random.Random(seed)
        self._differences = [(entry, re.compile(entry["text"], re.DOTALL)) for entry in differences]
        self._used = [0] * len(differences)
        self._unexplained = []
        self._num_cases = self._num_masks = 0

    def refused(self, name, ours, theirs):
        """A side refuses the constraint."""
        self._unexplained.append(f"{name}: specd {ours!r}, {self._peer} {theirs!r}")

    def walk(self, name, new_matcher):
        """Walks along a constraint that the probe has compiled last."""
        self._num_cases += 1
        for _ in range(self._num_walks):
            self._walk(name, new_matcher())

    def report(self):
        """Prints what was found. Returns the exit status."""
        print(f"seed {self._seed}: {self._num_cases} constraints, {self._num_masks} masks compared, "
              f"{sum(self._used)} tokens differ as {len(self._used)} entries explain, "
              f"{len(self._unexplained)} differ otherwise")
        shown = {}
        for line in self._unexplained:
            name = line.split(":")[0]
            shown[name] = shown.get(name, 0) + 1
            if shown[name] <= SHOWN:
                print(f"unexplained: {line[:400]}")
        unused = [entry for (entry, _), used in zip(self._differences, self._used) if not used]
        for entry in unused:
            print(f"explains nothing, remove it: {entry}")
        return 1 if self._unexplained or unused else 0

    def _walk(self, name, theirs):
        closing = self._rng.choice((0.0, 0.2, 0.6))
        ids = []
        for _ in range(self._max_steps):
            our_ids = self.probe.allowed(ids)
            their_ids = theirs.allowed()
            self._num_masks += 1
            ours_alone = our_ids - their_ids
            unmasked = {i for i in ours_alone if theirs.is_unmasked(i)}
            self._explain(name, ids, "specd", ours_alone - unmasked)
            self._explain(name, ids, "unmasked", unmasked)
            self._explain(name, ids, self._peer, their_ids - our_ids)
            chosen = self._choose(our_ids & their_ids, closing)
            if chosen is None or chosen == self.probe.eos:
                return
            assert theirs.accept(chosen), f"{name}: {self._peer} does not take {chosen}"
            ids.append(chosen)

    def _choose(self, ids, closing):
        if not ids:
            return None
        ends = [i for i in sorted(ids) if self.probe.tokens[i][:1] in (b'"', b"]", b"}")]
        return self._rng.choice(ends if ends and self._rng.random() < closing else sorted(ids))

    def _spell(self, ids):
        text = b"".join(self.probe.tokens[i] for i in ids if i != self.probe.eos)
        return text.decode("utf-8", "surrogateescape") + (EOS_TEXT if self.probe.eos in ids else "")

    def _explain(self, name, ids, side, extra):
        for extra_id in sorted(extra):
            text = self._spell(ids + [extra_id])
            for number, (entry, pattern) in enumerate(self._differences):
                if (entry["only"] == side and re.fullmatch(entry["case"], name)
                        and pattern.fullmatch(text)):
                    self._used[number] += 1
                    break
            else:
                self._unexplained.append(f"{name}: only {side} allows {text!r}, "
                                         f"token {self.probe.tokens[extra_id]!r}")
