"""peers: what other implementations take for the rows that specd-bench gpu is timed on.

  peers.py --out FILE [--quick]       the grid of specd-bench gpu, or a part of it
  peers.py --out FILE --vocab 128256 --batch 1,32 --draft 5 --dtype bf16

Needs torch and a CUDA device; Triton and FlashInfer are used where they can be imported. Nothing is
installed. Each peer is compared with a plain reference on small rows before it is timed, and one
that differs is not timed. FILE gets everything as JSON; the last line printed sums it up. Exit
status: 0 timed, 1 a peer differs from the reference, 2 the arguments, 3 no torch or no device.
"""

import argparse
import importlib
import json
import statistics
import sys

TEMPERATURE = 0.8
DTYPES = ("fp32", "bf16", "fp16")
FULL = {"vocab": [32000, 128256, 151936, 262144], "batch": [1, 8, 32, 64, 256],
        "draft": [1, 3, 5, 8], "dtype": ["bf16", "fp32"]}
QUICK = {"vocab": [128256], "batch": [1, 64], "draft": [5], "dtype": ["bf16"]}
# More than the level-2 cache of any card: written between two timed runs, so that rows are cold.
FLUSH_BYTES = 512 << 20
WARM_UPS = 3


class Skip(Exception):
    """There is nothing to time here, and why."""


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


def capture(torch, peer, rows):
    """A function that runs the peer once, and whether it replays a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            peer.call(rows)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            peer.call(rows)
        graph.replay()
        torch.cuda.synchronize()
        return graph.replay, True
    except RuntimeError:  # it synchronises, or asks for something a graph cannot hold
        torch.cuda.synchronize()
        return lambda: peer.call(rows), False


def time_us(torch, run, repeats, flush):
    """Microseconds of each run, by CUDA events; with `flush`, after its memory was written."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
              for _ in range(repeats)]
    for start, end in events:
        if flush is not None:
            flush.zero_()
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return sorted(1000 * start.elapsed_time(end) for start, end in events)


def measure(torch, peer, rows, repeats):
    """One result for each state of the cache."""
    run, is_graph = capture(torch, peer, rows)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for state in ("cold", "warm"):
        times = time_us(torch, run, repeats, flush if state == "cold" else None)
        yield {"state": state, "graph": is_graph, "median_us": round(statistics.median(times), 3),
               "p99_us": round(times[int(0.99 * (len(times) - 1))], 3), "repeats": repeats}


def check_peers(torch, peers, device):
    """What each peer says of small rows: {name: difference}."""
    differences = {peer.name: "" for peer in peers}
    for seed, (vocab, draft, dtype) in enumerate(
            [(300, 3, "fp32"), (5000, 2, "bf16"), (2049, 4, "fp16")]):
        rows = Rows(torch, vocab=vocab, batch=12, draft=draft, dtype=dtype, device=device,
                    seed=seed)
        for peer in peers:
            differences[peer.name] = differences[peer.name] or peer.difference(rows)
    return differences


def time_peers(torch, peers, options, results):
    """Appends every result of the grid, yielding after each shape. What does not fit into memory is
    a result with a reason."""
    for dtype, vocab, batch, draft in ((d, v, b, k) for d in options.dtype for v in options.vocab
                                       for b in options.batch for k in options.draft):
        shape = {"dtype": dtype, "vocab": vocab, "batch": batch, "draft": draft}
        try:
            rows = Rows(torch, **shape, device="cuda", seed=1)
            for peer in peers:
                for result in measure(torch, peer, rows, options.repeats):
                    results.append({"peer": peer.name, **shape, **result})
        except torch.cuda.OutOfMemoryError as error:
            results.append({"peer": None, **shape, "reason": str(error).splitlines()[0]})
        rows = None
        torch.cuda.empty_cache()
        yield


def numbers(text):
    """A list of positive numbers."""
    values = [int(part) for part in text.split(",")]
    if not all(0 < value <= 1 << 20 for value in values):
        raise argparse.ArgumentTypeError(f"{text}: numbers from 1 to 1048576, with commas")
    return values


def types(text):
    """A list of element types."""
    values = text.split(",")
    if not set(values) <= set(DTYPES):
        raise argparse.ArgumentTypeError(f"{text}: of {', '.join(DTYPES)}, with commas")
    return values


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the JSON file to write")
    parser.add_argument("--quick", action="store_true", help="a small part of the grid")
    for name in ("vocab", "batch", "draft"):
        parser.add_argument(f"--{name}", type=numbers, help="a list in the place of the grid's")
    parser.add_argument("--dtype", type=types, help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--repeats", type=int, default=None, help="timed runs of each")
    parser.add_argument("--check", action="store_true",
                        help="compare with the reference on the CPU, and time nothing")
    options = parser.parse_args(arguments)
    grid = QUICK if options.quick else FULL
    for name, values in grid.items():
        if getattr(options, name) is None:
            setattr(options, name, values)
    options.repeats = options.repeats or (30 if options.quick else 50)
    return options


def write(report, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


def run(options):
    torch, reason = import_or_none("torch")
    if torch is None:
        raise Skip(f"torch cannot be imported ({reason})")
    if not options.check and not torch.cuda.is_available():
        raise Skip(f"torch {torch.__version__} sees no CUDA device")
    device = "cpu" if options.check else "cuda"
    peers, missing = make_peers(torch)
    differences = check_peers(torch, peers, device)
    right = [peer for peer in peers if not differences[peer.name]]
    report = {
        "torch": torch.__version__, "temperature": TEMPERATURE,
        "device": "cpu" if options.check else torch.cuda.get_device_name(0),
        "peers": [{"name": peer.name, "what": peer.what, "difference": differences[peer.name]}
                  for peer in peers],
        "missing": missing, "results": []}
    write(report, options.out)
    if not options.check:
        # After each shape, so that a run that is stopped has left what it knew.
        for _ in time_peers(torch, right, options, report["results"]):
            write(report, options.out)
    for name, difference in differences.items():
        if difference:
            print(f"error: {name}: {difference}")
    print(f"{len(report['results'])} results of {', '.join(peer.name for peer in right)}"
          + (f"; not here: {'; '.join(missing)}" if missing else ""))
    return 0 if len(right) == len(peers) else 1


def main():
    options = parse(sys.argv[1:])
    try:
        return run(options)
    except Skip as reason:
        print(reason)
        return 3


if __name__ == "__main__":
    sys.exit(main())
