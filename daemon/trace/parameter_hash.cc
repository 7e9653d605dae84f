#include "daemon/trace/parameter_hash.h"

#include <array>
#include <string>

#include "daemon/trace/row_hash.h"
#include "daemon/trace/trace_codec.h"

namespace specd {
namespace {

// The bytes are the values: there is no padding.
static_assert(sizeof(TokenEdit) == 16);

template <class T>
uint64_t HashOf(std::span<const T> values) {
  return RowHash(std::as_bytes(values));
}

}  // namespace

uint64_t EditsHash(std::span<const TokenEdit> edits, std::span<const uint32_t> allowed) {
  const std::array<uint64_t, 2> hashes = {HashOf(edits), HashOf(allowed)};
  return HashOf(std::span<const uint64_t>(hashes));
}

void OverridesHash::Add(size_t place, std::span<const TokenEdit> overrides) {
  if (overrides.empty()) return;
  const std::array<uint64_t, 3> words = {value_, place, HashOf(overrides)};
  value_ = HashOf(std::span<const uint64_t>(words));
}

uint64_t RecordedEditsHash(const TraceTask& task) { return EditsHash(task.edits, task.allowed); }

uint64_t RecordedOverridesHash(const TraceTask& task, int32_t vocab_size) {
  OverridesHash hash;
  for (size_t i = 0; i < task.places.size(); ++i) {
    hash.Add(i, task.places[i].overrides);
    if (i < task.tokens.size() && !IsInVocabulary(task.tokens[i], vocab_size)) break;
  }
  return hash.value();
}

uint64_t ParametersHash(const TraceTask& task) {
  TraceTask only;
  only.method = task.method;
  only.target_scale = task.target_scale;
  only.draft_scale = task.draft_scale;
  only.seed = task.seed;
  only.first_position = task.first_position;
  only.round_base = task.round_base;
  only.min_tokens = task.min_tokens;
  only.draft_edits = task.draft_edits;
  only.target_filters = task.target_filters;
  only.draft_filters = task.draft_filters;
  only.scores = task.scores;
  only.chosen = task.chosen;
  only.coins = task.coins;
  only.penalties = task.penalties;
  only.num_edits = task.num_edits;
  only.edits_hash = task.edits_hash;
  only.overrides_hash = task.overrides_hash;
  only.places.resize(task.places.size());
  for (size_t i = 0; i < task.places.size(); ++i) {
    only.places[i].mask_row = task.places[i].mask_row;
    only.places[i].below_min_tokens = task.places[i].below_min_tokens;
    only.places[i].forced = task.places[i].forced;
  }
  std::string bytes;
  EncodeTrace(only, &bytes);
  return HashOf(std::span<const char>(bytes));
}

}  // namespace specd
