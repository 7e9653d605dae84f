"""The peers: samplers of other libraries, the rows they are given, and the reference that each is
compared with. peers.py runs and times them.
"""

import importlib

TEMPERATURE = 0.8


def import_or_none(name):
    """The module, or None with the reason."""
    try:
        return importlib.import_module(name), None
    except Exception as error:  # a broken library may raise anything when it is loaded
        return None, f"{name}: {type(error).__name__}: {error}".splitlines()[0]


class Rows:
    """The tensors of one round: target rows, drafts, what they were drawn from, and coins."""

    def __init__(self, torch, *, vocab, batch, draft, dtype, device, seed):
        kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
        generator = torch.Generator(device=device).manual_seed(seed)
        self.vocab, self.batch, self.draft = vocab, batch, draft
        self.logits = torch.empty(batch * (draft + 1), vocab, device=device, dtype=kinds[dtype])
        likely = torch.randint(vocab, (batch, draft + 1), device=device, generator=generator)
        for sequence in range(batch):
            rows = torch.randn(draft + 1, vocab, device=device, generator=generator) * 2
            rows.scatter_add_(1, likely[sequence, :, None],
                              torch.full((draft + 1, 1), 12.0, device=device))
            self.logits[sequence * (draft + 1):(sequence + 1) * (draft + 1)] = rows.to(kinds[dtype])
        self.draft_ids = likely[:, :draft].contiguous().to(torch.int32)
        # The drafter is a little off: the rows again, at another temperature.
        heads = self.logits.view(batch, draft + 1, vocab)[:, :draft].float()
        self.draft_probs = torch.softmax(heads * 0.9, dim=-1)
        self.coins = torch.rand(batch, draft + 1, device=device, generator=generator)


def reference_walk(torch, rows):
    """Accepted counts and final ids in double precision on the CPU, one row after another; and how
    close each decision was."""
    logits = rows.logits.double().cpu().view(rows.batch, rows.draft + 1, rows.vocab)
    p_rows = torch.softmax(logits / TEMPERATURE, dim=-1)
    q_rows, coins = rows.draft_probs.double().cpu(), rows.coins.double().cpu()
    ids = rows.draft_ids.cpu()
    accepted, finals, margins = [], [], []
    for b in range(rows.batch):
        count, margin = 0, 1.0
        while count < rows.draft:
            p, q = p_rows[b, count, ids[b, count]], q_rows[b, count, ids[b, count]]
            margin = min(margin, abs(float(coins[b, count] - p / q)))
            if not coins[b, count] * q < p:
                break
            count += 1
        weights = p_rows[b, count]
        if count < rows.draft:
            weights = (weights - q_rows[b, count]).clamp(min=0)
        sums = weights.cumsum(0)
        threshold = coins[b, rows.draft] * sums[-1]
        final = int(torch.searchsorted(sums, threshold, right=True))
        accepted.append(count)
        finals.append(final)
        margins.append(margin)
    return accepted, finals, margins, p_rows, q_rows


class Peer:
    """One way to verify a round. `call` does it on a device's current stream."""

    name = ""
    what = ""

    def __init__(self, torch):
        self.torch = torch

    def call(self, rows):
        raise NotImplementedError

    def difference(self, rows):
        """Empty, or how `call` differs from the reference."""
        raise NotImplementedError


class TorchGreedy(Peer):
    name = "torch_greedy"
    what = "argmax of every row, accepted while it equals the draft"

    def call(self, rows):
        best = rows.logits.argmax(dim=-1).view(rows.batch, rows.draft + 1)
        same = best[:, :rows.draft] == rows.draft_ids
        accepted = same.to(self.torch.int32).cumprod(dim=1).sum(dim=1)
        return accepted, best.gather(1, accepted[:, None])[:, 0]

    def difference(self, rows):
        accepted, finals = (value.tolist() for value in self.call(rows))
        logits = rows.logits.double().cpu().view(rows.batch, rows.draft + 1, rows.vocab)
        for b in range(rows.batch):
            count = 0
            while count < rows.draft and logits[b, count].argmax() == rows.draft_ids[b, count]:
                count += 1
            if accepted[b] != count or logits[b, count, finals[b]] != logits[b, count].max():
                return f"sequence {b}: {accepted[b]} accepted, the reference has {count}"
        return ""


class TorchSample(Peer):
    name = "torch_softmax_multinomial"
    what = "softmax and multinomial of every row, accepted while the sample equals the draft"

    def call(self, rows):
        probs = self.torch.softmax(rows.logits.float() / TEMPERATURE, dim=-1)
        sampled = self.torch.multinomial(probs, 1).view(rows.batch, rows.draft + 1)
        same = sampled[:, :rows.draft] == rows.draft_ids
        accepted = same.to(self.torch.int32).cumprod(dim=1).sum(dim=1)
        return accepted, sampled.gather(1, accepted[:, None])[:, 0]

    def difference(self, rows):
        # Each draft is by far the most probable id, so its share of many draws is known.
        drawn, repeats = 0, 50
        for _ in range(repeats):
            drawn += int((self.call(rows)[0] >= 1).sum())
        p_rows = reference_walk(self.torch, rows)[3]
        first = p_rows[:, 0].gather(1, rows.draft_ids[:, :1].long().cpu())
        expected, count = float(first.mean()), rows.batch * repeats
        bound = 6 * (0.25 / count) ** 0.5
        if abs(drawn / count - expected) > bound:
            return f"the first draft stands in {drawn / count:.3f}, expected {expected:.3f}"
        return ""


