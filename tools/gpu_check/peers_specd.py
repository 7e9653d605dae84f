"""specd as one of the peers, through its Python package with embedded:cuda. Rounds read torch's own
tensors where they lie, on torch's CUDA stream and in its CUDA graph.
"""

import contextlib
import pathlib
import sys

from peers_samplers import TEMPERATURE, Greedy, Law, Sample, import_or_none, residual

# Where the bundle has the package, beside the library that it finds by itself.
BUNDLED = pathlib.Path(__file__).resolve().parents[1] / "lib/specd/python"
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
# For a round that has been run, as the device is synchronized before.
WAIT_MS = 1000


class SpecdPeer:
    """The common part of specd's peers. The other base class has their kind and their check."""

    fresh_coins = True
    method = ""
    temperature = TEMPERATURE

    def __init__(self, torch, specd):
        super().__init__(torch)
        self.specd = specd
        self.engine, self.finals, self.num_rows = None, None, 0
        self.drafts, self.num_staged = [], 0

    @contextlib.contextmanager
    def taken(self, rows):
        self.finals = self.torch.zeros(rows.batch, dtype=self.torch.int32, device="cuda")
        self.num_staged = 0
        self.engine = self.specd.Engine("embedded:cuda", vocab_size=rows.vocab,
                                        max_batch=rows.batch, max_draft=rows.draft)
        try:
            self.bind(rows)
            self.drafts = self.open(rows)
            self.call(rows)  # the first takes its memory; it is to find no round that it could run
            self.torch.cuda.synchronize()
            yield
        finally:
            self.torch.cuda.synchronize()  # nothing that was enqueued may run once it is closed
            self.engine.close()

    def bind(self, rows):
        num_drafts = rows.batch * rows.draft
        self.engine.device_rows(rows.logits.data_ptr(), num_drafts + rows.batch,
                                dtype=DTYPES[rows.dtype])
        if self.kind == "rejection":
            self.engine.device_rows(rows.draft_probs.data_ptr(), num_drafts, "draft",
                                    kind="final_probabilities")
        self.engine.draft_tokens(rows.draft_ids.data_ptr())
        self.engine.next_tokens(self.finals.data_ptr())

    def open(self, rows):
        """A draft of each sequence, in the order of rows, which is that of slots."""
        drafts = []
        for seed in range(rows.batch):
            params = self.specd.SamplingParams(
                temperature=self.temperature, verify=self.method, seed=seed, max_tokens=None)
            sequence = self.engine.open(params)
            first = sequence.slot * (rows.draft + 1)
            draft = self.specd.Draft(sequence, by_slot=rows.draft,
                                     target_rows=range(first, first + rows.draft + 1))
            if self.kind == "rejection":
                first = sequence.slot * rows.draft
                draft.draft_rows = range(first, first + rows.draft)
            drafts.append(draft)
        return sorted(drafts, key=lambda draft: draft.sequence.slot)

    def stage(self):
        self.engine.stage(self.drafts)
        self.num_staged += 1

    def call(self, rows):
        self.engine.enqueue_staged(rows.batch, self.torch.cuda.current_stream())
        return self.finals

    def collect(self, answer):
        self.torch.cuda.synchronize()
        collected = self.engine.collect(timeout_ms=WAIT_MS)
        if collected is None:
            raise RuntimeError("specd: a round that was staged has not been run")
        self.num_staged -= 1
        results = collected[1]
        for result in results:
            if result.status != "ok" or result.finish_reason is not None:
                raise RuntimeError(f"specd: {result.status} {result.finish_reason} {result.detail}")
        finals = [int(result.tokens[-1]) for result in results]
        # Where the next forward would read them they are of the newest run.
        if self.num_staged == 0 and answer.tolist() != finals:
            raise RuntimeError(f"specd: final ids {finals}, and {answer.tolist()} on the device")
        return [result.num_accepted for result in results], finals


class SpecdGreedy(SpecdPeer, Greedy):
    name, method, temperature = "specd_greedy", "greedy", 0
    what = "specd, method greedy"


class SpecdSample(SpecdPeer, Sample):
    name, method = "specd_sample", "exact_match"
    what = "specd, method exact_match"


class SpecdRejection(SpecdPeer, Law):
    name, kind, method = "specd_rejection", "rejection", "token"
    what = "specd, method token, with the drafter's probabilities as draft rows"

    def final_weights(self, rows, p_rows, q_rows, b, count):
        return residual(rows, p_rows, q_rows, b, count)


def make_specd_peers(torch):
    """specd's peers and its version, or none and why."""
    if BUNDLED.is_dir():
        sys.path.insert(0, str(BUNDLED))
    specd, reason = import_or_none("specd")
    if specd is None:
        return [], None, reason
    made = [peer(torch, specd) for peer in (SpecdGreedy, SpecdSample, SpecdRejection)]
    return made, specd.version(), None
