"""The peers are samplers of other libraries. This file has them, their rows, and the references for
both. peers.py runs and times them; peers_specd.py has specd's own.
"""

import contextlib
import importlib
import math

TEMPERATURE = 0.8
# Small rows are answered so often where a peer draws coins of its own.
LAW_ROUNDS = 50
# Standard errors that a mean may be away from what is expected.
SIGMAS = 6


def import_or_none(name):
    """The module, or None with the reason."""
    try:
        return importlib.import_module(name), None
    except Exception as error:  # a broken library may raise anything when it is loaded
        return None, reason_of(name, error)


def reason_of(name, error):
    """An exception in one line."""
    return f"{name}: {type(error).__name__}: {error}".splitlines()[0]


class Rows:
    """The tensors of one round: target rows, what the drafter wanted, drafts that are drawn from
    that, and coins.

    Logits are N(0, 2) with one likely id, which has half of a row's mass and more in most of them.
    The drafter's are the same with noise, so that drafts are accepted in some places and rejected in
    others."""

    def __init__(self, torch, *, vocab, batch, draft, dtype, device, seed):
        kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
        generator = torch.Generator(device=device).manual_seed(seed)
        self.vocab, self.batch, self.draft, self.dtype = vocab, batch, draft, dtype
        num_rows = draft + 1
        self.logits = torch.empty(batch * num_rows, vocab, device=device, dtype=kinds[dtype])
        self.draft_probs = torch.empty(batch, draft, vocab, device=device, dtype=torch.float32)
        self.draft_ids = torch.empty(batch, draft, device=device, dtype=torch.int32)
        self.coins = torch.rand(batch, num_rows, device=device, generator=generator)
        likely = torch.randint(vocab, (batch, num_rows), device=device, generator=generator)
        # The others have exp(3.1) each in the mean, at this temperature.
        bump = torch.full((num_rows, 1), TEMPERATURE * (math.log(vocab) + 4), device=device)
        for b in range(batch):
            rows = torch.randn(num_rows, vocab, device=device, generator=generator) * 2
            rows.scatter_add_(1, likely[b, :, None], bump)
            self.logits[b * num_rows:(b + 1) * num_rows] = rows.to(kinds[dtype])
            noise = torch.randn(draft, vocab, device=device, generator=generator) / 2
            probs = torch.softmax((rows[:draft] + noise) / TEMPERATURE, dim=-1)
            self.draft_probs[b] = probs
            self.draft_ids[b] = torch.multinomial(probs, 1, generator=generator)[:, 0].to(
                torch.int32)


def distributions(torch, rows):
    """The probabilities of target and drafter, row by row, in double precision on the CPU."""
    logits = rows.logits.double().cpu().view(rows.batch, rows.draft + 1, rows.vocab)
    return torch.softmax(logits / TEMPERATURE, dim=-1), rows.draft_probs.double().cpu()


def reference_walk(torch, rows):
    """Accepted counts and final ids in double precision on the CPU, one row after another; and how
    close each decision was."""
    p_rows, q_rows = distributions(torch, rows)
    coins, ids = rows.coins.double().cpu(), rows.draft_ids.cpu()
    accepted, finals, margins = [], [], []
    for b in range(rows.batch):
        count, margin = 0, 1.0
        while count < rows.draft:
            p, q = p_rows[b, count, ids[b, count]], q_rows[b, count, ids[b, count]]
            margin = min(margin, abs(float(coins[b, count] - p / q)))
            if not coins[b, count] * q < p:
                break
            count += 1
        sums = residual(rows, p_rows, q_rows, b, count).cumsum(0)
        threshold = coins[b, rows.draft] * sums[-1]
        final = int(torch.searchsorted(sums, threshold, right=True))
        accepted.append(count)
        finals.append(final)
        margins.append(margin)
    return accepted, finals, margins, p_rows, q_rows


