"""Records a golden trace of tests/data/traces with the recorder: python3 record_golden.py FOLDER

An embedded engine with bfloat16 rows of 257 ids, one for each byte and an end, verifies three sequences
side by side: one that obeys a regular expression, one with `block`, and one with penalties and logprobs. A
trace that exists is not written again: it shows that today's program reads what an older recorder wrote.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import specd

TOKENIZER = pathlib.Path(__file__).resolve().parents[3] / "tools/toy_engine/tokenizer.json"
EOS, VOCAB, DRAFT, ROUNDS = 256, 257, 3, 6


def byte_tokenizer(path):
    """A byte-level tokenizer in which id b is byte b."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    names = [chr(b) if b in plain else chr(next(others)) for b in range(256)]
    file = json.loads(TOKENIZER.read_text())
    file["added_tokens"] = [{**file["added_tokens"][0], "id": EOS}]
    file["model"].update(vocab={name: b for b, name in enumerate(names)}, merges=[])
    path.write_text(json.dumps(file))


def main():
    rng = np.random.default_rng(20261124)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = pathlib.Path(folder) / "tokenizer.json"
        byte_tokenizer(tokenizer)
        with specd.Engine(vocab_size=VOCAB, max_batch=3, max_draft=DRAFT, tokenizer=str(tokenizer),
                          eos_token_ids=[EOS], trace=sys.argv[1], trace_options="level=rows") as engine:
            target = engine.rows(3 * (DRAFT + 1), dtype="bfloat16")
            draft = engine.rows(3 * DRAFT, "draft", dtype="bfloat16")
            regex = specd.StructuredOutputs(regex="[0-9]{2,4}(-[a-f]{1,3})*\\.")
            common = dict(max_tokens=40, verify="token")
            live = [engine.open(specd.SamplingParams(**{**common, **params}), request_id=name)
                    for name, params in (
                        ("regex", dict(seed=1, structured_outputs=regex)),
                        ("block", dict(seed=2, verify="block", temperature=0.7)),
                        ("penalties", dict(seed=3, top_p=0.9, frequency_penalty=0.5, logprobs=2)))]
            for _ in range(ROUNDS):
                places = [np.arange(i * (DRAFT + 1), (i + 1) * (DRAFT + 1)) for i in range(len(live))]
                target[...] = 2 * rng.normal(size=target.shape).astype(np.float32)
                # The first sequence's rows like digits, letters and marks, and so do its drafts.
                words = [ord(c) for c in "0123456789abcdef-."]
                target[:DRAFT + 1, words] = 6 + 2 * rng.normal(size=(DRAFT + 1, len(words))).astype(np.float32)
                draft[...] = (np.concatenate([target[p[:DRAFT]].floats() for p in places])
                              + rng.normal(size=draft.shape)).astype(np.float32)
                logits = draft.floats()
                weights = np.exp(logits - logits.max(axis=1, keepdims=True))
                drafts = [[int(rng.choice(VOCAB - 1, p=w[:-1] / w[:-1].sum())) for w in
                           weights[i * DRAFT:(i + 1) * DRAFT]] for i in range(len(live))]
                results = engine.verify(target, dict(zip(live, drafts)), q=draft, strict=False)
                print([(r.status, r.finish_reason, r.tokens.tolist()) for r in results])
            for sequence in live:
                sequence.close()


if __name__ == "__main__":
    main()
