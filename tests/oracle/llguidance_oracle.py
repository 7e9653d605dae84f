"""specd's masks against llguidance's, token by token, on random walks over one small vocabulary.

Usage: llguidance_oracle.py SPECD_GRAMMAR_PROBE CASES DIFFERENCES

CASES holds constraints in both dialects. DIFFERENCES lists where the two may differ, with a reason
each: a token that one side alone allows is explained if the text that ends with this token matches
the entry. Any other difference fails the test, and so does an entry that explains nothing.
"""

import json
import pathlib
import random
import re
import sys

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from grammar_probe import COMPACT, EBNF, JSON_SCHEMA, OK, REGEX, GrammarProbe

SEED = 20260816
NUM_WALKS = 25
MAX_STEPS = 50
EOS_TEXT = "<eos>"
KINDS = {"json_schema": JSON_SCHEMA, "regex": REGEX, "ebnf": EBNF}


class ByteTokens:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, tokens, eos):
        self.tokens = tokens
        self.eos_token_id = eos
        self.special_token_ids = [eos]

    def __call__(self, text):
        return list(text if isinstance(text, bytes) else text.encode())


def their_grammar(case):
    """In Lark, which can switch off what specd does not do: where the bytes are known, llguidance
    allows one spelling of them in tokens."""
    if case["kind"] == "json_schema":
        options = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        schema = {"x-guidance": options, **case["specd"]}
        rules = f"start: %json {json.dumps(schema)}"
    elif case["kind"] == "regex":
        pattern = case.get("llguidance", case["specd"]).replace("/", "\\/")
        rules = f"start: /{pattern}/"
    else:
        rules = case["llguidance"]
    return LLMatcher.grammar_from_lark('%llguidance {"no_forcing": true}\n' + rules)


class Walks:
    def __init__(self, probe, differences):
        self._probe = probe
        self._tokenizer = LLTokenizer(TokenizerWrapper(ByteTokens(probe.tokens, probe.eos)))
        self._rng = random.Random(SEED)
        self._differences = [(entry, re.compile(entry["text"], re.DOTALL)) for entry in differences]
        self.used = [0] * len(differences)
        self.unexplained = []
        self.num_masks = 0

    def compare(self, case):
        text = json.dumps(case["specd"]) if case["kind"] == "json_schema" else case["specd"]
        code, message = self._probe.compile(KINDS[case["kind"]], text, COMPACT)
        error = LLMatcher.validate_grammar(their_grammar(case), self._tokenizer)
        if code != OK or error:
            self.unexplained.append(f"{case['name']}: specd {message!r}, llguidance {error!r}")
            return
        for _ in range(NUM_WALKS):
            self._walk(case)

    def _walk(self, case):
        theirs = LLMatcher(self._tokenizer, their_grammar(case))
        closing = self._rng.choice((0.0, 0.2, 0.6))
        ids = []
        for _ in range(MAX_STEPS):
            our_ids = self._probe.allowed(ids)
            mask = theirs.compute_bitmask()
            their_ids = {i for i in range(len(self._probe.tokens)) if mask[i // 8] >> (i % 8) & 1}
            self.num_masks += 1
            self._explain(case, ids, "specd", our_ids - their_ids)
            self._explain(case, ids, "llguidance", their_ids - our_ids)
            chosen = self._choose(our_ids & their_ids, closing)
            if chosen is None or chosen == self._probe.eos:
                return
            assert theirs.consume_token(chosen), theirs.get_error()
            ids.append(chosen)

    def _choose(self, ids, closing):
        if not ids:
            return None
        ends = [i for i in sorted(ids) if self._probe.tokens[i][:1] in (b'"', b"]", b"}")]
        return self._rng.choice(ends if ends and self._rng.random() < closing else sorted(ids))

    def _spell(self, ids):
        text = b"".join(self._probe.tokens[i] for i in ids if i != self._probe.eos)
        return text.decode("utf-8", "surrogateescape") + (EOS_TEXT if self._probe.eos in ids else "")

    def _explain(self, case, ids, side, extra):
        for extra_id in sorted(extra):
            text = self._spell(ids + [extra_id])
            for number, (entry, pattern) in enumerate(self._differences):
                if (entry["only"] == side and re.fullmatch(entry["case"], case["name"])
                        and pattern.fullmatch(text)):
                    self.used[number] += 1
                    break
            else:
                self.unexplained.append(f"{case['name']}: only {side} allows {text!r}, "
                                        f"token {self._probe.tokens[extra_id]!r}")


def main():
    cases = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
    differences = json.loads(pathlib.Path(sys.argv[3]).read_text(encoding="utf-8"))
    walks = Walks(GrammarProbe(sys.argv[1]), differences)
    for case in cases:
        walks.compare(case)
    print(f"seed {SEED}: {len(cases)} constraints, {walks.num_masks} masks compared, "
          f"{sum(walks.used)} tokens differ as {len(differences)} entries explain, "
          f"{len(walks.unexplained)} differ otherwise")
    shown = {}
    for line in walks.unexplained:
        name = line.split(":")[0]
        shown[name] = shown.get(name, 0) + 1
        if shown[name] <= 12:
            print(f"unexplained: {line[:400]}")
    unused = [entry for entry, used in zip(differences, walks.used) if not used]
    for entry in unused:
        print(f"explains nothing, remove it: {entry}")
    return 1 if walks.unexplained or unused else 0


if __name__ == "__main__":
    sys.exit(main())
