// The C functions of <specd/grammar.h> over daemon/client/grammar_calls.h. This file has their null
// checks and struct sizes. No exception leaves it.

#include <algorithm>
#include <cstring>

#include "daemon/client/api_guard.h"
#include "daemon/client/grammar_calls.h"
#include "daemon/client/struct_array.h"
#include "ipc/include/specd/grammar.h"

namespace {

using specd::api::Adopt;
using specd::api::Guard;
using specd::api::NullArgument;

// Sets *handle to the object that `make` makes, or to null on an error.
template <class Handle, class Make>
int Hand(Make make, Handle** handle) {
  *handle = nullptr;
  return Guard([&]() -> absl::Status {
    auto made = make();
    if (!made.ok()) return made.status();
    *handle = made->release();
    return absl::OkStatus();
  });
}

// Returns what `ask` says about a matcher as 1 or 0.
template <class Ask>
int Answer(specd_matcher* matcher, Ask ask) {
  if (matcher == nullptr) return NullArgument("matcher");
  return Guard([&]() -> absl::StatusOr<int> { return ask(*matcher->matcher) ? 1 : 0; });
}

}  // namespace

extern "C" {

void specd_tokenizer_options_init(specd_tokenizer_options* options) {
  *options = {};
  options->struct_size = sizeof(*options);
}

void specd_grammar_options_init(specd_grammar_options* options) {
  *options = {};
  options->struct_size = sizeof(*options);
}

void specd_mask_rows_init(specd_mask_rows* rows) {
  *rows = {};
  rows->struct_size = sizeof(*rows);
}

int specd_tokenizer_new(const specd_tokenizer_options* options, specd_tokenizer** tokenizer) {
  if (options == nullptr) return NullArgument("options");
  if (tokenizer == nullptr) return NullArgument("tokenizer");
  return specd::api::Open(
      options, specd_tokenizer_options_init,
      [](const specd_tokenizer_options& adopted) {
        return specd::GrammarTokenizer::Create(adopted);
      },
      tokenizer);
}

void specd_tokenizer_free(specd_tokenizer* tokenizer) { delete tokenizer; }

int specd_grammar_compile(specd_tokenizer* tokenizer, const specd_grammar_options* options,
                          specd_grammar** grammar) {
  if (tokenizer == nullptr) return NullArgument("tokenizer");
  if (options == nullptr) return NullArgument("options");
  if (grammar == nullptr) return NullArgument("grammar");
  return Hand(
      [&]() -> absl::StatusOr<std::unique_ptr<specd_grammar>> {
        specd_grammar_options adopted;
        if (absl::Status s = Adopt(options, specd_grammar_options_init, &adopted); !s.ok()) {
          return s;
        }
        return specd::CompileGrammar(*tokenizer, adopted);
      },
      grammar);
}

void specd_grammar_free(specd_grammar* grammar) { delete grammar; }

int specd_get_grammar_info(const specd_grammar* grammar, specd_grammar_info* info) {
  if (grammar == nullptr) return NullArgument("grammar");
  if (info == nullptr) return NullArgument("info");
  return Guard([&]() -> absl::Status {
    specd::OutputArray<specd_grammar_info> out;
    if (absl::Status s = out.Check("info", info, 1, &out); !s.ok()) return s;
    specd_grammar_info found = {};
    found.vocab_size = static_cast<uint32_t>(grammar->tokenizer->vocab_size());
    found.num_mask_words = grammar->tokenizer->num_mask_words();
    found.size_bytes = grammar->compiled->size_bytes();
    found.warnings = {grammar->warnings.data(), grammar->warnings.size()};
    out.Put(0, found);
    return absl::OkStatus();
  });
}

int specd_matcher_new(const specd_grammar* grammar, specd_ids stop_ids, specd_matcher** matcher) {
  if (grammar == nullptr) return NullArgument("grammar");
  if (matcher == nullptr) return NullArgument("matcher");
  return Hand([&] { return specd::NewMatcher(*grammar, stop_ids); }, matcher);
}

int specd_matcher_fork(const specd_matcher* matcher, specd_matcher** fork) {
  if (matcher == nullptr) return NullArgument("matcher");
  if (fork == nullptr) return NullArgument("fork");
  return Hand(
      [&]() -> absl::StatusOr<std::unique_ptr<specd_matcher>> {
        auto made = std::make_unique<specd_matcher>();
        made->tokenizer = matcher->tokenizer;
        made->matcher = matcher->matcher->Fork();
        return made;
      },
      fork);
}

void specd_matcher_free(specd_matcher* matcher) { delete matcher; }

int specd_matcher_mask(specd_matcher* matcher, int32_t* words, uint64_t num_words) {
  if (matcher == nullptr) return NullArgument("matcher");
  if (words == nullptr) return NullArgument("words");
  return Guard([&] { return specd::WriteMask(matcher, words, num_words); });
}

int specd_matcher_accept(specd_matcher* matcher, int32_t id) {
  if (matcher == nullptr) return NullArgument("matcher");
  return Guard([&]() -> absl::StatusOr<int> {
    if (matcher->matcher->Accept(id)) return 1;
    // Either the constraint forbids the id, or a limit was met.
    if (absl::Status s = specd::CheckFault(matcher->matcher->fault()); !s.ok()) return s;
    return 0;
  });
}

int specd_matcher_rollback(specd_matcher* matcher, uint64_t num_ids) {
  if (matcher == nullptr) return NullArgument("matcher");
  return Guard([&] { return specd::RollBack(matcher, num_ids); });
}

int specd_matcher_num_accepted(const specd_matcher* matcher, uint64_t* num_ids) {
  if (matcher == nullptr) return NullArgument("matcher");
  if (num_ids == nullptr) return NullArgument("num_ids");
  *num_ids = matcher->matcher->num_accepted();
  return SPECD_OK;
}

int specd_matcher_is_terminated(specd_matcher* matcher) {
  return Answer(matcher, [](specd::grammar::GrammarMatcher& at) { return at.IsTerminated(); });
}

int specd_matcher_is_accepting(specd_matcher* matcher) {
  return Answer(matcher, [](specd::grammar::GrammarMatcher& at) { return at.IsAccepting(); });
}

int specd_matcher_is_finished(specd_matcher* matcher) {
  if (matcher == nullptr) return NullArgument("matcher");
  return Guard([&]() -> absl::StatusOr<int> {
    const bool is_finished = matcher->matcher->IsFinished();
    // Whether a text can continue is a question to its mask, which may meet a limit.
    if (absl::Status s = specd::CheckFault(matcher->matcher->fault()); !s.ok()) return s;
    return is_finished ? 1 : 0;
  });
}

int specd_matcher_forced_text(specd_matcher* matcher, const char** text, uint64_t* size_bytes) {
  if (matcher == nullptr) return NullArgument("matcher");
  if (text == nullptr) return NullArgument("text");
  if (size_bytes == nullptr) return NullArgument("size_bytes");
  return Guard([&]() -> absl::Status {
    matcher->forced_text = matcher->matcher->ForcedText();
    *text = matcher->forced_text.data();
    *size_bytes = matcher->forced_text.size();
    return absl::OkStatus();
  });
}

int specd_matcher_forced_tokens(specd_matcher* matcher, int32_t* ids, uint64_t max_ids,
                                uint64_t* num_ids) {
  if (matcher == nullptr) return NullArgument("matcher");
  if (ids == nullptr && max_ids > 0) return NullArgument("ids");
  if (num_ids == nullptr) return NullArgument("num_ids");
  return Guard([&]() -> absl::Status {
    const std::vector<specd::TokenId> found =
        matcher->tokenizer->forced_tokens().Find(*matcher->matcher, max_ids);
    std::copy(found.begin(), found.end(), ids);
    *num_ids = found.size();
    return absl::OkStatus();
  });
}

int specd_fill_masks(specd_matcher* const* matchers, uint64_t count, const specd_mask_rows* rows) {
  if (rows == nullptr) return NullArgument("rows");
  if (matchers == nullptr && count > 0) return NullArgument("matchers");
  return Guard([&]() -> absl::Status {
    specd_mask_rows adopted;
    if (absl::Status s = Adopt(rows, specd_mask_rows_init, &adopted); !s.ok()) return s;
    if (adopted.words == nullptr) {
      return specd::MakeError(SPECD_ERROR_INVALID_ARGUMENT, "words", "words is NULL");
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (matchers[i] != nullptr) continue;
      return specd::MakeError(SPECD_ERROR_INVALID_ARGUMENT, "matchers",
                              fmt::format("matchers[{}] is NULL", i));
    }
    return specd::FillMasks({matchers, count}, adopted);
  });
}

}  // extern "C"
