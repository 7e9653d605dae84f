#include "speculative/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "speculative/param_rules.h"
#include "speculative/param_table.h"

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

// DraftParams and SequenceParams give these four fields the same names.
template <class Params>
Filters FiltersFrom(const Params& params, int32_t vocab_size) {
  Filters filters;
  // The product is exact, because only the exponent changes. 0 would ask for a prefix without mass,
  // which is empty. 1 asks for the first id, as every smaller top_p does.
  const auto top_p = static_cast<uint64_t>(params.top_p * static_cast<double>(kTopPOff));
  filters.top_p = std::max<uint64_t>(top_p, 1);
  if (params.top_k > 0 && params.top_k < vocab_size) {
    filters.top_k = static_cast<int32_t>(params.top_k);
  }
  if (params.min_p > 0) filters.min_p = static_cast<float>(std::log2(params.min_p));
  filters.joint = params.filter_order == FilterOrder::kJoint;
  return filters;
}

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

bool IsGreedy(const SequenceParams& params) {
  return params.temperature < kGreedyTemperature || params.top_k == 1;
}

VerifyMethod SequenceMethod(const SequenceParams& params) {
  return IsGreedy(params) ? VerifyMethod::kGreedy : params.verify;
}

VerifyMethod ResolveMethod(VerifyMethod sequence_method, bool any_sampled_draft) {
  if (sequence_method != VerifyMethod::kAuto) return sequence_method;
  return any_sampled_draft ? VerifyMethod::kBlock : VerifyMethod::kExactMatch;
}

float ScaleFor(double temperature) { return static_cast<float>(std::numbers::log2e / temperature); }

Filters MakeFilters(const SequenceParams& params, int32_t vocab_size) {
  return IsGreedy(params) ? Filters{} : FiltersFrom(params, vocab_size);
}

Filters MakeFilters(const DraftParams& params, int32_t vocab_size) {
  return FiltersFrom(params, vocab_size);
}

Penalties MakePenalties(const SequenceParams& params) {
  return {static_cast<float>(params.repetition_penalty),
          static_cast<float>(params.frequency_penalty),
          static_cast<float>(params.presence_penalty)};
}

ScoreRequest MakeScoreRequest(const SequenceParams& params) {
  ScoreRequest request;
  if (params.logprobs < 0) return request;
  request.enabled = true;
  request.mode = params.logprobs_mode;
  request.num_top = static_cast<int32_t>(params.logprobs);
  request.chosen = params.logprob_token_ids.data();
  request.num_chosen = static_cast<int32_t>(params.logprob_token_ids.size());
  return request;
}

}  // namespace specd
