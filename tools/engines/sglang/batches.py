"""SGLang's own requests, sampling metadata and draft inputs on the CPU, without a model, and rounds of them."""

import types

import numpy as np
import torch
from sglang.srt.runtime_context import get_context, get_parallel

# A scheduler publishes these before it makes a sampler.
get_context().override_server_args(sampling_backend="pytorch").install()
get_parallel().override_permanently(tp_group=types.SimpleNamespace(device_group=None, world_size=1))

from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardMode
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative.eagle_info import EagleVerifyInput


def request(name, prompt=(1, 2), output=(3,), **fields):
    params = SamplingParams(**fields)
    params.normalize(None)
    made = Req(name, "", list(prompt), params, vocab_size=32)
    made.output_ids.extend(output)
    return made


class Batch:
    """The parts of a ScheduleBatch that its samplers read."""

    def __init__(self, reqs, vocab):
        self.reqs, self.device = list(reqs), "cpu"
        # The last id of each request is the first of its next forward.
        self.seq_lens = torch.tensor([len(req.origin_input_ids) + len(req.output_ids) - 1
                                      for req in reqs])
        self.forward_mode = ForwardMode.TARGET_VERIFY
        self.return_logprob = False
        self.sampling_info = SamplingBatchInfo.from_schedule_batch(self, vocab)
        self.sampling_info.update_penalties()


def chain(drafts, q=None, topk=1, last_ids=None):
    """What EAGLE gives to a verification: of each request the last kept token and its drafts."""
    last_ids = last_ids or [3] * len(drafts)
    count, steps = len(drafts), len(drafts[0])
    nodes = np.arange(count * (steps + 1)).reshape(count, -1)
    behind = np.array([[*range(1, steps + 1), -1]] * count)
    return EagleVerifyInput(
        draft_token=torch.tensor([[last, *tokens] for last, tokens in zip(last_ids, drafts)]).reshape(-1),
        custom_mask=None, positions=None, retrieve_index=torch.from_numpy(nodes),
        retrieve_next_token=torch.from_numpy(behind),
        retrieve_next_sibling=torch.full((count, steps + 1), -1), retrieve_cum_len=None,
        spec_steps=steps, topk=topk, draft_token_num=steps + 1,
        capture_hidden_mode=CaptureHiddenMode.FULL, seq_lens_sum=0, seq_lens_cpu=None,
        draft_probs=None if q is None else torch.from_numpy(np.asarray(q, np.float32)))


def rows(logits):
    return LogitsProcessorOutput(torch.from_numpy(np.array(logits, np.float32)))


def spikes(ids, vocab=32):
    """Logits whose best ids are these."""
    made = np.full((len(ids), vocab), -100.0)
    made[np.arange(len(ids)), ids] = 100
    return made


def accepted(answer):
    """The kept tokens of each request, as SGLang's worker reads them."""
    predict, lens, index = answer
    return [predict[index[i, :lens[i]].long()].tolist() for i in range(len(lens))]


def play(verify, drafts, reqs, logits, q=None):
    """A round, and what SGLang does with its tokens. Returns those of each request."""
    logits = np.asarray(logits)
    made = accepted(verify(chain(drafts, q, last_ids=[req.output_ids[-1] for req in reqs]),
                           Batch(reqs, logits.shape[1]), rows(logits)))
    for req, tokens in zip(reqs, made):
        req.output_ids.extend(tokens)
    return made
