"""Our reading of rank files and tekken files against tiktoken and mistral-common.

Usage: rank_file_oracle.py SPECD_DECODE_IDS tiktoken|tekken

The files are made up and written here, so nothing is downloaded. Every id sequence must decode to
the same text, with special tokens skipped and kept. Without its package the test is skipped.
"""

import base64
import json
import os
import random
import subprocess
import sys
import tempfile

SEED = 20261128


def decode_with_specd(decode_ids, path, mode, lines):
    stdin = "".join(" ".join(map(str, ids)) + "\n" for ids in lines)
    result = subprocess.run(
        [decode_ids, path, mode], input=stdin, capture_output=True, text=True, encoding="utf-8"
    )
    if result.returncode != 0:
        raise SystemExit(f"specd_decode_ids failed on {path}: {result.stderr}")
    return [json.loads(line) for line in result.stdout.split("\n")[:-1]]


def compare(name, decode_ids, path, lines, decode):
    """decode(ids, keep) is the peer's."""
    for mode in ("skip", "keep"):
        texts = decode_with_specd(decode_ids, path, mode, lines)
        assert len(texts) == len(lines)
        for ids, ours in zip(lines, texts):
            theirs = decode(ids, mode == "keep")
            if ours != theirs:
                raise SystemExit(f"{name}, special tokens: {mode}, ids {ids}\n  specd {ours!r}\n"
                                 f"  peer  {theirs!r}")
    print(f"{name}: {2 * len(lines)} decodes equal")


def made_up_pieces(rng, count):
    """The 256 bytes, then parts of characters, words and noise: each once."""
    pieces = [bytes([byte]) for byte in range(256)]
    known = set(pieces)
    encoded = "é你삼😀\u200d\ufffd abc".encode()
    while len(pieces) < count:
        begin = rng.randrange(len(encoded))
        piece = encoded[begin : begin + rng.randint(1, 4)]
        if piece in known:
            piece = b" w%d" % len(pieces)
        if piece not in known:
            known.add(piece)
            pieces.append(piece)
    return pieces


def write_ranks(path, pieces):
    with open(path, "wb") as file:
        for rank, piece in enumerate(pieces):
            file.write(base64.b64encode(piece) + b" %d\n" % rank)


def random_lines(rng, ids, count):
    return [[rng.choice(ids) for _ in range(rng.randint(0, 20))] for _ in range(count)]


def check_ranks(name, decode_ids, path, pieces, special, shown, rng):
    """`special` and `shown` map the contents of added tokens to ids."""
    import tiktoken

    encoding = tiktoken.Encoding(
        name, pat_str=r"\S+|\s", mergeable_ranks={piece: rank for rank, piece in enumerate(pieces)},
        special_tokens={**special, **shown})
    hidden = set(special.values())
    ids = [*range(600), *range(len(pieces) - 50, len(pieces)), *hidden, *shown.values()]

    def decode(line, keep):
        return encoding.decode([id for id in line if keep or id not in hidden])

    compare(name, decode_ids, path, random_lines(rng, ids, 2000), decode)


def known_sets():
    """The names of known files, their counts of ranks, and tiktoken's special tokens."""
    from tiktoken_ext import openai_public

    openai_public.load_tiktoken_bpe = lambda *_, **__: {}
    harmony = openai_public.o200k_harmony()["special_tokens"]
    assert openai_public.o200k_base()["special_tokens"].items() <= harmony.items()
    # One id has two names.
    assert harmony.pop("<|reserved_200018|>") == harmony["<|endofprompt|>"]
    cl100k = openai_public.cl100k_base()["special_tokens"]
    return [("cl100k_base.tiktoken", 100256, cl100k), ("o200k_base.tiktoken", 199998, harmony)]


def check_tiktoken(decode_ids, folder, rng):
    try:
        import tiktoken  # noqa: F401
    except ImportError as error:
        return f"tiktoken ({error})"
    for name, count, special in known_sets():
        pieces = made_up_pieces(rng, count)
        path = os.path.join(folder, name)
        write_ranks(path, pieces)
        check_ranks(name, decode_ids, path, pieces, special, {}, rng)
    sidecar = {"<|im_end|>": 1300, "[BOS]": 1310}, {"<think>": 1301}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        added = [(id, content, hidden) for hidden, of in ((True, sidecar[0]), (False, sidecar[1]))
                 for content, id in of.items()]
        json.dump({"added_tokens_decoder": {
            str(id): {"content": content, "special": hidden, "lstrip": False}
            for id, content, hidden in added}}, file)
    pieces = made_up_pieces(rng, 1200)
    path = os.path.join(folder, "made_up.model")
    write_ranks(path, pieces)
    check_ranks("with a sidecar", decode_ids, path, pieces, *sidecar, rng)
    return None


def check_tekken(decode_ids, folder, rng):
    try:
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    except ImportError as error:
        return f"mistral-common ({error})"
    for version, num_listed in (("v3", None), ("v7", None), ("v11", 30), ("v13", 40), ("v15", 12)):
        pieces = made_up_pieces(rng, 900)
        num_special, num_ids = 50, 50 + 800  # the last 100 pieces are not the model's
        file = {"config": {"pattern": r"\S+|\s", "num_vocab_tokens": len(pieces),
                           "default_vocab_size": num_ids,
                           "default_num_special_tokens": num_special, "version": version},
                "vocab": [{"rank": rank, "token_bytes": base64.b64encode(piece).decode(),
                           "token_str": None} for rank, piece in enumerate(pieces)]}
        if num_listed is not None:
            names = ["<unk>", "<s>", "</s>"] + [f"[é{i}]" for i in range(3, num_listed)]
            file["special_tokens"] = [{"rank": rank, "token_str": name, "is_control": rank % 4 != 3}
                                      for rank, name in enumerate(names)]
        path = os.path.join(folder, "tekken.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(file, out)
        peer = Tekkenizer.from_file(path)
        assert peer.n_words == num_ids

        def decode(line, keep, peer=peer):
            # Its decode() takes runs of ids apart at special tokens, so it replaces the bytes of a
            # character on both sides of a skipped one. We join them, as for every other file.
            return b"".join(
                peer.id_to_byte_piece(
                    id, SpecialTokenPolicy.KEEP if keep else SpecialTokenPolicy.IGNORE)
                for id in line).decode(errors="replace")

        compare(f"tekken {version}", decode_ids, path,
                random_lines(rng, range(num_ids), 1000), decode)
    return None


def main():
    decode_ids, kind = sys.argv[1:]
    check = {"tiktoken": check_tiktoken, "tekken": check_tekken}[kind]
    print(f"seed {SEED}")
    with tempfile.TemporaryDirectory() as folder:
        missing = check(decode_ids, folder, random.Random(SEED))
    if missing:
        print(f"skipped oracle.{kind}: {missing}; install the package")
        sys.exit(77)


if __name__ == "__main__":
    main()
