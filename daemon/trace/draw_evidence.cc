#include "daemon/trace/draw_evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace specd {
namespace {

using Kind = DrawWay::Kind;

// Relative to the declared temperature. A step is about the error of 500 draws.
constexpr std::array<double, 13> kTemperatures = {.25,  .4,   .5,   .6,   .7, .8, .9,
                                                  1.11, 1.25, 1.43, 1.67, 2,  3};
constexpr std::array<double, 8> kTopKs = {5, 10, 20, 32, 40, 50, 64, 100};
constexpr std::array<double, 6> kTopPs = {.5, .7, .8, .9, .95, .98};
constexpr std::array<double, 4> kMinPs = {.02, .05, .1, .2};

// Each way is mixed with the declared q, so that one id that it excludes does not end it.
constexpr double kMixed = .02;
// q at a declared filter's edge may differ by a rounding, so that an id just outside is no proof.
constexpr double kLeastShare = .01;
// The likeliest way is named if it is likelier by this factor (ln 1000).
constexpr double kLogNamed = 6.9;

bool HasFilters(const Filters& filters) {
  const Filters none;
  return filters.min_p > none.min_p || filters.top_k != 0 || filters.top_p < none.top_p;
}

// The row of a way; false: it is not a transform of the draft row.
bool SettingOf(const DrawWay& way, const DrawnId& drawn, RowTransform* transform) {
  transform->scale = drawn.scale;
  transform->filters = {};
  switch (way.kind) {
    case Kind::kTemperature:
      transform->scale = drawn.scale / static_cast<float>(way.value);
      transform->filters = drawn.filters;
      return true;
    case Kind::kTopK:
      transform->filters.top_k = static_cast<int32_t>(way.value);
      return true;
    case Kind::kTopP:
      transform->filters.top_p = static_cast<uint64_t>(way.value * static_cast<double>(kTopPOff));
      return true;
    case Kind::kMinP:
      transform->filters.min_p = static_cast<float>(std::log2(way.value));
      return true;
    default:
      return false;
  }
}

// Takes the ids out and makes the sum 1 again.
void TakeOut(std::span<const TokenId> ids, float* row, size_t size) {
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<size_t>(id) < size) row[id] = 0;
  }
  double sum = 0;
  for (size_t i = 0; i < size; ++i) sum += static_cast<double>(row[i]);
  for (size_t i = 0; i < size && sum > 0; ++i) row[i] = static_cast<float>(row[i] / sum);
}

}  // namespace

std::span<const double> DrawEvidence::Temperatures() { return kTemperatures; }

DrawEvidence::DrawEvidence(int32_t vocab_size) : vocab_size_(vocab_size) {
  const auto add = [this](Kind kind, std::span<const double> values) {
    for (const double value : values) ways_.push_back({.kind = kind, .value = value});
  };
  add(Kind::kTemperature, kTemperatures);
  add(Kind::kTopK, kTopKs);
  add(Kind::kTopP, kTopPs);
  add(Kind::kMinP, kMinPs);
  const size_t num_rows = kFirstTemperature + ways_.size();
  for (const Kind kind : {Kind::kArgmax, Kind::kUnfiltered, Kind::kFewIds, Kind::kPlaceBefore,
                          Kind::kPlaceAfter, Kind::kSequenceBefore, Kind::kSequenceAfter}) {
    ways_.push_back({.kind = kind, .value = 0});
  }
  logs_.assign(ways_.size(), 0.0);
  rows_.resize(num_rows * static_cast<size_t>(vocab_size));
  transforms_.resize(num_rows);
  is_seen_.assign(static_cast<size_t>(vocab_size), 0);
}

absl::Status DrawEvidence::ReadRows(const DrawnId& drawn, const ReadRow& read) {
  const size_t size = vocab_size_;
  for (size_t row = 0; row < transforms_.size(); ++row) {
    RowTransform& transform = transforms_[row];
    transform = {};
    transform.scale = drawn.scale;
    transform.out = rows_.data() + row * size;
    if (row == 0) transform.filters = drawn.filters;
    if (row >= kFirstTemperature) SettingOf(ways_[row - kFirstTemperature], drawn, &transform);
  }
  if (absl::Status status = read(transforms_); !status.ok()) return status;
  for (const RowTransform& transform : transforms_) {
    if (!drawn.without.empty()) TakeOut(drawn.without, transform.out, size);
  }
  return absl::OkStatus();
}

