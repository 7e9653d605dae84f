"""SampleDraft of CONTRACT §2: children drawn from a draft row, in double precision."""

import numpy as np

import contract_rows as rows_of
from contract_rows import INF, Place
from contract_walk import check_probabilities
from philox import Coins


def sample_draft(sequence, row, prefix=(), rules=rows_of.Rules(), mask=None, sampling="with",
                 num_children=1, first_node=None):
    """Children drawn from a draft row: ([(id, count, the probability that it was drawn with)], slack). That
    is q(id), or for a child of the rest q(id) over what the ids before it left."""
    place = Place(sequence.prompt, sequence.output + list(prefix), mask, sequence.eos_ids)
    params = sequence.params if sequence.params.draft_edits else rows_of.Params()
    check_probabilities(row, rules, params, place)
    logits = rows_of.edit(rows_of.load(row, rules), params, place)
    q = rows_of.distribution(logits, sequence.params.draft_filters)
    num_best = {"top_k": num_children, "mixed": num_children - 1}.get(sampling, 0)
    order = np.lexsort((np.arange(len(q.p)), -logits.values))
    order = order[q.kept[order]]
    slacks = [rows_of.order_slack(logits, order[:i], order[i:])
              for i in range(1, min(num_best, len(order) - 1) + 1)]
    best = {int(x): 1 for x in order[:num_best]}
    left = without(logits, q, best) if sampling == "mixed" and best else q
    if sampling == "top_k" or left is None or len(best) < num_best:
        return [(x, 1, q.p[x]) for x in best], min([q.slack] + slacks)
    coins = Coins(sequence.seed, len(sequence.output), len(sequence.output))
    first_node = len(prefix) + 1 if first_node is None else first_node
    slack, drawn = min([q.slack] + slacks), best
    shares = {x: q.p[x] for x in best}
    for child in range(num_best, num_children):
        token, near = rows_of.draw(left.p, coins.draft(len(prefix), first_node + child),
                                   left.mass_error)
        slack = min(slack, near)
        drawn[token] = drawn.get(token, 0) + 1
        shares[token] = left.p[token]
        if sampling == "without":
            left = without(logits, q, drawn)
            if left is None:
                break
    return [(x, count, shares[x]) for x, count in drawn.items()], slack


def without(logits, q, drawn):
    """q given that it is none of the ids drawn; None where that is all of them. The filters' cut
    stays where it was."""
    kept = q.kept.copy()
    kept[list(drawn)] = False
    if not kept.any():
        return None
    left = rows_of.Logits(np.where(kept, logits.values, -INF), logits.error, logits.edits)
    return rows_of.distribution(left, rows_of.Filters(q.temperature))
