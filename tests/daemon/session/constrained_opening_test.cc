// Memory that runs out while a sequence with a constraint is opened: that opening alone fails, and
// a neighbour's rounds go on.
#include <doctest/doctest.h>

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "daemon/session/grammar_compilers.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"
#include "tests/support/watched_memory.h"

namespace specd {
namespace {

ModelProfile Letters() {
  Vocabulary::Builder builder;
  TokenId id = 0;
  for (const char* piece : {"a", "b", "c", "ab", "bc", "x", "y"}) builder.Set(id++, piece, {});
  builder.Set(id, "</s>", {.added = true, .special = true});
  ModelProfile profile;
  profile.vocabulary = std::move(builder).Build();
  profile.eos_token_ids = {id};
  return profile;
}

// A session whose sequences may have constraints, over a scripted backend.
struct ConstrainedSession : SessionFixture {
  ConstrainedSession() : SessionFixture(false) {
    SessionOptions options = session->options();
    options.profile = &model;
    options.grammars = &compilers;
    auto owned = std::make_unique<ScriptedBackend>();
    backend = owned.get();
    Attach(options, std::move(owned));
  }

  absl::StatusOr<std::vector<SequenceInfo>> OpenConstrained(const std::string& name,
                                                            const std::string& pattern) {
    SequenceParams params;
    params.grammar_kind = grammar::GrammarKind::kRegex;
    params.grammar_text = pattern;
    params.max_tokens = 1 << 20;
    return session->OpenSequences(name, params);
  }

  const ModelProfile model = Letters();
  GrammarCompilers compilers{&model};
};

TEST_SUITE("unit") {
  TEST_CASE("opening: without memory for a constraint it fails alone, and may come again") {
    ConstrainedSession f;
    const auto neighbour = f.OpenConstrained("neighbour", "[abc]+");
    REQUIRE(neighbour.ok());
    uint64_t round = 0;
    bool has_opened = false;
    int num_failed = 0;
    for (; !has_opened; ++num_failed) {
      CAPTURE(num_failed);
      REQUIRE(num_failed < 5000);
      // Another constraint each time, so that it is compiled.
      std::string pattern = "(ab|c)+";
      for (int bit = 0; bit < 13; ++bit) pattern += (num_failed >> bit & 1) != 0 ? 'x' : 'y';
      absl::StatusOr<std::vector<SequenceInfo>> opened = absl::UnknownError("");
      allocations_left = num_failed;
      try {
        opened = f.OpenConstrained("another", pattern);
      } catch (const std::bad_alloc&) {  // the daemon answers EXHAUSTED (control_service.cc)
      }
      has_opened = allocations_left.exchange(-1) >= 0;
      if (!opened.ok()) {
        if (opened.status() != absl::UnknownError("")) {
          REQUIRE(opened.status().code() == absl::StatusCode::kResourceExhausted);
        }
        opened = f.OpenConstrained("another", pattern);
      }
      REQUIRE_MESSAGE(opened.ok(), opened.status().ToString());
      REQUIRE(f.session->CloseSequence(opened->front().handle).ok());

      f.backend->script = {Confirm(2, {1, 2, 0})};
      REQUIRE(f.Submit({neighbour->front().handle}, ++round) == PushResult::kOk);
      REQUIRE(StepSession(f.session));
      CompletionView done;
      REQUIRE(f.engine->Poll(&done));
      REQUIRE(done.results[0].status == RoundStatus::kOk);
      REQUIRE(done.results[0].num_kept == 3);
    }
    CHECK(num_failed > 100);
  }
}

}  // namespace
}  // namespace specd
