"""The decoders of a tokenizer.json against Hugging Face tokenizers.

Usage: decoder_oracle.py SPECD_DECODE_IDS CORPUS

Models of each kind are trained on the corpus here, and get every decoder that specd follows. A text
must be Hugging Face's for all ids at once, and for each place where the ids are cut into a prompt
and outputs. Byte pieces are drawn as whole characters: detokenizer_oracle.py compares the others.
"""

import json
import os
import random
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from detokenizer_oracle import decode_with_specd

SEED = 20261129
SPECIAL = ["<s>", "</s>", "[MASK]"]


def trained(model, trainer, pre_tokenizer, corpus):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken(c, normalized=False, special=True) for c in SPECIAL])
    tokenizer.add_tokens([AddedToken(c, normalized=False) for c in ["<think>", "a b", "\u2581\u2581"]])
    return tokenizer


def trained_models(corpus):
    metaspace = pre_tokenizers.Metaspace()
    common = {"vocab_size": 400, "show_progress": False}
    yield "unigram", trained(models.Unigram(), trainers.UnigramTrainer(**common), metaspace, corpus)
    yield "bpe", trained(models.BPE(), trainers.BpeTrainer(**common), metaspace, corpus)
    yield "bpe with a suffix", trained(
        models.BPE(end_of_word_suffix="</w>"),
        trainers.BpeTrainer(end_of_word_suffix="</w>", **common), pre_tokenizers.Whitespace(), corpus)
    yield "wordpiece", trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(special_tokens=["[UNK]"], **common), pre_tokenizers.BertPreTokenizer(),
        corpus)
    yield "wordlevel", trained(
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(special_tokens=["[UNK]"], **common), pre_tokenizers.Whitespace(), corpus)
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "\u2581a", "b", "\u2581\u2581c\u2581",
              "é", ".", "\u2581'", "\u2581do", "\u2581not", "##x", "Hello", "H", "HH", "_d", "_"]
    yield "bytes", trained_bytes(pieces)


def trained_bytes(pieces):
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], 0, byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken(c, normalized=False, special=True) for c in SPECIAL])
    tokenizer.add_tokens([AddedToken(c, normalized=False) for c in ["<think>", "a b", "\u2581\u2581"]])
    return tokenizer


def all_decoders():
    """Those of published files, and their neighbours."""
    mark = decoders.Replace("\u2581", " ")
    fallback, fuse = decoders.ByteFallback(), decoders.Fuse()
    strip = decoders.Strip(" ", 1, 0)
    for scheme in ("always", "first", "never"):
        space = decoders.Metaspace(prepend_scheme=scheme)
        yield f"Metaspace {scheme}", space
        yield f"ByteFallback, Metaspace {scheme}", decoders.Sequence([fallback, space])
        yield f"ByteFallback, Metaspace {scheme}, Fuse, Strip", decoders.Sequence(
            [fallback, space, fuse, strip])
    yield "Metaspace of another mark", decoders.Metaspace(replacement="_")
    for cleanup in (True, False):
        yield f"WordPiece {cleanup}", decoders.WordPiece(cleanup=cleanup)
        yield f"WordPiece {cleanup} of another prefix", decoders.WordPiece("\u2581", cleanup)
    yield "WordPiece after Replace", decoders.Sequence([mark, decoders.WordPiece(" ", True)])
    yield "BPEDecoder", decoders.BPEDecoder()
    yield "BPEDecoder after Replace", decoders.Sequence([decoders.Replace("an", "o"), decoders.BPEDecoder(), fuse])
    yield "none", None
    yield "Fuse", fuse
    yield "empty Sequence", decoders.Sequence([])
    yield "Replace", mark
    yield "ByteFallback", fallback
    yield "Replace, Fuse, Strip", decoders.Sequence([mark, fuse, strip])
    yield "Replace, ByteFallback, Fuse, Strip", decoders.Sequence([mark, fallback, fuse, strip])
    yield "ByteFallback, Replace, Fuse", decoders.Sequence([fallback, mark, fuse])
    yield "ByteFallback, Fuse, Replace, Strip", decoders.Sequence([fallback, fuse, mark, strip])
    yield "Fuse, Replace, Strip", decoders.Sequence([fuse, mark, strip])
    yield "Strip, Replace, Fuse", decoders.Sequence([decoders.Strip("\u2581", 1, 0), mark, fuse])
    yield "Replace, Strip of two", decoders.Sequence([mark, decoders.Strip(" ", 2, 0)])
    yield "Strip of a letter", decoders.Strip("H", 1, 0)
    yield "ByteLevel in a Sequence", decoders.Sequence([decoders.ByteLevel()])


