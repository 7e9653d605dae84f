// Masks are built while the target model runs: the loop prepares a round whose rows are not ready,
// serves others meanwhile, and the answers are the same.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/server/verify_loop.h"
#include "daemon/session/grammar_compilers.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/round_words.h"
#include "tests/support/session_fixture.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

constexpr std::string_view kPattern = "(ab|[bc]){2,9}a?";

// A session over the CPU whose model has the tokens "a", "b", "c", "ab", "bc" as ids 1 to 5.
struct ConstrainedSession : SessionFixture {
  explicit ConstrainedSession(ModelProfile profile_of_model = Profile())
      : SessionFixture(false), model(std::move(profile_of_model)), compilers(&model) {
    SessionOptions options = session->options();
    options.profile = &model;
    options.grammars = &compilers;
    AttachWithoutRows(options, *MakeBackend("cpu"));
    const uint64_t size_bytes = 4 * kLimits.vocab_size * sizeof(float);
    UniqueFd fd(memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(ftruncate(fd.get(), static_cast<off_t>(size_bytes)) == 0);
    REQUIRE(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    void* mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(mapped != MAP_FAILED);
    logits = static_cast<float*>(mapped);
    region = *session->RegisterRegion(std::move(fd), size_bytes);
    Bind(4);
    // Sessions of one width share a compiler, and what it has compiled.
    compiled = *compilers.ForWidth(static_cast<int32_t>(kLimits.vocab_size))->Compile(Request());
  }
  ~ConstrainedSession() { munmap(logits, 4 * kLimits.vocab_size * sizeof(float)); }

  static ModelProfile Profile() {
    Vocabulary::Builder builder;
    builder.Set(0, "</s>", {.added = true, .special = true});
    TokenId id = 1;
    for (const char* piece : {"a", "b", "c", "ab", "bc", "x", "y"}) builder.Set(id++, piece, {});
    ModelProfile profile;
    profile.vocabulary = std::move(builder).Build();
    profile.eos_token_ids = {0};
    return profile;
  }
  static grammar::GrammarRequest Request() {
    return {.kind = grammar::GrammarKind::kRegex, .text = std::string(kPattern)};
  }
  void Bind(uint64_t num_rows) {
    TensorSpec spec;
    spec.num_rows = num_rows;
    REQUIRE(session->Bind(TensorRole::kTargetRows, region, spec).ok());
  }

  SequenceHandle OpenConstrained(const std::string& name) {
    SequenceParams params;
    params.max_tokens = 100;
    params.seed = 11;
    params.has_seed = true;
    params.grammar_kind = grammar::GrammarKind::kRegex;
    params.grammar_text = kPattern;
    const auto info = session->OpenSequences(name, params);
    REQUIRE_MESSAGE(info.ok(), info.status().ToString());
    return info->front().handle;
  }

  // The rounds have numbers from 1 on.
  void SubmitOnStream(SequenceHandle sequence) {
    for (size_t i = 0; i < 4 * kLimits.vocab_size; ++i) {
      logits[i] = static_cast<float>(random() % 500) / 100.0f;
    }
    for (TokenId& id : drafts) id = static_cast<TokenId>(random() % 5 + 1);
    SequenceInput input;
    input.sequence = sequence;
    input.draft = {.num_nodes = 3, .tokens = drafts, .target_rows = rows};
    engine->ArmWords();
    REQUIRE(engine->SubmitOnStream(++number, {&input, 1}, 0) == PushResult::kOk);
  }
  void MakeReady() { segment->round_words(number)->ready.store(number); }
  // The states that masks and drafts have met so far are part of this.
  size_t StateBytes() const { return compiled->size_bytes(); }

  ModelProfile model;
  GrammarCompilers compilers;
  std::shared_ptr<const grammar::CompiledGrammar> compiled;
  uint32_t region = 0;
  float* logits = nullptr;
  std::mt19937 random{5};
  TokenId drafts[3] = {};
  uint64_t number = 0;
};

VerifyLoop::Options Quiet() {
  return {0, [](std::string_view) {}, [](Session&, ChannelFault) {}};
}

// Runs rounds to the sequence's end, and returns its tokens.
template <class Step>
Ids Generate(ConstrainedSession& f, Step step) {
  const SequenceHandle sequence = f.OpenConstrained("r");
  Ids ids;
  for (FinishReason reason = FinishReason::kNone; reason == FinishReason::kNone;) {
    f.SubmitOnStream(sequence);
    step();
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    REQUIRE(done.results[0].status == RoundStatus::kOk);
    ids.insert(ids.end(), done.results[0].tokens,
               done.results[0].tokens + done.results[0].num_kept);
    reason = done.results[0].finish_reason;
  }
  REQUIRE(f.session->CloseSequence(sequence).ok());
  return ids;
}

TEST_SUITE("unit") {
  TEST_CASE("masks are built before the rows are ready, and the round builds none") {
    ConstrainedSession f;
    SessionList list;
    list.Add(f.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle sequence = f.OpenConstrained("r");
    const size_t before = f.StateBytes();
    f.SubmitOnStream(sequence);
    // The first look builds the masks; the second finds them built, and the loop may sleep.
    CHECK_FALSE(loop.Step());
    CHECK_FALSE(loop.Step());
    const size_t prepared = f.StateBytes();
    CHECK(prepared > before);
    CompletionView done;
    CHECK_FALSE(f.engine->Poll(&done));
    f.MakeReady();
    CHECK(loop.Step());
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kOk);
    CHECK(f.StateBytes() == prepared);
  }

  TEST_CASE("prepared rounds have the same tokens as rounds that were not prepared") {
    ConstrainedSession prepared;
    ConstrainedSession plain;
    SessionList list;
    list.Add(prepared.session);
    VerifyLoop loop(&list, Quiet());
    size_t num_tokens = 0;
    for (int text = 0; text < 20; ++text) {
      const Ids expected = Generate(plain, [&plain] {
        plain.MakeReady();
        REQUIRE(plain.session->Step());
      });
      const Ids found = Generate(prepared, [&prepared, &loop] {
        loop.Step();
        prepared.MakeReady();
        REQUIRE(loop.Step());
      });
      REQUIRE(found == expected);
      num_tokens += found.size();
    }
    CHECK(num_tokens > 60);
  }

  TEST_CASE("others are served while a round waits, and only the oldest round is prepared") {
    ConstrainedSession f;
    SessionFixture other;
    SessionList list;
    list.Add(f.session);
    list.Add(other.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle first = f.OpenConstrained("first");
    const SequenceHandle second = f.OpenConstrained("second");
    f.SubmitOnStream(first);
    other.backend->script = {Confirm(0, {1})};
    REQUIRE(other.Submit({other.Open("other")}) == PushResult::kOk);
    CHECK(loop.Step());
    CHECK(other.backend->seen.size() == 1);
    CHECK_FALSE(loop.Step());
    const size_t prepared = f.StateBytes();
    f.SubmitOnStream(second);
    CHECK_FALSE(loop.Step());
    CHECK(f.StateBytes() == prepared);
    f.segment->round_words(1)->ready.store(1);
    CHECK(loop.Step());
    CHECK_FALSE(loop.Step());
    f.MakeReady();
    CHECK(loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.round_id == 1);
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.round_id == 2);
    CHECK(done.results[0].sequence == second);
  }

  TEST_CASE("between preparation and run a sequence may be closed, or aborted, and rows unbound") {
    for (int event = 0; event < 4; ++event) {
      CAPTURE(event);
      ConstrainedSession f;
      SessionList list;
      list.Add(f.session);
      VerifyLoop loop(&list, Quiet());
      const SequenceHandle sequence = f.OpenConstrained("r");
      f.SubmitOnStream(sequence);
      CHECK_FALSE(loop.Step());
      SequenceHandle reopened = 0;
      if (event == 0) {
        REQUIRE(f.session->CloseSequence(sequence).ok());
      } else if (event == 1) {
        REQUIRE(f.session->CloseSequence(sequence).ok());
        reopened = f.OpenConstrained("again");  // in the same slot
      } else if (event == 2) {
        REQUIRE(f.session->AbortSequence(sequence).ok());
      } else {
        f.Bind(2);  // the round names rows 0 to 3
      }
      CHECK_FALSE(loop.Step());
      f.MakeReady();
      CHECK(loop.Step());
      CompletionView done;
      REQUIRE(f.engine->Poll(&done));
      const SequenceResult& result = done.results[0];
      CHECK(result.sequence == sequence);
      CHECK(result.num_kept == 0);
      if (event <= 1) CHECK(result.status == RoundStatus::kUnknownSequence);
      if (event == 2) CHECK(result.status == RoundStatus::kFinished);
      if (event == 3) CHECK(result.refusal == Refusal::kTargetRow);
      if (reopened != 0) CHECK(f.engine->ReadState(SlotOf(reopened)).kept_tokens == 0);
    }
  }

  TEST_CASE("a prepared round whose stream is released confirms nothing, and can come again") {
    ConstrainedSession f;
    SessionList list;
    list.Add(f.session);
    VerifyLoop loop(&list, Quiet());
    const SequenceHandle sequence = f.OpenConstrained("r");
    f.SubmitOnStream(sequence);
    CHECK_FALSE(loop.Step());
    Decide(f.segment->round_words(1), 1, RoundEnd::kAborted);
    Release(f.segment->round_words(1), 1);
    f.MakeReady();
    CHECK(loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.results[0].status == RoundStatus::kAborted);
    f.SubmitOnStream(sequence);
    f.MakeReady();
    while (!f.engine->Poll(&done)) REQUIRE(loop.Step());
    CHECK(done.results[0].status == RoundStatus::kOk);
    CHECK(done.results[0].num_kept > 0);
  }

  TEST_CASE("an engine that changes a round while it waits gets the changed round") {
    ConstrainedSession f;
    SessionList list;
    list.Add(f.session);
    VerifyLoop loop(&list, Quiet());
    f.SubmitOnStream(f.OpenConstrained("r"));
    CHECK_FALSE(loop.Step());
    SubmissionEntry& entry = f.segment->submission_entries()[0];
    entry.payload_bytes += 8;
    f.MakeReady();
    CHECK(loop.Step());
    CompletionView done;
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.malformed);
    // A ring entry that names no records is not prepared either.
    f.SubmitOnStream(f.OpenConstrained("s"));
    f.segment->submission_entries()[1].payload_offset = 1;
    CHECK_FALSE(loop.Step());
    f.MakeReady();
    CHECK(loop.Step());
    REQUIRE(f.engine->Poll(&done));
    CHECK(done.malformed);
  }
}

}  // namespace
}  // namespace specd
