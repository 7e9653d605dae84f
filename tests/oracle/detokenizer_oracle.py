"""Our detokenizer against Hugging Face tokenizers and CPython, on random ids.

Usage: detokenizer_oracle.py SPECD_DECODE_IDS TOKENIZER_JSON

Byte-level tokenizers are made up on the spot, saved by Hugging Face and loaded by us; the file of
the toy engine is tested as well. Every id sequence must decode to the same text, with special
tokens skipped and kept.

SentencePiece's style with byte fallback is made up, too. Where every run of byte tokens is valid
UTF-8 our text must be Hugging Face's. In any other run Hugging Face replaces every byte, so it
cannot give out a text as it grows; SentencePiece replaces the bytes that are part of no character,
and so do we. A few lines of Python have that rule; they are held against Hugging Face as well.

One difference is meant, and left out by construction: we take an added token's content literally,
while Hugging Face runs it through the byte map (tokenizers #1392, #1915, #1996). The two agree on
content in which every character is mapped to itself (printable ASCII), and on content with a
character outside the map, which both leave alone. Only such added tokens are drawn here.
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models

SEED = 20260622


def byte_to_char():
    """The map of GPT-2, as published."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    mapped = {byte: chr(byte) for byte in printable}
    mapped.update({byte: chr(256 + n) for n, byte in enumerate(others)})
    return mapped


CHAR_OF_BYTE = byte_to_char()
BYTE_OF_CHAR = {char: byte for byte, char in CHAR_OF_BYTE.items()}


def decodes_alike(content):
    """Whether Hugging Face leaves this added content as it is."""
    if any(char not in BYTE_OF_CHAR for char in content):
        return True
    return all(ord(char) == BYTE_OF_CHAR[char] < 0x80 for char in content)


def decode_with_specd(decode_ids, path, mode, lines):
    stdin = "".join(" ".join(map(str, ids)) + "\n" for ids in lines)
    result = subprocess.run(
        [decode_ids, path, mode], input=stdin, capture_output=True, text=True, encoding="utf-8"
    )
    if result.returncode != 0:
        raise SystemExit(f"specd_decode_ids failed on {path}: {result.stderr}")
    texts = [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    assert len(texts) == len(lines), (len(texts), len(lines))
    return texts


def compare(name, decode_ids, path, lines):
    """All lines, with special tokens skipped and kept; ends the test at the first difference."""
    tokenizer = Tokenizer.from_file(path)
    num_lossy = 0
    for mode in ("skip", "keep"):
        for ids, ours in zip(lines, decode_with_specd(decode_ids, path, mode, lines)):
            theirs = tokenizer.decode(ids, skip_special_tokens=mode == "skip")
            if ours != theirs:
                raise SystemExit(
                    f"{name}, special tokens: {mode}, ids {ids}\n  specd        {ours!r}\n"
                    f"  Hugging Face {theirs!r}"
                )
            num_lossy += "\ufffd" in ours
    print(f"{name}: {2 * len(lines)} decodes equal, {num_lossy} of them with U+FFFD")


def random_piece(rng):
    """Bytes of a token: words, whole characters, pieces of characters, noise."""
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(rng.choice(b" abcdefgXYZ,.\n\t") for _ in range(rng.randint(1, 6)))
    characters = rng.choices("é你삼😀\u200d\ufffd", k=2)
    encoded = "".join(characters).encode()
    if kind == 1:
        return encoded
    if kind == 2:
        begin = rng.randrange(len(encoded))
        return encoded[begin : begin + rng.randint(1, 3)]
    return bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))


