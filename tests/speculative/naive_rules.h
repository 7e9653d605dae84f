// NaiveRules computes the edits of a place by brute force from CONTRACT §3, for tests of RowRules.
//
// It counts everything anew from the whole list of tokens, draft prefix included. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "speculative/params/params.h"

namespace specd {

using Ids = std::vector<TokenId>;

// The edits of one id.
struct Effect {
  bool seen = false;
  bool disallowed = false;
  bool end = false;
  bool banned = false;
  double bias = 0;
  uint32_t count = 0;
  bool operator==(const Effect&) const = default;
};

inline bool Has(const Ids& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}
inline bool EndsWith(const Ids& ids, std::span<const TokenId> tail) {
  return ids.size() >= tail.size() && std::equal(tail.rbegin(), tail.rend(), ids.rbegin());
}

struct NaiveRules {
  SequenceParams params;
  Ids eos;
  Ids prompt;
  Ids outputs;  // with the draft prefix

  Ids All() const {
    Ids all = prompt;
    all.insert(all.end(), outputs.begin(), outputs.end());
    return all;
  }

  // SGLang's DeepseekOCRNoRepeatNGramLogitProcessor; window 0 is all.
  bool NgramBans(TokenId id) const {
    const auto n = static_cast<int64_t>(params.no_repeat_ngram_size);
    const Ids all = All();
    const auto len = static_cast<int64_t>(all.size());
    if (n == 0 || len < n || Has(params.no_repeat_ngram_whitelist, id)) return false;
    const int64_t window = params.no_repeat_ngram_window;
    const int64_t first = window > 0 ? std::max<int64_t>(0, len - window) : 0;
    for (int64_t i = first; i < len - n + 1; ++i) {
      if (all[static_cast<size_t>(i + n - 1)] == id &&
          std::equal(all.begin() + i, all.begin() + i + n - 1, all.end() - (n - 1))) {
        return true;
      }
    }
    return false;
  }

  bool RunBans(TokenId id) const {
    for (const ProcessorParams& processor : params.processors) {
      if (processor.name != "repeat_run") continue;
      const auto run = static_cast<size_t>(processor.values[0].second);
      if (EndsWith(outputs, Ids(run, id))) return true;
    }
    return false;
  }

  bool WordBans(TokenId id) const {
    return std::any_of(params.bad_words.begin(), params.bad_words.end(), [&](const Ids& word) {
      return word.back() == id && EndsWith(outputs, std::span(word).first(word.size() - 1));
    });
  }

  Effect Of(TokenId id) const {
    Effect effect;
    for (const TokenBias& bias : params.logit_bias) {
      if (bias.id == id) effect.bias = bias.bias;
    }
    effect.disallowed = Has(params.disallowed_token_ids, id);
    effect.end = params.min_tokens > 0 && (Has(eos, id) || Has(params.stop_token_ids, id));
    effect.banned = WordBans(id) || NgramBans(id) || RunBans(id);
    const bool repetition = params.repetition_penalty != 1;
    if (repetition || params.frequency_penalty != 0 || params.presence_penalty != 0) {
      effect.count = static_cast<uint32_t>(std::count(outputs.begin(), outputs.end(), id));
      effect.seen = effect.count > 0 || (repetition && Has(prompt, id));
    }
    return effect;
  }

  TokenId Forced() const {
    if (params.thinking.budget < 0) return kNoToken;
    const Ids all = All();
    const auto start = std::find(all.rbegin(), all.rend(), params.thinking.start_id);
    if (start == all.rend()) return kNoToken;
    const Ids body(start.base(), all.end());
    const Ids& end = params.thinking.end_ids;
    if (std::search(body.begin(), body.end(), end.begin(), end.end()) != body.end()) {
      return kNoToken;
    }
    if (static_cast<int64_t>(body.size()) < params.thinking.budget) return kNoToken;
    for (size_t size = end.size() - 1; size > 0; --size) {
      if (EndsWith(body, std::span(end).first(size))) {
        return end[size];
      }
    }
    const TokenId newline = params.thinking.newline_id;
    if (newline == kNoToken || (!outputs.empty() && outputs.back() == newline)) return end[0];
    return newline;
  }
};

}  // namespace specd
