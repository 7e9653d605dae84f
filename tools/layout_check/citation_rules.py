"""Rules about citations: what a comment or a document points at has to be there.

Code cites the specification by number ("CONTRACT" and a section sign). It cites other documents by
the name of a heading (the path, a comma, the name in quotes). Documents link to files and headings,
and name files by their paths. Comments name files by their paths, or by their names alone.
"""

import ast
import io
import os
import posixpath
import re
import tokenize

from findings import Finding
from source_tree import line_of

CONTRACT = "docs/CONTRACT.md"
# History: it names things as they were called then. A decision or a measurement cites sections that
# are there, but the files that it speaks of may have moved.
NOT_CHECKED = ("CHANGELOG.md",)
PATHS_NOT_CHECKED = ("docs/decisions/", "docs/measurements/")

# Words of one citation may stand in two lines of a comment.
_GAP = r"[\s/*#]+"
_NUMBER = r"\d+(?:\.\d+)?"
_SIGN = re.compile(rf"§\s?({_NUMBER})")
_PLAIN_NUMBERS = re.compile(rf"\bCONTRACT{_GAP}({_NUMBER}(?:,{_GAP}{_NUMBER})*)")
_STEPS_OF = re.compile(rf"\bsteps?{_GAP}(\d+)(?:{_GAP}(?:to|and){_GAP}(\d+))?{_GAP}of{_GAP}"
                       rf"(?:CONTRACT{_GAP})?§\s?(\d+)")
_SECTION_STEP = re.compile(rf"\bCONTRACT{_GAP}§\s?(\d+),{_GAP}steps?{_GAP}(\d+)"
                           rf"(?:{_GAP}(?:to|and){_GAP}(\d+))?")
_BARE_STEP = re.compile(rf"\bCONTRACT,{_GAP}steps?{_GAP}\d+")
_CONTRACT_NAME = re.compile(rf'\bCONTRACT{_GAP}§\s?\d+,{_GAP}"([^"]+)"')

_DOCUMENT = re.compile(r"\bdocs/(?:[A-Z][A-Z_]*|decisions/\d[\w-]*)\.md\b")
_NAME = re.compile(rf'(?:\]\([^)\s]*\))?,{_GAP}"([^"]+)"')
_NEXT_NAME = re.compile(rf'(?:,|,?{_GAP}and){_GAP}"([^"]+)"')

_FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*?)[ \t]*$", re.MULTILINE)
_HEADING_NUMBER = re.compile(rf"({_NUMBER})\.?\s")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
_PATH = re.compile(r"`((?:\.\./)*[\w.-]+(?:/[\w.-]+)+\.(?:h|cc|cu|cuh|c|py|md))`")
# A comment writes a library's header, or a file of another project, in angle brackets, which say
# that it is not ours. A path may also begin with a slash, a variable or a wildcard: such a path is
# another program's.
_NAMED_FILE = re.compile(r"(?<![\w./~$}<*-])((?:\.\./)*(?:[\w-]+/)*[\w-]+"
                         r"\.(?:h|cc|cu|cuh|c|inc|py|md))(?![\w/*-]|\.\w)")


class _Document:
    """The headings of one Markdown file: their numbers, names and anchors."""

    def __init__(self, text):
        self.numbers = set()
        self.names = set()
        self.anchors = set()
        above = []  # Pairs of level and name, the enclosing headings.
        for match in _HEADING.finditer(_without_fences(text)):
            level, name = len(match[1]), match[2]
            number = _HEADING_NUMBER.match(name)
            if number:
                self.numbers.add(number[1])
                name = name[number.end():]
            above = [heading for heading in above if heading[0] < level]
            self.names.add(name)
            self.names.update(f"{heading[1]}: {name}" for heading in above)
            above.append((level, name))
            self._add_anchor(match[2])

    def _add_anchor(self, heading):
        anchor = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).replace(" ", "-")
        count = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", known) is not None
                    for known in self.anchors)
        self.anchors.add(f"{anchor}-{count}" if count else anchor)


def check_citations(files, paths):
    """`paths`: every path of the tree, of files that are no text too."""
    documents = {file.path: _Document(file.text) for file in files if file.path.endswith(".md")}
    folders = {folder for path in paths for folder in _folders_of(path)}
    names = {posixpath.basename(path) for path in paths}
    for file in files:
        if file.path in NOT_CHECKED:
            continue
        yield from _check_sections(file, documents.get(CONTRACT))
        yield from _check_names(file, documents, paths)
        if file.path.endswith(".md"):
            yield from _check_links(file, documents, paths | folders)
            yield from _check_paths(file, paths)
        yield from _check_comments(file, paths, names)


