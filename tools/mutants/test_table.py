"""The table of the mutants: the test binaries, and for each file the binaries that look at it.

A binary is one test file of tests/kernels with its needs, or all of tests/speculative. The kernel
tests are compiled for the scalar and the emulated team alone: other tests compare the other teams
with these two, bit for bit.
"""

import dataclasses
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Binary:
    sources: tuple
    packages: tuple = ()  # of pkg-config, beside LIBRARIES
    sanitized: bool = False  # it reads what it must not without any other sign


LIBRARIES = ("-lboost_context", "-lfmt", "-lspdlog", "-pthread")

_COMMON = (
    "kernels/cpu/cpu_tile.cc", "kernels/cpu/spin_barrier.cc", "tests/main.cc",
    "tests/kernels/bodies/run_chain.cc",
    "tests/gpu/emulation/emulated_block.cc",
    "tools/oracle/oracle.cc", "tools/oracle/tree_oracle.cc",
    *(f"tests/support/{name}.cc" for name in ("chi_square", "rows")))
_ENUMERATION = ("kernels/bodies/enumeration", "kernels/bodies/tree_enumeration")
# A test file, and what it needs of tests/ beside _COMMON.
_KERNEL_TESTS = {
    "bodies/chain_cases_test": (),
    "bodies/distribution_test": (),
    "bodies/draft_test": (),
    "bodies/exact_test": _ENUMERATION,
    "bodies/far_rows_test": (),
    "bodies/gumbel_test": (),
    "bodies/lossy_test": (),
    "bodies/narrow_filters_test": (),
    "bodies/read_ahead_test": (),
    "bodies/resolve_test": ("support/round_case", "support/slot_rounds"),
    "bodies/row_cases_test": (),
    "bodies/row_steps_test": (),
    "bodies/sample_test": (),
    "bodies/score_test": (),
    "bodies/teams_test": (),
    "bodies/tiles_test": (),
    "bodies/tree_law_test": _ENUMERATION,
    "bodies/verify_test": (),
    "core/numerics_test": (),
    "core/philox_test": (),
    "warps/emulated_rounds_test": ("support/round_case", "kernels/cuda/run_round"),
    "warps/fallen_tasks_test": ("support/round_case", "kernels/cuda/run_round"),
    "warps/residual_pass_test": ("support/round_case", "kernels/cuda/run_round"),
    "warps/rough_mass_test": (),
    "warps/rows_behind_end_test": (),
    "warps/warp_arrays_test": (),
    "warps/warp_load_test": (),
}


def _sources_of(folder, pattern="*.cc"):
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).glob(pattern))


BINARIES = {
    path.rpartition("/")[2]: Binary(
        sources=(f"tests/kernels/{path}.cc", *(f"tests/{name}.cc" for name in needs), *_COMMON),
        sanitized=path == "warps/warp_load_test")
    for path, needs in _KERNEL_TESTS.items()
}
# Some tests run rounds on a backend, which may be CUDA's without its driver.
_NEED_NVCC = {"kernels/cuda/cuda_driver.cc", "kernels/cuda/driver_api_check.cc"}
_BACKENDS = (
    "kernels/answer_check.cc", "kernels/backend.cc", "kernels/backend_registry.cc", "kernels/process_backends.cc",
    *(f"kernels/cpu/{name}.cc" for name in (
        "chains_baseline", "cpu_backend", "cpu_tile", "spin_barrier", "worker_pool")),
    *(source for source in _sources_of("kernels/cuda") if source not in _NEED_NVCC))
# The records of decisions, and wide rows on several threads, are read from the CPU backend.
for _name in ("decision_test", "flat_cut_test"):
    BINARIES[_name] = Binary(
        sources=tuple(dict.fromkeys((
            f"tests/kernels/bodies/{_name}.cc", "tests/support/round_case.cc", *_COMMON,
            *_BACKENDS))),
        packages=("absl_status", "absl_statusor"))
