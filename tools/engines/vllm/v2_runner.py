"""A V2 model runner without a model, on the CPU.

vLLM's InputBatch, SamplerOutput and SamplingParams are its own. Its request states and its sampler need a
GPU, so stand-ins have the parts of them that are read, in the same shapes.
"""

import types

import numpy as np
import torch
from vllm.v1.worker.gpu.input_batch import InputBatch

from v1_runner import config


def both(array):
    """A stand-in for UvaBackedTensor: the same numbers on the host and on the device."""
    return types.SimpleNamespace(np=array, gpu=torch.from_numpy(array))


class RequestStates:
    """vllm.v1.worker.gpu.states.RequestState"""

    def __init__(self, rows, length):
        self.req_id_to_index, self.free = {}, list(range(rows))
        self.prompt_len, self.prefill_len = (both(np.zeros(rows, np.int32)) for _ in range(2))
        self.all_token_ids = both(np.zeros((rows, length), np.int32))

    def add(self, name, prompt, output):
        row = self.req_id_to_index[name] = self.free.pop()
        ids = [*prompt, *output]
        self.prompt_len.np[row], self.prefill_len.np[row] = len(prompt), len(ids)
        self.all_token_ids.np[row, :len(ids)] = ids
        return row

    def remove(self, name):
        self.free.append(self.req_id_to_index.pop(name))


class Sampler:
    """vllm.v1.worker.gpu.sample.sampler.Sampler"""

    def __init__(self, states, logprobs_mode):
        self.req_states, self.logprobs_mode = states, logprobs_mode
        self.sampling_states, self.penalties_state = object(), object()
        self.compute_nans = self.return_sampling_mask = False
        self.logits_processors = []
        self.params, self.writes = {}, 0

    def add_request(self, req_idx, sampling_params):
        self.params[req_idx] = sampling_params

    def apply_staged_writes(self):
        self.writes += 1

    def get_logprobs_dims(self, rows, include_token_ids=True):
        asked = [self.params[row] for row in rows.tolist()]
        most = max(-1 if one.logprobs is None else one.logprobs for one in asked)
        ids = max(len(one.logprob_token_ids or ()) for one in asked)
        return None if most == -1 and ids == 0 else (max(most, 0), ids)


class Runner:
    def __init__(self, vocab=32, rows=8, drafts=3, adaptive=False, **options):
        self.vllm_config = config(vocab, rows, drafts, **options)
        if drafts:
            self.vllm_config.speculative_config.enable_adaptive_verification = adaptive
        self.req_states = RequestStates(rows, 128)
        self.sampler = Sampler(self.req_states, self.vllm_config.model_config.logprobs_mode)
        self.rejection_sampler = object() if drafts else None
        self.computed = {}

    def add(self, name, params, prompt=(1,), output=()):
        row = self.req_states.add(name, prompt, output)
        self.sampler.add_request(row, params)
        self.sampler.apply_staged_writes()
        self.computed[name] = len(prompt) + len(output)

    def finish(self, name):
        self.finish_requests(types.SimpleNamespace(finished_req_ids={name}))

    def finish_requests(self, scheduler_output):
        """The beginning of a step. One without tokens has nothing else."""
        for name in scheduler_output.finished_req_ids:
            self.req_states.remove(name)

    def batch(self, drafts, unfinished=()):
        """The InputBatch of a step. drafts: {request: its draft tokens}."""
        names, counts = list(drafts), [len(tokens) + 1 for tokens in drafts.values()]
        rows = np.array([self.req_states.req_id_to_index[name] for name in names])
        ends = np.array([0, *np.cumsum(counts)], np.int32)
        place = np.concatenate([np.arange(count) for count in counts])
        ids = np.concatenate([[7, *tokens] for tokens in drafts.values()]).astype(np.int32)
        # The position of a row's token. A prompt that is not finished has placeholders for drafts.
        first = np.array([0 if name in unfinished else self.computed[name] for name in names])
        # A CUDA graph has batches of 8, whose further requests have no length.
        lens = np.zeros(-(-len(names) // 8) * 8, np.int32)
        lens[:len(names)] = [0 if name in unfinished else 100 for name in names]
        given = {"req_ids": names, "num_reqs": len(names), "num_reqs_after_padding": len(lens), "idx_mapping_np": rows,
                 "idx_mapping": torch.from_numpy(rows),
                 "expanded_idx_mapping": torch.from_numpy(np.repeat(rows, counts)),
                 "expanded_local_pos": torch.from_numpy(place), "seq_lens": torch.from_numpy(lens),
                 "input_ids": torch.from_numpy(ids),
                 "positions": torch.from_numpy(np.repeat(first, counts) + place),
                 "logits_indices": torch.arange(len(ids)), "cu_num_logits_np": ends,
                 "cu_num_logits": torch.from_numpy(ends)}
        empty = dict.fromkeys(InputBatch.__dataclass_fields__)
        return InputBatch(**{**empty, **given})

    def sample(self, logits, drafts, draft_logits=None, invalid=None, unfinished=()):
        """drafts: {request: its draft tokens}"""
        logits = torch.as_tensor(np.asarray(logits, np.float32))
        batch = self.batch(drafts, unfinished)
        if all(len(tokens) == 0 for tokens in drafts.values()):
            return self.sampler(logits, batch)
        return self.rejection_sampler(logits, batch, draft_logits, invalid)


def kept(made):
    """The tokens of each request."""
    return [row[:count].tolist() for row, count in zip(made.sampled_token_ids, made.num_sampled)]
