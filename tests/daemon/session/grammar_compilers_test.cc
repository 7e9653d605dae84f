#include "daemon/session/grammar_compilers.h"

#include <doctest/doctest.h>

#include <memory>
#include <thread>
#include <vector>

namespace specd {
namespace {

using grammar::GrammarCompiler;
using grammar::GrammarKind;

ModelProfile ToyProfile() {
  absl::StatusOr<ModelProfile> profile = LoadModelProfile(
      {.tokenizer_path = SPECD_TOKENIZER, .eos_tokens = {}, .eos_token_ids = {}, .vocab_size = 0});
  REQUIRE(profile.ok());
  return *std::move(profile);
}

TEST_SUITE("unit") {
  TEST_CASE("sessions of one width share a compiler, and others have their own") {
    const ModelProfile profile = ToyProfile();
    const int32_t width = profile.vocabulary->size();
    GrammarCompilers compilers(&profile);
    const std::shared_ptr<GrammarCompiler> first = compilers.ForWidth(width);
    CHECK(compilers.ForWidth(width) == first);
    const std::shared_ptr<GrammarCompiler> wider = compilers.ForWidth(width + 7);
    CHECK(wider != first);
    CHECK(compilers.ForWidth(width) == first);
    // The masks are as wide as the rows. Ids of padding are no text.
    const auto compiled = wider->Compile({.kind = GrammarKind::kRegex, .text = "[0-9]+"});
    REQUIRE(compiled.ok());
    const auto matcher = (*compiled)->NewMatcher({});
    const grammar::MaskRow mask = matcher->Mask();
    CHECK(mask.words().size() == (static_cast<size_t>(width) + 7 + 31) / 32);
    for (TokenId id = 0; id < width; ++id) {
      const std::string_view bytes = profile.vocabulary->Bytes(id);
      const bool is_number = !bytes.empty() && !profile.vocabulary->IsSpecial(id) &&
                             bytes.find_first_not_of("0123456789") == std::string_view::npos;
      REQUIRE(mask.Allows(id) == is_number);
    }
    for (TokenId id = width; id < width + 7; ++id) CHECK_FALSE(mask.Allows(id));
  }

  TEST_CASE("a compiler lives while it is used; the last one lives on") {
    const ModelProfile profile = ToyProfile();
    const int32_t width = profile.vocabulary->size();
    GrammarCompilers compilers(&profile);
    const std::weak_ptr<GrammarCompiler> first = compilers.ForWidth(width);
    CHECK_FALSE(first.expired());  // an engine that attaches again finds what was compiled
    (void)compilers.ForWidth(width + 1);
    CHECK(first.expired());
  }

  TEST_CASE("without a tokenizer there is no compiler") {
    const ModelProfile profile;
    GrammarCompilers compilers(&profile);
    CHECK(compilers.ForWidth(8) == nullptr);
  }

  TEST_CASE("threads that ask at once get one compiler and one grammar") {
    const ModelProfile profile = ToyProfile();
    GrammarCompilers compilers(&profile);
    std::vector<std::shared_ptr<const grammar::CompiledGrammar>> compiled(4);
    std::vector<std::thread> threads;
    for (auto& own : compiled) {
      threads.emplace_back([&] {
        auto made = compilers.ForWidth(profile.vocabulary->size())
                        ->Compile({.kind = GrammarKind::kRegex, .text = "[a-z]+"});
        if (made.ok()) own = *std::move(made);
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(compiled[0] != nullptr);
    for (const auto& own : compiled) CHECK(own == compiled[0]);
  }
}

}  // namespace
}  // namespace specd
