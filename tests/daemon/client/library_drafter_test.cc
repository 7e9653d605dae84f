// specd_sample drafts for a sequence with the sequence's own seed, through the C interface, and the
// law of the text stays the target's (CONTRACT §4).
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ipc/include/specd/ops.h"
#include "tests/daemon/client/embedded_engine.h"
#include "tests/support/c_drafts.h"
#include "tests/support/chi_square.h"
#include "tests/support/grid_size.h"

namespace specd {
namespace {

using test::EmbeddedEngine;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Texts of three tokens from p = (1/3, 2/3), with drafts of three tokens from q = (2/3, 1/3). Sun
// et al. use these rows; `block` looks at tokens behind the place where it stops.
class LibraryDrafter {
 public:
  explicit LibraryDrafter(bool gives_round_base) : gives_round_base_(gives_round_base) {
    const float third = std::log(1.0f / 3);
    const float rest = std::log(2.0f / 3);
    for (uint32_t row = 0; row < 4; ++row) {
      EmbeddedEngine::SetRow(f_.target, row, WithoutOthers({third, rest}));
      EmbeddedEngine::SetRow(f_.draft, row, WithoutOthers({rest, third}));
    }
  }

  // The text of a sequence, as a number of three binary digits.
  size_t Text(uint64_t seed) {
    specd_params params = EmbeddedEngine::Params(1.0);
    params.verify = SPECD_VERIFY_BLOCK;
    params.seed = seed;
    params.max_tokens = kLength;
    const specd_sequence s = f_.Open(params);
    std::vector<int32_t> text;
    while (text.size() < kLength) Round(s, seed, &text);
    REQUIRE(specd_close_sequence(f_.engine, s) == SPECD_OK);
    size_t number = 0;
    for (const int32_t token : text) number = 2 * number + static_cast<size_t>(token);
    return number;
  }

  static constexpr size_t kLength = 3;

 private:
  static std::vector<float> WithoutOthers(std::vector<float> row) {
    row.resize(EmbeddedEngine::kVocab, -kInf);
    return row;
  }

  void Round(specd_sequence s, uint64_t seed, std::vector<int32_t>* text) {
    specd_rows rows;
    specd_rows_init(&rows);
    rows.vocab_size = EmbeddedEngine::kVocab;
    rows.data = f_.draft;
    rows.num_rows = EmbeddedEngine::kMaxDraft;
    const uint64_t base = gives_round_base_ ? text->size() : 0;
    const uint64_t positions[] = {text->size(), text->size() + 1, text->size() + 2};
    specd_sampling sampling;
    specd_sampling_init(&sampling);
    sampling.seed.items = &seed;
    sampling.position = {positions, 1};
    sampling.round_base.items = &base;
    int32_t drafts[EmbeddedEngine::kMaxDraft];
    REQUIRE(specd_sample(&rows, &sampling, drafts, nullptr) == SPECD_OK);
    const uint8_t kinds[] = {SPECD_SAMPLED, SPECD_SAMPLED, SPECD_SAMPLED};
    specd_draft part = ChainDraft(s, EmbeddedEngine::kMaxDraft, drafts, f_.rows);
    part.kinds = kinds;
    part.draft_rows = f_.rows;
    const specd_result result = f_.Round(part);
    REQUIRE(result.num_kept > 0);
    text->insert(text->end(), result.tokens, result.tokens + result.num_kept);
  }

  EmbeddedEngine f_;
  const bool gives_round_base_;
};

TEST_SUITE("statistical") {
  // Bug: the drafter's coins were those of the verifier, so block lost the law of the target.
  TEST_CASE("specd_sample drafts with the sequence's own seed, the law stays") {
    std::vector<double> law;
    for (size_t text = 0; text < 8; ++text) {
      const int ones = __builtin_popcountll(text);
      law.push_back(std::pow(2.0 / 3, ones) * std::pow(1.0 / 3, 3 - ones));
    }
    for (const bool gives_round_base : {true, false}) {
      LibraryDrafter drafter(gives_round_base);
      std::vector<int64_t> counts(8);
      for (int32_t seed = 0; seed < GridSize({.full = 30000, .sanitized = 6000}); ++seed)
        ++counts[drafter.Text(static_cast<uint64_t>(seed))];
      const ChiSquare test = TestCounts(counts, law);
      MESSAGE("round base given: ", gives_round_base, ", chi-square ", test.statistic, " (limit ",
              test.critical, "), visible effect: total variation ", test.visible_effect);
      CHECK(test.Fits() == gives_round_base);  // without it the next round meets these coins again
    }
  }
}

}  // namespace
}  // namespace specd
