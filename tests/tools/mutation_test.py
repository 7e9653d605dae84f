"""tools/mutants: what each operator changes and what none may change, the choice of a seed, the
score, and the outcomes of a toy header with a toy test, compiled for real.

The toy needs a compiler: SPECD_CXX, or c++.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MUTANTS = os.path.join(REPOSITORY, "tools", "mutants")
sys.dont_write_bytecode = True
sys.path.insert(0, MUTANTS)

import mutation  # noqa: E402  (its folder is known from here on only)
import test_builder  # noqa: E402
import test_table  # noqa: E402


def load_program(name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(MUTANTS, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def results_of(operator, text):
    """The texts that an operator makes of a text."""
    return [m.text(text) for m in mutation.find_mutants("a.h", text) if m.operator == operator]


class OperatorsTest(unittest.TestCase):
    def check(self, operator, text, results):
        self.assertCountEqual(results_of(operator, text), results)

    def test_relational(self):
        self.check("relational", "bool b = x < y;", ["bool b = x <= y;"])
        self.check("relational", "bool b = x >= y;", ["bool b = x > y;"])
        self.check("relational", "bool b = x == y != z;", ["bool b = x != y != z;",
                                                           "bool b = x == y == z;"])

    def test_brackets_shifts_and_arrows_are_no_relations(self):
        self.check("relational", "template <typename T> std::vector<int> F() { p->x << 2; }", [])

    def test_arithmetic(self):
        self.check("arithmetic", "x = a * b;", ["x = a / b;"])
        self.check("arithmetic", "x = a / b;", ["x = a * b;"])
        self.check("arithmetic", "x += b;", ["x -= b;"])

    def test_one_more_is_removed_or_flipped(self):
        self.check("arithmetic", "x = a + 1;", ["x = a - 1;", "x = a;"])
        self.check("arithmetic", "x = a - 1u;", ["x = a + 1u;", "x = a;"])
        self.check("arithmetic", "x = a + 1.5;", ["x = a - 1.5;"])

    def test_pointers_and_signs_are_no_arithmetic(self):
        self.check("arithmetic", "const int* p = &q; int& r = *p; f(-1, -x);", [])

    def test_logical(self):
        self.check("logical", "b = x && y || z;", ["b = x || y || z;", "b = x && y && z;"])
        self.check("logical", "b = !f(x);", ["b = f(x);"])
        self.check("logical", "void F(T&& t) { b = x != y; }", [])

    def test_constants(self):
        self.check("constant", "f(0, 0u, true);", ["f(1, 0u, true);", "f(0, 1u, true);",
                                                   "f(0, 0u, false);"])
        self.check("constant", "x = false;", ["x = true;"])
        self.check("constant", "x = 0.0f + 0x10 + 10 + a0 + 1'0;", [])
        self.check("constant", "virtual int F() const = 0;", [])

    def test_statements_are_dropped(self):
        self.check("statement", "{ x = 2; y.z[i + 1]->w |= f(x); }",
                   ["{ ; y.z[i + 1]->w |= f(x); }", "{ x = 2; ; }"])
        self.check("statement", "if (a) return b;", ["if (a) ;"])
        self.check("statement", "{ team.Sync(); ++n; break; }",
                   ["{ ; ++n; break; }", "{ team.Sync(); ; break; }", "{ team.Sync(); ++n; ; }"])
        self.check("statement", "else x =\n    2;", ["else ;"])

    def test_declarations_and_loop_heads_are_kept(self):
        self.check("statement", "int x = 2; const Cut a(b); for (int i = 0; i < n; i += 2) F;", [])
        self.check("statement", "using A = B;", [])
        self.check("statement", "Foo(int a) : a_(a) { }", [])

    def test_a_statement_ends_where_its_brackets_do(self):
        self.check("statement", "return F([&] { x = 2; });", ["return F([&] { ; });"])

    def test_arguments_of_one_type_are_swapped(self):
        head = "void F(int a, int b, float c);\n"
        self.check("swap", head + "G(a, b, c);", [head + "G(b, a, c);"])
        self.check("swap", head + "std::max(a, b); G(a + 1, b); G(b, c);", [])

    def test_comments_strings_macros_and_checks_are_not_touched(self):
        text = ('// x < y && z = 0;\n/* return 0;\n   x + 1 */\n#if A < 0\n'
                '#define F(x) \\\n  x + 1\n'
                'char* s = "a < b && 0"; char c = \'0\';\n'
                'SPECD_CHECK(a < 0 &&\n            b);\nstatic_assert(sizeof(A) <= 0);\n')
        self.assertEqual(mutation.find_mutants("a.h", text), [])

    def test_a_mutant_names_its_line_and_its_change(self):
        text = "int F() {\n  // x < y\n  return x < y;\n}\n"
        found = [m for m in mutation.find_mutants("a.h", text) if m.operator == "relational"]
        self.assertEqual([(m.line, m.change()) for m in found], [(3, "<  ->  <=")])


class ChoiceTest(unittest.TestCase):
    TEXT = "bool F(int x) { if (x < 3 && x > 1) return false; x = x + 2; return x == 0; }"

    def choose(self, count, seed, paths=("a.h", "b.h", "c.h")):
        by_file = {path: mutation.find_mutants(path, self.TEXT) for path in paths}
        return [(m.path, m.key) for m in mutation.choose(by_file, count, seed)]

    def test_a_larger_count_begins_with_the_same(self):
        self.assertEqual(self.choose(12, 5)[:7], self.choose(7, 5))

    def test_files_are_chosen_from_evenly_and_no_mutant_twice(self):
        chosen = self.choose(12, 5)
        self.assertEqual([sum(path == p for p, _ in chosen) for path in ("a.h", "b.h", "c.h")],
                         [4, 4, 4])
        self.assertEqual(len(set(chosen)), 12)

    def test_a_file_that_has_few_leaves_the_rest_to_others(self):
        by_file = {"a.h": mutation.find_mutants("a.h", self.TEXT),
                   "b.h": mutation.find_mutants("b.h", "bool b = x < y;")}
        chosen = mutation.choose(by_file, 6, 1)
        self.assertEqual([m.path for m in chosen].count("b.h"), 1)
        self.assertEqual(len(chosen), 6)

    def test_another_text_has_other_keys(self):
        keys = [{m.key for m in mutation.find_mutants("a.h", text)}
                for text in (self.TEXT, self.TEXT + "\n")]
        self.assertFalse(keys[0] & keys[1])


class TableTest(unittest.TestCase):
    def test_every_file_that_is_changed_by_default_has_tests_that_exist(self):
        for pattern in load_program("operators").DEFAULT_FILES:
            for path in pathlib.Path(REPOSITORY).glob(pattern):
                name = str(path.relative_to(REPOSITORY))
                names = test_table.binaries_for(name)
                self.assertEqual(bool(names), name not in test_table.OF_OTHER_TEAMS, path)
                self.assertLessEqual(set(names), set(test_table.BINARIES), path)

    def test_every_source_of_a_binary_exists(self):
        for binary in test_table.BINARIES.values():
            for source in binary.sources:
                self.assertTrue(os.path.isfile(os.path.join(REPOSITORY, source)), source)


class ListTest(unittest.TestCase):
    def test_every_mutant_of_the_list_fits_the_code(self):
        for mutant in load_program("run").read_list():
            self.assertNotEqual(mutant.text(), (pathlib.Path(REPOSITORY) / mutant.path).read_text())


# One mutant of each outcome: the test knows nothing of Unused, and Last loops on without its step.
TOY_HEADER = ("inline bool Less(int a, int b) { return a < b; }\n"
              "inline bool Unused(int a, int b) { return a < b; }\n"
              "inline int Last(int n) {\n  while (n != 7) {\n    ++n;\n  }\n  return n;\n}\n")
TOY_TEST = '#include "toy/toy.h"\nint main() { return Less(1, 1) || Last(3) != 7 ? 1 : 0; }\n'


class ToyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "toy").mkdir()
        (self.root / "toy" / "toy.h").write_text(TOY_HEADER)
        (self.root / "toy" / "toy_test.cc").write_text(TOY_TEST)
        self.operators = load_program("operators")
        binary = test_table.Binary(sources=("toy/toy_test.cc",))
        for target, name, value in (
                (test_builder, "ROOT", self.root), (self.operators, "ROOT", self.root),
                (test_table, "BINARIES", {"toy_test": binary}), (test_table, "LIBRARIES", ()),
                (test_table, "binaries_for", lambda path: ("toy_test",)),
                (test_builder, "CPU_SECONDS_MIN", 1)):
            patch = unittest.mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_program(self, *arguments):
        output = io.StringIO()
        with unittest.mock.patch.object(sys, "argv", [
                "operators", "--file", "toy/toy.h", "--cxx", os.environ.get("SPECD_CXX", "c++"),
                *arguments]), contextlib.redirect_stdout(output):
            code = self.operators.main()
        return code, output.getvalue()

    def test_outcomes_score_and_resuming(self):
        record = self.root / "record.jsonl"
        code, output = self.run_program("--count", "100", "--resume", str(record))
        self.assertEqual(code, 0, output)
        # Noticed: < in Less, != in Last. Survived: < in Unused. Late: Last without ++n. The three
        # functions do not compile without their returns.
        self.assertRegex(output, r"\nall +2 +1 +1 +3 +66\.7 %\n")
        self.assertIn("toy/toy.h:2  relational: <  ->  <=", output.partition("survivors:")[2])
        lines = record.read_text().splitlines()
        self.assertEqual(len(lines), 7)

        # An interrupted run leaves the rest to the next, an unfinished line included.
        record.write_text("\n".join(lines[:3]) + "\n" + lines[3][:20])
        code, again = self.run_program("--count", "100", "--resume", str(record), "--least", "0.7")
        self.assertEqual(code, 1, again)
        self.assertIn("3 of 7 mutants are in", again)
        self.assertEqual(again.count("  =>  "), 4)
        self.assertRegex(again, r"\nall +2 +1 +1 +3 +66\.7 %\n")

    def test_a_test_that_fails_without_a_mutant_ends_the_run(self):
        (self.root / "toy" / "toy_test.cc").write_text(TOY_TEST.replace("!= 7", "== 7"))
        with self.assertRaises(SystemExit) as end:
            self.run_program("--count", "1")
        self.assertIn("fails without a mutant", str(end.exception))


class ProgramTest(unittest.TestCase):
    def test_list_runs_nothing_and_is_the_same_each_time(self):
        program = os.path.join(MUTANTS, "operators")
        command = [sys.executable, "-B", program, "--list", "--count", "30"]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout
                for _ in range(2)]
        self.assertEqual(runs[0], runs[1])
        self.assertEqual(runs[0].count("  ->  "), 30)


if __name__ == "__main__":
    unittest.main()
