"""Our reading of SentencePiece models, GGUF files and RWKV's vocabulary against their peers.

Usage: sentence_piece_oracle.py SPECD_DECODE_IDS CORPUS TOKENIZER_JSON

Small models of every kind are trained here with sentencepiece, whose decode() is the peer. The peer
gets no control pieces: for it such a piece ends a run of bytes, while a special token that is
skipped is not there for us. The same pieces in a GGUF file, written here as the format's
description says, have the same texts. The peer of a byte-level GGUF file is Hugging Face tokenizers.
The literals of RWKV's vocabulary are those that Python writes.
"""

import io
import os
import random
import struct
import subprocess
import sys
import tempfile

import sentencepiece
from tokenizers import Tokenizer

from detokenizer_oracle import BYTE_OF_CHAR, decode_with_specd

SEED = 20261129
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def train(corpus, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, hard_vocab_limit=False,
        user_defined_symbols=["<think>", "\u2581\u2581", "a b", "\u2581x"], control_symbols=["<|end|>"],
        minloglevel=2, **options)
    return model.getvalue()


def varint(number):
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def fields(message):
    """The fields of bytes of a message, as pairs of number and bytes."""
    at, found = 0, []

    def number():
        nonlocal at
        value = shift = 0
        while True:
            value, shift, at = value | (message[at] & 0x7F) << shift, shift + 7, at + 1
            if message[at - 1] < 0x80:
                return value

    while at < len(message):
        tag = number()
        assert tag & 7 == 2, tag
        size = number()
        found.append((tag >> 3, message[at : at + size]))
        at += size
    return found


def joined(parts):
    return b"".join(varint(number << 3 | 2) + varint(len(part)) + part for number, part in parts)


def with_unused(model):
    """Every 40th piece becomes an unused one, and the specs come before the pieces."""
    parts = [(number, part + (b"\x18\x05" if number == 1 and i % 40 == 30 and b"\x18" not in part else b""))
             for i, (number, part) in enumerate(fields(model))]
    # The first field stays a piece, by which the file is known.
    return joined([parts[0], *sorted(parts[1:], key=lambda part: part[0] == 1)])


def random_lines(rng, sp, count):
    bytes_of = [id for id in range(len(sp)) if sp.is_byte(id)]
    fronts = [id for id in range(len(sp)) if set(sp.id_to_piece(id)) <= set("\u2581")]
    lines = []
    for _ in range(count):
        line = rng.choices(fronts, k=rng.choice((0, 0, 1, 2))) if fronts else []
        for _ in range(rng.randint(0, 6)):
            if bytes_of and rng.randrange(3) == 0:
                line += rng.choices(bytes_of, k=rng.randint(1, 4)) if rng.randrange(2) else \
                    [sp.piece_to_id(f"<0x{byte:02X}>") for byte in rng.choice("é你😀 \n").encode()]
            else:
                line.append(rng.randrange(len(sp)))
        lines.append(line)
    return lines


def compare(name, decode_ids, path, lines, decode):
    """All at once, and cut into prompt and outputs; special tokens are skipped."""
    cuts, expected = [], []
    for ids in lines:
        whole = decode(ids)
        cuts.append(ids)
        expected.append(whole)
        for cut in range(1, min(len(ids), 5)):
            begun = decode(ids[:cut])
            if "\ufffd" in begun:
                continue  # perhaps in the middle of a character
            assert whole.startswith(begun), (name, ids, cut)
            cuts.append([*ids[:cut], "|", *ids[cut:]])
            expected.append(whole[len(begun):])
    num_fronts = 0
    for line, ours, theirs in zip(cuts, decode_with_specd(decode_ids, path, "skip", cuts), expected):
        if ours != theirs:
            raise SystemExit(f"{name}: {line}\n  specd {ours!r}\n  peer  {theirs!r}")
        num_fronts += ours[:1] == " "
    print(f"{name}: {len(cuts)} texts equal, {num_fronts} begin with a space")


