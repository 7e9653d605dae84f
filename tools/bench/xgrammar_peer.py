"""xgrammar through its own Python package, as a peer of specd's grammar engine.

`specd-bench grammar --base=xgrammar` runs this program; tests/oracle/xgrammar_oracle.py has its
Peer. The package needs its own dependencies, torch among them.

One JSON object per line on stdin, one on stdout. Bytes are written in hexadecimal digits.

  {"vocab_size": 512, "eos": 500, "tokens": ["61", ...]}   first of all; "" for a special token
  {"kind": "regex", "text": "5b302d395d2b", "ids": [48, 500]}   a constraint, and a text to follow:
       {"bytes": 2312}, {"refused": "why"} or {"wrong": "token 0 of 2 is forbidden by the mask"}
  {"run": 0}   one run of the first that was neither refused nor wrong: its times in us, by case
"""

import json
import sys
import time

import xgrammar

DRAFT = 5  # GrammarReplay::kDraft
WHITESPACE_MAX = 64  # kWhitespaceMax of grammar_request.h; it is not xgrammar's default


class Peer:
    """Constraints of specd's kinds, compiled by xgrammar on one thread and without its cache."""

    def __init__(self, tokens, vocab_size, eos):
        self.vocab_size = vocab_size
        self._compiler = xgrammar.GrammarCompiler(
            xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=vocab_size,
                                   stop_token_ids=[eos]),
            max_threads=1, cache_enabled=False)

    def compile(self, kind, text, compact=False):
        if kind == "json_object":
            kind, text = "json", '{"type": "object"}'
        if kind == "json" and not compact:
            return self._compiler.compile_json_schema(text, strict_mode=False,
                                                      max_whitespace_cnt=WHITESPACE_MAX)
        if kind == "json":
            return self._compiler.compile_grammar(_schema_ebnf(text, compact))
        if kind == "regex":
            return self._compiler.compile_regex(text)
        if kind == "ebnf":
            return self._compiler.compile_grammar(text)
        if kind == "choice":
            return self._compiler.compile_grammar("root ::= " + " | ".join(
                json.dumps(choice, ensure_ascii=False) for choice in json.loads(text)))
        if kind == "structural_tag":
            return self._compiler.compile_structural_tag(json.dumps(_tag(json.loads(text), compact)))
        raise ValueError(f"{kind} is no kind of constraint")

    def new_row(self):
        return xgrammar.allocate_token_bitmask(1, self.vocab_size)


def _schema_ebnf(text, compact):
    """The schema as EBNF. Strict mode would allow no member that is not declared."""
    ebnf = str(xgrammar.Grammar.from_json_schema(
        text, any_whitespace=not compact, separators=(",", ":") if compact else None,
        strict_mode=False, max_whitespace_cnt=None if compact else WHITESPACE_MAX))
    if compact:
        # Values without a schema have xgrammar's own separators.
        for rule in ('basic_array_items ::= ((", "', 'basic_object_properties ::= ((", "'):
            ebnf = ebnf.replace("\n" + rule, "\n" + rule[:-2] + rule[-1])
    return ebnf


def _tag(tag, compact):
    """The tag in the newer form, with each schema as its grammar: a schema there has no options."""
    if "format" in tag:
        return {"type": "structural_tag", "format": _format(tag["format"], compact)}
    tags = [{"type": "tag", "begin": each["begin"], "end": each["end"],
             "content": _format({"type": "json_schema", "json_schema": each["schema"]}, compact)}
            for each in tag.get("structures", tag.get("tags"))]
    return {"type": "structural_tag", "format": {
        "type": "triggered_tags", "triggers": tag["triggers"], "tags": tags,
        "at_least_one": False, "stop_after_first": False}}


def _format(value, compact):
    if isinstance(value, list):
        return [_format(each, compact) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "json_schema":
        return {"type": "grammar", "grammar": _schema_ebnf(json.dumps(value["json_schema"]), compact)}
    return {name: _format(each, compact) for name, each in value.items()}


class Lane:
    """One text of a constraint, up to and with the stop id."""

    def __init__(self, peer, kind, text, ids):
        self._peer, self._kind, self._text, self._ids = peer, kind, text, ids
        self._row = peer.new_row()

    def check(self):
        """The bytes of the compiled grammar, after every mask allowed the id that comes next."""
        try:
            compiled = self._peer.compile(self._kind, self._text)
        except Exception as error:  # whatever the package raises is its refusal
            return {"refused": str(error).strip().splitlines()[-1]}
        matcher = xgrammar.GrammarMatcher(compiled)
        for at, token in enumerate(self._ids):
            self._fill(matcher)
            if not int(self._row[0][token // 32]) >> token % 32 & 1:
                return {"wrong": f"token {at} of {len(self._ids)} is forbidden by the mask"}
            if not matcher.accept_token(token):
                return {"wrong": f"token {at} of {len(self._ids)} is not accepted"}
        return {"bytes": compiled.memory_size_bytes}

    def run(self):
        times = {}
        compiled = _timed(times, "compile", self._peer.compile, self._kind, self._text)
        self._run_matcher(compiled, times)
        self._run_rounds(compiled, times)
        return times

    def _fill(self, matcher):
        # A mask that allows every id is not written.
        if not matcher.fill_next_token_bitmask(self._row):
            self._row.fill_(-1)

    def _run_matcher(self, compiled, times):
        first = xgrammar.GrammarMatcher(compiled)
        _timed(times, "first_mask", self._fill, first)
        times["cold_mask"] = list(times["first_mask"])
        for token in self._ids[:-1]:
            assert first.accept_token(token)
            _timed(times, "cold_mask", self._fill, first)
        second = xgrammar.GrammarMatcher(compiled)
        for token in self._ids:
            _timed(times, "warm_mask", self._fill, second)
            assert second.accept_token(token)

    def _run_rounds(self, compiled, times):
        matcher = xgrammar.GrammarMatcher(compiled)
        for at in range(0, len(self._ids) - DRAFT, DRAFT + 1):
            _timed(times, "round_k5", self._round, matcher, self._ids[at:at + DRAFT + 1])

    def _round(self, matcher, ids):
        self._fill(matcher)
        for token in ids[:DRAFT]:
            assert matcher.accept_token(token)
            self._fill(matcher)
        matcher.rollback(DRAFT)
        for token in ids:
            assert matcher.accept_token(token)


def _timed(times, case, work, *arguments):
    begin = time.perf_counter_ns()
    result = work(*arguments)
    times.setdefault(case, []).append((time.perf_counter_ns() - begin) / 1000)
    return result


def main():
    peer, lanes = None, []
    for line in sys.stdin:
        asked = json.loads(line)
        if "tokens" in asked:
            peer = Peer([bytes.fromhex(token) for token in asked["tokens"]], asked["vocab_size"],
                        asked["eos"])
            answer = {"ready": 1}
        elif "run" in asked:
            answer = lanes[asked["run"]].run()
        else:
            lane = Lane(peer, asked["kind"], bytes.fromhex(asked["text"]).decode(), asked["ids"])
            answer = lane.check()
            lanes += [lane] if "bytes" in answer else []
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
