#include "daemon/trace/parameter_hash.h"

#include <array>
#include <bit>
#include <type_traits>
#include <vector>

#include "daemon/trace/row_hash.h"

namespace specd {
namespace {

// The bytes are the values: there is no padding.
static_assert(sizeof(TokenEdit) == 16);

template <class T>
uint64_t HashOf(std::span<const T> values) {
  return RowHash(std::as_bytes(values));
}

// The numbers of a task, in an order that older traces have too: a later version puts a new member
// last, and only if it does not have its default.
class Words {
 public:
  Words() { words_.reserve(64); }

  template <class... T>
  void Put(T... numbers) {
    (words_.push_back(WordOf(numbers)), ...);
  }
  uint64_t hash() const { return HashOf(std::span<const uint64_t>(words_)); }

 private:
  template <class T>
  static uint64_t WordOf(T number) {
    if constexpr (std::is_same_v<T, float>) {
      return std::bit_cast<uint32_t>(number);
    } else if constexpr (std::is_same_v<T, double>) {
      return std::bit_cast<uint64_t>(number);
    } else {
      return static_cast<uint64_t>(number);
    }
  }

  std::vector<uint64_t> words_;
};

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
  Words words;
  words.Put(task.method, task.target_scale, task.draft_scale, task.seed, task.first_position,
            task.round_base, task.min_tokens, task.draft_edits);
  for (const Filters& filters : {task.target_filters, task.draft_filters}) {
    words.Put(filters.min_p, filters.top_k, filters.top_p, filters.joint);
  }
  words.Put(task.scores.enabled, task.scores.mode, task.scores.num_top, task.scores.num_chosen);
  words.Put(task.chosen.size());
  for (const TokenId id : task.chosen) words.Put(id);
  words.Put(task.coins.size());
  for (const InjectedCoin& coin : task.coins) {
    words.Put(coin.key.position, coin.key.round_base, coin.key.node, coin.key.purpose, coin.coin);
  }
  const Penalties& penalties = task.penalties;
  words.Put(penalties.repetition, penalties.frequency, penalties.presence);
  words.Put(task.num_edits, task.edits_hash, task.overrides_hash, task.places.size());
  for (const TracePlace& place : task.places) {
    words.Put(place.mask_row, place.below_min_tokens, place.forced);
  }
  if (task.rng != Rng::kPhilox) words.Put(task.rng, task.rng_offset);
  if (IsLossy(task.method)) {
    const LossyRule& lossy = task.lossy;
    words.Put(lossy.epsilon, lossy.delta, lossy.single, lossy.acc, lossy.num_best,
              lossy.only_thoughts, lossy.is_greedy);
    for (const float rate : task.rates) words.Put(rate);
    for (const TracePlace& place : task.places) words.Put(place.in_thought);
  }
  return words.hash();
}

}  // namespace specd