absl::Status DrawEvidence::Add(const DrawnId& drawn, const ReadRow& read) {
  if (drawn.id < 0 || drawn.id >= vocab_size_) {
    return absl::InvalidArgumentError(
        fmt::format("id {} is outside the vocabulary of {}", drawn.id, vocab_size_));
  }
  if (absl::Status status = ReadRows(drawn, read); !status.ok()) return status;
  ++num_draws_;
  scale_sum_ += static_cast<double>(drawn.scale);
  const size_t id = drawn.id;
  const double unfiltered = Row(1)[id];
  if (unfiltered <= 0) {
    ++num_impossible_;
    return absl::OkStatus();
  }
  const double declared = static_cast<double>(Row(0)[id]);
  const double q = std::max(declared, kLeastShare * unfiltered);
  if (declared > 0) AddFigures(drawn.id);
  const size_t num_transforms = transforms_.size() - kFirstTemperature;
  for (size_t way = 0; way < num_transforms; ++way) {
    AddRatio(way, static_cast<double>(Row(kFirstTemperature + way)[id]), q);
  }
  for (size_t way = num_transforms; way < ways_.size(); ++way) {
    std::span<const float> other;
    switch (ways_[way].kind) {
      case Kind::kArgmax: {
        const std::span<const float> row = Row(1);
        AddRatio(way, std::max_element(row.begin(), row.end()) == row.begin() + drawn.id ? 1 : 0,
                 q);
        break;
      }
      case Kind::kUnfiltered:
        if (HasFilters(drawn.filters)) AddRatio(way, unfiltered, q);
        break;
      case Kind::kPlaceBefore:
        other = drawn.place_before;
        break;
      case Kind::kPlaceAfter:
        other = drawn.place_after;
        break;
      case Kind::kSequenceBefore:
        other = drawn.sequence_before;
        break;
      case Kind::kSequenceAfter:
        other = drawn.sequence_after;
        break;
      default:
        break;
    }
    if (!other.empty()) AddRatio(way, static_cast<double>(other[id]), q);
  }
  AddSeen(drawn.id, q);
  return absl::OkStatus();
}

void DrawEvidence::AddRatio(size_t way, double q_of_way, double q) {
  logs_[way] += std::log(kMixed + (1 - kMixed) * q_of_way / q);
}

void DrawEvidence::AddFigures(TokenId id) {
  double mean = 0;
  double square = 0;
  double least = 0;
  double most = -std::numeric_limits<double>::infinity();
  for (const float x : Row(0)) {
    if (x <= 0) continue;
    const double log = std::log(static_cast<double>(x));
    least = std::min(least, log);
    most = std::max(most, log);
    mean += static_cast<double>(x) * log;
    square += static_cast<double>(x) * log * log;
  }
  log_q_.Add(std::log(static_cast<double>(Row(0)[id])), mean, square - mean * mean,
             std::max(mean - least, most - mean));
}

// Ids that were not drafted before have less of q than was declared, by the share of them that came
// up so far. The weight is known before each draw, so that this way, too, is a distribution.
void DrawEvidence::AddSeen(TokenId id, double q) {
  double seen = 0;
  double all = 0;
  const std::span<const float> row = Row(0);
  for (size_t i = 0; i < row.size(); ++i) {
    all += static_cast<double>(row[i]);
    if (is_seen_[i] != 0) seen += static_cast<double>(row[i]);
  }
  const double unseen = std::max(all - seen, 0.0);
  const double weight = std::min(1.0, (1 + static_cast<double>(num_new_)) / (1 + expected_new_));
  const bool was_seen = is_seen_[id] != 0;
  const double declared = static_cast<double>(row[id]);
  const double total = seen + weight * unseen;
  if (total > 0) {
    for (size_t way = 0; way < ways_.size(); ++way) {
      if (ways_[way].kind != Kind::kFewIds) continue;
      AddRatio(way, declared * (was_seen ? 1 : weight) / total, q);
    }
  }
  expected_new_ += unseen;
  num_new_ += was_seen ? 0 : 1;
  is_seen_[id] = 1;
}