def make_tokenizer(rng, folder, number):
    pieces = {bytes([byte]) for byte in range(256)} | {random_piece(rng) for _ in range(300)}
    tokens = ["".join(CHAR_OF_BYTE[byte] for byte in piece) for piece in pieces]
    tokens.sort()
    # One character outside the map makes the whole token raw UTF-8.
    tokens += ["[PA D]", "ĠaĠ b", "Ġд", "Ġ<｜tool▁calls｜>", "日本"]
    tokens += ["<s>"]
    # Hugging Face numbers added tokens from the count of tokens on, whether or not such ids are
    # taken. The holes are therefore there and beyond.
    num_high = 20
    vocab = {token: id for id, token in enumerate(tokens[num_high:])}
    next_id = len(tokens) + 50
    for token in tokens[:num_high]:
        vocab[token] = next_id
        next_id += rng.randint(1, 3)

    tokenizer = Tokenizer(models.BPE(vocab, []))
    byte_level = decoders.ByteLevel()
    tokenizer.decoder = decoders.Sequence([byte_level]) if number % 2 else byte_level
    special = ["<s>", "<|eos|>", "<｜begin▁of▁sentence｜>", "", "[MASK ]"]
    plain = ["<think>", "</think>", "嗎", "д", "a b", "語x"]
    assert all(decodes_alike(content) for content in special + plain)
    tokenizer.add_special_tokens([AddedToken(c, normalized=False, special=True) for c in special])
    tokenizer.add_tokens([AddedToken(c, normalized=False) for c in plain])
    path = os.path.join(folder, f"tokenizer_{number}.json")
    tokenizer.save(path)
    return path


def bytes_of_piece(piece):
    """The byte of a piece such as <0x0A>, or None."""
    return bytes([int(piece[3:5], 16)]) if re.fullmatch("<0x[0-9A-Fa-f]{2}>", piece) else None


def replace_bad_bytes(run):
    """SentencePiece's rule: a byte that is part of no character becomes U+FFFD."""
    text, at = "", 0
    while at < len(run):
        for size in (1, 2, 3, 4):
            try:
                text += run[at : at + size].decode()
            except UnicodeDecodeError:
                continue
            if at + size <= len(run):
                at += size
                break
        else:
            text += "\ufffd"
            at += 1
    return text


def is_text(run):
    try:
        run.decode()
    except UnicodeDecodeError:
        return False
    return True


def sentence_piece_text(pieces, strip):
    """The text of the pieces, and whether every run of byte pieces is valid UTF-8."""
    text, run, is_valid = "", b"", True
    for piece in [*pieces, ""]:
        byte = bytes_of_piece(piece)
        if byte is not None:
            run += byte
            continue
        is_valid = is_valid and is_text(run)
        text += replace_bad_bytes(run) + piece.replace("\u2581", " ")
        run = b""
    while strip > 0 and text.startswith(" "):
        text, strip = text[1:], strip - 1
    return text, is_valid


