// TeamFacts collects all results of a team about one tile of two rows for tests, or about the first
// pass over a row, as labelled words that can be compared.
//
// The functions are compiled once for each instruction set (team_facts_avx2.cc,
// team_facts_avx512.cc). The objects are linked into one program, which may run on an older
// processor. As in kernels/cpu, such objects must not share a function, so there are no containers
// here.
#pragma once

#include <cstdint>

#include "kernels/bodies/residual.h"

namespace specd {

// The questions to a team. `mask` and `other_mask` are rows of a MaskView, or null.
struct TeamQuestions {
  RowView p;
  RowView q;
  int32_t tile_index = 0;
  uint32_t steps = kAllSteps;
  const uint32_t* mask = nullptr;
  const uint32_t* other_mask = nullptr;
  int32_t set_element = 0;
  float keep_value = 0;
  int32_t keep_last = 0;
  float threshold = 0;           // elements above it are counted, found and packed
  uint32_t counted_steps = ~0u;  // those that a masked tile must have left, and must not have left
};

// What a team writes; all of its threads share it.
struct TeamMemory {
  float values[kTileSize + 1];
  TokenId ids[kTileSize + 1];
  float peaks[kStepsPerTile + 1];
};

struct TeamFact {
  const char* label;
  uint64_t bits;
};

class TeamFacts {
 public:
  static constexpr int32_t kFactsMax = 16 * kTileSize;

  SPECD_INLINE void Add(const char* label, uint64_t bits) {
    if (count >= kFactsMax) __builtin_trap();  // SPECD_CHECK calls a shared function
    facts[count++] = {label, bits};
  }
  SPECD_INLINE TeamMemory* memory() { return &own_memory; }

  int32_t count = 0;
  TeamFact facts[kFactsMax];
  TeamMemory own_memory;
};

// Adds facts to TeamFacts, or to another list with its functions. All NaNs count as one: the bits
// of an operation's NaN are not specified.
template <typename Facts>
SPECD_INLINE void AddFloat(const char* label, float x, Facts* out) {
  out->Add(label, IsNan(x) ? 0x7FC00000u : BitsOf(x));
}
template <typename Facts>
SPECD_INLINE void AddInteger(const char* label, int32_t x, Facts* out) {
  out->Add(label, static_cast<uint32_t>(x));
}

namespace facts {

struct Affine {
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return x * 0.75f + 0.125f;
  }
};
struct Weight {
  float max;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return Exp2((x - max) * 1.25f);
  }
};
struct Residual {
  float p_max;
  float q_max;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x, Value y) const {
    return PositivePart(0.01f * Exp2((x - p_max) * 1.25f) - 0.013f * Exp2((y - q_max) * 0.75f));
  }
};
struct Above {
  float threshold;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return x > threshold;
  }
};
struct AtMost {
  float threshold;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return x <= threshold;
  }
};
// Every comparison and every combination of them. It is also true for NaN and -inf, so it shows the
// elements after the row's end.
struct Odd {
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return (x < -1.0f) | ((x >= 0.5f) & !(x == 0.625f)) | (0.25f == x) | (x != x);
  }
};
// Every function of numerics.h, in its domain.
struct Mixed {
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    const auto magnitude = Select(x < 0.0f, -x, x);
    const auto safe = Select((magnitude > 1e-30f) & (magnitude < 1e30f), magnitude, Value(1.0f));
    return Fma(Log2(safe), 0.3f, Exp2(-safe) / (1.0f + PositivePart(x))) + Tanh(x);
  }
};

// The values that `write` leaves, and one element more, which it may not touch.
template <typename T, typename Facts, typename Write>
void AddWritten(T& team, const char* label, int32_t count, Facts* out, const Write& write) {
  float* const values = out->memory()->values;
  team.Sync();
  for (int32_t e = 0; e <= kTileSize; ++e) values[e] = 12345.0f;
  team.Sync();
  write(values);
  team.Sync();
  for (int32_t e = 0; e <= count; ++e) AddFloat(label, values[e], out);
}

template <typename T, typename Facts>
void AddValues(T& team, const typename T::Tile& tile, int32_t count, Facts* out) {
  AddWritten(team, "value", count, out,
             [&](float* values) { team.Store(Identity{}, tile, count, values); });
}

template <typename T, typename Facts>
void AddMixed(T& team, const typename T::Tile& tile, int32_t count, Facts* out) {
  AddWritten(team, "mixed", count, out,
             [&](float* values) { team.Store(Mixed{}, tile, count, values); });
}

