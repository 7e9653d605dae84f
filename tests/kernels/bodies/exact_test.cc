// Enumeration shows that the law of the output equals the target's (CONTRACT §10, "Exact"). The
// same enumeration notices every mistake that the literature and the peers have made here.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/kernels/bodies/enumeration.h"

namespace specd {
namespace {

constexpr double kExact = 1e-9;     // of sums of products of doubles
constexpr double kVisible = 0.005;  // every fault moves the law by more

using Kinds = std::vector<DraftKind>;
constexpr DraftKind kSampled = DraftKind::kSampled;
constexpr DraftKind kOneHot = DraftKind::kOneHot;

// The same chains and rows under several methods.
void CheckLaw(ModelOptions options, const std::vector<VerifyMethod>& methods) {
  for (const VerifyMethod method : methods) {
    options.method = method;
    CAPTURE(options.seed);
    CAPTURE(static_cast<int>(method));
    Enumeration enumeration(options, {});
    const double distance = enumeration.Run();
    MESSAGE("method ", static_cast<int>(method), ", V = ", options.vocab_size,
            ", K = ", options.max_draft, ", seed ", options.seed, ": ", enumeration.num_cells(),
            " cells, ", enumeration.num_narrow_cells(), " too narrow, ",
            enumeration.num_kernel_runs(), " kernel runs, up to ", enumeration.most_rounds(),
            " rounds, total variation ", distance);
    CHECK(distance < kExact);
    CHECK(enumeration.most_rounds() >= 3);
    CHECK(enumeration.num_kernel_runs() > enumeration.num_cells());
    CHECK(enumeration.num_narrow_cells() * 50 <= enumeration.num_cells());
  }
}

const std::vector<VerifyMethod> kAll = {VerifyMethod::kExactMatch, VerifyMethod::kToken,
                                        VerifyMethod::kBlock};
const std::vector<VerifyMethod> kWithQ = {VerifyMethod::kToken, VerifyMethod::kBlock};

// The largest distance that a fault makes over several models.
double WorstDistance(ModelOptions options, const Fault& fault) {
  double worst = 0;
  for (options.seed = 20; options.seed < 26; ++options.seed) {
    worst = std::max(worst, Enumeration(options, fault).Run());
  }
  return worst;
}

struct Control {
  std::string name;
  VerifyMethod method;
  Fault fault;
};

void CheckControls(const std::vector<Control>& controls, ModelOptions options) {
  for (const Control& control : controls) {
    options.method = control.method;
    const double distance = WorstDistance(options, control.fault);
    MESSAGE(control.name, ": total variation ", distance);
    CHECK(distance > kVisible);
  }
}

TEST_SUITE("exact") {
  TEST_CASE("sampled chains: the joint law of several rounds is the target's") {
    CheckLaw({.vocab_size = 2, .max_draft = 3, .length = 4, .seed = 1}, kAll);
    CheckLaw({.vocab_size = 3, .max_draft = 2, .length = 4, .seed = 3}, kWithQ);
    CheckLaw({.vocab_size = 3, .max_draft = 2, .length = 4, .powers_of_two = true, .seed = 14},
             kAll);
    CheckLaw({.vocab_size = 4, .max_draft = 3, .length = 3, .powers_of_two = true, .seed = 2},
             kWithQ);
    CheckLaw({.vocab_size = 4, .max_draft = 1, .length = 4, .powers_of_two = true, .seed = 6},
             kWithQ);
    CheckLaw({.vocab_size = 3, .max_draft = 0, .length = 3, .seed = 8}, kAll);
  }

  TEST_CASE("one-hot and mixed chains: the joint law of several rounds is the target's") {
    CheckLaw({.vocab_size = 3, .max_draft = 2, .length = 4, .kinds = {kOneHot}, .seed = 7}, kAll);
    CheckLaw({.vocab_size = 3,
              .max_draft = 3,
              .length = 3,
              .kinds = {kSampled, kOneHot, kSampled},
              .seed = 9},
             kWithQ);
    CheckLaw({.vocab_size = 3,
              .max_draft = 3,
              .length = 4,
              .powers_of_two = true,
              .kinds = {kOneHot, kSampled},
              .strays = true,
              .seed = 10},
             kAll);
  }

  // The verifier rejected such an id with the residual (p - q)+, which biases sampled drafts.
  TEST_CASE("a wider draft vocabulary: an id outside ends the draft") {
    CheckLaw({.vocab_size = 3, .max_draft = 2, .length = 4, .wide = true, .seed = 30}, kAll);
    CheckLaw({.vocab_size = 3,
              .max_draft = 3,
              .length = 3,
              .powers_of_two = true,
              .kinds = {kSampled, kOneHot, kSampled},
              .strays = true,
              .wide = true,
              .seed = 31},
             kAll);
    CheckLaw({.vocab_size = 3,
              .max_draft = 2,
              .length = 3,
              .wide = true,
              .edits = true,
              .side_channel = true,
              .draft_truncation = {.top_k = 2},
              .seed = 32},
             kWithQ);
  }

  // specd_sample drew with the SAMPLE coins of the sequence whose seed it was given.
  TEST_CASE("specd_sample as the drafter, with the sequence's seed") {
    CheckLaw({.vocab_size = 3, .max_draft = 2, .length = 4, .library_drafts = true, .seed = 33},
             kAll);
    CheckLaw({.vocab_size = 2, .max_draft = 3, .length = 4, .library_drafts = true, .seed = 34},
             kAll);
    CheckLaw({.vocab_size = 3,
              .max_draft = 3,
              .length = 4,
              .ragged = true,
              .library_drafts = true,
              .seed = 35},
             kWithQ);
  }

  TEST_CASE("ragged chains: the text so far may say how long the draft is") {
    CheckLaw({.vocab_size = 3, .max_draft = 3, .length = 4, .ragged = true, .seed = 11}, kWithQ);
  }

  TEST_CASE("filters on both rows: the joint law of several rounds is the filtered target's") {
    CheckLaw({.vocab_size = 4,
              .max_draft = 2,
              .length = 4,
              .target_truncation = {.min_p = 0.1, .top_k = 3, .top_p = 0.9},
              .draft_truncation = {.top_k = 2},
              .seed = 12},
             kAll);
    CheckLaw({.vocab_size = 4,
              .max_draft = 2,
              .length = 3,
              .target_truncation = {.min_p = 0.2, .top_k = 3, .top_p = 0.8, .joint = true},
              .draft_truncation = {.top_p = 0.7},
              .seed = 13},
             kWithQ);
  }

  TEST_CASE("edits of the target's rows: the joint law of several rounds is the edited target's") {
    CheckLaw({.vocab_size = 4, .max_draft = 2, .length = 4, .edits = true, .seed = 15}, kAll);
    CheckLaw({.vocab_size = 4,
              .max_draft = 3,
              .length = 3,
              .kinds = {kSampled, kOneHot, kSampled},
              .edits = true,
              .side_channel = true,
              .target_truncation = {.min_p = 0.05, .top_k = 3, .top_p = 0.95},
              .seed = 16},
             kWithQ);
  }

  TEST_CASE("edits of both rows: the drafter drew with the masks and penalties of its places") {
    CheckLaw({.vocab_size = 4,
              .max_draft = 2,
              .length = 4,
              .edits = true,
              .draft_edits = true,
              .seed = 17},
             kWithQ);
    CheckLaw({.vocab_size = 3,
              .max_draft = 3,
              .length = 3,
              .edits = true,
              .draft_edits = true,
              .side_channel = true,
              .draft_truncation = {.top_k = 2},
              .seed = 18},
             kWithQ);
  }

  TEST_CASE("Sun et al.: the paper's example: token accepts 10/9, block 11/9") {
    ModelOptions options{.vocab_size = 2,
                         .max_draft = 2,
                         .length = 3,
                         .fixed_target = {1.0 / 3, 2.0 / 3},
                         .fixed_draft = {2.0 / 3, 1.0 / 3}};
    options.method = VerifyMethod::kToken;
    Enumeration token(options, {});
    CHECK(token.Run() < 1e-6);  // the rows are thirds rounded to fp32
    CHECK(token.mean_accepted() == doctest::Approx(10.0 / 9).epsilon(1e-6));
    options.method = VerifyMethod::kBlock;
    Enumeration block(options, {});
    CHECK(block.Run() < 1e-6);
    CHECK(block.mean_accepted() == doctest::Approx(11.0 / 9).epsilon(1e-6));
  }

  TEST_CASE("vLLM: block never accepts less than token") {
    double gain = 0;
    for (uint64_t seed = 40; seed < 48; ++seed) {
      ModelOptions options{.vocab_size = 3, .max_draft = 3, .length = 1, .seed = seed};
      Enumeration token(options, {});
      token.Run();
      options.method = VerifyMethod::kBlock;
      Enumeration block(options, {});
      block.Run();
      CHECK(block.mean_accepted() >= token.mean_accepted() - kExact);
      gain = std::max(gain, block.mean_accepted() - token.mean_accepted());
    }
    MESSAGE("largest gain of block over token: ", gain, " accepted tokens in a round");
    CHECK(gain > 0.01);
  }

  TEST_CASE("negative controls: each fault makes the law wrong") {
    constexpr VerifyMethod kToken = VerifyMethod::kToken;
    constexpr VerifyMethod kBlock = VerifyMethod::kBlock;
    CheckControls(
        {{"block, coins keyed by position alone", kBlock, {.position_only_keys = true}},
         {"block, early break", kBlock, {.early_break = true}},
         {"block, residual not renormalised", kBlock, {.residual_not_renormalised = true}},
         {"block, DRAFT shared with RESIDUAL", kBlock, {.draft_shared_with_residual = true}},
         {"block, drafts drawn with SAMPLE coins", kBlock, {.draft_shared_with_sample = true}},
         {"block, draft cut at the forbidden token", kBlock, {.cut_at_forbidden = true}},
         {"token, residual not renormalised", kToken, {.residual_not_renormalised = true}},
         {"token, replaced from p", kToken, {.residual_is_p = true}},
         {"token, DRAFT shared with RESIDUAL", kToken, {.draft_shared_with_residual = true}},
         {"token, ACCEPT shared with RESIDUAL", kToken, {.accept_shared_with_residual = true}},
         {"token, draft cut at the forbidden token", kToken, {.cut_at_forbidden = true}}},
        {.vocab_size = 3, .length = 3});
    CheckControls(
        {{"token, drafts drawn with edits, verified without", kToken, {.q_unedited = true}},
         {"block, drafts drawn with edits, verified without", kBlock, {.q_unedited = true}}},
        {.vocab_size = 3, .length = 3, .edits = true, .draft_edits = true});
    CheckControls({{"block, one round base for all rounds", kBlock, {.library_by_position = true}}},
                  {.vocab_size = 3, .length = 3, .library_drafts = true});
  }

  TEST_CASE("negative controls: the old rules for ids outside the vocabulary") {
    constexpr VerifyMethod kToken = VerifyMethod::kToken;
    CheckControls(
        {{"token, verified and rejected", kToken, {.outside_verified = true}},
         {"block, verified and rejected", VerifyMethod::kBlock, {.outside_verified = true}},
         {"token, verified and rejected, with the wide row's side channel",
          kToken,
          {.outside_verified = true, .wide_side_channel = true}},
         {"token, draft ended, with the wide row's side channel",
          kToken,
          {.wide_side_channel = true}}},
        {.vocab_size = 3, .length = 3, .wide = true});
  }
}

}  // namespace
}  // namespace specd
