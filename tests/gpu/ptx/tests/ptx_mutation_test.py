"""The operators of ptx_mutation.py, the order of ptx_cases.py, and what coverage_test.py and ptx_suite.py
read, over short texts; and what mutants_test.py takes for noticed."""

import collections
import contextlib
import io
import pathlib
import tempfile
import types
import unittest

import coverage_test
import mutants_test
import ptx_cases
import ptx_mutation
import ptx_suite

LINES = """.func (.param .b32 r) _Z5OuteriPf(
.param .b32 p
)
{
\t.reg .pred \t%p<3>;
\tbar.warp.sync \t-1;
\t@%p1 bra \t$L__BB0_2;
\tsetp.lt.u32 \t%p1, %r1, 31;
\tsub.rn.f32 \t%f1, %f2, %f3;
\tshfl.sync.idx.b32 \t%r2|%p2, %r3, %r4, 31, -1;
\tld.v2.u32 \t{%r5, %r6}, [%rd1+8];
\tatom.acq_rel.gpu.add.s32 \t%r7, [%rd2], 1;
\tmov.u32 \t%r8, %r9;
\tst.global.u32 \t[%rd3], %r8;
\tfence.acq_rel.gpu;
\tmembar.gl;
\tst.relaxed.gpu.u32 \t[%rd3], %r8;
$L__BB0_2:
\tret;
}""".split("\n")


def changes(number):
    return {(mutant.operator, mutant.change().partition("  ->  ")[2])
            for mutant in ptx_mutation.find_mutants("x.ptx", LINES, [number], 1)}


class OperatorsTest(unittest.TestCase):
    def test_each_operator_breaks_its_lines_and_no_others(self):
        self.assertEqual(changes(6), {("barrier or fence dropped", "(nothing)")})
        self.assertEqual(changes(7), {("branch", "@!%p1 bra $L__BB0_2;")})
        self.assertEqual(changes(8), {("comparison", "setp.le.u32 %p1, %r1, 31;"),
                                      ("number", "setp.lt.u32 %p1, %r1, 32;")})
        self.assertEqual(changes(9), {("operation", "add.rn.f32 %f1, %f2, %f3;"),
                                      ("order of operands", "sub.rn.f32 %f1, %f3, %f2;")})
        self.assertEqual({name for name, _ in changes(10)}, {"lane", "mask"})
        self.assertIn(("mask", "shfl.sync.idx.b32 %r2|%p2, %r3, %r4, 31, 65535;"), changes(10))
        self.assertEqual(changes(11), {("address", "ld.v2.u32 {%r5, %r6}, [%rd1+16];")})
        self.assertEqual({(name, change.split()[0]) for name, change in changes(12)},
                         {("weaker atomic", "atom.relaxed.gpu.add.s32"),
                          ("weaker atomic", "atom.acquire.gpu.add.s32"),
                          ("weaker atomic", "atom.release.gpu.add.s32"),
                          ("scope", "atom.acq_rel.cta.add.s32")})
        self.assertEqual(changes(14), {("store dropped", "(nothing)"),
                                       ("address", "st.global.u32 [%rd3+4], %r8;")})
        self.assertEqual(changes(15), {("barrier or fence dropped", "(nothing)"),
                                       ("scope", "fence.acq_rel.cta ;")})
        self.assertEqual(changes(16), {("barrier or fence dropped", "(nothing)"),
                                       ("scope", "membar.cta ;")})
        self.assertEqual(changes(17), {("scope", "st.relaxed.cta.u32 [%rd3], %r8;")})
        for number in (1, 2, 4, 5, 13, 18, 19, 20):
            self.assertEqual(changes(number), set(), LINES[number - 1])

    def test_a_mutant_changes_one_line_and_has_a_key_of_its_own(self):
        mutants = ptx_mutation.find_mutants("x.ptx", LINES, range(1, len(LINES) + 1), 1)
        self.assertEqual(len({mutant.key for mutant in mutants}), len(mutants))
        for mutant in mutants:
            text = mutant.text(LINES)
            self.assertEqual([at for at in range(len(LINES)) if text[at] != LINES[at]], [mutant.line - 1])


