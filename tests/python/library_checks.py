"""Score and the functions without an engine, on the rows of a random scene, against the oracle."""

import numpy as np

import contract
import contract_walk
import contract_rows as rows_of
import specd
from compare import rows_difference
from contract_rows import Filters
from philox import LIBRARY, coin53
from scenes import exact, make_filters, make_rows


def usable(row, rules):
    """The row as logits; None where it has no distribution."""
    try:
        contract_walk.check_probabilities(row, rules)
    except rows_of.BadRow:
        return None
    logits = rows_of.load(row, rules)
    bad = np.isnan(logits.values).any() or logits.values.max() == -np.inf
    return None if bad else logits


def score_difference(rng, engine, scene):
    """Engine.score on a few rows: the first difference in words, or None."""
    rows, _ = make_rows(rng, scene, 5, scene.kind)
    ids = rng.integers(0, scene.vocab_size, 5)
    chosen = [int(x) for x in rng.integers(0, scene.vocab_size, rng.integers(0, 4))]
    num_top = int(rng.integers(0, 5))
    mode = str(rng.choice(["raw_logprobs", "raw_logits"]))
    scores = engine.score(rows, ids, num_top, chosen, mode, strict=False)
    for i, row in enumerate(exact(rows)):
        logits = usable(row, scene.target_rules)
        if (scores.statuses[i] == "ok") != (logits is not None):
            return f"score: row {i} is {scores.statuses[i]}"
        if logits is not None:
            expected = contract.score_rows(mode, logits, None, None)
            text = rows_difference(scores.values[i], expected, int(ids[i]), num_top, chosen)
            if text:
                return f"score: row {i} ({mode}): {text}"
    return None


def ops_difference(rng, scene):
    """Every function of specd/ops.h on a few rows."""
    rows, _ = make_rows(rng, scene, 5, scene.kind)
    indices = [int(x) for x in rng.integers(0, 5, 4)]
    rules = {"kind": scene.kind, "scale": scene.scale, "cap": scene.cap,
             "renormalise": scene.renormalise}
    all_logits = [usable(row, scene.target_rules) for row in exact(rows)]
    chosen = [all_logits[i] for i in indices]
    final = scene.kind == "final_probabilities"
    temperature = 1.0 if final else float(rng.choice([0.3, 1.0, 2.0]))
    found = specd.softmax(rows, temperature, indices, **rules)
    text = _rows("softmax", found, chosen, [Filters(temperature)] * 4)
    if not final:
        top_k = [int(k) for k in rng.choice([-1, 1, 2, 7, scene.vocab_size], 4)]
        found = specd.top_k_renorm(rows, top_k, indices, **rules)
        text = text or _rows("top_k_renorm", found, chosen, [Filters(top_k=k) for k in top_k])
        top_p = [float(p) for p in rng.choice([1e-6, 0.3, 0.9, 1.0], 4)]
        found = specd.top_p_renorm(rows, top_p, indices, **rules)
        text = text or _rows("top_p_renorm", found, chosen, [Filters(top_p=p) for p in top_p])
    found = specd.argmax(rows, **rules)
    text = text or _ids("argmax", found, [
        (-1, 9.0) if logits is None else rows_of.argmax(logits) for logits in all_logits])
    return text or _sampled(rng, scene, rows, rules, all_logits, final)


def _sampled(rng, scene, rows, rules, all_logits, final):
    fields = {} if final else make_filters(rng, lambda chance: rng.random() < chance,
                                           scene.vocab_size)
    seeds = rng.integers(0, 2**63, len(rows))
    order = fields.get("filter_order", "sequential")
    filters = Filters(1.0, fields.get("top_p", 1.0), fields.get("top_k", 0),
                      fields.get("min_p", 0.0), order)
    found = specd.sample(rows, seeds, position=7, round_base=3, **fields, **rules)
    expected = []
    for seed, logits in zip(seeds, all_logits):
        if logits is None:
            expected.append((-1, 9.0))
            continue
        p = rows_of.distribution(logits, filters)
        token, slack = rows_of.draw(p.p, coin53(int(seed), 7, 3, 0, LIBRARY) * 2.0**-53,
                                    p.mass_error)
        expected.append((token, min(slack, p.slack)))
    return _ids(f"sample {fields}", found, expected)


def _ids(name, found, expected):
    for i, (token, (wanted, slack)) in enumerate(zip(found, expected, strict=True)):
        if token != wanted and slack >= 1:
            return f"{name}: result {i} is {token}, not {wanted}, slack {slack}"
    return None


def _rows(name, found, chosen, filters):
    for i, (row, logits, each) in enumerate(zip(found, chosen, filters, strict=True)):
        if logits is None:
            if not np.isnan(row).all():
                return f"{name}: result {i} is not NaN"
            continue
        p = rows_of.distribution(logits, each)
        if p.slack < 1:
            continue
        allowed = p.p * (p.error + p.mass_error + 4 * rows_of.ULP) + 2.0**-120
        if not (np.abs(row - p.p) <= allowed).all():
            worst = int(np.argmax(np.abs(row - p.p) - allowed))
            return f"{name} {each}: result {i}, id {worst} is {row[worst]}, not {p.p[worst]}"
    return None
