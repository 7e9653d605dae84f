"""tools/cmake/keep_ptx.py and carry_ptx.py, over a compiler that writes what nvcc leaves with --keep."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "tools" / "cmake" / "keep_ptx.py"

# Notes its arguments. With --keep it leaves PTX for the architectures of --generate-code; with -ptx
# it writes what -o names. Any other file that nvcc leaves stands for all.
COMPILER = """#!{python}
import pathlib, re, subprocess, sys
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    print(*arguments, file=log)
if "fail" in arguments:
    sys.exit(3)
if "--keep" in arguments:
    folder = pathlib.Path(arguments[arguments.index("--keep-dir") + 1])
    (folder / "x.cpp1.ii").write_text("text")
    for argument in arguments:
        if found := re.match(r"--generate-code=arch=compute_(\\d+)", argument):
            text = "\\n".join([f"kept {{found[1]}}", *(a[4:].replace("_", "\\t") for a in arguments if a.startswith("ptx="))])
            (folder / f"x.compute_{{found[1]}}.ptx").write_text(text)
if "-ptx" in arguments:
    pathlib.Path(arguments[arguments.index("-o") + 1]).write_text("made")
elif "-c" in arguments:
    subprocess.run(["as", "-o", arguments[arguments.index("-o") + 1], "/dev/null"], check=True)
"""


class KeepPtxTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "log"
        self.object = self.folder / "x.o"
        self.compiler = self.folder / "nvcc"
        self.compiler.write_text(COMPILER.format(python=sys.executable, log=str(self.log)))
        self.compiler.chmod(0o755)

    def run_program(self, *arguments, archs="80,90"):
        return subprocess.run([sys.executable, PROGRAM, self.folder / "out", archs, "--", self.compiler,
                               *arguments], capture_output=True, text=True, check=False)

    def kept(self):
        return {str(path.relative_to(self.folder / "out")): path.read_text()
                for path in (self.folder / "out").rglob("*") if path.is_file()}

    def test_what_nvcc_makes_anyway_is_kept_and_nothing_else(self):
        result = self.run_program("-DX", "--generate-code=arch=compute_80,code=[sm_80]",
                                  "--generate-code=arch=compute_90,code=[compute_90,sm_90]", "-c",
                                  "a/x.cu", "-o", self.object)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(self.kept(), {"sm_80/x.ptx": "kept 80", "sm_90/x.ptx": "kept 90"})
        self.assertEqual(len(self.log.read_text().splitlines()), 1)

    @unittest.skipUnless(shutil.which("ccache"), "ccache is not installed")
    def test_an_object_out_of_the_cache_brings_its_ptx(self):
        (self.folder / "x.cu").write_text("int x;\n")
        (self.folder / "nvcc").write_text(self.compiler.read_text().replace(
            "if \"fail\"", "if \"-E\" in arguments: print(open(arguments[-1]).read()); sys.exit(0)\nif \"fail\""))
        for archs, compiled in ("80", 1), ("80", 1), ("80,90", 2), ("80,90", 2):
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            result = subprocess.run(
                [sys.executable, PROGRAM, self.folder / "out", archs, "--", "env", f"CCACHE_DIR={self.folder / 'cache'}",
                 "CCACHE_CONFIGPATH=/dev/null", "CCACHE_COMPILERCHECK=none", "ccache", self.compiler,
                 "--generate-code=arch=compute_80,code=[sm_80]", "--generate-code=arch=compute_90,code=[sm_90]",
                 "-c", self.folder / "x.cu", "-o", self.object],
                capture_output=True, text=True, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(self.kept(), {f"sm_{arch}/x.ptx": f"kept {arch}" for arch in archs.split(",")})
            self.assertEqual(self.log.read_text().count("--keep-dir"), compiled)

    def test_an_architecture_that_is_not_built_is_compiled_to_ptx_alone(self):
        result = self.run_program("-DX", "-O2", "--fmad=false", "-Xptxas=-v", "-MD", "-MT", "x.o", "-MF",
                                  "x.d", "--generate-code=arch=compute_90,code=[sm_90]", "-x", "cu",
                                  "-c", "a/x.cu", "-o", self.object)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(self.kept(), {"sm_80/x.ptx": "made", "sm_90/x.ptx": "kept 90"})
        again = self.log.read_text().splitlines()[1].split()
        self.assertEqual(again[:7], ["-DX", "-O2", "--fmad=false", "a/x.cu", "-arch=compute_80", "-ptx",
                                     "-o"])

    def test_float_operations_that_may_be_fused_are_an_error(self):
        def compile_with(*lines):
            return self.run_program("--generate-code=arch=compute_80,code=[sm_80]", *[f"ptx=_{line}" for line in lines],
                                    "-c", "a/x.cu", "-o", self.object, archs="80")
        for line in ("add.f32_%f1, %f2, %f3;", "@%p1_mul.ftz.f32_%f1, %f2, %f3;", "sub.f64_%fd1, %fd2, %fd3;",
                     "@!%p12_mad.f32_%f1, %f2, %f3, %f4;", "add.f16x2_%r1, %r2, %r3;",
                     "{add.f16_%rs1, %rs2, %rs3;", "mul.bf16x2_%r1, %r2, %r3;"):
            with self.subTest(line=line):
                result = compile_with("mov.u32_%r1, 0;", line)
                self.assertEqual(result.returncode, 1)
                self.assertIn("a/x.cu: PTX line 3: '" + line.replace("_", "\t"), result.stderr)
                self.assertEqual(self.kept(), {})
        result = compile_with("add.rn.f32_%f1, %f2, %f3;", "fma.rn.f32_%f1, %f2, %f3, %f4;", "add.s32_%r1, %r2, %r3;",
                              "mul.wide.s32_%rd1, %r2, 4;", "add.rz.f32_%f1, %f2, %f3;")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(list(self.kept()), ["sm_80/x.ptx"])

    def test_a_failure_of_the_compiler_is_passed_on(self):
        result = self.run_program("fail", "-c", "a/x.cu", "-o", self.object)
        self.assertEqual(result.returncode, 3)
        self.assertEqual(self.kept(), {})

    def test_other_calls_are_passed_on_as_they_are(self):
        self.assertEqual(self.run_program("-dlink", "x.o", "-o", "y.o").returncode, 0)
        self.assertEqual(self.log.read_text(), "-dlink x.o -o y.o\n")
        self.assertFalse((self.folder / "out").exists())

    def test_wrong_usage(self):
        for arguments in ([], ["out"], ["out", "80", "--"], ["out", "80", "nvcc", "--"]):
            with self.subTest(arguments=arguments):
                result = subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True,
                                        check=False)
                self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main()
