"""peers: what other implementations take for the rows that specd-bench gpu is timed on.

  peers.py --out FILE [--quick]       the grid of specd-bench gpu, or a part of it
  peers.py --out FILE --vocab 128256 --batch 1,32 --draft 5 --dtype bf16

Needs torch and a CUDA device; Triton and FlashInfer are used where they can be imported. Nothing is
installed. Each peer is compared with a plain reference on small rows before it is timed, and one
that differs is not timed. FILE gets everything as JSON; the last line printed sums it up. Exit
status: 0 timed, 1 a peer differs from the reference, 2 the arguments, 3 no torch or no device.
"""

import argparse
import json
import statistics
import sys

from peers_samplers import TEMPERATURE, Rows, import_or_none, make_peers

DTYPES = ("fp32", "bf16", "fp16")
FULL = {"vocab": [32000, 128256, 151936, 262144], "batch": [1, 8, 32, 64, 256],
        "draft": [1, 3, 5, 8], "dtype": ["bf16", "fp32"]}
QUICK = {"vocab": [128256], "batch": [1, 64], "draft": [5], "dtype": ["bf16"]}
# More than the level-2 cache of any card: written between two timed runs, so that rows are cold.
FLUSH_BYTES = 512 << 20
WARM_UPS = 3


class Skip(Exception):
    """There is nothing to time here, and why."""


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
