// Drives a TextStream in tests: makes small vocabularies and records the text that every token
// releases. Each token is pushed once, in the order of the vocabulary; one thread.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "detokenizer/stop_matcher.h"
#include "detokenizer/text_stream.h"
#include "detokenizer/vocabulary.h"

namespace specd {

struct TestToken {
  std::string bytes;
  TokenFlags flags = {};
};

// Token i of the list has id i.
inline Vocabulary MakeVocabulary(const std::vector<TestToken>& tokens) {
  Vocabulary::Builder builder;
  TokenId id = 0;
  for (const TestToken& token : tokens) builder.Set(id++, token.bytes, token.flags);
  return std::move(builder).Build();
}

inline std::shared_ptr<const StopSet> MakeStops(std::vector<std::string> strings) {
  auto stops = StopSet::Create(std::move(strings));
  REQUIRE(stops.ok());
  return *stops;
}

// Each token's bytes become an id of their own and are pushed in order.
struct Driver {
  explicit Driver(const std::vector<TestToken>& tokens, std::vector<std::string> stop_strings = {},
                  TextOptions options = {})
      : vocabulary(MakeVocabulary(tokens)),
        num_tokens(tokens.size()),
        stream(&vocabulary, MakeStops(std::move(stop_strings)), options) {}

  // The text that each token released, until one completes a stop string.
  std::vector<std::string> PushAll() {
    std::vector<std::string> released;
    for (size_t i = 0; i < num_tokens && !stop; ++i) {
      TextChunk chunk;
      stop = stream.Push(static_cast<TokenId>(i), false, &chunk);
      released.push_back(chunk.text);
      text += chunk.text;
      ++num_kept;
    }
    return released;
  }

  std::string Finish(TextEnd how = TextEnd::kFlush) {
    TextChunk chunk;
    stream.Finish(how, &chunk);
    text += chunk.text;
    return chunk.text;
  }

  Vocabulary vocabulary;
  size_t num_tokens;
  TextStream stream;
  std::string text;
  std::optional<int> stop;
  size_t num_kept = 0;
};

// The common case: plain tokens.
inline std::vector<TestToken> Plain(const std::vector<std::string>& pieces) {
  std::vector<TestToken> tokens;
  for (const std::string& piece : pieces) tokens.push_back({piece});
  return tokens;
}

}  // namespace specd
