// Rows and masks of the recorded rounds, made from a short text, so that no row is committed.
//
// A row is "SHAPE:SEED" or "SHAPE:SEED~NOISE"; with NOISE, every fourth id or so has the value of
// the row SHAPE:NOISE instead. A value is k * 2^e with an integer k that a hash of seed and id
// gives, and with so few bits that every dtype holds it exactly. No function of the C library is
// asked, so the rows are the same on every machine. tests/data/recorded_rounds/README.md describes
// the shapes. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/recorded/life.h"

namespace specd::recorded {

// SplitMix64 of a counter.
uint64_t Hash(uint64_t seed, uint64_t counter);

// The elements of a row; throws std::runtime_error for a shape that there is not.
std::vector<float> RowValues(std::string_view text, uint32_t vocab_size, const RowFormat& format);

uint32_t ElementBytes(const RowFormat& format);
// Writes the elements as format.dtype says. REQUIRES: room for them at `to`.
void StoreRow(const std::vector<float>& values, const RowFormat& format, void* to);

// A mask is "all", "none", "half:SEED", "one:ID"; ceil(vocab_size / 32) words.
std::vector<uint32_t> MaskWords(std::string_view text, uint32_t vocab_size);

}  // namespace specd::recorded
