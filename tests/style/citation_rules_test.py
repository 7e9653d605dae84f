"""layout_check finds citations of sections, headings, links and files that are not there."""

import unittest

from layout_tree import HEADER, TreeTest, check

# Put together here, so that the check does not take a test's text for a citation.
SIGN, CITED, DOCUMENTS = "\u00a7", "CONT" "RACT", "do" "cs"


class CitationRulesTest(TreeTest):
    def test_sections_of_the_contract(self):
        good = (f"{CITED} {SIGN}3", f"{CITED} {SIGN}3.2", f"{CITED} 3.1", f"{SIGN}3 and {SIGN}4",
                f"{CITED} 3.1, 4", f"steps 1 to 2 of {CITED} {SIGN}3",
                f"{CITED} {SIGN}3, step 2", f"step 1 of\n// {SIGN}3", f'{CITED} {SIGN}4, "Exact"')
        bad = (f"{CITED} {SIGN}5", f"{CITED} {SIGN}3.3", f"{CITED} 3.3", f"{SIGN}3 and {SIGN}5",
               f"{CITED} 3.1, 5", f"steps 1 to 3 of {CITED} {SIGN}3", f"{CITED} 5",
               f"{CITED} {SIGN}3, step 3", f"{CITED}, step 2", f'{CITED} {SIGN}4, "Exactly"')
        for path in ("kernels/core/x.cc", "docs/x.md", "tools/x.cmake", "tools/setup"):
            for text in good:
                with self.subTest(path=path, text=text):
                    self.assert_clean(path, f"// {text}.\n")
            for text in bad:
                with self.subTest(path=path, text=text):
                    self.assert_finds("section", path, 1, f"// {text}.\n")
        findings, _ = check({"docs/x.md": f"see {CITED} {SIGN}3\n"}, removed=("docs/CONTRACT.md",))
        self.assertEqual(findings, [("section", "docs/x.md", 1)])

    def test_headings_of_other_documents(self):
        page = f"{DOCUMENTS}/ALGORITHMS.md"
        for text in (f'{page}, "Chains"', f'{page}, "Chains: block" and "A round on a GPU"',
                     f'{page}, "A round\n// on a GPU"', f'[{page}](ALGORITHMS.md), "block"', page):
            with self.subTest(text=text):
                self.assert_clean("docs/x.md", f"// {text}\n")
        for text in (f'{page}, "Trees"', f'{page}, "Chains" and "Trees"',
                     f'{page}, "block: Chains"', f'{page}, "Not a heading"', f"{DOCUMENTS}/GPU.md",
                     f"{DOCUMENTS}/decisions/001-a.md"):
            with self.subTest(text=text):
                self.assert_finds("section", "kernels/core/x.cc", 2, f"int a;\n// {text}\n")

    def test_links_and_paths_in_documents(self):
        self.assert_clean("docs/x.md", "[a](ALGORITHMS.md) [b](ALGORITHMS.md#a-round-on-a-gpu) "
                          "[c](../ipc/README.md) [d](../ipc) [e](https://example.org/a#b)\n"
                          "[f](ALGORITHMS.md#chains-1) [g](#here) `kernels/core/types.h` `x.h` "
                          "`specd/specd.h` `a/b` `--flag=a/b.h`\n"
                          "## Here\n```\n[&](int)(x) `no/such.h` [h](gone.md)\n```\n")
        self.assert_clean("kernels/README.md",
                          "# kernels\n`core/types.h` [x](../docs/ALGORITHMS.md)\n")
        for text in ("[a](GONE.md)", "[a](ALGORITHMS.md#trees)", "[a](#nowhere)", "[a](../gone/)",
                     "`kernels/core/gone.h`", "`core/types.h`"):
            with self.subTest(text=text):
                self.assert_finds("link", "docs/x.md", 2, f"# x\n{text}\n")
        self.assert_clean("CHANGELOG.md", "`kernels/core/gone.h`\n")
        for page in (f"{DOCUMENTS}/decisions/001-a.md", f"{DOCUMENTS}/measurements/2026-01-02-a.md"):
            self.assert_clean(page, "# a\n`kernels/core/gone.h`\n")
            self.assert_finds("link", page, 2, "# a\n[a](GONE.md)\n")

    def test_files_named_in_comments(self):
        for comment in ("kernels/core/types.h", "types.h", "specd/specd.h", "see (types.h)",
                        "../core/types.h", "<gone.h>", "$OUT/gone.cc", "/usr/include/gone.h",
                        "*_test.cc", "<tests/gone/gone.py>", "gone.html"):
            with self.subTest(comment=comment):
                self.assert_clean("kernels/core/x.cc", f"// {comment}\n/* {comment}, */ int a;\n"
                                  "const char* k = \"kernels/core/gone.h\";\n")
                self.assert_clean("kernels/core/x.py", f'"""{comment}"""\n# {comment}\n'
                                  "k = 'kernels/core/gone.h'\n")
        for path in ("kernels/core/gone.h", "gone.h", "core/types.h", "../types.h", "tests/gone.py",
                     "gone_test.cc", "notes/gone.md"):
            for text in (f"(see {path}).", f"{path}: a thing", f"of\n// {path}, or"):
                line = 2 + text.count("\n")
                with self.subTest(text=text):
                    self.assert_finds("link", "kernels/core/x.cc", line, f"int a;\n// {text}\n")
                    self.assert_finds("link", "kernels/core/x.py", line,
                                      "a = 1\n# " + text.replace("//", "#") + "\n")
        self.assert_finds("link", "kernels/core/x.h", 2, HEADER.replace("//\n", "// gone.h\n"))
        self.assert_finds("link", "tools/x.py", 4,
                          'def f():\n    """One.\n\n    See gone.h.\n    """\n')


if __name__ == "__main__":
    unittest.main()