BINARIES["speculative"] = Binary(
    sources=("tests/main.cc", *_sources_of("tests/speculative"),
             *_sources_of("speculative", "**/*.cc"), *_sources_of("detokenizer"),
             "tests/gpu/emulation/emulated_block.cc",
             "tests/gpu/driver/fake_gpu_driver.cc", "tests/gpu/driver/fake_gpu_launches.cc",
             "tests/support/grammar_reference.cc", "tests/support/rows.cc",
             "tests/support/scripted_backend.cc", "tools/oracle/oracle.cc",
             *_BACKENDS),
    packages=("absl_status", "absl_statusor", "absl_raw_hash_set", "absl_hash", "simdjson"))

# Only teams that no binary has compile these, so no test of a mutant could notice it.
OF_OTHER_TEAMS = frozenset({"kernels/bodies/edited_peaks.h"})

# The binary that is likely to notice a change of the file stands first.
_COVERING = {
    "kernels/bodies/argmax.h": ("distribution_test", "row_cases_test", "verify_test"),
    "kernels/bodies/best.h": ("score_test", "draft_test"),
    "kernels/bodies/block.h": ("exact_test", "verify_test", "chain_cases_test", "decision_test"),
    "kernels/bodies/chain_rows.h": ("exact_test", "verify_test", "chain_cases_test",
                                    "residual_pass_test", "far_rows_test", "decision_test"),
    "kernels/bodies/bracket_list.h": ("flat_cut_test",),
    "kernels/bodies/cut_estimate.h": ("flat_cut_test",),
    "kernels/bodies/cut_functions.h": ("row_cases_test", "narrow_filters_test"),
    "kernels/bodies/cut_search.h": ("narrow_filters_test", "row_cases_test",
                                    "sample_test"),
    "kernels/bodies/distribution.h": ("distribution_test", "row_cases_test", "row_steps_test",
                                      "verify_test", "draft_test"),
    "kernels/bodies/draft.h": ("draft_test",),
    "kernels/bodies/judge_place.h": ("exact_test", "verify_test", "chain_cases_test",
                                     "residual_pass_test", "decision_test"),
    "kernels/bodies/lossy_judge.h": ("lossy_test",),
    "kernels/bodies/narrow_list.h": ("narrow_filters_test",),
    "kernels/bodies/pauses.h": ("speculative",),
    "kernels/bodies/peaks.h": ("row_steps_test", "narrow_filters_test"),
    "kernels/bodies/place_look.h": ("verify_test", "emulated_rounds_test",
                                    "rows_behind_end_test"),
    "kernels/bodies/read_ahead.h": ("read_ahead_test", "narrow_filters_test",
                                    "residual_pass_test", "emulated_rounds_test",
                                    "rows_behind_end_test"),
    "kernels/bodies/residual.h": ("exact_test", "sample_test", "residual_pass_test"),
    "kernels/bodies/resolve.h": ("resolve_test",),
    "kernels/bodies/row.h": ("row_cases_test", "row_steps_test", "verify_test"),
    "kernels/bodies/sample.h": ("sample_test", "row_cases_test", "exact_test", "decision_test"),
    "kernels/bodies/sample_gumbel.h": ("gumbel_test",),
    "kernels/bodies/score.h": ("score_test",),
    "kernels/bodies/team.h": ("row_steps_test", "teams_test", "emulated_rounds_test"),
    "kernels/bodies/tiles.h": ("tiles_test", "exact_test", "distribution_test", "resolve_test"),
    "kernels/bodies/transform.h": ("draft_test",),
    "kernels/bodies/task_output.h": ("verify_test",),
    "kernels/bodies/tree_place.h": ("tree_law_test",),
    "kernels/bodies/tree_walk.h": ("tree_law_test",),
    "kernels/bodies/truncate.h": ("row_cases_test", "narrow_filters_test",
                                  "distribution_test"),
    "kernels/bodies/verify.h": ("verify_test", "exact_test", "chain_cases_test", "resolve_test",
                                "residual_pass_test"),
    "kernels/bodies/zero_step.h": ("decision_test",),
}


def binaries_for(path):
    """Their names, or none where the table does not know the file."""
    return ("speculative",) if path.startswith("speculative/") else _COVERING.get(path, ())
