"""specd's masks against xgrammar's, token by token, on random walks over one small vocabulary.

Usage: xgrammar_oracle.py SPECD_GRAMMAR_PROBE

Run by hand, with a Python that has xgrammar 0.2.8 and what it needs, torch among it:
  python3 -m venv build/xgrammar && build/xgrammar/bin/pip install xgrammar==0.2.8
  build/xgrammar/bin/python tests/oracle/xgrammar_oracle.py build/default/tests/oracle/specd_grammar_probe
"""

import json
import pathlib
import sys

import xgrammar

from grammar_probe import COMPACT, FLEXIBLE, OK, GrammarProbe
from mask_walks import MaskWalks

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tools/bench"))
from xgrammar_peer import Peer  # noqa: E402

KINDS = {"json": 1, "json_object": 2, "regex": 3, "ebnf": 4, "choice": 5, "structural_tag": 6}


def newer_form(text):
    """A structural tag in the form that the package reads."""
    tag = json.loads(text)
    if "format" in tag:
        return text
    tags = [{"type": "tag", "begin": each["begin"], "end": each["end"],
             "content": {"type": "json_schema", "json_schema": each["schema"]}}
            for each in tag.get("structures", tag.get("tags"))]
    return json.dumps({"type": "structural_tag", "format": {
        "type": "triggered_tags", "triggers": tag["triggers"], "tags": tags,
        "at_least_one": False, "stop_after_first": False}})


class CompactPeer(Peer):
    """Schemas without white space, also for values that have none."""

    def compile_schema(self, text):
        return self.compiler.compile_grammar(self.schema_ebnf(text))

    def schema_ebnf(self, text):
        ebnf = str(xgrammar.Grammar.from_json_schema(text, any_whitespace=False,
                                                     separators=(",", ":"), strict_mode=False))
        # Values without a schema have xgrammar's own separators.
        for rule in ('basic_array_items ::= ((", "', 'basic_object_properties ::= ((", "'):
            ebnf = ebnf.replace("\n" + rule, "\n" + rule[:-2] + rule[-1])
        return ebnf


class Matcher:
    """What MaskWalks asks of a peer."""

    def __init__(self, compiled, row, num_ids):
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._row, self._num_ids = row, num_ids

    def allowed(self):
        if not self._matcher.fill_next_token_bitmask(self._row):
            return set(range(self._num_ids))
        words = [word & 0xffffffff for word in self._row[0].tolist()]
        return {i for i in range(self._num_ids) if words[i // 32] >> (i % 32) & 1}

    def accept(self, token):
        return self._matcher.accept_token(token)

    def is_unmasked(self, token):
        return self._matcher.fork().accept_token(token)


def main():
    cases = json.loads((HERE / "xgrammar_cases.json").read_text(encoding="utf-8"))
    differences = json.loads((HERE / "xgrammar_differences.json").read_text(encoding="utf-8"))
    probe = GrammarProbe(sys.argv[1])
    tokens = [b"" if i == probe.eos else token for i, token in enumerate(probe.tokens)]
    peers = [kind(tokens, len(tokens), probe.eos) for kind in (Peer, CompactPeer)]
    row = peers[0].new_row()
    walks = MaskWalks(probe, "xgrammar", differences, seed=20261124, num_walks=20, max_steps=40)
    for case in cases:
        compact = case.get("whitespace") != "flexible"
        is_tag = case["kind"] == "structural_tag"
        code, message = probe.compile(KINDS[case["kind"]], case["text"],
                                      COMPACT if compact else FLEXIBLE)
        try:
            compiled = peers[compact].compile(
                case["kind"], newer_form(case["text"]) if is_tag else case["text"])
        except RuntimeError as error:
            walks.refused(case["name"], message, str(error))
            continue
        if code != OK:
            walks.refused(case["name"], message, "")
            continue
        walks.walk(case["name"], lambda: Matcher(compiled, row, len(tokens)))
    return walks.report()


if __name__ == "__main__":
    sys.exit(main())
