"""Rules about what stands in a file: machine paths, hosts, notes, header prologues."""

import re

from findings import Finding
from source_tree import line_of

# A path that exists on somebody's machine only. It must begin there: docs/work/ and ${folder}/tmp/
# are other paths, while ipc:// is followed by a whole one.
_MACHINE_PATH = re.compile(
    r"(?:(?<![A-Za-z0-9_.\-/}])|(?<=://))"
    r"/(?:(?:work|root|workspace)(?![A-Za-z0-9_\-])|(?:home|Users|tmp|mnt)/(?=[A-Za-z0-9_\-$]))"
    r"[^\s\"'`)>,;]*"
)

# No host follows inproc:// or unix://.
_URL = re.compile(r"\b(?:https?|wss?|tcp|udp|ssh|git|s?ftp|grpc)://"
                  r"(?:[^\s/@]*@)?(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9*][A-Za-z0-9_.\-]*)")
# Allowed are loopback, names for any host, and the addresses and names that RFC 5737 and RFC 2606
# keep for examples. The sites of papers, standards and code are allowed too.
_ALLOWED_HOST = re.compile(
    r"^(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1?\]|\*|HOST|host|[a-z]"
    r"|192\.0\.2\.\d+|198\.51\.100\.\d+|203\.0\.113\.\d+"
    r"|(?:[a-z0-9\-]+\.)*(?:example(?:\.com|\.org|\.net)?|invalid|test"
    r"|github\.com|arxiv\.org|doi\.org|aclanthology\.org|openreview\.net|apache\.org|unicode\.org"
    r"|json-schema\.org|rfc-editor\.org|zeromq\.org|msgpack\.org|prometheus\.io|keepachangelog\.com"
    r"|semver\.org|no-color\.org|kernel\.org|man7\.org|w3\.org))$"
)
_PRIVATE_ADDRESS = re.compile(
    r"(?<![\d.])(?:10(?:\.\d{1,3}){3}|192\.168(?:\.\d{1,3}){2}"
    r"|172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2})(?![\d.])"
)
_REGISTRY = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|deb\.debian\.org|archive\.ubuntu\.com|registry\.npmjs\.org"
    r"|static\.crates\.io|index\.crates\.io|proxy\.golang\.org|docker\.io|ghcr\.io|quay\.io"
    r"|huggingface\.co|conda\.anaconda\.org)\b"
)
_NOTE = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")


def check_text(file):
    yield from _check_words(file)
    if file.is_header():
        yield from _check_header(file)


def _check_words(file):
    for number, line in enumerate(file.lines, start=1):
        for match in _MACHINE_PATH.finditer(line):
            yield Finding(file.path, number, "machine-path",
                          f"{match[0]} exists on one machine only: take it from an argument, the "
                          "build folder or a temporary folder made at run time")
        for match in _URL.finditer(line):
            if not _ALLOWED_HOST.match(match["host"].rstrip(".")):
                yield Finding(file.path, number, "host",
                              f"{match['host']} is not a host this repository speaks of: drop it, "
                              "use localhost or example.org, or allow it in text_rules.py if it "
                              "holds a paper or a standard")
        for pattern in (_PRIVATE_ADDRESS, _REGISTRY):
            for match in pattern.finditer(line):
                yield Finding(file.path, number, "host",
                              f"{match[0]} belongs to a network or a package registry: leave it to "
                              "the user's configuration")
        for match in _NOTE.finditer(line):
            yield Finding(file.path, number, "note",
                          f"{match[0]}: do it, or write down in docs/ what is missing and why")


def _check_header(file):
    c_header = file.path.startswith("ipc/include/")
    guard = re.search(r"^[ \t]*#[ \t]*(pragma[ \t]+once|ifndef[ \t]+\w+_H_?)\b", file.text,
                      re.MULTILINE)
    if guard is None or (not c_header and not guard[1].startswith("pragma")):
        yield Finding(file.path, 1, "prologue", "no #pragma once: add it after the first paragraph")
        before = file.lines
    else:
        before = file.lines[: line_of(file.text, guard.start(1)) - 1]
    if c_header:
        comment = re.match(r"/\*.*?\*/", "\n".join(before), re.DOTALL)
        num_lines = len([line for line in comment[0].split("\n") if line.strip("/* \t")]) \
            if comment else 0
    else:
        num_lines = 0
        for line in before:
            if not line.startswith("//"):
                break
            num_lines += 1 if line.strip("/ \t") else 0
    if num_lines < 2:
        yield Finding(file.path, 1, "prologue",
                      "a header opens with a comment of at least two lines: what it is, when to "
                      "use it, thread safety")
