// specd-bench gpu over a fake driver: everything except the device's speed.
#include <doctest/doctest.h>
#include <simdjson.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/tools/gpu_suite_run.h"
#include "tools/bench/gpu_suite.h"
#include "tools/bench/output.h"
#include "tools/bench/round_check.h"

namespace specd::bench {
namespace {

// The tables of a run, for people.
std::string Printed(const SuiteRun& run) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  Output out({.suite = "gpu", .command = "", .format = Format::kTable, .out = file});
  for (const Measurement& measurement : run.measurements) Print(measurement, &out);
  out.End();
  REQUIRE(std::fclose(file) == 0);
  std::string printed(text, size);
  std::free(text);
  return printed;
}

std::string JsonOf(const Measurement& measurement) {
  Output out({.suite = "gpu", .command = "", .format = Format::kJson});
  out.Begin("Fake", "");
  return out.JsonOf(LineOf(measurement));
}

TEST_SUITE("unit") {
  TEST_CASE("specd-bench gpu: every case has the CPU's answers and is timed cold and warm") {
    ProbedGpu gpu;
    gpu.devices[0].l2_bytes = 8000;
    gpu.round_us = 6;
    gpu.read_us = 4;
    VerifyOptions options = SmallOptions();
    options.dtypes = {DType::kBFloat16};
    options.batches = {2};
    const SuiteRun run = RunSuite(options, &gpu);
    CHECK(run.status.message() == "");
    REQUIRE(run.measurements.size() == 2 * GpuCases().size());
    for (size_t i = 0; i < run.measurements.size(); ++i) {
      const Measurement& m = run.measurements[i];
      CAPTURE(std::string(m.case_name));
      CHECK(m.case_name == GpuCases()[i / 2].name);
      CHECK(m.cold == (i % 2 == 0));
      CHECK(m.ratio_of == "read");
      CHECK(m.time_us.median == doctest::Approx(6));
      CHECK(m.time_us.p99 == doctest::Approx(6));
      CHECK(m.base_us.median == doctest::Approx(4));
      CHECK(m.ratio == doctest::Approx(1.5));
      CHECK(m.time_us.num_samples >= 5);
      CHECK(m.base_gigabytes_per_s > 0);
      CHECK(m.num_checked > 0);
      CHECK(m.target == 0);  // one size alone has a target
      CHECK(m.whole_us.num_samples >= 5);
      CHECK(m.whole_us.median > 0);
    }
    CHECK(IsEmpty(gpu));
  }

  TEST_CASE(
      "specd-bench gpu: cold rounds lie four caches apart, and a large one is alone with one") {
    for (const int64_t l2_bytes : {int64_t{1}, int64_t{100'000}}) {
      ProbedGpu gpu;
      gpu.devices[0].l2_bytes = l2_bytes;
      std::set<const Task*> rounds;
      gpu.after_round = [&](const RoundBatch& batch) { rounds.insert(batch.tasks); };
      const SuiteRun run = RunSuite(OnlyCase("greedy"), &gpu, [&] { gpu.after_round = nullptr; });
      CHECK(run.status.message() == "");
      REQUIRE(run.measurements.size() == 2);
      // A round has 3 x 3 rows of 5000 bytes: 4 x 100'000 bytes are 8.9 of them, or less than one.
      const int32_t num_rounds = l2_bytes == 1 ? 2 : 10;
      // All tokens of all rounds: greedy drafts are accepted.
      CHECK(run.measurements[0].num_checked == num_rounds * 9);
      CHECK(static_cast<int32_t>(rounds.size()) == num_rounds);
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
      CHECK(run.measurements.empty());
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
    CHECK(Mentions(RunSuite(OnlyCase("logprobs5"), &gpu).status, "sequence 0, place 2, score 5"));
  }

  TEST_CASE("specd-bench gpu: a side channel holds what the drafter's row gives, at .8") {
    constexpr int32_t kVocabSize = 700;
    const RowSpec spec{.vocab_size = kVocabSize, .num_rows = 2 * 9};
    RowSpec drafter = spec;
    drafter.drafter = true;
    const absl::StatusOr<RowPool> targets = RowPool::Make(spec);
    const absl::StatusOr<RowPool> drafts = RowPool::Make(drafter);
    REQUIRE(targets.ok());
    REQUIRE(drafts.ok());
    const RoundShape shape{.batch = 3, .draft = 2, .num_rounds = 2};
    const auto cpu = *MakeBackend("cpu");
    REQUIRE(cpu->Prepare({.vocab_size = kVocabSize, .max_batch = 3, .max_draft = 2}).ok());
    const auto set =
        RoundSet::Make(*FindCase(GpuCases(), "reject_side"), shape, *targets, &*drafts, cpu.get());
    REQUIRE(set.ok());
    for (int32_t round = 0; round < 2; ++round) {
      RoundAnswer answer = (*set)->MakeAnswer();
      REQUIRE(cpu->Run((*set)->Batch(round, &answer)).ok());
      for (int32_t s = 0; s < 3; ++s) {
        const Draft& draft = (*set)->task(round, s).draft;
        for (int32_t i = 0; i < 2; ++i) {
          const auto* const row =
              static_cast<const float*>(RowAt(drafts->view(), draft.draft_rows[i]).data);
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
      if (gpu.num_launches > 60) batch.tokens[0] = 7;
    };
    const SuiteRun late = RunSuite(OnlyCase("greedy"), &gpu);
    CHECK_FALSE(late.status.ok());
  }

  TEST_CASE(
      "specd-bench gpu: every failure of the driver is an error that names it, and leaks nothing") {
    for (const char* call :
         {"Allocate", "AllocatePinned", "ToDevice", "Synchronize", "BeginCapture", "EndCapture",
          "LaunchRound", "LaunchRead", "LaunchGraph", "CreateEvent", "RecordEvent", "ElapsedUs"}) {
      for (const int after : {0, 1}) {
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
    VerifyOptions options = OnlyCase("greedy");
    options.vocab_sizes = {128256};
    options.batches = {1};
    options.drafts = {5};
    ProbedGpu gpu;
    for (const double round_us : {6.0, 9.0}) {
      CAPTURE(round_us);
      gpu.round_us = round_us;
      const SuiteRun run = RunSuite(options, &gpu);
      REQUIRE(run.measurements.size() == 2);
      const Measurement& cold = run.measurements[0];
      CHECK(cold.target_us == 6);
      CHECK(cold.target == 0);  // 64 sequences alone have a target
      CHECK(cold.goal().IsMet() == (round_us == 6));
      CHECK(run.measurements[1].goal().bound == 0);

      simdjson::dom::parser parser;
      const simdjson::dom::object object = parser.parse(JsonOf(cold)).get_object();
      CHECK(double(object["target_us"]) == 6);
      CHECK(bool(object["met"]) == (round_us == 6));
      CHECK(object["target"].error() != simdjson::SUCCESS);

      const std::string table = Printed(run);
      CHECK(table.find(round_us == 6 ? " <= 6 us met " : " <= 6 us missed by 50 % ") !=
            std::string::npos);
    }
    CHECK(FindCase(GpuCases(), "one_hot")->target_gpu_us == 10);
  }

  TEST_CASE("specd-bench gpu: a JSON line says what was measured, where and in which state") {
    ProbedGpu gpu;
    const SuiteRun run = RunSuite(OnlyCase("reject_side"), &gpu);
    REQUIRE(run.measurements.size() == 2);
    simdjson::dom::parser parser;
    for (const Measurement& measurement : run.measurements) {
      const simdjson::dom::object object = parser.parse(JsonOf(measurement)).get_object();
      const auto text = [&](const char* name) {
        return std::string(std::string_view(object[name].get_string()));
      };
      CHECK(text("suite") == "gpu");
      CHECK(text("case") == "reject_side");
      CHECK(text("method") == "token");
      CHECK(text("dtype") == "bf16");
      CHECK(text("state") == (measurement.cold ? "cold" : "warm"));
      CHECK(text("ratio_of") == "read");
      CHECK(text("processor") == "Fake");
      CHECK(double(object["median"]) == doctest::Approx(6));
      CHECK(double(object["base_median"]) == doctest::Approx(4));
      CHECK(double(object["whole_median"]) ==
            doctest::Approx(measurement.whole_us.median).epsilon(0.01));
      CHECK(int64_t(object["whole_samples"]) == measurement.whole_us.num_samples);
      CHECK(object["threads"].error() != simdjson::SUCCESS);  // the field belongs to a CPU
    }
  }
}

}  // namespace
}  // namespace specd::bench
