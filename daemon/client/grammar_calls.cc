#include "daemon/client/grammar_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "daemon/base/cpus.h"
#include "ipc/base/error.h"
#include "speculative/sequence/sequence_grammar.h"

namespace specd {
namespace {

using grammar::CompiledGrammar;
using grammar::GrammarKind;
using grammar::GrammarRequest;
using grammar::MaskRow;
using grammar::MatcherFault;
using grammar::Whitespace;

absl::Status CheckChoice(const char* field, uint32_t value, uint32_t first, uint32_t last) {
  if (value >= first && value <= last) return absl::OkStatus();
  return Invalid(field, fmt::format("{} = {} is outside {} .. {}", field, value, first, last));
}

absl::StatusOr<GrammarRequest> ReadRequest(const specd_grammar_options& options) {
  for (const absl::Status& status :
       {CheckChoice("kind", options.kind, SPECD_GRAMMAR_JSON, SPECD_GRAMMAR_STRUCTURAL_TAG),
        CheckChoice("whitespace", options.whitespace, SPECD_WHITESPACE_FLEXIBLE,
                    SPECD_WHITESPACE_COMPACT),
        CheckChoice("lenient", options.lenient, 0, 1),
        CheckChoice("key_order", options.key_order, SPECD_KEY_ORDER_SCHEMA, SPECD_KEY_ORDER_ANY)}) {
    if (!status.ok()) return status;
  }
  if (options.text == nullptr && options.kind != SPECD_GRAMMAR_JSON_OBJECT) {
    return Invalid("text", "text is NULL; only SPECD_GRAMMAR_JSON_OBJECT has none");
  }
  absl::StatusOr<std::string_view> text =
      TextOf("text", options.text, options.text_bytes, grammar::kGrammarTextBytesMax);
  if (!text.ok()) return text.status();
  return GrammarRequest{.kind = static_cast<GrammarKind>(options.kind),
                        .text = std::string(*text),
                        .whitespace = static_cast<Whitespace>(options.whitespace),
                        .key_order = static_cast<grammar::KeyOrder>(options.key_order),
                        .lenient = options.lenient == 1};
}

void CopyRow(const MaskRow& row, int32_t vocab_size, int32_t* words) {
  const size_t num_words = (static_cast<size_t>(vocab_size) + 31) / 32;
  if (!row.IsUnconstrained()) {
    std::memcpy(words, row.words().data(), num_words * sizeof(int32_t));
    return;
  }
  std::fill_n(words, num_words, -1);
  if (vocab_size % 32 != 0)
    words[num_words - 1] = static_cast<int32_t>((1u << vocab_size % 32) - 1);
}

template <class T>
bool HasTwice(std::vector<T> items) {
  std::sort(items.begin(), items.end());
  return std::adjacent_find(items.begin(), items.end()) != items.end();
}

absl::Status CheckMatchers(std::span<specd_matcher* const> matchers) {
  const int32_t vocab_size = matchers[0]->tokenizer->vocab_size();
  for (size_t i = 0; i < matchers.size(); ++i) {
    if (matchers[i]->tokenizer->vocab_size() == vocab_size) continue;
    return Invalid("matchers",
                   fmt::format("matchers[{}] has vocab_size = {}, and matchers[0] has {}; fill one "
                               "batch for each width",
                               i, matchers[i]->tokenizer->vocab_size(), vocab_size));
  }
  if (!HasTwice(std::vector<specd_matcher*>(matchers.begin(), matchers.end()))) {
    return absl::OkStatus();
  }
  return Invalid("matchers", "matchers: one of them is there twice; copy its row instead");
}

// The row of each matcher.
absl::StatusOr<std::vector<uint32_t>> ReadIndices(const specd_mask_rows& rows, size_t count) {
  std::vector<uint32_t> indices(count);
  for (size_t i = 0; i < count; ++i) {
    indices[i] = rows.indices == nullptr ? static_cast<uint32_t>(i) : rows.indices[i];
    if (indices[i] < rows.num_rows) continue;
    return Invalid("indices", fmt::format("matchers[{}] has row {}, which is outside 0 .. {}", i,
                                          indices[i], rows.num_rows - 1));
  }
  if (HasTwice(indices)) return Invalid("indices", "indices: two matchers have the same row");
  return indices;
}

absl::Status CheckRows(const specd_mask_rows& rows, uint64_t num_words) {
  constexpr uint64_t kRowsMax = std::numeric_limits<int32_t>::max();
  // Keeps every address within 63 bits.
  constexpr uint64_t kStrideMax = uint64_t{1} << 28;
  if (rows.num_rows < 1 || rows.num_rows > kRowsMax) {
    return Invalid("num_rows",
                   fmt::format("num_rows = {} is outside 1 .. {}", rows.num_rows, kRowsMax));
  }
  if (rows.row_stride != 0 && (rows.row_stride < num_words || rows.row_stride > kStrideMax)) {
    return Invalid("row_stride", fmt::format("row_stride = {} is outside {} .. {}, or 0 for rows "
                                             "without gaps",
                                             rows.row_stride, num_words, kStrideMax));
  }
  return CheckChoice("threads", rows.threads, 0, kThreadsMax);
}

}  // namespace

absl::StatusOr<std::unique_ptr<specd_grammar>> CompileGrammar(
    const specd_tokenizer& tokenizer, const specd_grammar_options& options) {
  absl::StatusOr<GrammarRequest> request = ReadRequest(options);
  if (!request.ok()) return request.status();
  grammar::GrammarHolder& holder = tokenizer.tokenizer->holder();
  if (absl::Status status = holder.CheckRoom(); !status.ok()) return status;
  grammar::CompileResult compiled = tokenizer.tokenizer->compiler().Compile(*request);
  if (compiled.ok()) compiled = holder.Hold(*std::move(compiled));
  if (!compiled.ok()) return compiled.status();
  auto made = std::make_unique<specd_grammar>();
  made->tokenizer = tokenizer.tokenizer;
  made->compiled = *std::move(compiled);
  for (const std::string& text : made->compiled->warnings()) made->warnings.push_back(text.c_str());
  return made;
}

absl::StatusOr<std::unique_ptr<specd_matcher>> NewMatcher(const specd_grammar& grammar,
                                                          const specd_ids& stop_ids) {
  absl::StatusOr<std::vector<TokenId>> ids = grammar.tokenizer->StopIds(stop_ids, "stop_ids");
  if (!ids.ok()) return ids.status();
  auto made = std::make_unique<specd_matcher>();
  made->tokenizer = grammar.tokenizer;
  made->matcher = grammar.compiled->NewMatcher({.stop_ids = *std::move(ids)});
  return made;
}

absl::Status CheckFault(grammar::MatcherFault fault) {
  if (fault == grammar::MatcherFault::kNone) return absl::OkStatus();
  return MakeError(SPECD_ERROR_EXHAUSTED, "matcher", RefusalText(RefusalOf(fault)));
}

absl::Status WriteMask(specd_matcher* matcher, int32_t* words, uint64_t num_words) {
  const GrammarTokenizer& tokenizer = *matcher->tokenizer;
  if (num_words != tokenizer.num_mask_words()) {
    return Invalid("num_words",
                   fmt::format("num_words = {}, but a row of vocab_size = {} has exactly {}",
                               num_words, tokenizer.vocab_size(), tokenizer.num_mask_words()));
  }
  const MaskRow row = matcher->matcher->Mask();
  if (absl::Status s = CheckFault(matcher->matcher->fault()); !s.ok()) return s;
  CopyRow(row, tokenizer.vocab_size(), words);
  return absl::OkStatus();
}

absl::Status RollBack(specd_matcher* matcher, uint64_t num_ids) {
  const size_t num_accepted = matcher->matcher->num_accepted();
  if (num_ids > num_accepted) {
    return Invalid("num_ids", fmt::format("num_ids = {} is outside 0 .. {}, the number of accepted "
                                          "ids",
                                          num_ids, num_accepted));
  }
  matcher->matcher->Rollback(num_ids);
  return absl::OkStatus();
}

absl::Status FillMasks(std::span<specd_matcher* const> matchers, const specd_mask_rows& rows) {
  if (matchers.empty()) return absl::OkStatus();
  GrammarTokenizer& tokenizer = *matchers[0]->tokenizer;
  const uint64_t num_words = tokenizer.num_mask_words();
  if (absl::Status s = CheckMatchers(matchers); !s.ok()) return s;
  if (absl::Status s = CheckRows(rows, num_words); !s.ok()) return s;
  absl::StatusOr<std::vector<uint32_t>> indices = ReadIndices(rows, matchers.size());
  if (!indices.ok()) return indices.status();
  const uint64_t stride = rows.row_stride == 0 ? num_words : rows.row_stride;
  tokenizer.pool().Share(matchers.size(), ResolveThreads(rows.threads), [&](size_t i) {
    CopyRow(matchers[i]->matcher->Mask(), tokenizer.vocab_size(),
            rows.words + (*indices)[i] * stride);
  });
  for (const specd_matcher* matcher : matchers) {
    if (absl::Status s = CheckFault(matcher->matcher->fault()); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace specd