template <typename T, typename Facts, typename F>
void AddPacked(T& team, const F& f, const typename T::Tile& tile, Facts* out) {
  TokenId* const ids = out->memory()->ids;
  int32_t count = 0;
  team.Sync();
  for (int32_t e = 0; e <= kTileSize; ++e) ids[e] = -7;
  AddWritten(team, "packed value", 0, out,
             [&](float* values) { count = team.Pack(f, tile, 1000, values, ids); });
  AddInteger("packed", count, out);
  for (int32_t i = 0; i <= count; ++i) {
    AddFloat("packed value", out->memory()->values[i], out);
    AddInteger("packed id", ids[i], out);
  }
}

template <typename T, typename Facts, typename Function, typename... Tiles>
void AddPrefixes(T& team, const Function& weight, Facts* out, const Tiles&... tiles) {
  const float max = team.Max(weight, tiles...);
  AddFloat("largest weight", max, out);
  AddFloat("sum", team.Sum(weight, tiles...), out);
  const double in_order = team.SumInOrder(weight, tiles...);
  uint64_t bits;
  __builtin_memcpy(&bits, &in_order, sizeof(bits));
  out->Add("sum in order", bits);
  // The exponent may belong to another tile's weight.
  for (const int32_t above : {0, 3, 39, 45}) {
    const int32_t exponent = ExponentOf(max) + above > 127 ? 127 : ExponentOf(max) + above;
    const uint64_t total = team.SumWeights(weight, exponent, tiles...);
    out->Add("total", total);
    for (const uint64_t threshold : {uint64_t{0}, total / 3, total / 2, total - 1, total}) {
      const PrefixPlace place = team.FindPrefix(weight, exponent, threshold, tiles...);
      AddInteger("prefix", place.element, out);
      out->Add("before", place.before);
      out->Add("weight of the place", place.weight);
    }
  }
}

// All results of functions that read a tile.
template <typename T, typename Facts>
void AddReadings(T& team, const TeamQuestions& ask, const typename T::Tile& p,
                 const typename T::Tile& q, Facts* out) {
  const float p_max = team.Max(Identity{}, p);
  const float q_max = team.Max(Identity{}, q);
  AddFloat("max", p_max, out);
  AddFloat("max of affine", team.Max(Affine{}, p), out);
  float* const peaks = out->memory()->peaks;
  team.Sync();
  peaks[kStepsPerTile] = 0;
  const float by_steps = team.MaxBySteps(p, peaks);
  team.Sync();
  AddFloat("max by steps", by_steps, out);
  for (int32_t step = 0; step <= kStepsPerTile; ++step) {
    AddFloat("peak", IsNan(p_max) ? 0.0f : peaks[step], out);
  }
  AddInteger("first of max", team.FindFirst(AtMost{p_max}, p), out);
  AddInteger("first above", team.FindFirst(Above{ask.threshold}, p), out);
  AddInteger("first odd", team.FindFirst(Odd{}, p), out);
  AddInteger("first of nothing", team.FindFirst(Above{kInfinity}, p), out);
  AddInteger("count above", team.Count(Above{ask.threshold}, p), out);
  AddInteger("count at most", team.Count(AtMost{ask.threshold}, p), out);
  AddInteger("count odd", team.Count(Odd{}, p), out);
  AddPacked(team, Above{ask.threshold}, p, out);
  AddPacked(team, AtMost{ask.threshold}, p, out);
  // The parts of a distribution. If the maximum is not finite, no body asks for weights.
  if (p_max - p_max != 0.0f || q_max - q_max != 0.0f) return;
  AddPrefixes(team, Weight{p_max}, out, p);
  AddPrefixes(team, Residual{p_max, q_max}, out, p, q);
}

}  // namespace facts

