"""A rejection sampler in Triton, written for the comparison: what a fused kernel per row costs that
is made without specd's bodies. One pass over each target row; a second only over the row that the
final token comes from.
"""

import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def row_stats(logits, stats, scale, vocab, BLOCK: tl.constexpr):
    """The largest scaled logit of a row, and the sum of exp(x - largest)."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocab, BLOCK):
        place = start + lanes
        x = tl.load(logits + row * vocab + place, mask=place < vocab,
                    other=float("-inf")).to(tl.float32) * scale
        higher = tl.maximum(largest, x)
        # Lanes beyond the row have met nothing: -inf - -inf would be NaN.
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(largest - shift) + tl.exp(x - shift)
        largest = higher
    of_row = tl.max(largest, axis=0)
    tl.store(stats + row * 2, of_row)
    tl.store(stats + row * 2 + 1, tl.sum(total * tl.exp(largest - of_row), axis=0))


@triton.jit
def weight_at(logits, draft_probs, place, vocab, scale, largest, total, num_drafted):
    """(p - q)+ where the draft row has `num_drafted` ids: all, or none where there is no such row."""
    x = tl.load(logits + place, mask=place < vocab, other=float("-inf")).to(tl.float32) * scale
    p = tl.exp(x - largest) / total
    q = tl.load(draft_probs + place, mask=place < num_drafted, other=0.0)
    return tl.maximum(p - q, 0.0)


@triton.jit
def walk(logits, draft_probs, draft_ids, coins, stats, accepted, finals, scale, vocab, draft,
         BLOCK: tl.constexpr):
    """Accepts while coin * q < p, then draws from (p - q)+, or from the last row."""
    b = tl.program_id(0).to(tl.int64)
    count = 0
    stands = 1
    for i in range(0, draft):
        row = b * (draft + 1) + i
        token = tl.load(draft_ids + b * draft + i)
        x = tl.load(logits + row * vocab + token).to(tl.float32) * scale
        p = tl.exp(x - tl.load(stats + row * 2)) / tl.load(stats + row * 2 + 1)
        q = tl.load(draft_probs + (b * draft + i) * vocab + token)
        coin = tl.load(coins + b * (draft + 1) + i)
        stands = tl.where(coin * q < p, stands, 0)
        count += stands
    row = b * (draft + 1) + count
    largest = tl.load(stats + row * 2)
    total = tl.load(stats + row * 2 + 1)
    num_drafted = tl.where(count < draft, vocab, 0)
    row_logits = logits + row * vocab
    row_probs = draft_probs + (b * draft + tl.minimum(count, draft - 1)) * vocab
    lanes = tl.arange(0, BLOCK)
    mass = 0.0
    for start in range(0, vocab, BLOCK):
        mass += tl.sum(weight_at(row_logits, row_probs, start + lanes, vocab, scale, largest,
                                 total, num_drafted), axis=0)
    threshold = tl.load(coins + b * (draft + 1) + draft) * mass
    before = 0.0
    final = vocab
    last = 0
    for start in range(0, vocab, BLOCK):
        place = start + lanes
        weights = weight_at(row_logits, row_probs, place, vocab, scale, largest, total,
                            num_drafted)
        sums = before + tl.cumsum(weights, axis=0)
        passes = (sums > threshold) & (weights > 0)
        final = tl.minimum(final, tl.min(tl.where(passes, place, vocab), axis=0))
        last = tl.maximum(last, tl.max(tl.where(weights > 0, place, 0), axis=0))
        before += tl.sum(weights, axis=0)
    tl.store(accepted + b, count)
    # Rounding may leave the threshold above every sum: then the last id with mass.
    tl.store(finals + b, tl.where(final < vocab, final, last))


def verify(torch, rows, temperature):
    """Accepted counts and final ids."""
    device = rows.logits.device
    num_rows = rows.batch * (rows.draft + 1)
    stats = torch.empty(num_rows, 2, device=device, dtype=torch.float32)
    accepted = torch.empty(rows.batch, device=device, dtype=torch.int32)
    finals = torch.empty(rows.batch, device=device, dtype=torch.int32)
    row_stats[(num_rows,)](rows.logits, stats, 1 / temperature, rows.vocab, BLOCK=BLOCK)
    walk[(rows.batch,)](rows.logits, rows.draft_probs, rows.draft_ids, rows.coins, stats, accepted,
                        finals, 1 / temperature, rows.vocab, rows.draft, BLOCK=BLOCK)
    return accepted, finals
