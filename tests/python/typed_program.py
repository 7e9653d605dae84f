"""A user's program with every type written down. typing_test.py checks it strictly, and runs it."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import specd


class Tensor:
    """Another package's tensor, as far as types know it."""

    def __init__(self, array: npt.NDArray[Any]):
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.array.__dlpack_device__()


def eye(*ids: int) -> npt.NDArray[np.float32]:
    return np.eye(8, dtype=np.float32)[list(ids)] * 50


def rounds(engine: specd.Engine) -> list[int]:
    params = specd.SamplingParams(temperature=0, max_tokens=20, stop_token_ids=[0], verify="greedy")
    sequence: specd.Sequence = engine.open(params, prompt_ids=[3, 1])
    tokens: list[int] = []
    (result,) = engine.verify(eye(1, 2), {sequence: [1]}, timeout_ms=60000)
    tokens += result.tokens.tolist()
    round: specd.Round = engine.submit(Tensor(eye(3, 4)), [specd.Draft(sequence, [3])])
    while not round.poll():
        pass
    tokens += round.result(timeout_ms=0)[0].tokens.tolist()
    rows = engine.rows(1)
    rows[:] = eye(5)
    try:
        tokens += engine.verify(rows, {sequence: np.array([], np.int64)})[0].tokens.tolist()
    except specd.RoundTimeout as error:
        assert error.round is not None and error.round.poll() is not None
    except specd.RoundError as error:
        print(error.results[0].status, error.code_name)
    reason: str | None = result.finish_reason
    assert reason is None
    return tokens


def drafts(engine: specd.Engine, sequence: specd.Sequence) -> list[int]:
    (children,) = engine.sample_draft(eye(3), [sequence])
    reason: Literal["ok", "finished", "unknown_sequence", "bad_distribution",
                    "not_ready"] = children.status
    assert reason == "ok"
    drawn: list[int] = children.ids.tolist()
    return drawn


def drafts_of_a_batch(engine: specd.Engine, opened: specd.BatchOpening) -> list[int]:
    found: specd.BatchChildren = engine.sample_draft_batch(
        eye(3, 4), opened.sequences, [[1], [2]], num_children=[1, 2], sampling="top_k", draft_rows=[1, 0])
    first: specd.BatchChildren = engine.sample_draft_batch(eye(3, 4), opened.sequences)
    drawn: list[int] = found.ids[:, 0].tolist() + first.num_children.tolist()
    return drawn


async def asynchronous(engine: specd.Engine) -> list[int]:
    sequence = engine.open(specd.SamplingParams(temperature=0))
    (result,) = await engine.averify(eye(6), {sequence: []})
    results: list[specd.Result] = await engine.submit(eye(7), {sequence: ()})
    await engine.adrain()
    tokens: list[int] = result.tokens.tolist() + results[0].tokens.tolist()
    return tokens


def outputs(engine: specd.Engine) -> int:
    kept = engine.slot_output("kept_tokens", dtype="int64")
    return int(kept.shape[0]) + int(engine.stats()["rounds"]) * 0


async def batch_in_a_coroutine(engine: specd.Engine, opened: specd.BatchOpening) -> int:
    found: specd.BatchResults = await engine.averify_batch(eye(1, 2), opened.sequences, discard=[True, True])
    return len(found)


def batches(engine: specd.Engine) -> list[int]:
    opened: specd.BatchOpening = engine.open_batch(
        2, specd.SamplingParams(max_tokens=20), temperature=[0, 0.0],
        seeds=np.array([1, 2], np.uint64), prompt_ids=Tensor(np.array([3, 1])),
        prompt_offsets=[0, 1, 2], request_ids=["a", "b"])
    engine.open_batch(2, [specd.SamplingParams(stop_token_ids=[2]), specd.SamplingParams()])
    sequence: specd.Sequence = opened.sequence(1)
    found: specd.BatchResults = engine.verify_batch(
        Tensor(eye(1, 2, 3)), opened.sequences, np.array([1]), [0, 1, 1], scores=False)
    detail: str | None = found.detail_text(0)
    names: list[str] = found.status_names.tolist()
    assert detail is None and names == ["ok"] * len(found) and found.scores is None
    tokens: list[int] = found.kept(0).tolist()
    engine.verify_batch(None, opened.sequences, target_argmax=[4, 5], discard=[True, False],
                        timeout_ms=60000)
    asyncio.run(batch_in_a_coroutine(engine, opened))
    late: specd.BatchRound = engine.submit_batch(eye(6, 7), opened.sequences)
    later: specd.BatchResults = late.result()
    assert later is late.result(timeout_ms=0)
    try:
        engine.open_batch(1, request_ids=[sequence.request_id])
    except specd.OpeningRefused as refused:
        tokens.append(refused.index)
    try:
        late.result(timeout_ms=0)
    except specd.RoundTimeout as timeout:
        slow: specd.Awaited[Any] | None = timeout.round
        assert slow is late
    tokens += found.total_kept.tolist()
    return tokens


def subscriber(uri: str) -> list[float]:
    found: list[float] = []
    with specd.subscribe(uri, ids=True) as events:
        for event in events:
            scores: list[dict[int, specd.Logprob]] | None = event.logprobs
            if scores is None or event.scores is None:
                continue
            found += [scores[i][id].logprob for i, id in enumerate(event.ids)]
            found.append(float(event.scores["value"][0, 0]) + event.token_offset)
    return found


def main() -> None:
    with specd.Engine("embedded:cpu", vocab_size=8, max_draft=3) as engine:
        print(rounds(engine), asyncio.run(asynchronous(engine)), outputs(engine))
        print(batches(engine), drafts(engine, engine.open(specd.SamplingParams(temperature=0))))
    print(specd.argmax(eye(2)).tolist(), specd.softmax(Tensor(eye(1)), temperature=0.5).shape)


if __name__ == "__main__":
    main()
