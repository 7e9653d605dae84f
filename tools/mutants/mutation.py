"""An operator finds places of a C++ text where one small change makes a mutant.

It reads code whose comments, strings, preprocessor lines and checks are blank, and so never changes
those. Offsets are those of the file. This module compiles nothing and runs nothing.
"""

import collections
import hashlib
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "layout_check"))

import source_tree  # noqa: E402  (its folder is known from here on only)

# A check says what a correct caller does, so a test that breaks it would break the contract.
_NOT_MUTATED = re.compile(
    r"(?m)^[ \t]*#(?:\\\n|[^\n])*|\b(?:static_assert|SPECD_CHECK)\s*\([^;]*\);")
# clang-format puts white space around a binary operator, and none around a template's brackets.
_RELATIONAL = re.compile(r"(?<=\s)(?:<=|>=|==|!=|<|>)(?=\s)")
_ARITHMETIC = re.compile(r"(?<=\s)(?:\+=|-=|[-+*/])(?=\s)")
_ONE_MORE_OR_LESS = re.compile(r"\s[-+] 1u?(?![\w.'])")
_LOGICAL = re.compile(r"(?<=\s)(?:&&|\|\|)(?=\s)")
_NEGATION = re.compile(r"(?<![\w)\]])!(?=[\w(*])")
_CONSTANT = re.compile(r"(?<![\w.'])(?:0(?=u?(?![\w.']))|true\b|false\b)")
_PURE_VIRTUAL = re.compile(r"\)(?:\s*(?:const|noexcept|override))*\s*=\s*$")
_NAME = r"\*?[A-Za-z_]\w*(?:(?:\.|->|::)\w+|\[[^\]\n]*\]|\(\))*"
_STATEMENT = re.compile(
    rf"(?:{_NAME} (?:[-+*/%|&^]|<<|>>)?=\s|{_NAME}\(|(?:\+\+|--){_NAME}(?=;)|return\b)[^;]*;"
    rf"|\b(?:break|continue);")
_STATEMENT_BEGINS = re.compile(r"\A\s*|[;{})]\s*|\belse\s+|\w:\s+")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\(")
_DECLARATION = re.compile(
    r"(?<![\w:.])((?:const )?[A-Za-z_][\w:]*(?:<[\w:<> ]+>)?[*&]*(?: const)?[ ]+[*&]*)([a-z]\w*)\b"
    r"(?=\s*[,;)=({])")
_NOT_TYPES = {"return", "else", "case", "new", "delete", "goto", "throw", "using", "typename"}
_SYMMETRIC = {"min", "max", "swap", "if", "while", "for", "switch", "sizeof"}

_RELATIONAL_NEW = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_ARITHMETIC_NEW = {"+": "-", "-": "+", "*": "/", "/": "*", "+=": "-=", "-=": "+="}
_CONSTANT_NEW = {"0": "1", "true": "false", "false": "true"}


class Mutant:
    """One change of one file: text[start:end] becomes new."""

    def __init__(self, path, text, operator, change):
        self.path, self.operator = path, operator
        self.start, self.end, self.new = change
        self.old = text[self.start:self.end]
        self.line = source_tree.line_of(text, self.start)
        digest = hashlib.sha256(text.encode())
        digest.update(f"\0{self.start}\0{self.end}\0{self.new}".encode())
        # Names the change and the text that it changes, so a later text has other keys.
        self.key = digest.hexdigest()[:20]

    def text(self, original):
        return original[:self.start] + self.new + original[self.end:]

    def change(self):
        return f"{_one_line(self.old)}  ->  {_one_line(self.new) or '(nothing)'}"


def _one_line(text):
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def mutable_code(path, text):
    code = source_tree.SourceFile(path, text).without_comments_and_strings()
    return _NOT_MUTATED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code)


def _replace_each(pattern, new_of):
    return lambda code: [(m.start(), m.end(), new_of[m[0]]) for m in pattern.finditer(code)]


def _arithmetic(code):
    removed = [(m.start(), m.end(), "") for m in _ONE_MORE_OR_LESS.finditer(code)]
    return _replace_each(_ARITHMETIC, _ARITHMETIC_NEW)(code) + removed


