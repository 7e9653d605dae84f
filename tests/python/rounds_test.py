"""The verifier against the oracle of contract.py, on random rounds over all parameters.

Usage: rounds_test.py [--rounds N] [--seed S] [--scene S] [--uri URI]

Random scenes (scenes.py): sequences with random parameters, and rounds over them with random rows
and drafts, through the Python door. A round that specd decides otherwise than the oracle fails the
test, unless a decision on its way was closer than the numbers of the kernels can tell
(contract_rows.py); such rounds are counted, and more than 1 in 200 of them fail the test too.
A failing scene prints its number; --scene runs it alone.
"""

import argparse
import collections
import sys
import time

import numpy as np

import contract
import contract_drafts
import contract_rows as rows_of
import library_checks
import specd
from compare import children_difference, difference, score_difference
from contract import Draft, Sequence
from scenes import (both, exact, make_lossy, make_masks, make_params, make_rows, make_scene)

NEAR_MOST = 0.005
MOST_FAILURES = 5


class Failure(Exception):
    pass


class Stream:
    """A sequence twice: specd's and the oracle's."""

    def __init__(self, handle, oracle, fields):
        self.handle, self.oracle, self.fields = handle, oracle, fields
        self.done = False
        self.logprob_sum = 0.0


class SceneRun:
    def __init__(self, number, counts, uri):
        self.rng = np.random.default_rng(number)
        self.scene = make_scene(self.rng)
        self.counts, self.sums, self.near_before = counts, collections.Counter(), counts["near"]
        self.num_close = 0  # rounds that were near, whatever specd decided
        scene = self.scene
        # A daemon has its own threads, and is asked for no lossy method.
        self.options = {"threads": 1, "allow_lossy": 1} if uri.startswith("embedded:") else {}
        self.engine = specd.Engine(uri, vocab_size=scene.vocab_size, max_batch=12,
                                   max_sequences=40, max_draft=scene.max_draft, **self.options)
        # The rules of a role hold for all rows that are copied from now on.
        self.engine.rows(1, kind=scene.kind, scale=scene.scale, cap=scene.cap,
                         renormalise=scene.renormalise, dtype=scene.dtype)
        self.engine.rows(1, "draft", kind=scene.draft_kind, dtype=scene.dtype)

    def run(self):
        with self.engine:
            for _ in range(2):
                streams = self.open_streams()
                for _ in range(4):
                    self.round(streams)
                    self.fork_one(streams)
                for stream in streams:
                    stream.handle.close()
                self.check_library_calls()
            self.check_stats()

    def check_library_calls(self):
        text = library_checks.score_difference(self.rng, self.engine, self.scene)
        text = text or library_checks.ops_difference(self.rng, self.scene)
        if text:
            raise Failure(f"{text}\n  scene {self.scene}")

    def check_stats(self):
        """The counters of degenerate cases, unless a round was too near to call."""
        stats = self.engine.stats()
        for name, wanted in self.sums.items():
            # A residual that is almost empty may be empty in specd's numbers, and the token the same.
            spare = self.num_close if name == "empty_residuals" else 0
            if self.counts["near"] == self.near_before and abs(stats[name] - wanted) > spare:
                raise Failure(f"stats: {name} {stats[name]}, not {wanted}\n  scene {self.scene}")

    # ---- sequences --------------------------------------------------------------------------------

    def open_streams(self):
        streams = []
        while len(streams) < 10:
            fields = self.make_params()
            ours, oracles = both(fields)
            history = lambda most: [int(x) for x in self.rng.integers(
                0, min(10, self.scene.vocab_size), self.rng.integers(0, most))]
            prompt = history(12)
            output = history(fields["max_tokens"]) if self.rng.random() < 0.3 else []
            if self.rng.random() < 0.1 and not oracles.greedy:
                ours.n = 2
            for i, handle in enumerate(self.engine.open_all(ours, prompt, output)):
                oracle = Sequence(oracles, prompt, output)
                oracle.seed = (fields["seed"] + i) % 2**64
                if handle.seed != oracle.seed:
                    raise Failure(f"seed {handle.seed}, not {oracle.seed}")
                streams.append(Stream(handle, oracle, fields))
        return streams

    def make_params(self):
        fields = make_params(self.rng, self.scene)
        if "allow_lossy" in self.options and self.rng.random() < 0.2:
            fields |= make_lossy(self.rng, fields)
        return fields

    def fork_one(self, streams):
        live = [s for s in streams if not s.done and s.oracle.finish_reason is None]
        if live and len(streams) < 12 and self.rng.random() < 0.3:
            source = live[self.rng.integers(len(live))]
            seed = int(self.rng.integers(0, 2**63))
            streams.append(Stream(source.handle.fork(seed), source.oracle.fork(seed),
                                  source.fields))
            streams[-1].logprob_sum = source.logprob_sum

    # ---- rounds -----------------------------------------------------------------------------------

    def round(self, streams):
        rng, scene = self.rng, self.scene
        parts = []
        for stream in [s for s in streams if not s.done]:
            num_drafts = int(rng.integers(0, scene.max_draft + 1))
            rows, logits = make_rows(rng, scene, num_drafts + 1, scene.kind)
            masks = None
            if scene.kind != "final_probabilities" and rng.random() < 0.2:
                masks = make_masks(rng, scene, num_drafts + 1, stream.oracle.params.stop_token_ids)
            draft, q = self.make_draft(stream, num_drafts, rows, logits)
            parts.append((stream, rows, draft, q, masks))
        results = self.submit(parts)
        for (stream, rows, draft, q, masks), result in zip(parts, results):
            self.judge(stream, rows, draft, masks, result)

    def make_draft(self, stream, num_drafts, rows, logits):
        """A draft of the oracle, and its q rows as arrays for specd or None."""
        rng, scene = self.rng, self.scene
        if num_drafts == 0 or rng.random() < 0.4:
            tokens = [self.one_hot_token(logits[i]) for i in range(num_drafts)]
            return Draft(tokens, [False] * num_drafts), None
        like = logits[:num_drafts] if scene.draft_kind == "logits" else None
        q, _ = make_rows(rng, scene, num_drafts, scene.draft_kind, like)
        q_rows = list(exact(q))
        draft = Draft([], [], q_rows)
        if not scene.degenerate and rng.random() < 0.3:
            self.let_specd_draw(stream, draft, q)
        else:
            for i in range(num_drafts):
                draft.sampled.append(bool(rng.random() < 0.85))
                draft.tokens.append(self.sampled_token(stream, q_rows[i], logits[i],
                                                       draft.sampled[-1]))
        return draft, q

    def one_hot_token(self, logits):
        kind = self.rng.random()
        if kind < 0.03:
            return -1
        if kind < 0.07:
            return int(self.rng.choice([self.scene.vocab_size, 2**31 - 1, -5]))
        if kind < 0.6 and not np.isnan(logits).any():
            return int(np.argmax(logits))
        return int(self.rng.integers(0, self.scene.vocab_size if kind < 0.8 else 8))

    def sampled_token(self, stream, q_row, logits, sampled):
        if not sampled or self.rng.random() < 0.08:  # a wider draft vocabulary's ids among them
            return self.one_hot_token(logits)
        try:
            q = rows_of.distribution(rows_of.edit(
                rows_of.load(q_row, self.scene.draft_rules), rows_of.Params(),
                rows_of.Place([], [])), stream.oracle.params.draft_filters)
        except rows_of.BadRow:
            return 0
        return rows_of.draw(q.p, self.rng.random(), 0.0)[0]

    def let_specd_draw(self, stream, draft, q):
        """SampleDraft, place by place; the side channel comes with it."""
        rng, oracle = self.rng, stream.oracle
        sides = []
        for i in range(len(q)):
            sampling = str(rng.choice(["with_replacement", "without_replacement", "top_k", "mixed"],
                                      p=[0.6, 0.15, 0.15, 0.1]))
            request = specd.DraftRequest(
                stream.handle, draft.tokens, int(rng.choice([1, 1, 3])), sampling,
                first_node=int(rng.choice([0, 17])))
            children, = self.engine.sample_draft(q[i:i + 1], [request], strict=False)
            self.judge_children(oracle, draft.q_rows[i], request, children)
            draft.tokens.append(int(children.ids[0]) if len(children.ids) else -1)
            draft.sampled.append(bool(children.sampled[0]) if len(children.ids) else True)
            sides.append((float(children.weights[0]), float(children.masses[0]))
                         if len(children.ids) else (0.0, 1.0))
        if rng.random() < 0.5 and all(draft.sampled) and oracle.finish_reason is None:
            draft.q_sides = sides

    def judge_children(self, oracle, q_row, request, children):
        if oracle.finish_reason is not None:
            if children.status != "finished":
                raise Failure(f"sample_draft: {children.status} for a finished sequence")
            return
        self.counts["sample_draft"] += 1
        sampling = request.sampling.removesuffix("_replacement")
        try:
            expected, slack = contract_drafts.sample_draft(
                oracle, q_row, request.prefix, self.scene.draft_rules, None, sampling,
                request.num_children, request.first_node or None)
        except rows_of.BadRow:
            if children.status != "bad_distribution":
                raise Failure(f"sample_draft: status {children.status}") from None
            return
        text = children_difference(children, expected)
        if text is None and children.status == "ok":
            return
        if slack >= 1:
            raise Failure(f"sample_draft {request}: {text or children.status}, slack {slack}")
        self.counts["near"] += 1

    def submit(self, parts):
        """In place or copied: the ways in which rows reach specd."""
        scene = self.scene
        drafts = [specd.Draft(stream.handle, draft.tokens, parents=draft.parents,
                              sampled=draft.sampled if q is not None else None)
                  for stream, _, draft, q, _ in parts]
        for entry, (_, _, draft, _, _) in zip(drafts, parts):
            if draft.q_sides is not None:
                entry.weights, entry.masses = zip(*draft.q_sides)
        rows = [part[1] for part in parts]
        q = [part[3] for part in parts]
        masks = [part[4] for part in parts]
        if self.rng.random() < 0.5:
            total = sum(len(r) for r in rows)
            place = self.engine.rows(total, dtype=scene.dtype, row_stride=scene.row_stride,
                                     kind=scene.kind, scale=scene.scale, cap=scene.cap,
                                     renormalise=scene.renormalise)
            order = self.rng.permutation(total)
            begin = 0
            for entry, part in zip(drafts, rows):
                entry.target_rows = order[begin:begin + len(part)]
                place[entry.target_rows] = part
                begin += len(part)
            rows = place
        masks = masks if any(mask is not None for mask in masks) else None
        return self.engine.verify(rows, drafts, q=self.place_q(drafts, q), masks=masks, strict=False)

    def place_q(self, drafts, q):
        """The draft rows of the round as verify takes them, or None."""
        return q if any(each is not None for each in q) else None

    def judge(self, stream, rows, draft, masks, result):
        oracle, scene = stream.oracle, self.scene
        before = len(oracle.output)
        if sum_text := self.sum_difference(stream, result):  # near or not: it is specd's own numbers
            raise Failure(f"{sum_text}\n  params {stream.fields}\n  scene {scene}")
        expected = oracle.round(draft, exact(rows), scene.target_rules, scene.draft_rules, masks)
        self.counts["rounds"] += 1
        self.counts[expected.status] += 1
        self.counts[oracle.method_for(draft)] += 1
        self.counts["accepted"] += expected.num_accepted
        self.counts["empty_residuals"] += expected.empty_residuals
        self.sums += collections.Counter(
            empty_residuals=expected.empty_residuals, invalid_drafts=expected.invalid_drafts,
            point_masses=expected.point_masses,
            kept=len(expected.tokens), accepted=expected.num_accepted)
        self.num_close += expected.slack < 1
        text = difference(result, expected, len(oracle.output))
        if text is None and expected.status != contract.FINISHED:
            text = score_difference(result, expected, oracle.params)
        if oracle.finish_reason is not None and expected.status == contract.FINISHED:
            stream.done = True
        if text is None:
            return
        if expected.slack < 1:
            self.counts["near"] += 1
            stream.done = True
            return
        raise Failure(f"{text} ({result.detail}, row {result.bad_row})\n  slack {expected.slack:.3g}, method {oracle.method_for(draft)}, "
                      f"kept before {before}\n  draft {draft.tokens} sampled {draft.sampled} sides "
                      f"{draft.q_sides} parents {draft.parents}\n  masks {masks is not None}\n  params {stream.fields}\n"
                      f"  prompt {oracle.prompt}\n  output {oracle.output}\n  scene {scene}")


    def sum_difference(self, stream, result):
        """The sum of the logprobs that were reported, which score_difference judges: in double, token
        by token, and to the last bit."""
        if result.scores is not None:
            for value in result.scores["value"][:, 0]:
                stream.logprob_sum += float(value)
        wanted = stream.logprob_sum
        params = stream.oracle.params
        if params.logprobs is None or "logit" in params.logprobs_mode or np.isnan(wanted):
            wanted = None
        if result.cumulative_logprob != wanted:
            return f"cumulative_logprob: {result.cumulative_logprob}, not {wanted}"
        state = stream.handle.state()
        if result.finish_reason is not None and state.cumulative_logprob != wanted:
            return f"cumulative_logprob of the state: {state.cumulative_logprob}, not {wanted}"
        return None


def main(run=SceneRun):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10000, help="sequences in rounds, at least")
    parser.add_argument("--seed", type=int, default=1, help="the first scene's number")
    parser.add_argument("--scene", type=int, help="run this scene alone")
    parser.add_argument("--uri", default="embedded:cpu", help="where the verifier runs")
    options = parser.parse_args()
    counts, began = collections.Counter(), time.monotonic()
    number, failures = options.seed if options.scene is None else options.scene, 0
    while counts["rounds"] < options.rounds:
        try:
            run(number, counts, options.uri).run()
        except Failure as failure:
            print(f"scene {number}: {failure}\n")
            failures += 1
            if failures == MOST_FAILURES:
                break
        number += 1
        if options.scene is not None:
            break
    print(f"{number - options.seed} scenes from {options.seed}: {dict(counts)}, "
          f"{time.monotonic() - began:.1f} s")
    if counts["near"] > NEAR_MOST * counts["rounds"]:
        print(f"{counts['near']} rounds were too near to call, more than {NEAR_MOST:.1%}")
        failures += 1
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
