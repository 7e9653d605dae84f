// specd-bench gpu over a fake driver: everything except the device's speed.
#include <doctest/doctest.h>
#include <simdjson.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/mentions.h"
#include "tests/tools/gpu_suite_run.h"
#include "tools/bench/gpu_suite.h"
#include "tools/bench/output.h"
#include "tools/bench/round_check.h"

namespace specd::bench {
namespace {

std::string JsonOf(const Measurement& measurement) {
  Output out({.suite = "gpu", .command = "", .format = Format::kJson});
  out.Begin("Fake", "");
  return out.JsonOf(LineOf(measurement));
}

TEST_SUITE("unit") {
  TEST_CASE("specd-bench gpu: every case has the CPU's answers and is timed") {
    ProbedGpu gpu;
    gpu.devices[0].l2_bytes = 8000;
    gpu.round_us = 6;
    gpu.read_us = 4;
    const SuiteRun run = RunSuite(SmallFlags({"--dtype=bf16", "--batch=2"}), &gpu);
    CHECK(run.status.message() == "");
    REQUIRE(run.measurements.size() == GpuCases().size());
    for (size_t i = 0; i < run.measurements.size(); ++i) {
      const Measurement& m = run.measurements[i];
      CAPTURE(std::string(m.cell.verify_case->name));
      CHECK(m.cell.verify_case == &GpuCases()[i]);
      CHECK(m.ratio_of == "read");
      CHECK(m.time_us.median == doctest::Approx(6));
      CHECK(m.time_us.p99 == doctest::Approx(6));
      CHECK(m.base_us.median == doctest::Approx(4));
      CHECK(m.ratio == doctest::Approx(1.5));
      CHECK(m.time_us.num_samples >= 5);
      CHECK(m.base_gigabytes_per_s > 0);
      CHECK(m.rows_read >= 1);
      CHECK(m.num_checked > 0);
      CHECK(m.target == 0);  // one size alone has a target
    }
    CHECK(IsEmpty(gpu));
  }

  TEST_CASE("specd-bench gpu: rounds lie four caches apart, and a large one is alone with one") {
    for (const int64_t l2_bytes : {int64_t{1}, int64_t{100'000}}) {
      ProbedGpu gpu;
      gpu.devices[0].l2_bytes = l2_bytes;
      std::set<const Task*> rounds;
      gpu.after_round = [&](const RoundBatch& batch) { rounds.insert(batch.tasks); };
      const SuiteRun run = RunSuite(OnlyCase("greedy"), &gpu);
      CHECK(run.status.message() == "");
      REQUIRE(run.measurements.size() == 1);
      // A round has 3 x 3 rows of 5000 bytes: 4 x 100'000 bytes are 8.9 of them, or less than one.
      const int32_t num_rounds = l2_bytes == 1 ? 2 : 10;
      // All tokens of all rounds: greedy drafts are accepted.
      CHECK(run.measurements[0].num_checked == num_rounds * 9);
      CHECK(static_cast<int32_t>(rounds.size()) == num_rounds);
      CHECK(run.measurements[0].rows_read == doctest::Approx(3));
      CHECK(run.measurements[0].base_gigabytes_per_s == doctest::Approx(9 * 5000 / 4.0 / 1e3));
    }
  }

  TEST_CASE(
      "specd-bench gpu: an answer that differs from the CPU's is found before anything is timed") {
    for (const VerifyCase& known : GpuCases()) {
      CAPTURE(std::string(known.name));
      ProbedGpu gpu;
      gpu.after_round = [](const RoundBatch& batch) {
        const int32_t last = batch.num_tasks - 1;
        const int32_t at = last * batch.tokens_stride + batch.outcomes[last].num_accepted;
        batch.tokens[at] = (batch.tokens[at] + 1) % batch.target.vocab_size;
      };
      const SuiteRun run = RunSuite(OnlyCase(known.name), &gpu);
      CHECK(Mentions(run.status, known.name));
      CHECK(Mentions(run.status, "sequence 2"));
      CHECK(run.printed.empty());
      CHECK(gpu.num_graph_launches == 1);
      CHECK(IsEmpty(gpu));
    }
    ProbedGpu gpu;
    gpu.after_round = [](const RoundBatch& batch) { ++batch.outcomes[1].point_masses; };
    CHECK(Mentions(RunSuite(OnlyCase("greedy"), &gpu).status, "sequence 1"));
    // Spoils the fifth of the best five scores of sequence 0's last token.
    gpu.after_round = [](const RoundBatch& batch) {
      const int32_t last = batch.outcomes[0].num_tokens - 1;
      ++batch.scores[last * batch.scores_stride + 5].rank;
    };
    CHECK(Mentions(RunSuite(OnlyCase("logprobs5"), &gpu).status, "sequence 0: other scores"));
  }

  TEST_CASE("specd-bench gpu: a side channel holds what the drafter's row gives, at .8") {
    constexpr int32_t kVocabSize = 700;
    const RowSpec spec{.vocab_size = kVocabSize, .num_rows = 2 * 9};
    RowSpec drafter = spec;
    drafter.drafter = true;
    const RowPool targets(spec);
    const RowPool drafts(drafter);
    const RoundShape shape{.batch = 3, .draft = 2, .num_rounds = 2};
    const auto cpu = *MakeBackend("cpu");
    REQUIRE(cpu->Prepare({.vocab_size = kVocabSize, .max_batch = 3, .max_draft = 2}).ok());
    const auto set =
        RoundSet::Make(*FindCase(GpuCases(), "reject_side"), shape, targets, &drafts, cpu.get());
    REQUIRE(set.ok());
    for (int32_t round = 0; round < 2; ++round) {
      RoundAnswer answer = (*set)->MakeAnswer();
      REQUIRE(cpu->Run((*set)->Batch(round, &answer)).ok());
      for (int32_t s = 0; s < 3; ++s) {
        const Draft& draft = (*set)->task(round, s).draft;
        for (int32_t i = 0; i < 2; ++i) {
          const auto* const row =
              static_cast<const float*>(RowAt(drafts.view(), draft.draft_rows[i]).data);
          double sum = 0;
          for (int32_t id = 0; id < kVocabSize; ++id) sum += std::exp(double{row[id]} / 0.8);
          const double q = std::exp(double{row[draft.tokens[i]]} / 0.8) / sum;
          CHECK(double{draft.draft_weights[i]} / draft.draft_masses[i] ==
                doctest::Approx(q).epsilon(1e-5));
        }
        // One draft of each sequence is rejected: at place s mod 2, counted through the rounds.
        CHECK(answer.outcomes[static_cast<size_t>(s)].num_accepted == (3 * round + s) % 2);
      }
      // 0, 1, 0 or 1, 0, 1 accepted: one target row more than that and one draft row each.
      CHECK(NeededRows(**set, round, answer).size() == (round == 0 ? 7 : 8));
    }
  }

  TEST_CASE("specd-bench gpu: a round that writes no answer, or another one later on, is found") {
    ProbedGpu gpu;
    gpu.after_round = [&](const RoundBatch& batch) {
      if (gpu.num_launches > 4) batch.tokens[0] = 7;
    };
    const SuiteRun late = RunSuite(OnlyCase("greedy"), &gpu);
    CHECK_FALSE(late.status.ok());
  }

  TEST_CASE(
      "specd-bench gpu: every failure of the driver is an error that names it, and leaks nothing") {
    for (const char* call :
         {"Allocate", "AllocatePinned", "ToDevice", "Synchronize", "BeginCapture", "EndCapture",
          "LaunchRound", "LaunchRead", "LaunchGraph", "RecordEvent", "ElapsedUs"}) {
      // A measurement captures one graph.
      const bool is_once = std::string_view(call).ends_with("Capture");
      for (int after = 0; after < (is_once ? 1 : 2); ++after) {
        CAPTURE(call);
        ProbedGpu gpu;
        gpu.failing_call = call;
        gpu.failing_after = after;
        const SuiteRun run = RunSuite(OnlyCase("grammar"), &gpu);
        CHECK(run.status.code() == absl::StatusCode::kInternal);
        CHECK(Mentions(run.status, call));
        CHECK(IsEmpty(gpu));
      }
    }
  }

  TEST_CASE("specd-bench gpu: no device, no driver and no CUDA are no device") {
    ProbedGpu gpu;
    gpu.devices.clear();
    const auto no_probes = [](GpuDriver*) { return std::unique_ptr<GpuProbes>(); };
    for (const absl::Status& status :
         {OpenFirstGpu(nullptr, no_probes).status(), OpenFakeGpu(&gpu).status()}) {
      CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
      CHECK(Mentions(status, "no device"));
    }
    gpu = ProbedGpu();
    for (const char* call : {"UseDevice", "Load"}) {
      gpu.failing_call = call;
      gpu.failing_after = 0;
      CHECK(Mentions(OpenFakeGpu(&gpu).status(), call));
    }
  }

  TEST_CASE("specd-bench gpu: one sequence of the size that the design names has a time to meet") {
    const Flags flags =
        SmallFlags({"--dtype=bf16", "--case=greedy", "--vocab=128256", "--batch=1", "--draft=5"});
    ProbedGpu gpu;
    for (const double round_us : {9.0, 12.0}) {
      CAPTURE(round_us);
      gpu.round_us = round_us;
      const SuiteRun run = RunSuite(flags, &gpu);
      REQUIRE(run.measurements.size() == 1);
      const Measurement& cold = run.measurements[0];
      CHECK(cold.target_us == 9);
      CHECK(cold.target == 0);  // 64 sequences alone have a target
      CHECK(cold.goal().IsMet() == (round_us == 9));

      simdjson::dom::parser parser;
      const simdjson::dom::object object = parser.parse(JsonOf(cold)).get_object();
      CHECK(double(object["target_us"]) == 9);
      CHECK(bool(object["met"]) == (round_us == 9));
      CHECK(object["target"].error() != simdjson::SUCCESS);
    }
    CHECK(FindCase(GpuCases(), "one_hot")->targets.gpu_us == 12);
  }

  TEST_CASE("specd-bench gpu: a JSON line says what was measured, where and in which state") {
    ProbedGpu gpu;
    const SuiteRun run = RunSuite(OnlyCase("reject_side"), &gpu);
    REQUIRE(run.measurements.size() == 1);
    simdjson::dom::parser parser;
    for (const Measurement& measurement : run.measurements) {
      const simdjson::dom::object object = parser.parse(JsonOf(measurement)).get_object();
      const auto text = [&](const char* name) {
        return std::string(std::string_view(object[name].get_string()));
      };
      CHECK(text("suite") == "gpu");
      CHECK(text("case") == "reject_side");
      CHECK(text("dtype") == "bf16");
      CHECK(text("state") == "cold");
      CHECK(text("ratio_of") == "read");
      CHECK(text("processor") == "Fake");
      CHECK(double(object["median"]) == doctest::Approx(6));
      CHECK(double(object["base_median"]) == doctest::Approx(4));
      CHECK(object["threads"].error() != simdjson::SUCCESS);  // the field belongs to a CPU
    }
  }
}

}  // namespace
}  // namespace specd::bench