def make_sentence_piece(rng, folder, number):
    """Llama 2's and Gemma's styles; every third file is a Unigram model."""
    words = {"".join(rng.choices("ab\u2581é你😀<>0x", k=rng.randint(1, 5))) for _ in range(200)}
    pieces = ["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += ["\u2581", "\u2581\u2581", "\u2581Hello", "<0xZZ>", "<0x0a>"]
    pieces += sorted(words - set(pieces))
    if number % 3 == 2:
        model = models.Unigram([(piece, -1.0) for piece in pieces], 0, byte_fallback=True)
    else:
        model = models.BPE({piece: id for id, piece in enumerate(pieces)}, [], unk_token="<unk>",
                           byte_fallback=True)
    tokenizer = Tokenizer(model)
    strip = (1, 0, 1, 2)[number % 4]
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", strip, 0)] if strip else []))
    special = ["<unk>", "<s>", "</s>", "<|end|>"]
    plain = ["\u2581\u2581\u2581", "<think>", "a b"]
    tokenizer.add_special_tokens([AddedToken(c, normalized=False, special=True) for c in special])
    tokenizer.add_tokens([AddedToken(c, normalized=False) for c in plain])
    path = os.path.join(folder, f"sentence_piece_{number}.json")
    tokenizer.save(path)
    return path, strip, set(special)


def sentence_piece_lines(rng, tokenizer, count):
    """Runs of bytes, whole characters in byte pieces, and words."""
    ids = sorted(tokenizer.get_vocab().values())
    byte_ids = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    lines = []
    for _ in range(count):
        line = []
        for _ in range(rng.randint(0, 8)):
            kind = rng.randrange(4)
            if kind == 0:
                line += [byte_ids[byte] for byte in rng.choice("é你삼😀 \n").encode()]
            elif kind == 1:
                line += rng.choices(byte_ids, k=rng.randint(1, 3))
            else:
                line += rng.choices(ids, k=rng.randint(1, 3))
        lines.append(line)
    return lines


def check_sentence_piece(decode_ids, folder, rng):
    for number in range(8):
        path, strip, special = make_sentence_piece(rng, folder, number)
        tokenizer = Tokenizer.from_file(path)
        lines = sentence_piece_lines(rng, tokenizer, 2000)
        num_valid = 0
        for mode in ("skip", "keep"):
            for ids, ours in zip(lines, decode_with_specd(decode_ids, path, mode, lines)):
                pieces = [tokenizer.id_to_token(id) for id in ids]
                if mode == "skip":
                    pieces = [piece for piece in pieces if piece not in special]
                expected, is_valid = sentence_piece_text(pieces, strip)
                theirs = tokenizer.decode(ids, skip_special_tokens=mode == "skip")
                num_valid += is_valid
                if ours != expected or (is_valid and expected != theirs):
                    raise SystemExit(
                        f"SentencePiece {number}, special tokens: {mode}, pieces {pieces}\n"
                        f"  specd        {ours!r}\n  expected     {expected!r}\n"
                        f"  Hugging Face {theirs!r}, runs of bytes valid: {is_valid}")
        assert num_valid > 500 and num_valid < 2 * len(lines), num_valid
        print(f"SentencePiece {number}: {2 * len(lines)} decodes right, {num_valid} of them equal to "
              "Hugging Face's")


def encode_words(text, id_of):
    """One id for each known word with the space before it, and the bytes of every other."""
    ids = []
    for word in re.findall(r"\s?\S+|\s", text):
        piece = word.replace(" ", "\u2581")
        if piece in id_of:
            ids.append(id_of[piece])
        else:
            ids += [id_of[f"<0x{byte:02X}>"] for byte in word.encode()]
    return ids


def check_prompts(decode_ids, folder, corpus):
    """prompt + text is the text of prompt + outputs, wherever a text is cut into the two."""
    texts = [" in a village by the sea", "  two  spaces and 你好 é 😀😀 in bytes ", " ", "\u00a0 x", *corpus]
    words = {word.replace(" ", "\u2581") for text in corpus[::2] for word in re.findall(r"\s?\S+", text)}
    words |= {"\u2581in", "\u2581a", "\u2581village", "\u2581by", "\u2581the", "\u2581sea", "\u2581"}
    pieces = ["<s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + sorted(words)
    id_of = {piece: id for id, piece in enumerate(pieces)}
    num_cuts = num_spaces = 0
    for strip in (0, 1, 2):
        tokenizer = Tokenizer(models.BPE(id_of, [], unk_token="<s>", byte_fallback=True))
        steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", strip, 0)] if strip else []))
        tokenizer.add_special_tokens([AddedToken("<s>", normalized=False, special=True)])
        path = os.path.join(folder, f"prompts_{strip}.json")
        tokenizer.save(path)
        for text in texts:
            ids = [id_of["<s>"], *encode_words(text, id_of)]
            prompts = [tokenizer.decode(ids[:cut]) for cut in range(len(ids) + 1)]
            whole, begun = prompts[-1], 0
            expected = []
            for prompt in prompts:  # a character that is begun belongs to the outputs
                begun = begun if "\ufffd" in prompt else len(prompt)
                assert whole.startswith(whole[:begun])
                expected.append(whole[begun:])
            lines = [[*ids[:cut], "|", *ids[cut:]] for cut in range(len(ids) + 1)]
            for line, ours, theirs in zip(lines, decode_with_specd(decode_ids, path, "skip", lines),
                                          expected):
                if ours != theirs:
                    raise SystemExit(f"prompts, strip {strip}: {line}\n  specd        {ours!r}\n"
                                     f"  Hugging Face {theirs!r}")
                num_cuts += 1
                num_spaces += strip > 0 and ours.startswith(" ")
    assert num_spaces > 100, num_spaces
    print(f"prompts: {num_cuts} cuts equal to Hugging Face's, {num_spaces} of stripping decoders "
          "begin with a space")


def random_lines(rng, ids, id_end, count):
    """Ids of the vocabulary, here and there one that is a hole or past the end."""
    lines = []
    for _ in range(count):
        line = [rng.choice(ids) for _ in range(rng.randint(0, 30))]
        if line and rng.random() < 0.3:
            line[rng.randrange(len(line))] = rng.randrange(id_end + 500)
        lines.append(line)
    return lines


def check_made_up(decode_ids, folder, rng):
    for number in range(8):
        path = make_tokenizer(rng, folder, number)
        ids = sorted(Tokenizer.from_file(path).get_vocab().values())
        compare(f"made up {number}", decode_ids, path, random_lines(rng, ids, ids[-1], 2000))


def check_bytes(decode_ids, folder, rng):
    """A token for each byte: our replacement of ill-formed UTF-8 is CPython's."""
    vocab = {CHAR_OF_BYTE[byte]: byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.decoder = decoders.ByteLevel()
    path = os.path.join(folder, "bytes.json")
    tokenizer.save(path)
    likely = list(b"aZ\x80\x8f\x90\x9f\xa0\xbf\xc0\xc2\xdf\xe0\xe4\xed\xef\xf0\xf1\xf4\xf5\xff")
    drawn = likely * 50 + list(range(256))  # four of five are likely
    lines = [rng.choices(drawn, k=rng.randint(1, 12)) for _ in range(20000)]
    for line, text in zip(lines, decode_with_specd(decode_ids, path, "keep", lines)):
        expected = bytes(line).decode("utf-8", errors="replace")
        if text != expected:
            raise SystemExit(f"bytes {bytes(line)!r}\n  specd   {text!r}\n  CPython {expected!r}")
    print(f"bytes: {len(lines)} decodes equal to CPython's")
    compare("bytes", decode_ids, path, lines[:2000])


def check_file(decode_ids, path, rng):
    if not os.path.exists(path):
        raise SystemExit(f"{path} is missing; it is part of the repository")
    tokenizer = Tokenizer.from_file(path)
    added = tokenizer.get_added_tokens_decoder()
    left_out = {id for id, token in added.items() if not decodes_alike(token.content)}
    ids = sorted(set(tokenizer.get_vocab().values()) - left_out)
    lines = random_lines(rng, ids, ids[-1], 3000)
    lines = [[id for id in line if id not in left_out] for line in lines]
    name = f"{os.path.basename(path)} ({len(ids)} ids, {len(left_out)} left out)"
    compare(name, decode_ids, path, lines)
    with open(__file__, encoding="utf-8") as source:
        text = source.read()
    encoded = tokenizer.encode(text, add_special_tokens=False).ids
    assert decode_with_specd(decode_ids, path, "keep", [encoded]) == [tokenizer.decode(encoded)]


def main():
    decode_ids, path = sys.argv[1:]
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    with tempfile.TemporaryDirectory() as folder:
        check_bytes(decode_ids, folder, rng)
        check_made_up(decode_ids, folder, rng)
        check_sentence_piece(decode_ids, folder, rng)
        with open(os.path.join(os.path.dirname(path), "corpus.txt"), encoding="utf-8") as corpus:
            check_prompts(decode_ids, folder, corpus.read().splitlines()[:40])
    check_file(decode_ids, path, rng)


if __name__ == "__main__":
    main()
