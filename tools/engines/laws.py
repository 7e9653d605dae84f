"""Laws of sampled tokens in numpy, for the tests of engines."""

import numpy as np


def law(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """The law of a token, for each row of logits: min_p, then top_k, then top_p of what is left."""
    rows = np.atleast_2d(np.asarray(logits, np.float64)) / temperature
    weights = np.exp(rows - rows.max(1, keepdims=True))
    weights[weights < min_p] = 0
    for row in weights:
        order = np.argsort(-row, kind="stable")
        if top_k > 0:
            row[order[top_k:]] = 0
        before = np.cumsum(row[order]) - row[order]
        row[order[before >= top_p * row.sum()]] = 0
    weights /= weights.sum(1, keepdims=True)
    return weights.reshape(np.shape(logits))


def chi_square(counts, expected):
    """Of counted outcomes against their law: an array, or {outcome: probability}. An outcome that has
    no probability is infinitely wrong."""
    items = expected.items() if isinstance(expected, dict) else enumerate(expected.tolist())
    number, total = sum(counts.values()), 0.0
    for outcome, p in items:
        if p > 0:
            total += (counts[outcome] - number * p) ** 2 / (number * p)
        elif counts[outcome]:
            return np.inf
    return total