class CoverageTest(unittest.TestCase):
    def test_lines_left_are_those_that_no_run_has_run(self):
        with tempfile.TemporaryDirectory() as folder:
            kernels = {}
            for at, left in enumerate(("; not: 6-9 14", "; not: 8-12")):
                path = pathlib.Path(folder) / f"{at}"
                path.write_text(f"x.ptx _Z5OuteriPf: 5 of 10 lines ran{left}\n")
                coverage_test.read_coverage(str(path), kernels)
                self.assertIn(9, ptx_suite._read_left(path)["x.ptx"])
            (kernel,) = kernels.values()
            self.assertEqual((kernel.num_lines, kernel.left), (10, {8, 9}))

    def test_an_entry_takes_lines_of_its_function_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.ptx"
            path.write_text("\n".join(LINES))
            functions = {"x.ptx": coverage_test.functions_of(str(path))}

            def apply(kind, word, kernel, counted=functions, most=2):
                entry = coverage_test.Entry("x.ptx", kind, most if kind == "rest" else None, [word])
                return coverage_test.apply(entry, [kernel], functions, counted)

            kernel = coverage_test.Kernel("x.ptx", "_Z5OuteriPf", 10, {8, 9, 99})
            self.assertEqual(apply("rest", "Inner", kernel), "names nothing")
            self.assertEqual(apply("whole", "Outer", kernel), "ran after all")
            kernel = coverage_test.Kernel("x.ptx", "_Z5OuteriPf", 10, {8, 9, 99})
            # Lines that are counted elsewhere are not this entry's.
            self.assertIsNone(apply("rest", "Outer", kernel, {}))
            self.assertEqual((kernel.left, kernel.num_unreachable), ({8, 9, 99}, 0))
            self.assertIsNone(apply("rest", "Outer", kernel))
            self.assertEqual((kernel.left, kernel.num_unreachable), ({99}, 2))
            self.assertEqual(apply("rest", "Outer", kernel), "names lines that have all run")
            kernel = coverage_test.Kernel("x.ptx", "_Z5OuteriPf", 10, {8, 9})
            self.assertEqual(apply("rest", "Outer", kernel, most=1), "has 2 lines left")


class NoticedTest(unittest.TestCase):
    def test_a_mutant_is_noticed_by_a_case_that_fails_and_by_nothing_else(self):
        """A case that did not end, and a module that the machine refused, counted as noticed."""
        for code, output, expected in (
                (0, "", False), (None, "", False), (1, "", True),
                (1, "ptx: x.ptx:6: bar.frob: unknown instruction\n", False),
                (1, "ptx: x.ptx:11: ld.v2.u32: a race; kernel Outer, lanes 00000001 of block 0\n", True)):
            suite = types.SimpleNamespace(lines={"x.ptx": LINES},
                                          run_changed=lambda *_, result=(code, output): result)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                noticed = mutants_test.Mutants(suite).is_noticed("barrier of a warp", "x", 6, "*")
            self.assertEqual(noticed, expected, (code, output))
            self.assertEqual(printed.getvalue().startswith("noticed"), expected)


class FakeSuite:
    """A suite of two cases, of which each leaves another line."""

    def __init__(self, folder, text):
        self.program, self.lines, self.num_runs = folder / "program", {"x.ptx": [text]}, 0
        self.program.write_text("program")

    def cases(self):
        return ["CUDA a, b", "CUDA c"]

    def lines_left(self, pattern):
        self.num_runs += 1
        return collections.defaultdict(set, {"x.ptx": {1} if pattern == "CUDA c" else {2, 3}})


class CasesTest(unittest.TestCase):
    def test_cases_are_measured_once_for_a_program_and_its_ptx(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            suite = FakeSuite(folder, "ret;")
            measured = ptx_cases.measure(suite, folder / "cases.json")
            kept = ptx_cases.measure(suite, folder / "cases.json")
            self.assertEqual(suite.num_runs, 2)
            self.assertEqual([(case.name, case.seconds, case.left) for case in kept],
                             [(case.name, case.seconds, case.left) for case in measured])
            other = FakeSuite(folder, "exit;")
            ptx_cases.measure(other, folder / "cases.json")
            self.assertEqual(other.num_runs, 2)

    def test_a_case_that_notices_more_in_a_second_comes_first_and_one_that_runs_no_line_never(self):
        cases = [ptx_cases.Case("slow", 9, {}), ptx_cases.Case("quick", 2, {}),
                 ptx_cases.Case("elsewhere", 1, {"x.ptx": {8}})]
        (mutant, *_) = ptx_mutation.find_mutants("x.ptx", LINES, [8], 1)
        order = ptx_cases.Order(cases)

        def names():
            return [case.name for case in order.cases_for(mutant)]

        self.assertEqual(names(), ["quick", "slow"])
        for _ in range(4):
            order.note("x.ptx", "slow")
            order.note("y.ptx", "quick")
        self.assertEqual(names(), ["slow", "quick"])


if __name__ == "__main__":
    unittest.main()
