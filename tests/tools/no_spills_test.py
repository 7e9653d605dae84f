"""tools/cmake/no_spills.py, over what ptxas writes."""

import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "tools" / "cmake" / "no_spills.py"

# A kernel that calls Hot and Cold, as ptxas of CUDA 13.0 tells of them.
TOLD = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN5specd6KernelEv' for '{architecture}'
ptxas info    : Function properties for _ZN5specd6KernelEv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 4624 bytes cumulative stack size, 368 bytes smem
ptxas info    : Compile time = 9.1 ms
ptxas info    : Function properties for _ZN5specd4ColdEi
    1696 bytes stack frame, 296 bytes spill stores, 296 bytes spill loads
ptxas info    : Function properties for _ZN5specd3HotEi
    {frame} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
"""


def told(architecture="sm_90", frame=0, stores=0, loads=0):
    return TOLD.format(architecture=architecture, frame=frame, stores=stores, loads=loads)


def run(text, *names, code=0, flag="-Xptxas=-v", file="a/x.cu"):
    writes = f"import sys; sys.stderr.write({text!r}); print('out'); sys.exit({code})"
    return subprocess.run([sys.executable, PROGRAM, "a/x.cu", *names, "--", sys.executable, "-c",
                           writes, flag, "-c", file], capture_output=True, text=True)


class NoSpillsTest(unittest.TestCase):
    def test_functions_without_spills_pass_in_silence(self):
        result = run(told("sm_80") + told("sm_90"), "Kernel", "Hot")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "out\n", ""))

    def test_every_figure_of_every_architecture_counts(self):
        for figure in ("frame", "stores", "loads"):
            for architectures in (("sm_80", "sm_90"), ("sm_90", "sm_80")):
                bad, good = architectures
                with self.subTest(figure=figure, bad=bad):
                    result = run(told(bad, **{figure: 4}) + told(good), "Kernel", "Hot")
                    self.assertEqual(result.returncode, 1)
                    self.assertIn(f"Hot for {bad}: ", result.stderr)
                    self.assertNotIn(good, result.stderr)

    def test_a_function_that_is_not_there_is_an_error(self):
        for names in (("Kernel", "Other"), ("Ho",), ("ot",)):
            with self.subTest(names=names):
                result = run(told(), *names)
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"{names[-1]} for sm_90: ptxas does not tell of it", result.stderr)
        self.assertEqual(run(told("sm_80") + told("sm_90").replace("3Hot", "3Not"), "Hot").returncode,
                         1)
        self.assertEqual(run("", "Hot").returncode, 1)

    def test_what_the_compiler_says_stays(self):
        result = run("x.cu(3): warning: so\n" + told(), "Hot")
        self.assertEqual((result.returncode, result.stderr), (0, "x.cu(3): warning: so\n"))
        result = run("x.cu(3): error: so\n", "Hot", code=3)
        self.assertEqual((result.returncode, result.stderr), (3, "x.cu(3): error: so\n"))

    def test_other_files_are_not_looked_at(self):
        for flag in ("-Xptxas=-v", "-O2"):
            result = run(told(frame=8), "Hot", flag=flag, file="b/x.cu")
            self.assertEqual((result.returncode, result.stderr), (0, told(frame=8)))

    def test_the_file_is_not_compiled_without_the_flag(self):
        result = run(told(), "Hot", flag="-O2")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("a/x.cu is compiled without -Xptxas=-v", result.stderr)

    def test_wrong_usage(self):
        for arguments in ([], ["x.cu", "Hot"], ["--", "true"], ["x.cu", "--", "true"],
                          ["x.cu", "Hot", "--"]):
            with self.subTest(arguments=arguments):
                result = subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True)
                self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main()
