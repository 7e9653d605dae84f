"""Which files the check reads, and their text with comments or strings blanked.

Blanking keeps every line break and column, so a match in blanked text has the line number of the
file. Nothing here knows a rule.
"""

import os
import re
import subprocess

CODE_SUFFIXES = (".h", ".cuh", ".cc", ".cu", ".c")
HEADER_SUFFIXES = (".h", ".cuh")
TEXT_SUFFIXES = CODE_SUFFIXES + (
    ".inc", ".py", ".sh", ".cmake", ".in", ".md", ".txt", ".toml", ".yml", ".yaml", ".service",
)
TEXT_FILES = ("CMakePresets.json",)
# Not ours to word, or not worded at all.
NOT_OUR_TEXT = ("LICENSE", ".gitignore", ".clang-format")
IGNORED_FOLDERS = (".git", ".venv", ".cache", "build", "__pycache__")

# A comment, or a literal in which a comment sign means nothing. A quote after a hexadecimal digit
# is a digit separator.
_CODE_TOKEN = re.compile(
    r"(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)"
    r'|(?P<raw>R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")'
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    r"|(?P<character>(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+')",
    re.DOTALL,
)


class SourceFile:
    """One file of the tree: its path from the root, with slashes, and its text."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self._no_comments = None
        self._no_strings = None

    def is_code(self):
        return self.path.endswith(CODE_SUFFIXES)

    def is_header(self):
        return self.path.endswith(HEADER_SUFFIXES)

    def comments(self):
        """Pairs of a comment's offset and its text, signs included."""
        return [(match.start(), match[0]) for match in _CODE_TOKEN.finditer(self.text)
                if match["comment"]]

    def without_comments(self):
        """Raw strings go too: they hold whole lines, which may look like code."""
        if self._no_comments is None:
            self._no_comments = _CODE_TOKEN.sub(
                lambda match: _blank(match) if match["comment"] or match["raw"] else match[0],
                self.text,
            )
        return self._no_comments

    def without_comments_and_strings(self):
        if self._no_strings is None:
            self._no_strings = _CODE_TOKEN.sub(_blank, self.text)
        return self._no_strings


def _blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def read_tree(root):
    """All text files under root that belong to the project, sorted by path."""
    files = []
    for path in sorted(list_paths(root)):
        if not _is_text_path(path):
            continue
        full = os.path.join(root, path)
        if os.path.islink(full) or not os.path.isfile(full):
            continue
        with open(full, "rb") as file:
            data = file.read()
        try:
            files.append(SourceFile(path, data.decode("utf-8")))
        except UnicodeDecodeError:
            continue  # Binary data beside the sources, such as a fuzzer's corpus.
    return files


def _is_text_path(path):
    name = os.path.basename(path)
    if path in NOT_OUR_TEXT:
        return False
    # Scripts have no suffix; a file such as tools/setup or .ci/run is one.
    return name in TEXT_FILES or name.endswith(TEXT_SUFFIXES) or "." not in name


def list_paths(root):
    """The paths of all files under root that are not ignored, of whatever kind."""
    # In a checkout git knows what is ignored. A folder that merely lies inside one does not count.
    if os.path.exists(os.path.join(root, ".git")):
        listing = subprocess.run(
            ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
            capture_output=True, check=False,
        ) if _has_git() else None
        if listing is not None and listing.returncode == 0:
            return set(filter(None, listing.stdout.decode("utf-8").split("\0")))
    paths = set()
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in IGNORED_FOLDERS]
        for name in names:
            paths.add(os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/"))
    return paths


def _has_git():
    return any(
        os.access(os.path.join(folder, "git"), os.X_OK)
        for folder in os.environ.get("PATH", "").split(os.pathsep)
    )