def gguf_string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def gguf(version, values):
    """values: (key, type, value) with type 8 a string, 7 a bool, 4 a uint32, 6 a float, or [type]."""
    def encoded(type, value):
        if isinstance(type, list):
            return struct.pack("<IQ", type[0], len(value)) + b"".join(encoded(type[0], v) for v in value)
        if type == 8:
            return gguf_string(value)
        return struct.pack({4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q"}[type], value)

    out = b"GGUF" + struct.pack("<IQQ", version, 1, len(values))
    for key, type, value in values:
        out += gguf_string(key) + struct.pack("<I", 9 if isinstance(type, list) else type) + encoded(type, value)
    return out


def gguf_of(sp, version, kind, prefix, extra):
    types = [UNKNOWN if sp.is_unknown(id) else CONTROL if sp.is_control(id) else BYTE if sp.is_byte(id)
             else UNUSED if sp.is_unused(id) else NORMAL for id in range(len(sp))]
    values = [("general.architecture", 8, "llama"), ("general.alignment", 4, 32),
              ("llama.rope.scales", [6], [0.5] * 7), ("general.tags", [8], ["a", "b" * 5000]),
              ("tokenizer.ggml.model", 8, kind),
              ("tokenizer.ggml.tokens", [8], [sp.id_to_piece(id) for id in range(len(sp))]),
              ("tokenizer.ggml.scores", [6], [sp.get_score(id) for id in range(len(sp))]),
              ("tokenizer.ggml.token_type", [5], types), ("tokenizer.ggml.eos_token_id", 4, sp.eos_id()),
              ("tokenizer.ggml.bos_token_id", 4, sp.bos_id()), ("tokenizer.ggml.add_space_prefix", 7, prefix),
              ("tokenizer.ggml.remove_extra_whitespaces", 7, extra), ("tokenizer.chat_template", 8, "{{ x }}")]
    # The tensors of a file are not its tokenizer: whatever follows is not read.
    return gguf(version, values) + b"\xff" * 1000


def check_models(decode_ids, corpus, folder, rng):
    path = os.path.join(folder, "tokenizer.model")
    kinds = [("unigram", True), ("unigram", False), ("bpe", True), ("bpe", False), ("word", False), ("char", False)]
    trained = {kind: train(corpus, model_type=kind[0], vocab_size=450, byte_fallback=kind[1]) for kind in kinds}
    cases = [(*kind, prefix, extra) for kind in kinds for prefix in (True, False) for extra in (True, False)]
    for number, (kind, fallback, prefix, extra) in enumerate(cases):
        # What a later part of a message says holds: add_dummy_prefix, remove_extra_whitespaces, unk_surface.
        model = trained[kind, fallback] + joined([(3, bytes([0x18, prefix, 0x20, extra]))])
        if number % 5 < 3:
            model += joined([(2, joined([(44, (b"", b"?", b" <u> ")[number % 5])]))])
        if number % 4 > 1:
            model = with_unused(model)
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        assert any(map(sp.is_unused, range(len(sp)))) == (number % 4 > 1)
        with open(path, "wb") as file:
            file.write(model)
        name = f"{kind}, bytes {fallback}, prefix {prefix}, extra {extra}"
        control = [id for id in range(len(sp)) if sp.is_control(id)]
        compare(name, decode_ids, path, random_lines(rng, sp, 500),
                lambda ids: sp.decode([id for id in ids if id not in control]))
        with open(path, "wb") as file:
            file.write(gguf_of(sp, 2 + number % 2, "t5" if extra else "llama", prefix, extra))
        # llama.cpp hides the unknown token and unused ones.
        hidden = [*control, *(id for id in range(len(sp)) if sp.is_unknown(id) or sp.is_unused(id))]
        compare(f"GGUF of {name}", decode_ids, path, random_lines(rng, sp, 300),
                lambda ids: sp.decode([id for id in ids if id not in hidden]))


def check_refused(decode_ids, corpus, folder):
    path = os.path.join(folder, "refused")

    def error_of(data):
        with open(path, "wb") as file:
            file.write(data)
        result = subprocess.run([decode_ids, path, "skip"], input="", capture_output=True, text=True)
        assert result.returncode == 1, result
        return result.stderr

    model = train(corpus, model_type="char", vocab_size=400, treat_whitespace_as_suffix=True)
    assert "treat_whitespace_as_suffix is true" in error_of(model)
    model = train(corpus, model_type="char", vocab_size=400)
    assert "denormalizer_spec.precompiled_charsmap" in error_of(model + joined([(5, joined([(2, b"x")]))]))


def check_byte_level_gguf(decode_ids, tokenizer_json, folder, rng):
    tokenizer = Tokenizer.from_file(tokenizer_json)
    added = {id: token for id, token in tokenizer.get_added_tokens_decoder().items()}
    count = max(tokenizer.get_vocab().values()) + 1
    tokens = [tokenizer.id_to_token(id) or f"[PAD{id}]" for id in range(count)]
    types = [UNUSED if tokenizer.id_to_token(id) is None else CONTROL if id in added and added[id].special
             else USER_DEFINED if id in added else NORMAL for id in range(count)]
    path = os.path.join(folder, "model.gguf")
    with open(path, "wb") as file:
        file.write(gguf(3, [("tokenizer.ggml.model", 8, "gpt2"), ("tokenizer.ggml.pre", 8, "llama-bpe"),
                            ("tokenizer.ggml.tokens", [8], tokens), ("tokenizer.ggml.token_type", [5], types),
                            ("tokenizer.ggml.merges", [8], ["a b"] * 3000)]))
        file.truncate(1 << 34)  # 16 GiB of tensors, which take no place on the disk
    # Hugging Face takes added tokens through the byte map; detokenizer_oracle.py has the difference.
    ids = [id for id in range(count)
           if id not in added or all(BYTE_OF_CHAR.get(char) == ord(char) for char in tokens[id])]
    lines = [rng.choices(ids, k=rng.randint(0, 20)) for _ in range(1000)]
    for ids, ours in zip(lines, decode_with_specd(decode_ids, path, "skip", lines)):
        assert ours == tokenizer.decode(ids), (ids, ours)
    print(f"GGUF of a byte-level BPE: {len(lines)} texts equal")


def check_rwkv(decode_ids, folder, rng):
    """A file as RWKV's: literals that repr() wrote, of texts and of parts of characters."""
    pieces = [bytes([byte]) for byte in range(256)]
    alphabet = ["a", "'", '"', "\\", " ", "\n", "\x7f", "\xa0", "é", "\u200d", "\u2028", "你", "😀", "\U000e0001"]
    while len(pieces) < 3000:
        piece = "".join(rng.choices(alphabet, k=rng.randint(1, 6))).encode()
        pieces.append(piece[rng.randrange(len(piece)) :] if rng.randrange(3) == 0 else piece)
    path = os.path.join(folder, "rwkv_vocab.txt")
    with open(path, "w", encoding="utf-8") as file:
        for id, piece in enumerate(pieces, start=1):
            try:
                literal = repr(piece.decode())
            except UnicodeDecodeError:
                literal = repr(piece)
            file.write(f"{id} {literal} {len(piece)}\n")
    lines = [rng.choices(range(len(pieces) + 1), k=rng.randint(0, 12)) for _ in range(3000)]
    for ids, ours in zip(lines, decode_with_specd(decode_ids, path, "skip", lines)):
        theirs = b"".join(pieces[id - 1] for id in ids if id > 0).decode(errors="replace")
        if ours != theirs:
            raise SystemExit(f"RWKV: {ids}\n  specd  {ours!r}\n  Python {theirs!r}")
    print(f"RWKV: {len(lines)} texts equal")


def main():
    decode_ids, corpus_path, tokenizer_json = sys.argv[1:]
    with open(corpus_path, encoding="utf-8") as file:
        corpus = file.read().splitlines()[:100]
    rng = random.Random(SEED)
    print(f"seed {SEED}, sentencepiece {sentencepiece.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        check_models(decode_ids, corpus, folder, rng)
        check_refused(decode_ids, corpus, folder)
        check_byte_level_gguf(decode_ids, tokenizer_json, folder, rng)
        check_rwkv(decode_ids, folder, rng)


if __name__ == "__main__":
    main()
