"""The other end of specd_grammar_probe, and the small vocabulary that the grammar oracles use."""

import json
import subprocess

JSON_SCHEMA, REGEX, EBNF = 1, 3, 4
FLEXIBLE, COMPACT = 0, 1
OK = 0

_PIECES = """
    true false null tru nul rue ull alse 10 12 123 00 000 25 99 1.5 0.1 -1 e+ E- .0
    the th he in er an re on at en name names id value type item items count data key user email
    date time url text address city street order orders price total first last start end status
    kind left right root child children node tag tags foo bar baz qux aa ab abc bb ba ca
    2024 -01 -12 T00 :00 :30Z +02 192 168 ::1 fe80 http https :// .com www mailto: urn: P1 PT
    \\n \\t \\" \\\\ \\u \\u00 \\u00e9 \\ud83d \\ude00
    é ü ß ñ ö λ 漢 字 한 👋 ☃
""".split()
# Pieces with blanks or quotes, as tokenizers that have seen JSON have them.
_PIECES += ['{"', '"}', '":', '": ', '":"', '": "', '","', '", "', '"]', '["', "{}", "[]", "[[", "]]", "}}"]
_PIECES += ['},{', '},', '],', '],[', '[{', '}]', ',"', ', ', ', "', ': ', ':{', ':[', '{"a', 'a":', '"a"']
_PIECES += ["  ", "    ", "\n  ", "\n\n", "\t\t", " \n", ": {", ": [", '{\n  "', '"a":1', "1,", "2]", "3}"]


def make_vocabulary():
    """Every byte, pieces of JSON and of words, halves of characters; the last id is EOS."""
    tokens = [bytes([byte]) for byte in range(256)]
    pieces = [piece.encode() for piece in _PIECES]
    pieces += [character.encode()[:2] for character in "漢👋☃"]
    pieces += [character.encode()[1:] for character in "漢👋☃"]
    pieces += [f"{a}{b}".encode() for a in "abcxyz" for b in "aeiou"]
    for piece in pieces:
        if piece not in tokens:
            tokens.append(piece)
    return tokens + [b"</s>"]


class GrammarProbe:
    """One run of specd_grammar_probe. Its answers are about the grammar that was compiled last."""

    def __init__(self, program):
        self.tokens = make_vocabulary()
        self.eos = len(self.tokens) - 1
        self.warnings = []  # of the last compile
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True, encoding="utf-8")
        self._ask("vocabulary", tokens=[token.hex() for token in self.tokens], eos=self.eos)

    def _ask(self, ask, **fields):
        self._process.stdin.write(json.dumps({"ask": ask, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"specd_grammar_probe ended at {ask} {str(fields)[:2000]}")
        return json.loads(line)

    def compile(self, kind, text, whitespace=COMPACT, lenient=False, any_order=False):
        """The Abseil status code (0 is OK) and the message."""
        answer = self._ask("compile", kind=kind, text=text, whitespace=whitespace,
                           lenient=int(lenient), key_order=int(any_order))
        self.warnings = [bytes.fromhex(warning).decode() for warning in answer["warnings"]]
        return answer["code"], bytes.fromhex(answer["message"]).decode()

    def is_whole(self, text):
        return self._ask("match", text=text.hex())["is_whole"]

    def is_prefix(self, text):
        return self._ask("match", text=text.hex())["is_prefix"]

    def generate(self, seed, count, max_tokens=1600):
        """Texts as bytes, and how many walks did not end in time."""
        answer = self._ask("generate", seed=seed, count=count, max_tokens=max_tokens)
        return [bytes.fromhex(text) for text in answer["texts"]], answer["unfinished"]

    def allowed(self, ids):
        """The ids that may come after `ids`; None if these are not accepted."""
        answer = self._ask("mask", ids=ids)
        return set(answer["allowed"]) if answer["is_accepted"] else None
