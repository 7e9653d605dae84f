"""xgrammar through its own Python package, as a peer of specd's grammar engine.

`specd-bench grammar --base=xgrammar` runs this program; tests/oracle/xgrammar_oracle.py has its
Peer. The package needs its own dependencies, torch among them.

One JSON object per line on stdin, one line of text on stdout. Bytes are written in hexadecimal digits.

  {"vocab_size": 512, "eos": 500, "tokens": ["61", ...]}   first of all; "" for a special token
  {"kind": "regex", "text": "5b302d395d2b", "ids": [48, 500]}   a constraint, and a text to follow:
       nothing, or a refusal, or "token 0 of 2 is forbidden by the mask"
  {"run": 0}   one run of the first: the us of its compilation, its masks, and these masks again
"""

import json
import sys
import time

import xgrammar

WHITESPACE_MAX = 64  # kWhitespaceMax of grammar_request.h; it is not xgrammar's default


class Peer:
    """Constraints of specd's kinds, compiled by xgrammar on one thread and without its cache."""

    def __init__(self, tokens, vocab_size, eos):
        self.vocab_size = vocab_size
        self.compiler = xgrammar.GrammarCompiler(
            xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=vocab_size,
                                   stop_token_ids=[eos]),
            max_threads=1, cache_enabled=False)

    def compile(self, kind, text):
        if kind in ("json", "json_object"):
            return self.compile_schema(text if kind == "json" else '{"type": "object"}')
        if kind == "regex":
            return self.compiler.compile_regex(text)
        if kind == "ebnf":
            return self.compiler.compile_grammar(text)
        if kind == "choice":
            return self.compiler.compile_grammar("root ::= " + " | ".join(
                json.dumps(choice, ensure_ascii=False) for choice in json.loads(text)))
        tag = json.loads(text)
        return self.compiler.compile_structural_tag(json.dumps(
            {"type": "structural_tag", "format": self.with_grammars(tag["format"])}))

    def compile_schema(self, text):
        # Strict mode would allow no member that is not declared.
        return self.compiler.compile_json_schema(text, strict_mode=False,
                                                 max_whitespace_cnt=WHITESPACE_MAX)

    def schema_ebnf(self, text):
        return str(xgrammar.Grammar.from_json_schema(text, strict_mode=False,
                                                     max_whitespace_cnt=WHITESPACE_MAX))

    def new_row(self):
        return xgrammar.allocate_token_bitmask(1, self.vocab_size)

    def with_grammars(self, value):
        """The format of a tag with each schema as its grammar: a schema there has no options."""
        if isinstance(value, list):
            return [self.with_grammars(each) for each in value]
        if not isinstance(value, dict):
            return value
        if value.get("type") == "json_schema":
            return {"type": "grammar", "grammar": self.schema_ebnf(json.dumps(value["json_schema"]))}
        return {name: self.with_grammars(each) for name, each in value.items()}


class Lane:
    """One text of a constraint, up to and with the stop id."""

    def __init__(self, peer, kind, text, ids):
        self._compile = lambda: peer.compile(kind, text)
        self._ids = ids
        self._row = peer.new_row()

    def check(self):
        """What is wrong, after every mask allowed the id that comes next: nothing."""
        try:
            matcher = xgrammar.GrammarMatcher(self._compile())
        except Exception as error:  # whatever the package raises is its refusal
            return str(error).strip().splitlines()[-1]
        for at, token in enumerate(self._ids):
            self._fill(matcher)
            if not int(self._row[0][token // 32]) >> token % 32 & 1:
                return f"token {at} of {len(self._ids)} is forbidden by the mask"
            if not matcher.accept_token(token):
                return f"token {at} of {len(self._ids)} is not accepted"
        return ""

    def run(self):
        compiled, *times_us = _timed(self._compile)
        matchers = [xgrammar.GrammarMatcher(compiled) for _ in range(2)]
        for matcher in matchers:
            for token in self._ids:
                times_us.append(_timed(self._fill, matcher)[1])
                assert matcher.accept_token(token)
        return " ".join(map(str, times_us))

    def _fill(self, matcher):
        # A mask that allows every id is not written.
        if not matcher.fill_next_token_bitmask(self._row):
            self._row.fill_(-1)


def _timed(work, *arguments):
    begin = time.perf_counter_ns()
    result = work(*arguments)
    return result, (time.perf_counter_ns() - begin) / 1000


def main():
    asked = json.loads(next(sys.stdin))
    peer = Peer([bytes.fromhex(token) for token in asked["tokens"]], asked["vocab_size"],
                asked["eos"])
    print("ready", flush=True)
    lanes = []
    for line in sys.stdin:
        asked = json.loads(line)
        if "run" in asked:
            print(lanes[asked["run"]].run(), flush=True)
        else:
            lanes.append(Lane(peer, asked["kind"], bytes.fromhex(asked["text"]).decode(),
                              asked["ids"]))
            print(lanes[-1].check(), flush=True)


if __name__ == "__main__":
    main()
