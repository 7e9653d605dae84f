"""What specd returned against what the oracle says: the first difference in words, or None."""

import numpy as np

from contract_rows import equals


def difference(result, expected, total_kept):
    """Of a round's result, but for its scores."""
    for name, found, wanted in (
        ("status", result.status, expected.status),
        ("tokens", result.tokens.tolist(), expected.tokens),
        ("num_accepted", result.num_accepted, expected.num_accepted),
        ("path", result.path.tolist(), expected.path),
        ("finish_reason", result.finish_reason, expected.finish_reason),
        ("stop_token", result.stop_token, expected.stop_token),
        ("total_kept", result.total_kept, total_kept),
    ):
        if found != wanted:
            return f"{name}: specd {found}, the oracle {wanted}"
    return None


def score_difference(result, expected, params):
    """Of the scores of every kept token. A row that is bad as it arrived (NaN under a mask, any row
    under a forced token) has none."""
    if params.logprobs is None:
        return None if result.scores is None else "scores: not asked for"
    for i, (row, scores) in enumerate(zip(result.scores, expected.scores, strict=True)):
        if np.isnan(scores.values).any() or scores.values.max() == -np.inf:
            continue
        text = rows_difference(row, scores, expected.tokens[i], params.logprobs,
                               params.logprob_token_ids)
        if text:
            return f"scores of token {i} ({params.logprobs_mode}): {text}"
    return None


def rows_difference(row, scores, token, num_top, chosen):
    """One token's scores: itself, the best, the chosen ids."""
    values = scores.values
    best = np.lexsort((np.arange(len(values)), -values))[:num_top]
    best = [int(x) if values[x] > -np.inf else -1 for x in best] + [-1] * (num_top - len(best))
    wanted = [token, *best, *chosen]
    if len(row) != len(wanted):
        return f"{len(row)} entries, not {len(wanted)}"
    for place, (entry, identity) in enumerate(zip(row, wanted)):
        found = int(entry["id"])
        if found != identity:
            swapped = found >= 0 and identity >= 0 and _near(scores, found, identity)
            if not (1 <= place <= num_top and swapped):
                return f"entry {place} is id {found}, not {identity}"
        if identity < 0:
            continue
        value, error = values[found], scores.error[found]
        if not (entry["value"] == value or abs(entry["value"] - value) <= error):
            return f"id {found}: value {entry['value']}, not {value} within {error}"
        low, high = rank_range(scores, found)
        if not low <= entry["rank"] <= high:
            return f"id {found}: rank {entry['rank']}, not {low} .. {high}"
    return None


def _near(scores, a, b):
    """May id a stand where b is expected? Equal values are ordered by id, unless the place of an
    almost equal one among them is in doubt."""
    values, doubt = scores.values, scores.error + scores.error[b]
    with np.errstate(invalid="ignore"):
        close = np.abs(values - values[b]) <= doubt
    return close[a] and not equals(scores, b)[close].all()


def rank_range(scores, identity):
    """1 + the number of greater values; values that differ by less than their error may count or
    not, those that are equal in every precision do not."""
    values, doubt = scores.values, scores.error + scores.error[identity]
    with np.errstate(invalid="ignore"):
        gap = values - values[identity]
    sure = equals(scores, identity)
    gap[sure] = 0
    in_doubt = ~sure & (np.abs(gap) <= doubt)
    return 1 + int((gap > doubt).sum()), 1 + int(((gap > doubt) | in_doubt).sum())


def children_difference(children, expected):
    """Of draft tokens that specd drew."""
    found = {int(x): (int(n), float(q)) for x, n, q in
             zip(children.ids, children.counts, children.q)}
    if {x: n for x, (n, _) in found.items()} != {x: n for x, n, _ in expected}:
        return f"children: specd {found}, the oracle {expected}"
    for x, _, q in expected:
        # An id that a draw can give has some mass; the most probable ones may have none.
        if abs(found[x][1] - q) > 1e-5 * q * (1 - np.log2(max(q, 2.0**-126))) + 2.0**-120:
            return f"children: q({x}) is {found[x][1]}, not {q}"
    return None

