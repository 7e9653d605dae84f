#include "kernels/backend_plugin.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/core/round.h"
#include "kernels/cpu/cpu_backend.h"

namespace specd {
namespace {

bool Has(const absl::Status& status, absl::StatusCode code, const char* part) {
  CAPTURE(std::string(status.message()));
  return status.code() == code && std::string(status.message()).find(part) != std::string::npos;
}

// Whether the process still has the shared object.
bool IsLoaded(const char* path) {
  void* const plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (plugin != nullptr) dlclose(plugin);
  return plugin != nullptr;
}

struct Answers {
  std::array<TaskOutcome, 2> outcomes;
  std::array<TokenId, 4> tokens = {-7, -7, -7, -7};
  std::array<float, 10> probabilities;
  std::array<OutcomeStatus, 2> statuses;
};

// Runs a round of two tasks, one with a draft of one token, and a transform of two rows.
Answers AnswersOf(Backend* backend) {
  const std::array<float, 15> logits = {1, 3, 2, 0, -1, 0, 1, 5, 2, 2, 4, 0, 1, 3.5f, 2};
  const TensorView target{.data = logits.data(),
                          .dtype = DType::kFloat32,
                          .num_rows = 3,
                          .row_stride = 5,
                          .vocab_size = 5,
                          .rules = {}};
  REQUIRE(backend->Prepare({.vocab_size = 5, .max_batch = 2, .max_draft = 1, .threads = 1}).ok());
  const std::array<uint32_t, 3> rows = {0, 1, 2};
  const TokenId draft = 1;
  std::array<Task, 2> tasks;
  tasks[0].draft = {.num_nodes = 1, .tokens = &draft, .target_rows = rows.data()};
  tasks[1].draft.target_rows = &rows[2];
  tasks[1].method = VerifyMethod::kExactMatch;
  tasks[1].target_scale = static_cast<float>(std::log2(std::exp(1.0)));
  tasks[1].seed = 5;
  Answers answers;
  RoundBatch batch;
  batch.target = target;
  batch.tasks = tasks.data();
  batch.num_tasks = 2;
  batch.outcomes = answers.outcomes.data();
  batch.tokens = answers.tokens.data();
  batch.tokens_stride = 2;
  REQUIRE(backend->Run(batch).ok());
  std::array<RowTransform, 2> transforms;
  for (uint32_t i = 0; i < 2; ++i) {
    transforms[i].row = 2 * i;
    transforms[i].scale = tasks[1].target_scale;
    transforms[i].out = &answers.probabilities[5 * i];
  }
  REQUIRE(backend->Transform({target, transforms.data(), 2, answers.statuses.data()}).ok());
  return answers;
}

TEST_SUITE("unit") {
  TEST_CASE("plugin: a backend from outside runs a round as the CPU does") {
    BackendRegistry registry({CpuBackendEntry()});
    REQUIRE(LoadBackendPlugin(SPECD_COUNTING_PLUGIN, &registry).ok());
    CHECK(registry.Names() == std::vector<std::string>{"cpu", "counting"});
    const auto backend = registry.Make("counting");
    REQUIRE(backend.ok());
    CHECK((*backend)->name() == "counting");
    CHECK((*backend)->device_uuid().empty());
    const auto cpu = registry.Make("cpu");
    REQUIRE(cpu.ok());
    const Answers found = AnswersOf(backend->get());
    const Answers wanted = AnswersOf(cpu->get());
    for (size_t i = 0; i < 2; ++i) {
      CHECK(found.outcomes[i].status == OutcomeStatus::kOk);
      CHECK(found.outcomes[i].num_tokens == wanted.outcomes[i].num_tokens);
      CHECK(found.statuses[i] == OutcomeStatus::kOk);
    }
    CHECK(found.tokens == wanted.tokens);
    CHECK(found.tokens[0] == 1);  // the greatest elements of rows 0 and 1
    CHECK(found.tokens[1] == 2);
    CHECK(std::memcmp(found.probabilities.data(), wanted.probabilities.data(),
                      sizeof(found.probabilities)) == 0);
    CHECK(found.probabilities[1] ==
          doctest::Approx(std::exp(3.0) / (std::exp(1.0) + std::exp(3.0) + std::exp(2.0) +
                                           std::exp(0.0) + std::exp(-1.0))));
    // The functions that the plugin does not have are those of Backend, linked into the plugin.
    CHECK((*backend)->EnqueueStaged(nullptr, 1).code() == absl::StatusCode::kUnimplemented);
  }

  TEST_CASE("plugin: what is refused") {
    BackendRegistry registry({CpuBackendEntry()});
    CHECK(Has(LoadBackendPlugin("counting.so", &registry), absl::StatusCode::kInvalidArgument,
              "\"counting.so\" has no absolute path"));
    CHECK(Has(LoadBackendPlugin("/nowhere/mine.so", &registry), absl::StatusCode::kNotFound,
              "/nowhere/mine.so cannot be loaded"));
    CHECK(Has(LoadBackendPlugin("/nowhere/mine.so", &registry), absl::StatusCode::kNotFound,
              "give --backend_plugin or specd_load_backends the path of a shared object"));
    CHECK(Has(LoadBackendPlugin("/dev/zero", &registry), absl::StatusCode::kInvalidArgument,
              "/dev/zero is no regular file"));
    CHECK(Has(LoadBackendPlugin(SPECD_NO_ENTRY_PLUGIN, &registry),
              absl::StatusCode::kInvalidArgument, "it lacks specd_register_backends"));
    const absl::Status other = LoadBackendPlugin(SPECD_OTHER_ABI_PLUGIN, &registry);
    CHECK(Has(other, absl::StatusCode::kUnimplemented, "GNU 4.8.0, headers 0123456789ab"));
    CHECK(Has(other, absl::StatusCode::kUnimplemented, kBackendAbi));
    // Bug: after one plugin, the descriptions of others were taken for that one's.
    const absl::Status strings = LoadBackendPlugin(SPECD_OTHER_STRINGS_PLUGIN, &registry);
    CHECK(Has(strings, absl::StatusCode::kUnimplemented, "_GLIBCXX_USE_CXX11_ABI=0"));
    CHECK(Has(strings, absl::StatusCode::kUnimplemented, kBackendAbi));
    for (const char* const path :
         {SPECD_NO_ENTRY_PLUGIN, SPECD_OTHER_ABI_PLUGIN, SPECD_OTHER_STRINGS_PLUGIN}) {
      CHECK_FALSE(IsLoaded(path));
    }
    CHECK(Has(LoadBackendPlugin(SPECD_THROWS_PLUGIN, &registry), absl::StatusCode::kInternal,
              "threw an exception when it registered its backends: no card"));
    const absl::Status taken = LoadBackendPlugin(SPECD_TAKEN_NAME_PLUGIN, &registry);
    CHECK(Has(taken, absl::StatusCode::kAlreadyExists, "\"cpu\" is registered already"));
    CHECK(Has(taken, absl::StatusCode::kAlreadyExists, SPECD_TAKEN_NAME_PLUGIN));
    CHECK(registry.Names() == std::vector<std::string>{"cpu"});
  }

  TEST_CASE("plugin: not twice") {
    BackendRegistry registry({CpuBackendEntry()});
    REQUIRE(LoadBackendPlugin(SPECD_COUNTING_PLUGIN, &registry).ok());
    CHECK(Has(LoadBackendPlugin(SPECD_COUNTING_PLUGIN, &registry), absl::StatusCode::kAlreadyExists,
              "counting"));
    CHECK(IsLoaded(SPECD_COUNTING_PLUGIN));
  }
}

}  // namespace
}  // namespace specd