def accept_shares(torch, rows, kind):
    """For each sequence the probability with which each draft is accepted, if those before it are."""
    logits = rows.logits.view(rows.batch, rows.draft + 1, rows.vocab)
    shares = []
    for b in range(rows.batch):  # double rows of a whole round may not fit
        heads, ids = logits[b, :rows.draft].double(), rows.draft_ids[b].long()[:, None]
        if kind == "greedy":
            share = (heads.argmax(dim=-1)[:, None] == ids).double()
        else:
            share = torch.softmax(heads / TEMPERATURE, dim=-1).gather(1, ids)
            if kind == "rejection":
                share = (share / rows.draft_probs[b].gather(1, ids).double()).clamp(max=1)
        shares.append(share[:, 0].tolist())
    return shares


def accepted_difference(shares, total, rounds, fresh_coins):
    """Returns the expected number of accepted drafts of a sequence, and a text. The text is empty,
    or says how `total` accepted drafts in `rounds` rounds differ from it. Rounds with the same
    coins count as one."""
    mean = variance = 0.0
    for sequence in shares:
        stands, first, second = 1.0, 0.0, 0.0
        for place, share in enumerate(sequence):
            stands *= share
            first += stands
            second += (2 * place + 1) * stands
        mean += first
        variance += max(second - first * first, 0.0)
    bound = SIGMAS * (variance / (rounds if fresh_coins else 1)) ** 0.5 + 1e-5
    expected, seen = mean / len(shares), total / rounds / len(shares)
    if abs(total / rounds - mean) > bound:
        return expected, f"{seen:.4f} drafts accepted in the mean, expected {expected:.4f}"
    return expected, ""


class Peer:
    """One way to verify a round. `call` does it on a device's current stream."""

    name = ""
    kind = ""  # greedy, sample or rejection: what it does; specd's peer of that kind is its base
    what = ""
    checked = ""  # what `difference` looks at
    fresh_coins = False  # whether each run, and each replay of a graph, is known to draw anew

    def __init__(self, torch):
        self.torch = torch

    @contextlib.contextmanager
    def taken(self, rows):
        """Prepares the peer before the first run over these rows, and cleans up after the last."""
        yield

    def stage(self):
        """The CPU's work before each run."""

    def call(self, rows):
        raise NotImplementedError

    def collect(self, answer):
        """Accepted counts and final ids of the oldest run that was not collected, as lists; `answer`
        is what `call` returned."""
        accepted, finals = answer
        return accepted.tolist(), finals.tolist()

    def answer(self, rows):
        """One run."""
        self.stage()
        return self.collect(self.call(rows))

    def difference(self, rows):
        """Empty, or how the answers differ from the reference."""
        raise NotImplementedError


class Greedy(Peer):
    kind = "greedy"
    checked = "small rows: each accepted count and final id"

    def difference(self, rows):
        accepted, finals = self.answer(rows)
        logits = rows.logits.double().cpu().view(rows.batch, rows.draft + 1, rows.vocab)
        ids = rows.draft_ids.cpu()
        for b in range(rows.batch):
            count = 0
            while count < rows.draft and int(logits[b, count].argmax()) == int(ids[b, count]):
                count += 1
            if accepted[b] != count:
                return f"sequence {b}: {accepted[b]} accepted, the reference has {count}"
            if float(logits[b, count, finals[b]]) != float(logits[b, count].max()):
                return f"sequence {b}: final id {finals[b]} is not the best of its row"
        return ""


class Law(Peer):
    """Draws coins of its own: its answers are compared in law."""

    checked = (f"small rows, {LAW_ROUNDS} rounds: mean accepted count; that each final id has mass, "
               "and where they lie in the mean")

    def final_weights(self, rows, p_rows, q_rows, b, count):
        """The distribution of a sequence's final id after this many accepted drafts."""
        raise NotImplementedError

    def difference(self, rows):
        p_rows, q_rows = distributions(self.torch, rows)
        total, places = 0, 0.0
        for _ in range(LAW_ROUNDS):
            accepted, finals = self.answer(rows)
            for b, (count, final) in enumerate(zip(accepted, finals)):
                weights = self.final_weights(rows, p_rows, q_rows, b, count)
                if not 0 <= final < rows.vocab or float(weights[final]) <= 0:
                    return f"sequence {b}: final id {final} has no mass after {count} drafts"
                below = float(weights[:final].sum()) + float(weights[final]) / 2
                places += below / float(weights.sum())
            total += sum(accepted)
        shares = accept_shares(self.torch, rows, self.kind)
        difference = accepted_difference(shares, total, LAW_ROUNDS, True)[1]
        if difference:
            return difference
        # Half of an id's own mass and all before it: 1/2 in the mean, with no more variance than
        # that of a uniform number.
        num_finals = LAW_ROUNDS * rows.batch
        if abs(places / num_finals - 0.5) > SIGMAS * (1 / 12 / num_finals) ** 0.5:
            return f"final ids lie at {places / num_finals:.3f} of their rows, expected 0.5"
        return ""