double DrawEvidence::log_evidence() const {
  std::array<double, DrawWay::kNumKinds> counts = {};
  for (const DrawWay& way : ways_) counts[static_cast<size_t>(way.kind)] += 1;
  double best = -std::numeric_limits<double>::infinity();
  for (const double log : logs_) best = std::max(best, log);
  double sum = 0;
  for (size_t way = 0; way < ways_.size(); ++way) {
    // The row of the place after depends on the drafted id, so that its ratio proves nothing.
    if (ways_[way].kind == Kind::kPlaceAfter) continue;
    const double prior = 1 / counts[static_cast<size_t>(ways_[way].kind)];
    sum += prior * std::exp(logs_[way] - best);
  }
  return best + std::log(sum / (DrawWay::kNumKinds - 1));
}

bool DrawEvidence::HasImpossible() const {
  return num_impossible_ >= 5 && num_impossible_ * 200 > num_draws_;  // .5 %
}

bool DrawEvidence::IsWrongAtAnyLook() const {
  return HasImpossible() || log_evidence() > kLogEvidence4Sigma;
}

bool DrawEvidence::IsWrong() const { return std::abs(log_q_.z()) > 4 || IsWrongAtAnyLook(); }

std::optional<DrawWay> DrawEvidence::Best() const {
  const auto best = std::max_element(logs_.begin(), logs_.end());
  if (*best < kLogNamed) return std::nullopt;
  return ways_[best - logs_.begin()];
}

std::string DrawEvidence::Sentence() const {
  const std::optional<DrawWay> way = Best();
  if (HasImpossible()) {
    return fmt::format(
        "{} of {} drafted ids have q = 0 in their own draft rows: give the rows that the ids were "
        "drawn from, and for a narrow drafter the map of its columns",
        num_impossible_, num_draws_);
  }
  if (!way) {
    return "the drafted ids were not drawn from the declared q: compare draft_temperature, the "
           "draft filters and draft_rows with the drafter's own settings";
  }
  const double temperature = 1.4426950408889634 * static_cast<double>(num_draws_) / scale_sum_;
  switch (way->kind) {
    case Kind::kTemperature:
      return fmt::format(
          "the drafts look drawn at a temperature near {:.2g}, and {:.2g} is declared: set "
          "draft_temperature to the drafter's own",
          temperature * way->value, temperature);
    case Kind::kArgmax:
      return "the drafts are the best ids of q, and they are declared as drawn: declare them as "
             "one-hot, or draw them";
    case Kind::kTopK:
      return fmt::format(
          "the drafts look drawn with top_k = {:.0f}, which is not declared: set draft_top_k to "
          "the drafter's own",
          way->value);
    case Kind::kTopP:
      return fmt::format(
          "the drafts look drawn with top_p = {:.2g}, which is not declared: set draft_top_p to "
          "the drafter's own",
          way->value);
    case Kind::kMinP:
      return fmt::format(
          "the drafts look drawn with min_p = {:.2g}, which is not declared: set draft_min_p to "
          "the drafter's own",
          way->value);
    case Kind::kUnfiltered:
      return "the drafts look drawn without the declared draft filters: leave draft_top_k, "
             "draft_top_p and draft_min_p out, or draw with them";
    case Kind::kFewIds:
      return fmt::format(
          "q covers ids that the drafter never drafts ({} different ids were drafted, and q "
          "expects {:.0f}): give a narrow drafter's rows as narrow rows with the map of their "
          "columns, or -inf for the other ids",
          num_new_, expected_new_);
    case Kind::kPlaceBefore:
      return "the drafts look drawn from the draft rows of the place before: draft_rows are "
             "shifted by one; name for each draft token the row that it was drawn from";
    case Kind::kPlaceAfter:
      return "the drafts look drawn from the draft rows of the place after: draft_rows are "
             "shifted by one; name for each draft token the row that it was drawn from";
    case Kind::kSequenceBefore:
      return "the drafts look drawn from the draft rows of the sequence before in the round: name "
             "for each sequence its own draft rows";
    case Kind::kSequenceAfter:
      return "the drafts look drawn from the draft rows of the sequence after in the round: name "
             "for each sequence its own draft rows";
  }
  return {};
}

}  // namespace specd
