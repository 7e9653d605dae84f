"""What tools/bench/xgrammar_peer.py asks of the package xgrammar, for a test of the bench without it.

Masks allow every id, JSON Schemas are refused, and the second mask of a regex forbids everything.
"""


class VocabType:
    RAW = 0


class TokenizerInfo:
    def __init__(self, tokens, vocab_type, vocab_size, stop_token_ids):
        assert vocab_type == VocabType.RAW and tokens[stop_token_ids[0]] == b"" and b"a" in tokens
        assert len(tokens) <= vocab_size


class Compiled:
    def __init__(self, is_wrong=False):
        self.is_wrong = is_wrong


class GrammarCompiler:
    def __init__(self, info, max_threads, cache_enabled):
        assert isinstance(info, TokenizerInfo) and max_threads == 1 and not cache_enabled

    def compile_grammar(self, ebnf):
        assert "root ::= " in ebnf
        return Compiled()

    def compile_regex(self, pattern):
        return Compiled(is_wrong=True)

    def compile_json_schema(self, schema, strict_mode, max_whitespace_cnt):
        raise RuntimeError("in a file:\nno schemas here")


class GrammarMatcher:
    def __init__(self, compiled):
        self.is_wrong, self.num_accepted = compiled.is_wrong, 0

    def fill_next_token_bitmask(self, row):
        if self.is_wrong and self.num_accepted == 1:
            row.fill_(0)
            return True
        return False

    def accept_token(self, token):
        self.num_accepted += 1
        return True


class Row(list):
    """A tensor of one row."""

    def fill_(self, word):
        self[0][:] = [word] * len(self[0])


def allocate_token_bitmask(num_rows, vocab_size):
    return Row([[0] * ((vocab_size + 31) // 32) for _ in range(num_rows)])
