"""layout_check finds two classes of one name in one namespace."""

import unittest

from layout_tree import HEADER, TreeTest, check

NAMED = "namespace specd {{\n{}\n}}  // namespace specd\n"


class ClassRulesTest(TreeTest):
    def findings_of(self, here, there):
        """The lines that are found if `here` and `there` are the texts of two files."""
        findings, _ = check({"daemon/a.cc": here, "tools/b.cc": there})
        self.assertLessEqual({finding[:2] for finding in findings}, {("class", "tools/b.cc")})
        return [line for _, _, line in findings]

    def test_two_classes_of_one_name(self):
        first = NAMED.format("struct Options {\n  int size = 0;\n};")
        for text in ("struct Options {};", "class Options final : public A<int>, private B {\n};",
                     "template <typename T>\nclass Options {};", "union Options { int a; };",
                     "class [[nodiscard]] Options {};", "struct alignas(kSize) Options {};",
                     "class ABSL_LOCKABLE Options {};"):
            with self.subTest(text=text):
                lines = self.findings_of(first, NAMED.format("int a;\n" + text))
                self.assertEqual(lines, [4 if text.startswith("template") else 3])
        self.assertEqual(self.findings_of(first, NAMED.format("class A {\n};\nstruct Options {};")),
                         [4])

    def test_two_headers(self):
        text = HEADER + NAMED.format("class Options {};")
        findings, _ = check({"daemon/a.h": text, "tools/a.h": text})
        self.assertEqual(findings, [("class", "tools/a.h", 7)])

    def test_nested_classes_and_namespaces(self):
        inner = NAMED.format("class Ring {\n  struct Entry { int a; };\n};")
        self.assertEqual(self.findings_of(inner, NAMED.format("struct Ring::Entry {};")), [2])
        self.assertEqual(self.findings_of(inner, NAMED.format("struct Entry {};")), [])
        self.assertEqual(self.findings_of(inner, NAMED.format("class Log {\n struct Entry {};\n};")),
                         [])
        self.assertEqual(self.findings_of(NAMED.format("namespace a {\nclass B {};\n}"),
                                          "namespace specd::a {\nclass B {};\n}\n"), [2])

    def test_classes_of_one_file_alone(self):
        first = NAMED.format("struct Options {};")
        for text in ("namespace {\nstruct Options {};\n}  // namespace",
                     "void F() {\n  struct Options {};\n}",
                     "auto f = [] { struct Options {}; };",
                     "namespace other {\nstruct Options {};\n}",
                     "struct Options;", "class Options* F() { return nullptr; }",
                     "// struct Options {}", 'const char* k = "struct Options {};";',
                     "#define X struct Options { \\\n  int a; }"):
            with self.subTest(text=text):
                self.assertEqual(self.findings_of(first, NAMED.format(text)), [])
        self.assertEqual(self.findings_of(NAMED.format("struct A {};\nstruct A<int> {};"), ""), [])


if __name__ == "__main__":
    unittest.main()
