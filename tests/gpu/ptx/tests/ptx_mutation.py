"""An operator finds lines of PTX where one small change makes a mutant.

The operators are those of a wrong kernel: a barrier or a fence less, a weaker atomic or one of another
scope, a shuffle with another mask or another lane, another operation, another comparison, a branch the other way, operands
in another order, an address or a number that is one off. This module runs nothing.
"""

import hashlib
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4, "tools",
                                "mutants"))

import mutation  # noqa: E402  (its folder is known from here on only)

_LINE = re.compile(r"^(?P<head>\s*(?:\{\s*)?(?P<guard>@!?%p\d+\s+)?)(?P<opcode>[a-z][\w.:]*)\s*"
                   r"(?P<operands>[^;]*);")

_ANOTHER = {
    "add": "sub", "sub": "add", "min": "max", "max": "min", "and": "or", "or": "and", "xor": "or",
    "shl": "shr", "shr": "shl", "mul": "add",
}
_COMPARISONS = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq",
                "lo": "ls", "ls": "lo", "hi": "hs", "hs": "hi",
                "ltu": "leu", "leu": "ltu", "gtu": "geu", "geu": "gtu", "equ": "neu", "neu": "equ"}


def _drop(parts):
    base = parts.opcode
    if base.startswith(("bar.", "barrier.", "fence.", "membar.")):
        return [""]
    return []


def _weaken(parts):
    if not parts.opcode.startswith(("atom.", "red.")) or ".acq_rel" not in parts.opcode:
        return []
    return [parts.text(opcode=parts.opcode.replace("acq_rel", order))
            for order in ("relaxed", "acquire", "release")]


def _scope(parts):
    """A strong access or a fence that reaches the threads of its block alone."""
    if ".gpu" in parts.opcode:
        return [parts.text(opcode=parts.opcode.replace(".gpu", ".cta"))]
    return [parts.text(opcode="membar.cta")] if parts.opcode == "membar.gl" else []


def _mask(parts):
    if not parts.opcode.startswith(("shfl.sync", "vote.sync", "redux.sync")):
        return []
    return [parts.text(operands=parts.operands[:-1] + [mask]) for mask in ("65535", "-2")]


def _lane(parts):
    """Another lane of a shuffle: one further, or its own."""
    if not parts.opcode.startswith("shfl.sync"):
        return []
    lane = parts.operands[2]
    return [parts.text(operands=parts.operands[:2] + [new] + parts.operands[3:])
            for new in ("0", "1", "2") if new != lane]


def _operation(parts):
    fields = parts.opcode.split(".")
    new = _ANOTHER.get(fields[0])
    if new is None or (fields[0] == "mul" and (fields[1] != "rn" or "f" not in fields[-1])):
        return []
    if fields[0] == "shl":
        fields[1:] = ["u" + fields[1][1:]]
    elif fields[0] == "shr":
        fields[1:] = ["b" + fields[1][1:]]
    elif fields[0] in ("and", "or", "xor") and fields[-1] == "pred" and new not in ("and", "or"):
        return []
    return [parts.text(opcode=".".join([new] + fields[1:]))]


def _comparison(parts):
    fields = parts.opcode.split(".")
    if fields[0] != "setp" or fields[1] not in _COMPARISONS:
        return []
    return [parts.text(opcode=".".join(["setp", _COMPARISONS[fields[1]]] + fields[2:]))]


def _branch(parts):
    if parts.opcode not in ("bra", "bra.uni") or not parts.guard:
        return []
    turned = parts.guard.replace("@!", "@") if "@!" in parts.guard else parts.guard.replace("@", "@!")
    return [parts.whole.replace(parts.guard, turned, 1)]


def _operands(parts):
    """Operands of sub, selp, and the factors and the sum of fma, in another order."""
    fields, operands = parts.opcode.split("."), parts.operands
    if fields[0] in ("selp", "sub", "shl", "shr") and len(operands) >= 3:
        if operands[1] == operands[2] or (fields[0] != "selp" and fields[0] != "sub"):
            return []
        return [parts.text(operands=[operands[0], operands[2], operands[1]] + operands[3:])]
    if fields[0] == "fma" and operands[1] != operands[3]:
        return [parts.text(operands=[operands[0], operands[3], operands[2], operands[1]])]
    return []


