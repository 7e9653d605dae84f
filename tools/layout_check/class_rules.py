"""The rule about classes: one name of a namespace is one class.

Two classes of one name in one namespace break C++'s one-definition rule. The linker keeps one of their
inline functions and of their template instances, and says nothing. A class that only one .cc file
needs stands in an anonymous namespace, where no other file's class is the same.
"""

import re

from findings import Finding
from source_tree import line_of

# A line of the preprocessor, with those that it continues on.
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_NAMESPACE = re.compile(r"\b(?:inline\s+)?namespace\b\s*([\w:]*)\s*$")
# What may stand between the keyword and the name: attributes, alignment, a macro of an attribute.
_CLASS = re.compile(r"\b(?:class|struct|union)\s+"
                    r"(?:alignas\s*\([^)]*\)\s*|[A-Z]+_[A-Z_]+\s+|\[\[[^\]]*\]\]\s*)*"
                    r"([A-Za-z_][\w:]*)\s*(?:final\s*)?(?::(?!:)[^;=]*)?$")
_LINKAGE = re.compile(r"\bextern\s*$")
_BREAK = re.compile(r"[{};]")


def check_classes(files):
    """Findings of each definition after the first of a name, where another file has that."""
    first = {}
    for file in files:
        if not file.is_code() or file.path.endswith(".c"):
            continue
        for name, offset in _classes_of(file):
            path = first.setdefault(name, file.path)
            if path != file.path:
                yield Finding(file.path, line_of(file.text, offset), "class",
                              f"{path} defines {name} too: give one of them another name, or put "
                              "it into an anonymous namespace")


def _classes_of(file):
    """Pairs of a class's whole name and its offset, without those that only this file can name."""
    text = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]),
                          file.without_comments_and_strings())
    scopes = []  # Of each open brace: the name that it adds, or None where names are the file's own.
    start = 0
    for match in _BREAK.finditer(text):
        if match[0] == "{":
            head = text[start:match.start()]
            scope = _scope_of(head)
            named = _CLASS.search(head)
            if named and scope and None not in scopes:
                yield "::".join(filter(None, [*scopes, scope])), start + named.start()
            scopes.append(scope)
        elif match[0] == "}" and scopes:
            scopes.pop()
        start = match.end()


def _scope_of(head):
    namespace = _NAMESPACE.search(head)
    if namespace:
        return namespace[1] or None
    if _LINKAGE.search(head):
        return ""
    named = _CLASS.search(head)
    return named[1] if named else None