template <Team T, typename Facts>
void FindTeamFacts(T& team, const TeamQuestions& ask, Facts* out) {
  using namespace facts;
  typename T::Tile p;
  typename T::Tile q;
  out->count = 0;
  const int32_t rest = ask.p.vocab_size - ask.tile_index * kTileSize;
  const int32_t count = rest < kTileSize ? rest : kTileSize;

  team.Load(ask.p, ask.tile_index, ask.steps, Identity{}, &p);
  team.Load(ask.q, ask.tile_index, kAllSteps, Identity{}, &q);
  AddValues(team, p, count, out);
  AddMixed(team, p, count, out);
  AddReadings(team, ask, p, q, out);

  // Tiles after a write; after the row's end they stay -inf.
  const typename T::Mask mask =
      team.MaskOf(ask.mask, ask.other_mask, ask.p.vocab_size, ask.tile_index);
  out->Add("steps left", team.StepsLeft(mask) & ask.counted_steps);
  team.ApplyMask(mask, &p);
  team.Set(ask.set_element, 3.5f, &p);
  // Every 37th element, after an offset.
  team.SetEach(
      1, 1 + kTileSize,
      [&](int32_t i) {
        const int32_t element = ask.set_element / 3 + 37 * i;
        return element < count ? element : kTileSize + i;
      },
      [&](int32_t i) { return 0.25f * static_cast<float>(i); }, &p);
  AddValues(team, p, count, out);
  AddReadings(team, ask, p, q, out);
  team.Keep(ask.keep_value, ask.keep_last, &p);
  AddValues(team, p, count, out);
  AddReadings(team, ask, p, q, out);

  team.Load(ask.p, ask.tile_index, ask.steps, Affine{}, &p);
  AddValues(team, p, count, out);
  AddReadings(team, ask, p, q, out);
}

// The first pass over a row of at most kRowTilesMax tiles.
struct FirstPassQuestions {
  Row row;
  float scale = 1;
  bool with_sums = true;
  float raw_scale = 0;  // of sums beside those; 0: none
  float poison = 0;     // what lies where the numbers will be; another one for each team
};
inline constexpr int32_t kRowTilesMax = 8;

template <typename T>
void FindFirstPass(const FirstPassQuestions& ask, TeamFacts* out) {
  float maxima[kRowTilesMax];
  float sums[kRowTilesMax];
  float peaks[kRowTilesMax * kStepsPerTile];
  float raw_sums[kRowTilesMax];
  // The pass has to write every number, so none of these may pass for an answer of another team.
  for (float& x : maxima) x = ask.poison;
  for (float& x : sums) x = ask.poison;
  for (float& x : peaks) x = ask.poison;
  for (float& x : raw_sums) x = ask.raw_scale == 0 ? 0 : ask.poison;
  T team;
  if (ask.raw_scale != 0) team.raw = {ask.raw_scale, raw_sums};
  out->count = 0;
  const RowStats stats{maxima, sums, peaks};
  AddFloat("max of the row", ReadTiles(team, ask.row, ask.scale, ask.with_sums, stats), out);
  for (int32_t t = 0; t < NumTiles(ask.row.view.vocab_size); ++t) {
    AddFloat("max of a tile", maxima[t], out);
    AddFloat("sum of a tile", sums[t], out);
    AddFloat("raw sum of a tile", raw_sums[t], out);
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      AddFloat("peak", IsNan(maxima[t]) ? 0.0f : peaks[t * kStepsPerTile + step], out);
    }
  }
}

// The pass for the residual of two rows, of at most kRowTilesMax tiles.
struct ResidualQuestions {
  RowView p;
  RowView q;
  float p_max = 0;
  float q_max = 0;
  float scale = 1;
  double factor = 1;
};

template <typename T>
void FindResidualPass(const ResidualQuestions& ask, TeamFacts* out) {
  float masses[kRowTilesMax];
  Distribution p;
  Distribution q;
  p.row.view = ask.p;
  q.row.view = ask.q;
  p.scale = ask.scale;
  q.scale = 0.75f * ask.scale;
  p.max = ask.p_max;
  q.max = ask.q_max;
  p.mass = 7;
  q.mass = 9;
  T team;
  out->count = 0;
  const Residual residual = ReadResidual(team, p, q, {.p = ask.factor}, masses);
  uint64_t bits;
  __builtin_memcpy(&bits, &residual.mass, sizeof(bits));
  out->Add("mass of the residual", bits);
  for (int32_t t = 0; t < NumTiles(ask.p.vocab_size); ++t)
    AddFloat("mass of a tile", masses[t], out);
}

void FindTeamFactsAvx2(const TeamQuestions& ask, TeamFacts* out);
void FindTeamFactsAvx512(const TeamQuestions& ask, TeamFacts* out);
void FindFirstPassAvx2(const FirstPassQuestions& ask, TeamFacts* out);
void FindFirstPassAvx512(const FirstPassQuestions& ask, TeamFacts* out);
void FindResidualPassAvx2(const ResidualQuestions& ask, TeamFacts* out);
void FindResidualPassAvx512(const ResidualQuestions& ask, TeamFacts* out);

}  // namespace specd
