"""rounds_test.py with drafts that are trees: random shapes, kinds of siblings and methods.

Usage: tree_rounds_test.py [--rounds N] [--seed S] [--scene S] [--uri URI]
"""

import dataclasses

import numpy as np

import rounds_test
import specd
from contract import Draft
from contract_rows import BadRow
from contract_trees import ONE_HOT, SAMPLED, SAMPLED_REST, TreeWalk
from scenes import exact, make_rows


class TreeSceneRun(rounds_test.SceneRun):
    def __init__(self, number, counts, uri):
        super().__init__(number, counts, uri)
        # An engine of its own for larger drafts. The first one has drawn the scene.
        self.engine.close()
        scene = self.scene = dataclasses.replace(self.scene, max_draft=int(self.rng.integers(2, 13)))
        self.engine = specd.Engine(uri, vocab_size=scene.vocab_size, max_batch=12, max_sequences=40,
                                   max_draft=scene.max_draft, **self.options)
        self.engine.rows(1, kind=scene.kind, scale=scene.scale, cap=scene.cap,
                         renormalise=scene.renormalise, dtype=scene.dtype)
        self.engine.rows(1, "draft", kind=scene.draft_kind, dtype=scene.dtype)
        self.given = {}  # id(draft) -> node -> the side channel that specd gave

    def make_params(self):
        fields = super().make_params()
        if fields.get("verify") in ("token", "block"):
            fields["verify"] = str(self.rng.choice(["tree", "traversal", "target_only"]))
        return fields

    def make_draft(self, stream, num_drafts, rows, logits):
        rng, scene = self.rng, self.scene
        parents = [int(rng.integers(max(-1, i - rng.choice([3, 20])), i)) for i in range(num_drafts)]
        like = logits if scene.draft_kind == "logits" else None
        q, _ = make_rows(rng, scene, num_drafts + 1, scene.draft_kind, like)
        draft = Draft([-1] * num_drafts, [ONE_HOT] * num_drafts, list(exact(q)), parents=parents)
        only_one_hot = rng.random() < 0.25
        for place in range(num_drafts + 1):
            children = [i for i, parent in enumerate(parents) if parent + 1 == place]
            if not children or place and not 0 <= draft.tokens[place - 1] < scene.vocab_size:
                continue  # the branch has ended
            if not only_one_hot and not scene.degenerate and rng.random() < 0.3:
                self.let_specd_draw_children(stream, draft, place, children, q)
            else:
                self.draw_children(stream, draft, place, children, logits[place], only_one_hot)
        return draft, None if only_one_hot else q

    def draw_children(self, stream, draft, place, children, logits, only_one_hot):
        """Children of every kind: drawn ones, ids of no vocabulary, and some that q cannot give."""
        drawn = SAMPLED if self.rng.random() < 0.5 else SAMPLED_REST
        used = set()
        for node in children:
            kind = ONE_HOT if only_one_hot or self.rng.random() < 0.4 else drawn
            token = self.sampled_token(stream, draft.q_rows[place], logits, kind != ONE_HOT)
            # Two siblings with one id are two draws with replacement, or are refused.
            if kind != SAMPLED:
                while token in used and len(used) < self.scene.vocab_size:
                    token = int(self.rng.integers(0, self.scene.vocab_size))
            elif any(token == draft.tokens[i] and draft.sampled[i] != SAMPLED for i in children if i < node):
                token = self.unused(used)
            used.add(token)
            draft.tokens[node], draft.sampled[node] = token, kind

    def unused(self, used):
        return next(token for token in range(self.scene.vocab_size) if token not in used)

    def let_specd_draw_children(self, stream, draft, place, children, q):
        """SampleDraft for the children of one place, which the oracle draws too."""
        sampling = str(self.rng.choice(["with_replacement", "without_replacement", "mixed", "top_k"]))
        prefix, above = [], place - 1
        while above >= 0:
            prefix.insert(0, draft.tokens[above])
            above = draft.parents[above]
        number = 1 if sampling == "with_replacement" else len(children)
        ids, given = [], self.given.setdefault(id(draft), {})
        for node in children if number == 1 else children[:1]:
            request = specd.DraftRequest(stream.handle, prefix, number, sampling, first_node=node + 1)
            answer, = self.engine.sample_draft(q[place:place + 1], [request], strict=False)
            self.judge_children(stream.oracle, draft.q_rows[place], request, answer)
            ids += zip(answer.ids.tolist(), answer.sampled.tolist(), answer.weights.tolist(),
                       answer.masses.tolist())
        for node, (token, kind, *side) in zip(children, ids):
            draft.tokens[node], draft.sampled[node], given[node] = token, kind, side

    def submit(self, parts):
        for stream, rows, draft, q, masks in parts:
            if q is not None and draft.tokens and self.rng.random() < 0.4:
                self.counts["sides"] += 1
                draft.q_sides = self.sides(stream, rows, draft, masks)
        self.given.clear()
        return super().submit(parts)

    def sides(self, stream, rows, draft, masks):
        """The side channel: specd's own numbers where it drew, and else the oracle's. Those of one-hot nodes
        are never looked at, and rows without a distribution have some."""
        scene, found = self.scene, []
        walk = TreeWalk(stream.oracle, draft, exact(rows), scene.target_rules, scene.draft_rules, masks)
        for node, (token, kind) in enumerate(zip(draft.tokens, draft.sampled)):
            mass, d = float(self.rng.choice([1, 3, 1000])), 0.5
            try:
                if kind != ONE_HOT and 0 <= token < scene.vocab_size:
                    d = walk.proposal(draft.parents[node] + 1, node).p[token]
            except BadRow:
                pass
            side = self.given.get(id(draft), {}).get(node) if not stream.oracle.params.draft_edits else None
            found.append((-1.0, 0.0) if kind == ONE_HOT else side or (float(np.float32(d * mass)), mass))
        return found

    def place_q(self, drafts, q):
        """One array of rows. A draft's rows are those of its places, and its nodes name them."""
        given = [each for each in q if each is not None]
        if not given:
            return None
        total, begin = sum(len(each) for each in given), 0
        rows = self.engine.rows(total, "draft", kind=self.scene.draft_kind, dtype=self.scene.dtype)
        for entry, part in zip(drafts, q):
            if part is None:
                # It names rows too, so that none of the array are counted out to it.
                entry.sampled = entry.draft_rows = np.zeros(len(entry.tokens), np.uint8)
                continue
            entry.draft_rows = [begin + parent + 1 for parent in entry.parents]
            rows[begin:begin + len(part)] = part
            begin += len(part)
        return rows


if __name__ == "__main__":
    rounds_test.main(TreeSceneRun)
