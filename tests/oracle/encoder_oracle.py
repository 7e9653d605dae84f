"""The toy engine's encoder against Hugging Face tokenizers, on documents and on random text.

Usage: encoder_oracle.py SPECD_ENCODE_TEXT TOKENIZER_JSON [DOCUMENT ...]

Besides the shipped tokenizer some are trained on the spot, on random text of many scripts: only a
tokenizer that has merges in a script can show that its letters, digits and signs were told apart.

Left out on purpose: special tokens named in a text. The toy engine encodes them as plain text, as
tokenizers does with encode_special_tokens, which is set here.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SEED = 20260622

# Characters that tools/toy_engine/pre_tokenizer.cc claims to classify as Unicode does.
ALPHABETS = [
    "abcdefgXYZ",
    "0123456789",
    " \t\n\r",
    " ",
    ".,;:!?'\"()[]{}<>|/\\@#$%^&*-_=+~`",
    "àéîõüßÿŁŒœªºµ",
    "αβγδΩάϕ",
    "абвгЯёґ",
    "漢字仮名ひらがなカタカナ한국어々〆",
    "²³¹¼½¾⁰⁴₀₉Ⅷↂ①⓪❶０９〇〡",
    "˂˅˓˟˥˭˯˿΄΅·҂〶゛゜゠",
    "«»¡¿§©®°±×÷–—‘’“”„…•†‰€™←→≤≥≠∑√∞",
    "、。「」『』〜・！？（）",
    "\u00a0\u2002\u2009\u3000\u2028\u202f\u205f\u1680\u0085\x0b\x0c\x1c",
    "\u0301\u0308\u200b\u200d\ufe0f\ufffd",
    "👋🎉😀🚀",
]
SNIPPETS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "''", " '", "don't"]
SNIPPETS += ["  ", "\n\n", "\r\n"]


def random_text(rng):
    pieces = []
    for _ in range(rng.randint(0, 12)):
        if rng.random() < 0.2:
            pieces.append(rng.choice(SNIPPETS))
        else:
            alphabet = rng.choice(ALPHABETS)
            pieces.append("".join(rng.choices(alphabet, k=rng.randint(1, 6))))
        if rng.random() < 0.4:
            pieces.append(" ")
    return "".join(pieces)


def train_tokenizer(rng, folder, number):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Every piece of text twice in a row without a space, so that there is much to merge.
    texts = [2 * random_text(rng) for _ in range(3000)]
    tokenizer.train_from_iterator(texts, trainer)
    path = pathlib.Path(folder) / f"tokenizer_{number}.json"
    tokenizer.save(str(path))
    return path


def compare(encode_text, path, texts):
    """Ends the test at the first text that the two encode differently."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    stdin = "".join(json.dumps(text) + "\n" for text in texts)
    result = subprocess.run([encode_text, path], input=stdin, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"specd_encode_text failed on {path.name}: {result.stderr}")
    lines = result.stdout.split("\n")[:-1]
    assert len(lines) == len(texts), (len(lines), len(texts))
    num_tokens = 0
    for text, line in zip(texts, lines):
        ours = [int(id) for id in line.split()]
        theirs = tokenizer.encode(text).ids
        num_tokens += len(theirs)
        if ours != theirs:
            pairs = zip(ours + [-1], theirs + [-1])
            at = next(i for i, (our, their) in enumerate(pairs) if our != their)
            raise SystemExit(
                f"{path.name}: {text[:200]!r}\n  specd        ... {ours[at : at + 20]}\n"
                f"  Hugging Face ... {theirs[at : at + 20]} (from token {at} on)"
            )
    print(f"{path.name}: {len(texts)} texts, {num_tokens} tokens equal")


def main():
    encode_text, shipped = sys.argv[1], pathlib.Path(sys.argv[2])
    documents = [pathlib.Path(name).read_text(encoding="utf-8") for name in sys.argv[3:]]
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    texts = [random_text(rng) for _ in range(3000)] + ["", "<|endoftext|>", "a<|pad|>b"]
    compare(encode_text, shipped, documents + texts)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            path = train_tokenizer(rng, folder, number)
            compare(encode_text, path, [random_text(rng) for _ in range(3000)] + documents)


if __name__ == "__main__":
    main()
