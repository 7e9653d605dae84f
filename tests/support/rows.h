// RowMatrix holds rows of a chosen type, stride and alignment for tests. It is filled from doubles,
// and gives the values that kernels see after rounding to that type.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/core/types.h"

namespace specd {

// The stored form of a value, computed from the definition of the format and not with the kernels'
// conversions. Rounds towards zero; a magnitude beyond the format becomes infinite.
double RoundTo(DType dtype, double value);

// Memory for `num_rows` rows. Rows start `offset` elements into the memory, so a row need not be
// aligned to more than an element. Rows lie `row_stride` apart; gaps hold NaNs, which no kernel may
// read.
class RowMatrix {
 public:
  struct Options {
    DType dtype = DType::kFloat32;
    int32_t vocab_size = 0;
    int64_t num_rows = 0;
    int64_t padding = 0;  // row_stride - vocab_size
    int64_t offset = 0;
    ElementRules rules = {};
  };

  explicit RowMatrix(const Options& options);

  // Stores a row, and returns it as stored.
  std::vector<double> Set(int64_t row, const std::vector<double>& values);

  TensorView view() const;
  RowView row(int64_t index) const { return RowAt(view(), index); }

 private:
  Options options_;
  std::vector<unsigned char> memory_;
};

// Logits like a language model's: normal noise and a few spikes.
std::vector<double> RandomLogits(std::mt19937_64& random, int32_t vocab_size, double sigma = 2.0);

}  // namespace specd
