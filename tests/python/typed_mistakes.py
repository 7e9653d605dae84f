"""A user's mistakes. typing_test.py expects the error that stands behind each line, and no other."""

import numpy as np
import specd

engine = specd.Engine("embedded:cpu", vocab_size="8")  # error: arg-type
specd.SamplingParams(temprature=1.0)  # error: call-arg
params = specd.SamplingParams(temperature="hot")  # error: arg-type
specd.SamplingParams(verify="fly")  # error: arg-type
specd.SamplingParams(stop_token_ids=2)  # error: arg-type
sequence = engine.open(7)  # error: arg-type
engine.verify(np.eye(8), {sequence: "abc"})  # error: dict-item
engine.verify(np.eye(8), {"sequence": [1]})  # error: dict-item
engine.verify(np.eye(8), {sequence: [1]}, timeout_ms=0.5)  # error: arg-type
engine.verify(np.eye(8), {sequence: [1]}, timeout=5)  # error: call-arg
(result,) = engine.verify(np.eye(8), [specd.Draft(sequence, [1])])
result.token  # error: attr-defined
reason: str = result.finish_reason  # error: assignment
round = engine.submit(np.eye(8), {sequence: [1]}, cuda_stream="7")  # error: arg-type
round.result(timeout_ms="5")  # error: arg-type
length: int = round.poll()[0]  # error: index
engine.slot_output("kept_tokens", address=4096)[0]  # error: index
specd.Draft(sequence, by_slot="2")  # error: arg-type
opened = engine.open_batch("2")  # error: arg-type
engine.open_batch(1, request_ids=[1])  # error: list-item
found = engine.verify_batch(np.eye(8), opened.sequences, draft_offset=[0, 1])  # error: call-arg
found.token  # error: attr-defined
engine.submit_batch(np.eye(8), opened.sequences, scores="all")  # error: arg-type
engine.submit_batch(np.eye(8), opened.sequences).kept(0)  # error: attr-defined
engine.sample_draft(np.eye(8), [sequence])[0].status == "done"  # error: comparison-overlap
kept: list[int] = found.kept(0)  # error: assignment
specd.Member("unix:/run/specd/specd.sock", "token", rank="1")  # error: arg-type
specd.subscribe(4)  # error: arg-type
next(specd.subscribe("unix:/run/specd/specd.sock")).logprobs[0]  # error: index


async def forgets_to_await() -> None:
    results: list[specd.Result] = engine.averify(np.eye(8), {sequence: [1]})  # error: assignment
    arrays: specd.BatchResults = engine.averify_batch(np.eye(8), [1])  # error: assignment
    await engine.averify_batch(np.eye(8), [1], timeout_ms=5)  # error: call-arg