class Sample(Law):
    kind = "sample"

    def final_weights(self, rows, p_rows, q_rows, b, count):
        weights = p_rows[b, count].clone()
        if count < rows.draft:
            weights[int(rows.draft_ids[b, count])] = 0  # it was not drawn
        return weights


class TorchGreedy(Greedy):
    name = "torch_greedy"
    what = "argmax of every row, accepted while it equals the draft"

    def call(self, rows):
        best = rows.logits.argmax(dim=-1).view(rows.batch, rows.draft + 1)
        same = best[:, :rows.draft] == rows.draft_ids
        accepted = same.to(self.torch.int32).cumprod(dim=1).sum(dim=1)
        return accepted, best.gather(1, accepted[:, None])[:, 0]


class TorchSample(Sample):
    name = "torch_softmax_multinomial"
    what = "softmax and multinomial of every row, accepted while the sample equals the draft"

    def call(self, rows):
        probs = self.torch.softmax(rows.logits.float() / TEMPERATURE, dim=-1)
        sampled = self.torch.multinomial(probs, 1).view(rows.batch, rows.draft + 1)
        same = sampled[:, :rows.draft] == rows.draft_ids
        accepted = same.to(self.torch.int32).cumprod(dim=1).sum(dim=1)
        return accepted, sampled.gather(1, accepted[:, None])[:, 0]


def residual(rows, p_rows, q_rows, b, count):
    """The rest of a target row after its draft was rejected; after all drafts, the row itself."""
    if count == rows.draft:
        return p_rows[b, count]
    return (p_rows[b, count] - q_rows[b, count]).clamp(min=0)


class GivenCoins(Peer):
    """Takes the coins of the rows, so its decisions can be compared one by one."""

    kind = "rejection"
    checked = "small rows: each accepted count and final id, by its coins"

    def difference(self, rows):
        accepted, finals = self.answer(rows)
        expected, expected_finals, margins, p_rows, q_rows = reference_walk(self.torch, rows)
        for b in range(rows.batch):
            if margins[b] < 1e-4:
                continue  # single precision may see it the other way
            if accepted[b] != expected[b]:
                return f"sequence {b}: {accepted[b]} accepted, the reference has {expected[b]}"
            weights = residual(rows, p_rows, q_rows, b, expected[b])
            sums = weights.cumsum(0) / weights.sum()
            coin = float(rows.coins[b, rows.draft])
            final = finals[b]
            if not 0 <= final < rows.vocab or weights[final] <= 0:
                return f"sequence {b}: final id {final} has no mass"
            below = float(sums[final] - weights[final] / weights.sum())
            if not below - 1e-3 <= coin <= float(sums[final]) + 1e-3:
                return f"sequence {b}: final id {final}, the reference has {expected_finals[b]}"
        return ""


class TorchRejection(GivenCoins):
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
    kind = "rejection"
    checked = "small rows: p = q, where every draft is accepted, and p(x) = 0, where none is"
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
        # It draws coins of its own. With p = q every draft is accepted; with p(x) = 0 none is.
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
            peers.append(type("TritonRejection", (GivenCoins,), {
                "name": "triton_rejection",
                "what": "a Triton kernel over rows, and one over sequences that reads what it needs",
                "call": lambda self, rows: kernels.verify(torch, rows, TEMPERATURE)})(torch))
    sampling, reason = import_or_none("flashinfer.sampling")
    if sampling is None:
        missing.append(reason)
    else:
        peers.append(FlashInferChain(torch, sampling))
    return peers, missing
