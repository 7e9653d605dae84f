#!/usr/bin/env python3
"""layout_check: does the tree keep the rules that a reader relies on?

Fails on an #include against the arrows of docs/ARCHITECTURE.md, files that include each other, and
two classes of one name in one namespace. Fails also on a machine path, a host name, a note left in the
text, a header without a prologue, a folder without a README, and a citation of a section or file that
does not exist. Lists large files and functions without failing.
Exit status: 0 clean, 1 findings, 2 wrong usage.

  tools/layout_check/layout_check.py                 this repository
  tools/layout_check/layout_check.py --root FOLDER   another tree of the same shape
"""

import argparse
import os
import sys

import citation_rules
import class_rules
import folder_rules
import include_rules
import size_lists
import source_tree
import text_rules

RULES = {
    "include": "an #include or a kernel launch goes along the arrows",
    "circle": "no two files need each other",
    "class": "a name of a namespace is one class",
    "machine-path": "no path of one machine",
    "host": "no host but loopback, examples, papers and standards",
    "prologue": "a header opens with a paragraph and #pragma once",
    "readme": "a folder has a README.md",
    "note": "nothing is left for later in a comment",
    "section": "a cited section of docs/ exists",
    "link": "a linked or named file exists",
}


def check_tree(root):
    """Returns (number of files, findings, large files and functions)."""
    files = source_tree.read_tree(root)
    findings = list(folder_rules.check_folders(files))
    findings.extend(citation_rules.check_citations(files, source_tree.list_paths(root)))
    findings.extend(include_rules.check_circles(files))
    findings.extend(class_rules.check_classes(files))
    large = []
    for file in files:
        findings.extend(include_rules.check_includes(file))
        findings.extend(text_rules.check_text(file))
        large.extend(size_lists.list_large(file))
    return len(files), sorted(findings), sorted(large, key=lambda item: -item.num_lines)


def report(num_files, findings, large, colour):
    """Returns the report as text: a table of the rules, the findings, what is large."""
    red, green, plain = ("\033[31m", "\033[32m", "\033[0m") if colour else ("", "", "")
    lines = []
    width = max(len(rule) for rule in RULES)
    for rule, promise in RULES.items():
        count = sum(finding.rule == rule for finding in findings)
        paint = red if count else green
        lines.append(f"{paint}{rule:<{width}}  {count:>4}{plain}  {promise}")
    if large:
        lines.append("")
        lines.append("large, to be split when next touched (files over "
                     f"{size_lists.FILE_LINES_MAX} lines, functions over "
                     f"{size_lists.FUNCTION_LINES_MAX}):")
        lines.extend(f"{item.num_lines:>6}  {item.path}:{item.line} {item.what}" for item in large)
    if findings:
        lines.append("")
        lines.extend(f"{finding.path}:{finding.line}: {red}{finding.rule}{plain}: {finding.message}"
                     for finding in findings)
    state = f"{red}{len(findings)} to mend{plain}" if findings else f"{green}clean{plain}"
    lines.append("")
    lines.append(f"layout_check: {num_files} files, {state}")
    return "\n".join(lines)


def main(arguments):
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)),
                        help="the tree to check (default: this repository)")
    options = parser.parse_args(arguments)
    if not os.path.isdir(options.root):
        parser.error(f"--root: {options.root} is not a folder")
    num_files, findings, large = check_tree(options.root)
    print(report(num_files, findings, large, sys.stdout.isatty()))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
