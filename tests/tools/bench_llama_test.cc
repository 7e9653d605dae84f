// Built only if SPECD_LLAMA names an installed llama.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/elements.h"
#include "tools/bench/llama_loop.h"
#include "tools/oracle/oracle.h"

namespace specd::bench {
namespace {

constexpr int32_t kVocabSize = 2500;
constexpr RoundShape kShape{.batch = 4, .draft = 3, .num_rounds = 2};

// A case with its rounds; the backend finds their drafts.
struct Rounds {
  explicit Rounds(const VerifyCase& verify_case, std::vector<std::vector<float>> given = {})
      : pool({.shape = verify_case.shape,
              .vocab_size = kVocabSize,
              .num_rows = kShape.num_rounds * kShape.rows_of_round(),
              .given = std::move(given)}),
        backend(*MakeBackend("cpu")) {
    REQUIRE(backend->Prepare({.vocab_size = kVocabSize, .max_batch = 4, .max_draft = 3}).ok());
    auto made = RoundSet::Make(verify_case, kShape, pool, nullptr, backend.get());
    REQUIRE(made.ok());
    set = *std::move(made);
  }

  RowPool pool;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<RoundSet> set;
};

std::vector<float> ReadElements(const RowView& row) {
  std::vector<float> elements;
  for (int32_t id = 0; id < row.vocab_size; ++id) elements.push_back(LoadElement(row, id));
  return elements;
}

std::vector<TokenId> RunLoop(LlamaLoop* peer, int32_t round) {
  std::vector<TokenId> tokens;
  peer->Prepare(round);
  peer->Run(&tokens);
  return tokens;
}

// llama.cpp's rule: any id in the history is penalised in all three ways, as often as it occurs.
TokenId PenalisedArgmax(const Task& task, std::span<const TokenId> prefix,
                        std::vector<float> logits) {
  std::unordered_map<TokenId, int32_t> counts;
  for (int32_t i = 0; i < task.edits.num_edits; ++i) {
    const TokenEdit& edit = task.edits.edits[i];
    counts[edit.id] += edit.count == 0 ? 1 : static_cast<int32_t>(edit.count);
  }
  for (const TokenId id : prefix) ++counts[id];
  const Penalties& penalties = task.edits.penalties;
  for (const auto& [id, count] : counts) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / penalties.repetition : logit * penalties.repetition;
    logit -= static_cast<float>(count) * penalties.frequency + penalties.presence;
  }
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_SUITE("unit") {
  TEST_CASE("specd-bench: llama.cpp draws what its filters leave, and the same again") {
    for (const VerifyCase& known : VerifyCases()) {
      if (!HasPeer(known) || known.num_penalised > 0) continue;
      CAPTURE(std::string(known.name));
      const Rounds rounds(known);
      // llama.cpp filters before it applies the temperature.
      const oracle::Truncation filters = {
          .min_p = known.min_p, .top_k = known.top_k, .top_p = known.top_p};
      const std::unique_ptr<LlamaLoop> peer = MakeLlamaLoop(*rounds.set);
      std::vector<std::vector<TokenId>> first;
      for (int32_t round = 0; round < kShape.num_rounds; ++round) {
        const std::vector<TokenId> tokens = RunLoop(peer.get(), round);
        REQUIRE(tokens.size() == static_cast<size_t>(kShape.rows_of_round()));
        for (size_t i = 0; i < tokens.size(); ++i) {
          const int64_t row_index = round * kShape.rows_of_round() + static_cast<int64_t>(i);
          const std::vector<float> elements =
              ReadElements(RowAt(rounds.set->target(), static_cast<uint32_t>(row_index)));
          const oracle::Logits row(elements.begin(), elements.end());
          if (known.temperature == 0) {
            CHECK(tokens[i] == *oracle::Argmax(row));
          } else {
            CHECK(oracle::Survivors(row, 1, filters)[static_cast<size_t>(tokens[i])]);
          }
        }
        first.push_back(tokens);
      }
      for (int32_t round = 0; round < kShape.num_rounds; ++round) {
        CHECK(RunLoop(peer.get(), round) == first[static_cast<size_t>(round)]);
      }
    }
  }

  TEST_CASE("specd-bench: llama.cpp is given the penalties and the history, and accepts") {
    VerifyCase penalised = *FindCase(VerifyCases(), "penalties");
    penalised.method = VerifyMethod::kGreedy;
    penalised.temperature = 0;
    penalised.penalties.frequency = 2;
    // In rows that are all alike, here ascending ones, a token of the prefix would be drawn again.
    // In other rows an id of the history would be, anywhere in it.
    std::vector<float> ascending(kVocabSize);
    for (size_t i = 0; i < ascending.size(); ++i) {
      ascending[i] = 20.0f * static_cast<float>(i) / kVocabSize;
    }
    for (const auto& given : {std::vector<std::vector<float>>(), {ascending}}) {
      const Rounds rounds(penalised, given);
      const std::unique_ptr<LlamaLoop> peer = MakeLlamaLoop(*rounds.set);
      for (const int32_t round : {0, 1, 0}) {
        const std::vector<TokenId> tokens = RunLoop(peer.get(), round);
        for (int32_t i = 0; i < kShape.rows_of_round(); ++i) {
          const Task& task = rounds.set->task(round, i / kShape.rows_of_sequence());
          const int32_t place = i % kShape.rows_of_sequence();
          const auto num_before = static_cast<size_t>(place);
          const TokenId* token = &tokens[static_cast<size_t>(i)];
          const RowView row = RowAt(rounds.set->target(), task.draft.target_rows[place]);
          CHECK(*token == PenalisedArgmax(task, {token - place, num_before}, ReadElements(row)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd::bench
