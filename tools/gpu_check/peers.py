"""peers: times specd and other implementations on the same tensors, each in a CUDA graph.

  peers.py --out FILE [--quick]       the grid of specd-bench gpu, or a part of it
  peers.py --out FILE --vocab 128256 --batch 1,32 --draft 5 --dtype bf16

The program needs torch and a CUDA device. It uses specd, Triton and FlashInfer if they can be
imported, and installs nothing. Its rows are random, and not those of specd-bench. Before a peer is
timed, it is compared with a plain reference on small rows; a peer that differs is not timed. In
every timed shape the number of accepted drafts is compared with the expected number. FILE gets
everything as JSON. The last printed line sums it up. Exit status: 0 timed, 1 specd or a peer
differs, 2 the arguments, 3 no torch or no device.
"""

import argparse
import json
import statistics
import sys

from peers_samplers import (TEMPERATURE, Rows, accept_shares, accepted_difference, import_or_none,
                            make_peers, reason_of)
from peers_specd import make_specd_peers

DTYPES = ("fp32", "bf16", "fp16")
FULL = {"vocab": [32000, 128256, 151936, 262144], "batch": [1, 8, 32, 64, 256],
        "draft": [1, 3, 5, 8], "dtype": ["bf16", "fp32"]}
QUICK = {"vocab": [128256], "batch": [1, 64], "draft": [5], "dtype": ["bf16"]}
# The least ratio of a peer's time to specd's, by docs/BENCHMARKS.md: cold, in these shapes.
TARGETS = {"flashinfer_chain": 3.0, "triton_rejection": 3.0}
TARGET_SHAPES = [{"dtype": "bf16", "vocab": 128256, "batch": batch, "draft": 5} for batch in (1, 64)]
# More bytes than the level-2 cache of any card. They are written before each timed run, so the rows
# are cold. The write takes so long that the CPU enqueues the timed work meanwhile.
FLUSH_BYTES = 512 << 20
# specd has no more rounds staged than 4.
WARM_UPS = 3


class Skip(Exception):
    """The program has nothing to time here. The text says why."""


def capture(torch, peer, rows):
    """A function that runs the peer once, and whether it replays a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            peer.stage()
            answer = peer.call(rows)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    for _ in range(WARM_UPS):
        peer.collect(answer)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            answer = peer.call(rows)
    except RuntimeError:  # it synchronises, or asks for something a graph cannot hold
        torch.cuda.synchronize()
        return lambda: peer.call(rows), False

    def replay():
        graph.replay()
        return answer

    peer.stage()
    peer.collect(replay())
    return replay, True


def time_us(torch, peer, run, repeats, flush, is_warm):
    """Microseconds of each run, by CUDA events, and how many drafts all of them accepted. A warm run
    comes right behind another one."""
    times, total = [], 0
    num_runs = 2 if is_warm else 1
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(repeats):
        for _ in range(num_runs):
            peer.stage()
        flush.zero_()
        if is_warm:
            run()
        start.record()
        answer = run()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end))
        for _ in range(num_runs):
            accepted, _ = peer.collect(answer)
        total += sum(accepted)
    return sorted(times), total


def measure(torch, peer, rows, repeats, shares):
    """One result for each state of the cache."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    with peer.taken(rows):
        run, is_graph = capture(torch, peer, rows)
        for state in ("cold", "warm"):
            times, total = time_us(torch, peer, run, repeats, flush, state == "warm")
            expected, difference = accepted_difference(shares, total, repeats, peer.fresh_coins)
            yield {"state": state, "graph": is_graph, "median_us": round(statistics.median(times), 3),
                   "p99_us": round(times[int(0.99 * (len(times) - 1))], 3), "repeats": repeats,
                   "checked": repeats * rows.batch,
                   "mean_accepted": round(total / repeats / rows.batch, 4),
                   "expected_accepted": round(expected, 4), "difference": difference}


def check_peers(torch, peers, device, missing):
    """Returns the result of each peer on small rows: {name: difference}. If a peer of another
    library cannot run at all, it counts as missing."""
    differences = {peer.name: "" for peer in peers}
    broken = set()
    for seed, (vocab, draft, dtype) in enumerate(
            [(300, 3, "fp32"), (5000, 2, "bf16"), (2049, 4, "fp16")]):
        rows = Rows(torch, vocab=vocab, batch=12, draft=draft, dtype=dtype, device=device,
                    seed=seed)
        for peer in peers:
            if differences[peer.name] or peer.name in broken:
                continue
            try:
                with peer.taken(rows):
                    differences[peer.name] = peer.difference(rows)
            except Exception as error:  # a compiler that is not there, and what not
                if is_specd(peer):
                    differences[peer.name] = reason_of(peer.name, error)
                else:
                    broken.add(peer.name)
                    missing.append(reason_of(peer.name, error))
    for name in broken:
        del differences[name]
    return differences


