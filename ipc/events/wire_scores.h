// WriteScores and ReadScores put the scores of tokens into an event's map and take them out again,
// for token events and text events.
//
// On the wire, `scores` has an array for each token, and that array a triple for each score: id,
// value (32-bit float) and score rank. An event of a sequence without logprobs has no such key.
// Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/base/msgpack_codec.h"
#include "kernels/core/token_score.h"

namespace specd {

// An upper bound of the bytes that the scores of one event take on the wire.
constexpr size_t WireScoresBytes(size_t num_tokens, size_t num_scores) {
  constexpr size_t kKeyBytes = 7 + 3;        // "scores" and the array of tokens
  constexpr size_t kTokenBytes = 3;          // the array of one token
  constexpr size_t kScoreBytes = 1 + 3 * 5;  // the triple, and three numbers of 32 bits
  return num_scores == 0 ? 0 : kKeyBytes + num_tokens * kTokenBytes + num_scores * kScoreBytes;
}

// Writes the key if there are scores. REQUIRES: every token has the same number of scores.
void WriteScores(std::span<const TokenScore> scores, uint64_t num_tokens, MapWriter* writer);

// Reads the key if it is there. It must have the scores of `num_tokens` tokens.
void ReadScores(MapReader* reader, uint64_t num_tokens, std::vector<TokenScore>* out);

}  // namespace specd