def _number(parts):
    """A number of a sum or a shift that is one more."""
    if parts.opcode.split(".")[0] not in ("add", "shl", "shr", "setp", "mad", "bfe", "shf"):
        return []
    changed = []
    for at, operand in enumerate(parts.operands[1:], 1):
        if re.fullmatch(r"-?\d+", operand):
            new = parts.operands[:at] + [str(int(operand) + 1)] + parts.operands[at + 1:]
            changed.append(parts.text(operands=new))
    return changed


def _store(parts):
    return [""] if parts.opcode.startswith(("st.global", "st.shared", "st.u", "st.v", "st.b", "st.f",
                                            "red.")) else []


def _address(parts):
    """A load or a store one element further."""
    if not parts.opcode.startswith(("ld.global", "ld.shared", "st.global", "st.shared", "ld.u", "ld.v",
                                    "ld.b", "ld.f")):
        return []
    width = int(re.search(r"\d+$", parts.opcode)[0]) // 8
    count = 4 if ".v4." in parts.opcode else 2 if ".v2." in parts.opcode else 1
    found = re.search(r"\[([^\]+]+)(?:\+(-?\d+))?\]", parts.whole)
    offset = int(found[2] or 0) + width * count
    return [parts.whole[:found.start()] + f"[{found[1]}+{offset}]" + parts.whole[found.end():]]


OPERATORS = {
    "barrier or fence dropped": _drop,
    "weaker atomic": _weaken,
    "scope": _scope,
    "mask": _mask,
    "lane": _lane,
    "operation": _operation,
    "comparison": _comparison,
    "branch": _branch,
    "order of operands": _operands,
    "number": _number,
    "store dropped": _store,
    "address": _address,
}


class Parts:
    """A statement: its guard, opcode and operands."""

    def __init__(self, line):
        self.whole = line
        found = _LINE.match(line)
        self.is_statement = found is not None and not line.lstrip().startswith((".", "//"))
        if not self.is_statement:
            return
        self.head, self.guard = found["head"], (found["guard"] or "").strip()
        self.opcode = found["opcode"]
        self.tail = line[found.end():]
        self.operands = _split(found["operands"])

    def text(self, opcode=None, operands=None):
        operands = self.operands if operands is None else operands
        return f"{self.head}{opcode or self.opcode} {', '.join(operands)};{self.tail}"


def _split(text):
    """Operands between commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "{[(") - (sign in "}])")
        if sign == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


class Mutant:
    """One line of a file that becomes another."""

    def __init__(self, path, line, operator, old, new):
        self.path, self.line, self.operator, self.old, self.new = path, line, operator, old, new
        # A later compilation may move lines; what is broken where counts.
        self.key = hashlib.sha256(f"{path}\0{line}\0{old}\0{new}".encode()).hexdigest()[:20]

    def text(self, lines):
        return lines[:self.line - 1] + [self.new] + lines[self.line:]

    def change(self):
        return f"{' '.join(self.old.split())}  ->  {' '.join(self.new.split()) or '(nothing)'}"


# Lines with these are few among the others, and are all looked at.
_RARE = re.compile(r"\b(?:bar|barrier|fence|membar|atom|red|shfl|vote|redux)\.")


def find_mutants(path, lines, numbers, seed, most_lines=1500):
    """Mutants of lines with these numbers, from 1 on: all that bring lanes or warps together, and
    so many of the others."""
    numbers = sorted(numbers)
    rare = [number for number in numbers if _RARE.search(lines[number - 1])]
    rest = sorted(set(numbers) - set(rare))
    rest = random.Random(f"{seed} {path}").sample(rest, min(most_lines, len(rest)))
    found = []
    for number in sorted(rare + rest):
        parts = Parts(lines[number - 1])
        if not parts.is_statement:
            continue
        for name, operator in OPERATORS.items():
            for new in dict.fromkeys(operator(parts)):
                found.append(Mutant(path, number, name, lines[number - 1], new))
    return found
