"""The toy engine's tokenizer, read without any code of specd."""

import json
import pathlib

TOKENIZER = pathlib.Path(__file__).parents[2] / "tools/toy_engine/tokenizer.json"


def texts_of_ids():
    """The bytes of each id. The tokenizer is byte-level: a character stands for a byte."""
    file = json.loads(TOKENIZER.read_text())
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    byte_of = {chr(byte): byte for byte in plain}
    byte_of.update({chr(256 + i): byte for i, byte in enumerate(others)})
    added = {token["id"] for token in file["added_tokens"]}
    return {i: bytes(byte_of[c] for c in token)
            for token, i in file["model"]["vocab"].items() if i not in added}