def random_lines(rng, tokenizer, count, has_bytes):
    """Ids of the vocabulary, short lines above all; bytes in whole characters."""
    vocab = tokenizer.get_vocab()
    is_byte = {id for piece, id in vocab.items() if piece.startswith("<0x")}
    ids = sorted(set(vocab.values()) - is_byte)
    byte_ids = [vocab.get(f"<0x{byte:02X}>") for byte in range(256)]
    lines = []
    for _ in range(count):
        line = []
        for _ in range(rng.randint(0, 6)):
            if has_bytes and byte_ids[0] is not None and rng.randrange(3) == 0:
                line += [byte_ids[byte] for byte in rng.choice("é你😀 \nz").encode()]
            else:
                line.append(rng.choice(ids))
        lines.append(line)
    return lines


def check(name, decode_ids, path, tokenizer, lines):
    """All at once and cut into prompt and outputs, with special tokens skipped and kept."""
    num_fronts = 0
    for mode in ("skip", "keep"):
        def text(ids, mode=mode):
            return tokenizer.decode(ids, skip_special_tokens=mode == "skip")

        cuts, expected = [], []
        for ids in lines:
            cuts.append(ids)
            expected.append(text(ids))
            for cut in range(1, min(len(ids), 4)):
                begun = text(ids[:cut])
                if "\ufffd" in begun:
                    continue  # in the middle of a character
                assert text(ids).startswith(begun), (name, ids, cut)
                cuts.append([*ids[:cut], "|", *ids[cut:]])
                expected.append(text(ids)[len(begun):])
        for line, ours, theirs in zip(cuts, decode_with_specd(decode_ids, path, mode, cuts), expected):
            if ours != theirs:
                pieces = [tokenizer.id_to_token(id) if id != "|" else id for id in line]
                raise SystemExit(f"{name}, special tokens: {mode}, {pieces}\n  specd        {ours!r}\n"
                                 f"  Hugging Face {theirs!r}")
            num_fronts += ours[:1] == " "
    return len(cuts), num_fronts


def main():
    decode_ids, corpus_path = sys.argv[1:]
    with open(corpus_path, encoding="utf-8") as file:
        corpus = file.read().splitlines()[:400] + ["I can't do not . And 's it ' x n't ? !"] * 20
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    num_pairs = num_lines = num_fronts = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        # A wrong class beside the file changes nothing.
        with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as config:
            json.dump({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True}, config)
        for model_name, tokenizer in trained_models(corpus):
            for decoder_name, decoder in all_decoders():
                has_bytes = "ByteFallback" in decoder_name
                tokenizer.decoder = decoder
                if "BPEDecoder" in decoder_name and model_name == "bytes":
                    continue
                tokenizer.save(path)
                lines = random_lines(rng, tokenizer, 150, has_bytes)
                # The decoder of HF ends with an overflow where it has no piece.
                if "BPEDecoder" in decoder_name:
                    lines = [line for line in lines
                             if any(tokenizer.id_to_token(id) not in SPECIAL for id in line[:1])]
                count, fronts = check(f"{model_name}, {decoder_name}", decode_ids, path, tokenizer, lines)
                num_pairs, num_lines, num_fronts = num_pairs + 1, num_lines + count, num_fronts + fronts
    assert num_fronts > 1000, num_fronts
    print(f"{num_pairs} pairs of model and decoder: {2 * num_lines} texts equal to Hugging Face's, "
          f"{num_fronts} begin with a space")


if __name__ == "__main__":
    main()
