"""specd's masks against llguidance's, token by token, on random walks over one small vocabulary.

Usage: llguidance_oracle.py SPECD_GRAMMAR_PROBE CASES DIFFERENCES

CASES holds constraints in both dialects. DIFFERENCES lists where the two may differ, with a reason
each (mask_walks.py).
"""

import json
import pathlib
import sys

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from grammar_probe import COMPACT, EBNF, JSON_SCHEMA, OK, REGEX, GrammarProbe
from mask_walks import MaskWalks

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


class Matcher:
    """What MaskWalks asks of a peer."""

    def __init__(self, tokenizer, grammar):
        self._matcher = LLMatcher(tokenizer, grammar)
        self._num_ids = tokenizer.vocab_size

    def allowed(self):
        mask = self._matcher.compute_bitmask()
        return {i for i in range(self._num_ids) if mask[i // 8] >> (i % 8) & 1}

    def accept(self, token):
        return self._matcher.consume_token(token)

    def is_unmasked(self, token):
        return False


def main():
    cases = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
    differences = json.loads(pathlib.Path(sys.argv[3]).read_text(encoding="utf-8"))
    probe = GrammarProbe(sys.argv[1])
    tokenizer = LLTokenizer(TokenizerWrapper(ByteTokens(probe.tokens, probe.eos)))
    walks = MaskWalks(probe, "llguidance", differences, seed=20260816, num_walks=25, max_steps=50)
    for case in cases:
        text = json.dumps(case["specd"]) if case["kind"] == "json_schema" else case["specd"]
        code, message = probe.compile(KINDS[case["kind"]], text, COMPACT)
        grammar = their_grammar(case)
        error = LLMatcher.validate_grammar(grammar, tokenizer)
        if code != OK or error:
            walks.refused(case["name"], message, error)
        else:
            walks.walk(case["name"], lambda: Matcher(tokenizer, grammar))
    return walks.report()


if __name__ == "__main__":
    sys.exit(main())
