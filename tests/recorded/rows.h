// These functions make rows and masks of the recorded rounds from short texts, so that no row is
// committed.
//
// A row is "SHAPE:SEED" or "SHAPE:SEED~NOISE". With NOISE, about every fourth id has the value of
// the row SHAPE:NOISE instead. A value is k * 2^e, where a hash of seed and id gives the integer k.
// The value has so few bits that every dtype holds it exactly. No function of the C library is
// asked, so the rows are the same on every machine. tests/data/traces/README.md describes the
// shapes. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/recorded/life.h"

namespace specd::recorded {

// The output of SplitMix64 for a counter.
uint64_t Hash(uint64_t seed, uint64_t counter);

// The elements of a row. Throws std::runtime_error for an unknown shape.
std::vector<float> RowValues(std::string_view text, uint32_t vocab_size, const RowFormat& format);

uint32_t ElementBytes(const RowFormat& format);
// Writes the elements in the dtype of the format. REQUIRES: room for them at `to`.
void StoreRow(const std::vector<float>& values, const RowFormat& format, void* to);

// The words of a mask, ceil(vocab_size / 32) of them. The text is "all", "none", "half:SEED" or
// "one:ID".
std::vector<uint32_t> MaskWords(std::string_view text, uint32_t vocab_size);

}  // namespace specd::recorded