def _logical(code):
    dropped = [(m.start(), m.end(), "") for m in _NEGATION.finditer(code)]
    return _replace_each(_LOGICAL, {"&&": "||", "||": "&&"})(code) + dropped


def _constant(code):
    return [(m.start(), m.end(), _CONSTANT_NEW[m[0]]) for m in _CONSTANT.finditer(code)
            if not _PURE_VIRTUAL.search(code, max(0, m.start() - 80), m.start())]


def _statement(code):
    found = []
    for begin in _STATEMENT_BEGINS.finditer(code):
        match = _STATEMENT.match(code, begin.end())
        if match is not None and _is_balanced(match[0]):
            found.append((match.start(), match.end(), ";"))
    return found


def _is_balanced(text):
    open_ones = []
    for sign in re.findall(r"[()\[\]{}]", text):
        if sign in "([{":
            open_ones.append(sign)
        elif not open_ones or "([{".index(open_ones.pop()) != ")]}".index(sign):
            return False
    return not open_ones


def _swap(code):
    """Neighbouring arguments that are plain names, both declared in the file with one type."""
    types = collections.defaultdict(set)
    for match in _DECLARATION.finditer(code):
        if match[1].split()[0] not in _NOT_TYPES:
            types[match[2]].add(" ".join(match[1].split()))
    found = []
    for match in _CALL.finditer(code):
        if match[1] in _SYMMETRIC:
            continue
        arguments = _arguments(code, match.end())
        for (a, b), (c, d) in zip(arguments, arguments[1:]):
            left, right = code[a:b], code[c:d]
            is_same = len(types.get(left, ())) == 1 and types[left] == types.get(right)
            if left != right and is_same:
                found.append((a, d, right + code[b:c] + left))
    return found


def _arguments(code, begin):
    """The (begin, end) of each argument of a call, without the white space around it."""
    depth, start, parts = 0, begin, []
    for at in range(begin, len(code)):
        sign = code[at]
        if depth == 0 and sign in ",)":
            text = code[start:at]
            left = start + len(text) - len(text.lstrip())
            parts.append((left, left + len(text.strip())))
            start = at + 1
            if sign == ")":
                return parts
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == ";":
            break
    return []


OPERATORS = {
    "relational": _replace_each(_RELATIONAL, _RELATIONAL_NEW),
    "arithmetic": _arithmetic,
    "logical": _logical,
    "constant": _constant,
    "statement": _statement,
    "swap": _swap,
}


def find_mutants(path, text):
    code = mutable_code(path, text)
    return [Mutant(path, text, name, change) for name, find in OPERATORS.items()
            for change in sorted(set(find(code)))]


def choose(by_file, count, seed):
    """`count` mutants: evenly over the files, and within a file evenly over the operators, while
    they have some. A larger count begins with the same mutants."""
    queues = []
    for path in sorted(by_file):
        order = random.Random(f"{seed} {path}")
        by_operator = collections.defaultdict(list)
        for mutant in by_file[path]:
            by_operator[mutant.operator].append(mutant)
        for mutants in by_operator.values():
            order.shuffle(mutants)
        operators = list(by_operator.values())
        order.shuffle(operators)
        queues.append(_in_turn(operators))
    random.Random(f"{seed}").shuffle(queues)
    return _in_turn(queues)[:count]


def _in_turn(lists):
    longest = max(map(len, lists), default=0)
    return [items[i] for i in range(longest) for items in lists if i < len(items)]


NOTICED, SURVIVED, TIMED_OUT, NOT_COMPILED = "noticed", "survived", "timed out", "not compiled"
OUTCOMES = (NOTICED, SURVIVED, TIMED_OUT, NOT_COMPILED)


def score(outcomes):
    """noticed / (noticed + survived), or None. The other two outcomes say nothing of a test."""
    noticed, survived = outcomes.count(NOTICED), outcomes.count(SURVIVED)
    return noticed / (noticed + survived) if noticed + survived else None
