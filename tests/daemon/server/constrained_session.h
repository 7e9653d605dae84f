// ConstrainedSession is a session whose sequences have a constraint, for tests of the work that the
// verify loop does before the rows of a round are ready. One thread.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/server/verify_loop.h"
#include "daemon/session/grammar_compilers.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/round_words.h"
#include "tests/support/sealed_memory.h"
#include "tests/support/session_fixture.h"

namespace specd::test {

// Two to nine times ab, b or c; behind an ab at the front, an x may follow them. It is spelled
// without a count: where a bound is far, masks are made at another state than the text's
// (LazyAutomaton::Near), and a new token makes a state then. A compile follows a text that begins
// with ab, so the states of the others are new.
inline constexpr std::string_view kPattern =
    "ab(ab|[bc])"
    "((ab|[bc])((ab|[bc])((ab|[bc])((ab|[bc])((ab|[bc])((ab|[bc])((ab|[bc])"
    ")?)?)?)?)?)?)?a?x?|"
    "[bc](ab|[bc])"
    "((ab|[bc])((ab|[bc])((ab|[bc])((ab|[bc])((ab|[bc])((ab|[bc])((ab|[bc])"
    ")?)?)?)?)?)?)?a?";

// A session over the CPU whose model has the tokens "a", "b", "c", "ab", "bc" as ids 1 to 5.
struct ConstrainedSession : SessionFixture {
  static constexpr uint64_t kRowBytes = 4 * kLimits.vocab_size * sizeof(float);

  explicit ConstrainedSession(ModelProfile profile_of_model = Profile(),
                              grammar::GrammarRequest constraint = Request())
      : SessionFixture(false),
        model(std::move(profile_of_model)),
        compilers(&model),
        request(std::move(constraint)) {
    SessionOptions options = session->options();
    options.profile = &model;
    options.grammars = &compilers;
    AttachWithoutRows(options, *MakeBackend("cpu"));
    const uint64_t size_bytes = kRowBytes + 4 * 3 * sizeof(TokenId);
    UniqueFd fd = SealedMemory(size_bytes);
    void* mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(mapped != MAP_FAILED);
    logits = static_cast<float*>(mapped);
    slot_ids = reinterpret_cast<TokenId*>(logits + kRowBytes / sizeof(float));
    region = *session->RegisterRegion(std::move(fd), size_bytes);
    Bind(4);
    TensorSpec spec;
    spec.offset_bytes = kRowBytes;
    spec.num_rows = 4;
    REQUIRE(session->Bind(TensorRole::kDraftTokens, region, spec).ok());
    // Sessions of one width share a compiler, and what it has compiled.
    compiled = *compilers.ForWidth(static_cast<int32_t>(kLimits.vocab_size))->Compile(request);
  }
  ~ConstrainedSession() { munmap(logits, kRowBytes + 4 * 3 * sizeof(TokenId)); }

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

  SequenceHandle OpenConstrained(const std::string& name, bool draft_edits = false) {
    SequenceParams params;
    params.max_tokens = 100;
    params.seed = 11;
    params.has_seed = true;
    params.draft.edits = draft_edits;
    params.grammar_kind = request.kind;
    params.grammar_text = request.text;
    const auto info = session->OpenSequences(name, params);
    REQUIRE_MESSAGE(info.ok(), info.status().ToString());
    return info->front().handle;
  }

  // The rounds have numbers from 1 on.
  void SubmitOnStream(SequenceHandle sequence) {
    FillRows();
    Submit(sequence, false);
  }
  void FillRows() {
    for (size_t i = 0; i < 4 * kLimits.vocab_size; ++i) {
      logits[i] = static_cast<float>(random() % 500) / 100.0f;
    }
    for (TokenId& id : drafts) id = static_cast<TokenId>(random() % 5 + 1);
  }
  // With drafts_by_slot, the round has the draft tokens that are in slot_ids when it runs.
  void Submit(SequenceHandle sequence, bool drafts_by_slot) {
    SequenceInput input;
    input.sequence = sequence;
    input.drafts_by_slot = drafts_by_slot;
    input.draft = {
        .num_nodes = 3, .tokens = drafts_by_slot ? nullptr : drafts, .target_rows = rows};
    engine->ArmWords();
    REQUIRE(engine->SubmitOnStream(++number, {&input, 1}, 0) == PushResult::kOk);
  }
  void MakeReady() { segment->round_words(number)->ready.store(number); }
  // The states that masks and drafts have met so far are part of this.
  size_t StateBytes() const { return compiled->size_bytes(); }

  ModelProfile model;
  GrammarCompilers compilers;
  grammar::GrammarRequest request;
  std::shared_ptr<const grammar::CompiledGrammar> compiled;
  uint32_t region = 0;
  float* logits = nullptr;
  TokenId* slot_ids = nullptr;  // three for each slot
  std::mt19937 random{5};
  TokenId drafts[3] = {};
  uint64_t number = 0;
};

inline VerifyLoop::Options Quiet() {
  return {0, [](std::string_view) {}, [](Session&, ChannelFault) {}};
}

}  // namespace specd::test
