#include "speculative/grammar/rules/counted_dfa.h"

#include <algorithm>

#include "speculative/grammar/automata/dfa_minimizer.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/id_table.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
namespace {

// A byte of 10xxxxxx continues a character, and every other one begins it.
constexpr uint32_t kContinuationFirst = 0x80;
constexpr uint32_t kContinuationLast = 0xBF;

class Counting {
 public:
  Counting(const ByteDfa& dfa, const CharacterCounts& counts) : dfa_(dfa), counts_(counts) {}

  absl::StatusOr<ByteDfa> Build() {
    ByteDfa result;
    if (dfa_.IsEmpty()) return result;
    Intern({.state = 0, .count = 0});
    size_t num_edges = 0;
    for (size_t number = 0; number < places_.size(); ++number) {
      const Place place = places_[number];
      ByteDfa::State& made = result.states.emplace_back();
      made.accepting = dfa_.states[place.state].accepting && place.count >= counts_.min;
      for (const ByteDfa::Edge& edge : dfa_.states[place.state].edges) {
        AddPart(place, edge, 0, kContinuationFirst - 1, &made.edges);
        AddPart(place, edge, kContinuationFirst, kContinuationLast, &made.edges);
        AddPart(place, edge, kContinuationLast + 1, 255, &made.edges);
      }
      num_edges += made.edges.size();
      if (!Budget::Spend(8 + 4 * made.edges.size())) return Budget::Refusal();
      if (absl::Status status = CheckGrowth(places_.size(), num_edges); !status.ok()) return status;
    }
    return MinimizeWithinLimits(result);
  }

 private:
  struct Place {
    uint32_t state = 0;
    uint32_t count = 0;
  };

  // The bytes of `edge` that lie in first..last.
  void AddPart(const Place& from, const ByteDfa::Edge& edge, uint32_t first, uint32_t last,
               List<ByteDfa::Edge>* edges) {
    const uint8_t part_first = std::max<uint32_t>(edge.first, first);
    const uint8_t part_last = std::min<uint32_t>(edge.last, last);
    if (part_first > part_last) return;
    uint32_t count = from.count;
    if (first != kContinuationFirst) {
      if (count == counts_.max) return;
      // Without a maximum no count past the minimum matters.
      if (counts_.max != kUnbounded || count < counts_.min) ++count;
    }
    const uint32_t target = Intern({.state = edge.target, .count = count});
    AppendEdge({.first = part_first, .last = part_last, .target = target}, edges);
  }

  uint32_t Intern(const Place& place) {
    const auto hash =
        static_cast<uint32_t>(IdTable::Mix(uint64_t{place.state} << 32 | place.count));
    const uint32_t known = numbers_.Find(hash, [&](uint32_t i) {
      return places_[i].state == place.state && places_[i].count == place.count;
    });
    if (known != IdTable::kNone) return known;
    const uint32_t number = places_.size();
    numbers_.Reserve();
    places_.push_back(place);
    numbers_.Insert(hash, number);
    return number;
  }

  const ByteDfa& dfa_;
  const CharacterCounts counts_;
  IdTable numbers_;  // of places_
  List<Place> places_;
};

}  // namespace

absl::StatusOr<ByteDfa> CountCharacters(const ByteDfa& dfa, const CharacterCounts& counts) {
  return Counting(dfa, counts).Build();
}

}  // namespace specd::grammar
