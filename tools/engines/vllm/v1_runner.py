"""A V1 model runner without a model: vLLM's own batch, request states, metadata and samplers, on the CPU.

What vllm.v1.worker.gpu_model_runner does around its samplers is done here by the same calls.
"""

import types

import numpy as np
import torch
import vllm.utils.torch_utils

vllm.utils.torch_utils.PIN_MEMORY = False  # which needs a driver; the modules below copy the value

from specd.integrations.vllm import use_specd
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.logits_processor.builtin import (LogitBiasLogitsProcessor, MinPLogitsProcessor,
                                                     MinTokensLogitsProcessor)
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

CPU = torch.device("cpu")


def params(**fields):
    """max_tokens is never reached."""
    return SamplingParams(max_tokens=400, **fields)


def config(vocab, rows, drafts, *, ranks=(), method="standard", logprobs_mode="raw_logprobs"):
    """The parts of a VllmConfig that use_specd reads. ranks: sizes that are not 1."""
    space = types.SimpleNamespace
    sizes = dict.fromkeys((f"{name}_parallel_size" for name in (
        "tensor", "prefill_context", "pipeline")), 1)
    return space(
        parallel_config=space(**{**sizes, **dict(ranks)}),
        speculative_config=space(rejection_sample_method=method, num_speculative_tokens=drafts)
        if drafts else None,
        scheduler_config=space(max_num_seqs=rows),
        model_config=space(get_vocab_size=lambda: vocab, logprobs_mode=logprobs_mode))


class Runner:
    """See the head of the file."""

    def __init__(self, vocab=32, rows=8, drafts=3, processors=(), **options):
        self.vllm_config = config(vocab, rows, drafts, **options)
        mode = self.vllm_config.model_config.logprobs_mode
        self.sampler = Sampler(logprobs_mode=mode)
        self.rejection_sampler = RejectionSampler(self.sampler) if drafts else None
        built_in = [kind(self.vllm_config, CPU, False) for kind in (
            MinTokensLogitsProcessor, LogitBiasLogitsProcessor, MinPLogitsProcessor)]
        self.input_batch = InputBatch(
            max_num_reqs=rows, max_model_len=512, max_num_batched_tokens=512, device=CPU,
            vocab_size=vocab, block_sizes=[16], max_num_blocks_per_req=[32],
            logitsprocs=LogitsProcessors([*built_in, *processors]), num_spec_tokens=drafts)
        self.requests = {}
        self.discard_request_mask = types.SimpleNamespace(np=np.zeros(rows, bool))

    def add(self, request_id, params, prompt=(1,), output=()):
        generator = None
        if params.seed is not None:
            generator = torch.Generator()
            generator.manual_seed(params.seed)
        state = CachedRequestState(
            req_id=request_id, prompt_token_ids=None if prompt is None else list(prompt),
            mm_features=[], sampling_params=params, generator=generator, block_ids=([],),
            num_computed_tokens=0, output_token_ids=list(output),
            prompt_embeds=torch.zeros(1, 4) if prompt is None else None)
        self.requests[request_id] = state
        self.resume(request_id)

    def resume(self, request_id):
        """A request comes into the batch."""
        self.input_batch.add_request(self.requests[request_id])
        self.input_batch.refresh_metadata()

    def preempt(self, request_id):
        """A request leaves the batch, and stays a request."""
        self.input_batch.remove_request(request_id)
        self.input_batch.condense()
        self.input_batch.refresh_metadata()

    def finish(self, request_id):
        self._update_states(types.SimpleNamespace(finished_req_ids={request_id}))

    def _update_states(self, scheduler_output):
        """The beginning of a step. One without tokens has nothing else."""
        for request_id in scheduler_output.finished_req_ids:
            self.requests.pop(request_id, None)
            self.preempt(request_id)

    def sample(self, logits, drafts=None, draft_probs=None, metadata=None):
        """One step. drafts: a list of draft tokens for each row."""
        logits = torch.as_tensor(np.asarray(logits, np.float32))
        self.input_batch.refresh_metadata()
        if drafts is None:
            return self.sampler(logits=logits, sampling_metadata=self.input_batch.sampling_metadata)
        for row, tokens in enumerate(drafts):
            self.input_batch.spec_token_ids[row] = list(tokens)
        return self.rejection_sampler(metadata or spec_metadata(drafts), draft_probs, logits,
                                      self.input_batch.sampling_metadata)

    def tokens(self, *step, **options):
        """The tokens of a step for each row, which the requests then have."""
        made = RejectionSampler.parse_output(self.sample(*step, **options).sampled_token_ids,
                                             self.input_batch.vocab_size)[0]
        for request_id, tokens in zip(self.input_batch.req_ids, made):
            self.requests[request_id].output_token_ids.extend(tokens)
        return made


def specd_runner(requests=(), engine="embedded:cpu", timeout_ms=-1, **options):
    """A Runner with specd as its samplers, and with requests r0, r1 and so on."""
    runner = Runner(**options)
    use_specd(runner, engine, timeout_ms)
    for i, asked in enumerate(requests):
        runner.add(f"r{i}", asked)
    return runner


def spec_metadata(drafts):
    """As GPUModelRunner._calc_spec_decode_metadata makes it, with the rows in order."""
    counts = [len(tokens) for tokens in drafts]
    made = SpecDecodeMetadata.make_dummy([list(tokens) for tokens in drafts], CPU)
    ends = np.cumsum(np.array(counts) + 1)
    rows = np.arange(ends[-1])
    made.bonus_logits_indices = torch.from_numpy(ends - 1)
    made.target_logits_indices = torch.from_numpy(rows[~np.isin(rows, ends - 1)])
    made.logits_indices = torch.from_numpy(rows)
    return made


def spikes(ids, vocab=32):
    """Logits whose best ids are these, and 15 the second best, as in vLLM's own tests."""
    rows = np.full((len(ids), vocab), -100.0)
    rows[:, 15] = 99
    rows[np.arange(len(ids)), ids] = 100
    return rows