class RejectionPeer(Peer):
    """Takes the coins that are given, so its decisions can be compared one by one."""

    def difference(self, rows):
        accepted, finals = (value.tolist() for value in self.call(rows))
        expected, expected_finals, margins, p_rows, q_rows = reference_walk(self.torch, rows)
        for b in range(rows.batch):
            if margins[b] < 1e-4:
                continue  # single precision may see it the other way
            if accepted[b] != expected[b]:
                return f"sequence {b}: {accepted[b]} accepted, the reference has {expected[b]}"
            weights = p_rows[b, expected[b]]
            if expected[b] < rows.draft:
                weights = (weights - q_rows[b, expected[b]]).clamp(min=0)
            sums = weights.cumsum(0) / weights.sum()
            coin = float(rows.coins[b, rows.draft])
            final = finals[b]
            if not 0 <= final < rows.vocab or weights[final] <= 0:
                return f"sequence {b}: final id {final} has no mass"
            below = float(sums[final] - weights[final] / weights.sum())
            if not below - 1e-3 <= coin <= float(sums[final]) + 1e-3:
                return f"sequence {b}: final id {final}, the reference has {expected_finals[b]}"
        return ""


class TorchRejection(RejectionPeer):
    name = "torch_rejection"
    what = "softmax, ratios, residual and cumulative sum as torch operations"

    def call(self, rows):
        torch = self.torch
        probs = torch.softmax(rows.logits.float() / TEMPERATURE, dim=-1)
        probs = probs.view(rows.batch, rows.draft + 1, rows.vocab)
        ids = rows.draft_ids.long()[:, :, None]
        p = probs[:, :rows.draft].gather(2, ids)[:, :, 0]
        q = rows.draft_probs.gather(2, ids)[:, :, 0]
        stands = (rows.coins[:, :rows.draft] * q < p).to(torch.int32)
        accepted = stands.cumprod(dim=1).sum(dim=1)
        place = accepted[:, None, None].expand(-1, 1, rows.vocab)
        weights = probs.gather(1, place)[:, 0]
        last = (accepted < rows.draft).float()[:, None]
        q_place = accepted.clamp(max=rows.draft - 1)[:, None, None].expand(-1, 1, rows.vocab)
        weights = (weights - last * rows.draft_probs.gather(1, q_place)[:, 0]).clamp(min=0)
        sums = weights.cumsum(dim=1)
        threshold = rows.coins[:, rows.draft:] * sums[:, -1:]
        finals = torch.searchsorted(sums, threshold, right=True)[:, 0]
        return accepted, finals.clamp(max=rows.vocab - 1)


class FlashInferChain(Peer):
    name = "flashinfer_chain"
    what = "torch softmax and flashinfer.sampling.chain_speculative_sampling"

    def __init__(self, torch, sampling):
        super().__init__(torch)
        self.sampling = sampling

    def call(self, rows):
        probs = self.torch.softmax(rows.logits.float() / TEMPERATURE, dim=-1)
        return self.verify(rows, probs.view(rows.batch, rows.draft + 1, rows.vocab))

    def verify(self, rows, probs):
        ids, _, emitted = self.sampling.chain_speculative_sampling(
            rows.draft_probs, rows.draft_ids, probs)
        return emitted, ids.gather(1, emitted.long()[:, None])[:, 0]

    def difference(self, rows):
        torch = self.torch
        probs = torch.softmax(rows.logits.float() / TEMPERATURE, dim=-1)
        probs = probs.view(rows.batch, rows.draft + 1, rows.vocab)
        # It draws coins of its own. With p = q every draft stands; with p(x) = 0 none does.
        same = probs.clone()
        same[:, :rows.draft] = rows.draft_probs
        emitted, finals = self.verify(rows, same)
        if not bool((emitted == rows.draft).all()):
            return f"p = q, and {emitted.tolist()} of {rows.draft} drafts stand"
        none = probs.clone()
        none[:, :rows.draft].scatter_(2, rows.draft_ids.long()[:, :, None], 0)
        none /= none.sum(dim=-1, keepdim=True)
        emitted, finals = self.verify(rows, none)
        if bool((emitted != 0).any()) or bool((finals == rows.draft_ids[:, 0]).any()):
            return f"p(x) = 0, and {emitted.tolist()} drafts stand"
        return ""


def make_peers(torch):
    """The peers that can be had here, and why the others cannot."""
    peers = [TorchGreedy(torch), TorchSample(torch), TorchRejection(torch)]
    missing = []
    triton, reason = import_or_none("triton")
    if triton is None:
        missing.append(reason)
    else:
        kernels, reason = import_or_none("peers_triton")
        if kernels is None:
            missing.append(reason)
        else:
            peers.append(type("TritonRejection", (RejectionPeer,), {
                "name": "triton_rejection",
                "what": "a Triton kernel over rows, and one over sequences that reads what it needs",
                "call": lambda self, rows: kernels.verify(torch, rows, TEMPERATURE)})(torch))
    sampling, reason = import_or_none("flashinfer.sampling")
    if sampling is None:
        missing.append(reason)
    else:
        peers.append(FlashInferChain(torch, sampling))
    return peers, missing