def is_specd(peer):
    return peer.name.startswith("specd_")


def time_shape(torch, peers, shape, repeats):
    """Returns every result of a shape. If a peer cannot be measured, its result is the reason."""
    results = []
    rows = Rows(torch, **shape, device="cuda", seed=1)
    shares = {kind: accept_shares(torch, rows, kind) for kind in {peer.kind for peer in peers}}
    for peer in peers:
        about = {"peer": peer.name, "kind": peer.kind, **shape}
        try:
            for result in measure(torch, peer, rows, repeats, shares[peer.kind]):
                results.append({**about, **result})
        except Exception as error:
            results.append({**about, "reason": reason_of(peer.name, error),
                            "difference": "" if is_shortage(torch, error) or not is_specd(peer)
                                          else str(error).splitlines()[0]})
        torch.cuda.empty_cache()
    add_ratios(results, shape)
    return results


def is_shortage(torch, error):
    """True if only memory was missing."""
    return isinstance(error, torch.cuda.OutOfMemoryError) or \
        getattr(error, "code_name", "") == "SPECD_ERROR_EXHAUSTED"


def add_ratios(results, shape):
    """Adds to each result the ratio of its time to that of specd's peer of the same kind, and the
    ratio's target."""
    times = {(result["peer"], result["state"]): result["median_us"] for result in results
             if "median_us" in result}
    for result in results:
        base = f"specd_{result['kind']}"
        if "median_us" not in result or (base, result["state"]) not in times:
            continue
        ratio = result["median_us"] / times[base, result["state"]]
        result.update(ratio=round(ratio, 4), ratio_of=base)
        target = TARGETS.get(result["peer"])
        if target is not None and shape in TARGET_SHAPES and result["state"] == "cold":
            result.update(target=target, met=ratio >= target)


def time_peers(torch, peers, options, results):
    """Appends every result of the grid, yielding after each shape."""
    for dtype, vocab, batch, draft in ((d, v, b, k) for d in options.dtype for v in options.vocab
                                       for b in options.batch for k in options.draft):
        shape = {"dtype": dtype, "vocab": vocab, "batch": batch, "draft": draft}
        try:
            results.extend(time_shape(torch, peers, shape, options.repeats))
        except torch.cuda.OutOfMemoryError as error:
            results.append({"peer": None, **shape, "reason": reason_of("rows", error)})
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


def to_json(report):
    """JSON with each peer and each result on a line of its own, for those who read lines."""
    parts = []
    for name, value in report.items():
        text = json.dumps(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n" + ",\n".join("  " + json.dumps(item) for item in value) + "\n ]"
        parts.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write(report, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write(to_json(report))


def run(options):
    torch, reason = import_or_none("torch")
    if torch is None:
        raise Skip(f"torch cannot be imported ({reason})")
    if not options.check and not torch.cuda.is_available():
        raise Skip(f"torch {torch.__version__} sees no CUDA device")
    device = "cpu" if options.check else "cuda"
    specd_peers, version, reason = ([], None, "specd: its peers need a device") \
        if options.check else make_specd_peers(torch)
    others, missing = make_peers(torch)
    peers = [*specd_peers, *others]
    if reason is not None:
        missing.insert(0, reason)
    differences = check_peers(torch, peers, device, missing)
    peers = [peer for peer in peers if peer.name in differences]
    right = [peer for peer in peers if not differences[peer.name]]
    report = {
        "specd": version, "torch": torch.__version__, "temperature": TEMPERATURE,
        "device": "cpu" if options.check else torch.cuda.get_device_name(0),
        "peers": [{"name": peer.name, "kind": peer.kind, "what": peer.what,
                   "checked": peer.checked, "difference": differences[peer.name]}
                  for peer in peers],
        "missing": missing, "results": []}
    write(report, options.out)
    if not options.check:
        # After each shape, so that a run that is stopped has left what it knew.
        for _ in time_peers(torch, right, options, report["results"]):
            write(report, options.out)
    wrong = [f"{name}: {difference}" for name, difference in differences.items() if difference]
    wrong += [f"{result['peer']}, {result['dtype']} vocab {result['vocab']} batch {result['batch']} "
              f"draft {result['draft']}: {result['difference']}"
              for result in report["results"] if result.get("difference")]
    for line in wrong:
        print(f"error: {line}")
    print(f"{len(report['results'])} results of {', '.join(peer.name for peer in right)}"
          + (f"; not here: {'; '.join(missing)}" if missing else ""))
    return 1 if wrong else 0


def main():
    options = parse(sys.argv[1:])
    try:
        return run(options)
    except Skip as reason:
        print(reason)
        return 3


if __name__ == "__main__":
    sys.exit(main())
