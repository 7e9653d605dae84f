// ParamTable gives the rows of param_list.inc as data: each parameter's place in SequenceParams,
// its range, its meaning and its names in peers.
//
// ValidateParams walks the rows, tools/params_doc prints docs/PARAMETERS.md from them, and
// param_numbers.h sets a number by its name. The default of a parameter is its value in
// SequenceParams{}. Constant data, safe from any thread.
//
//   const ParamRow* row = FindParam("top_p");
//   std::get<ParamPlace<double>>(row->place).write(params) = 0.9;
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "speculative/params/params.h"

namespace specd {

// The place of a field in the struct.
template <class T>
struct ParamPlace {
  const T& (*read)(const SequenceParams&);
  T& (*write)(SequenceParams&);
};

// The place of an enumeration. The value is the index of its name.
struct ChoicePlace {
  uint32_t (*read)(const SequenceParams&);
  void (*write)(SequenceParams&, uint32_t);
};

// A field's type is the alternative that its place holds.
using AnyParamPlace =
    std::variant<ParamPlace<double>, ParamPlace<int64_t>, ParamPlace<uint64_t>, ParamPlace<bool>,
                 ParamPlace<TokenId>, ChoicePlace, ParamPlace<std::vector<TokenId>>,
                 ParamPlace<std::vector<TokenBias>>, ParamPlace<std::vector<std::vector<TokenId>>>,
                 ParamPlace<std::vector<std::string>>, ParamPlace<std::vector<ProcessorParams>>,
                 ParamPlace<std::vector<double>>>;

// An interval of numbers; an infinite end is no bound.
struct ParamRange {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool excludes_minimum = false;

  // False for NaN.
  bool Contains(double value) const;
};

struct ParamRow {
  std::string_view field;
  AnyParamPlace place;
  // The range of a number, or of each bias in a list. Token ids need none: they lie inside the
  // vocabulary.
  ParamRange range;
  // For a list; 0: as many as the vocabulary has ids.
  size_t max_count = 0;
  // The names of an enumeration; the index is the value.
  std::span<const std::string_view> choices;
  // The parameter's names in peers; empty: that peer has no such parameter.
  std::string_view vllm_name;
  std::string_view sglang_name;
  std::string_view meaning;
};

// In the order of param_list.inc.
std::span<const ParamRow> ParamTable();

// Returns null if no field has this name.
const ParamRow* FindParam(std::string_view field);

// Returns "0 .. 2", "above 0 .. 1", "-1 or more". For a whole row it returns such as "at most 64
// ids in 0 .. vocab_size - 1".
std::string RangeText(const ParamRange& range);
std::string RangeText(const ParamRow& row);

// Returns "0.7", "greedy", "3 entries", "empty".
std::string ValueText(const ParamRow& row, const SequenceParams& params);

}  // namespace specd
