#include "speculative/params/param_check.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "speculative/params/param_rules.h"
#include "speculative/params/param_table.h"

namespace specd {
namespace {

// Judges the value of one row. The type of the field chooses the overload.
class RowCheck {
 public:
  RowCheck(const ParamRow& row, int32_t vocab_size) : row_(row), vocab_size_(vocab_size) {}

  absl::Status operator()(double value) const { return Number(row_.field, value); }
  absl::Status operator()(int64_t value) const {
    return Number(row_.field, static_cast<double>(value));
  }
  absl::Status operator()(uint64_t) const { return absl::OkStatus(); }
  absl::Status operator()(bool) const { return absl::OkStatus(); }
  absl::Status operator()(TokenId value) const {
    return value == kNoToken ? absl::OkStatus() : Id(value);
  }
  absl::Status operator()(uint32_t value) const { return Choice(value); }

  absl::Status operator()(const std::vector<TokenId>& ids) const {
    if (absl::Status status = Count(ids.size(), "ids"); !status.ok()) return status;
    return Ids(ids);
  }

  absl::Status operator()(const std::vector<double>& numbers) const {
    if (absl::Status status = Count(numbers.size(), "numbers"); !status.ok()) return status;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const std::string name = fmt::format("{}[{}]", row_.field, i);
      if (absl::Status status = Number(name, numbers[i]); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const std::vector<TokenBias>& biases) const {
    if (absl::Status status = Count(biases.size(), "ids"); !status.ok()) return status;
    std::vector<TokenId> ids;
    for (const TokenBias& bias : biases) {
      if (absl::Status status = Id(bias.id); !status.ok()) return status;
      const std::string name = fmt::format("{}[{}]", row_.field, bias.id);
      if (absl::Status status = Number(name, bias.bias); !status.ok()) return status;
      ids.push_back(bias.id);
    }
    std::sort(ids.begin(), ids.end());
    const auto twice = std::adjacent_find(ids.begin(), ids.end());
    if (twice == ids.end()) return absl::OkStatus();
    return Refuse(fmt::format("{} has id {} twice; name each id once", row_.field, *twice));
  }

  absl::Status operator()(const std::vector<std::vector<TokenId>>& words) const {
    if (absl::Status status = Count(words.size(), "words"); !status.ok()) return status;
    size_t num_ids = 0;
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i].empty()) {
        return Refuse(fmt::format("{}[{}] is empty: it would forbid everything; leave it out",
                                  row_.field, i));
      }
      if (absl::Status status = Ids(words[i]); !status.ok()) return status;
      num_ids += words[i].size();
    }
    return Total(num_ids, kBadWordIdsMax, "ids");
  }

  absl::Status operator()(const std::vector<std::string>& texts) const {
    if (absl::Status status = Count(texts.size(), "strings"); !status.ok()) return status;
    size_t num_bytes = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].empty()) {
        return Refuse(
            fmt::format("{}[{}] is empty: it would match everywhere; leave it out", row_.field, i));
      }
      num_bytes += texts[i].size();
    }
    return Total(num_bytes, kStopBytesMax, "bytes");
  }

  // The registry judges the names of processors and the ranges of their numbers.
  absl::Status operator()(const std::vector<ProcessorParams>& processors) const {
    if (absl::Status status = Count(processors.size(), "processors"); !status.ok()) return status;
    for (const ProcessorParams& processor : processors) {
      std::set<std::string_view> names;
      for (const auto& [name, value] : processor.values) {
        const std::string path = fmt::format("{}.{}.{}", row_.field, processor.name, name);
        if (!names.insert(name).second) {
          return Refuse(fmt::format("{} is given twice; name each parameter once", path));
        }
        if (!std::isfinite(value)) {
          return Refuse(fmt::format("{} = {} is not a finite number", path, value));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Refuse(std::string_view text) {
    return absl::InvalidArgumentError(absl::string_view(text.data(), text.size()));
  }

  absl::Status Number(std::string_view name, double value) const {
    if (row_.range.Contains(value)) return absl::OkStatus();
    return Refuse(fmt::format("{} = {} is outside {} ({}); default {}", name, value,
                              RangeText(row_.range), row_.meaning, ValueText(row_, {})));
  }

  absl::Status Choice(size_t value) const {
    if (value < row_.choices.size()) return absl::OkStatus();
    std::string names;
    for (size_t i = 0; i < row_.choices.size(); ++i) {
      names += fmt::format("{}{} ({})", i == 0 ? "" : ", ", i, row_.choices[i]);
    }
    return Refuse(fmt::format("{} = {} is unknown; use one of {}", row_.field, value, names));
  }

  absl::Status Id(TokenId id) const {
    if (id >= 0 && id < vocab_size_) return absl::OkStatus();
    return Refuse(
        fmt::format("{}: {} is outside 0 .. {} (vocab_size - 1)", row_.field, id, vocab_size_ - 1));
  }

  absl::Status Ids(const std::vector<TokenId>& ids) const {
    for (TokenId id : ids) {
      if (absl::Status status = Id(id); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Count(size_t count, std::string_view what) const {
    const size_t most = row_.max_count != 0 ? row_.max_count : static_cast<size_t>(vocab_size_);
    if (count <= most) return absl::OkStatus();
    return Refuse(fmt::format("{}: {} {}, at most {} are allowed", row_.field, count, what, most));
  }

  absl::Status Total(size_t count, size_t most, std::string_view what) const {
    if (count <= most) return absl::OkStatus();
    return Refuse(
        fmt::format("{}: {} {} together, at most {} are allowed", row_.field, count, what, most));
  }

  const ParamRow& row_;
  const int32_t vocab_size_;
};

}  // namespace

absl::Status ValidateParams(const SequenceParams& params, int32_t vocab_size) {
  for (const ParamRow& row : ParamTable()) {
    const RowCheck check(row, vocab_size);
    const absl::Status status =
        std::visit([&](const auto& place) { return check(place.read(params)); }, row.place);
    if (!status.ok()) return status;
  }
  return CheckRules(params, vocab_size);
}

}  // namespace specd