def _check_sections(file, contract):
    """Findings of sections, steps and names of docs/CONTRACT.md that are not there."""
    cited = [(match.start(), match[1]) for match in _SIGN.finditer(file.text)]
    for match in _PLAIN_NUMBERS.finditer(file.text):
        cited += [(match.start(), number) for number in re.findall(_NUMBER, match[1])]
    for match in _STEPS_OF.finditer(file.text):
        cited += [(match.start(), f"{match[3]}.{step}") for step in _steps(match[1], match[2])]
    for match in _SECTION_STEP.finditer(file.text):
        cited += [(match.start(), f"{match[1]}.{step}") for step in _steps(match[2], match[3])]
    for start, number in cited:
        if contract is None or number not in contract.numbers:
            yield Finding(file.path, line_of(file.text, start), "section",
                          f"{CONTRACT} has no section {number}: cite one that it has, or write it")
    for match in _BARE_STEP.finditer(file.text):
        yield Finding(file.path, line_of(file.text, match.start()), "section",
                      f"a step without its section of {CONTRACT}: cite both")
    for match in _CONTRACT_NAME.finditer(file.text):
        if contract is None or _joined(match[1]) not in contract.names:
            yield Finding(file.path, line_of(file.text, match.start()), "section",
                          f'{CONTRACT} has no heading "{_joined(match[1])}"')


def _check_names(file, documents, paths):
    """Findings of documents that are not there, and of headings that they do not have."""
    for match in _DOCUMENT.finditer(file.text):
        path = match[0]
        if path not in paths:
            yield Finding(file.path, line_of(file.text, match.start()), "section",
                          f"{path} does not exist")
            continue
        name = _NAME.match(file.text, match.end())
        while name:
            if _joined(name[1]) not in documents[path].names:
                yield Finding(file.path, line_of(file.text, name.start(1)), "section",
                              f'{path} has no heading "{_joined(name[1])}"')
            name = _NEXT_NAME.match(file.text, name.end())


def _check_links(file, documents, known):
    text = _without_fences(file.text)
    for match in _LINK.finditer(text):
        if _SCHEME.match(match[1]):
            continue
        target, _, anchor = match[1].partition("#")
        path = posixpath.normpath(posixpath.join(os.path.dirname(file.path), target)) \
            if target else file.path
        if path not in known:
            yield Finding(file.path, line_of(text, match.start()), "link",
                          f"{match[1]}: {path} does not exist")
        elif anchor and path in documents and anchor not in documents[path].anchors:
            yield Finding(file.path, line_of(text, match.start()), "link",
                          f"{match[1]}: {path} has no such heading")


def _check_paths(file, paths):
    """A path is one from the root, from the document's folder, or a user's name of a C header."""
    if file.path.startswith(PATHS_NOT_CHECKED):
        return
    text = _without_fences(file.text)
    for match in _PATH.finditer(text):
        here = posixpath.normpath(posixpath.join(os.path.dirname(file.path), match[1]))
        if not {match[1], here, f"ipc/include/{match[1]}"} & paths:
            yield Finding(file.path, line_of(text, match.start()), "link",
                          f"{match[1]} does not exist: write the path from the root")


def _check_comments(file, paths, names):
    """A comment's path is one from the root, from its folder, or a user's name of a C header."""
    for start, comment in _comments_of(file):
        for match in _NAMED_FILE.finditer(comment):
            path = match[1]
            if _DOCUMENT.fullmatch(path):
                continue  # _check_names has looked at it.
            here = posixpath.normpath(posixpath.join(os.path.dirname(file.path), path))
            known = {path, here, f"ipc/include/{path}"} & paths if "/" in path else path in names
            if not known:
                yield Finding(file.path, line_of(file.text, start + match.start()), "link",
                              f"{path} does not exist: write the path from the root, or a file of "
                              "another project in angle brackets")


def _comments_of(file):
    """Pairs of an offset and the text there: comments, and the docstrings of Python."""
    if file.is_code():
        yield from file.comments()
    elif file.path.endswith(".py"):
        starts = [0]
        for line in file.lines:
            starts.append(starts[-1] + len(line) + 1)
        for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
            if token.type == tokenize.COMMENT:
                yield starts[token.start[0] - 1] + token.start[1], token.string
        for node in ast.walk(ast.parse(file.text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body and \
                    ast.get_docstring(node, clean=False) is not None:
                text = node.body[0]
                yield starts[text.lineno - 1], file.text[starts[text.lineno - 1]:
                                                         starts[text.end_lineno]]


def _steps(first, last):
    return range(int(first), int(last or first) + 1)


def _joined(name):
    return re.sub(_GAP, " ", name)


def _without_fences(text):
    return _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _folders_of(path):
    parts = path.split("/")[:-1]
    return {"/".join(parts[:count]) for count in range(1, len(parts) + 1)} | {"."}
