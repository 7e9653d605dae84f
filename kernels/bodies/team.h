// Team is the interface of a processor for the bodies. This header is the port guide.
//
// A body (distribution.h, argmax.h, sample.h, residual.h, verify.h) is written once, for one worker
// that handles a tile at a time. A team runs the body with a scalar loop, SIMD registers, or the
// threads of a CUDA block. To port specd to a processor, write a class that satisfies `Team`, and
// pass the tests that compare it with ScalarTeam bit for bit. No body changes.
//
// Groups. A team has num_groups() groups, and each runs the whole body. Groups share the tiles of a
// pass over a row: group g takes tiles g, g + num_groups(), ... and publishes its results. After
// Sync() every group reads all results and continues with equal values. Every group therefore takes
// the same branches. A body uses the group only to pick tiles, and the leader only to write
// results. A CPU team has one group and an empty Sync(). Two rules keep passes apart:
//   1. Values published in a workspace are read only after a Sync().
//   2. A workspace is written again only after a Sync() that follows its last reading.
//
// Tiles. Load() loads one tile of a row into team.Tile, which belongs to the group: registers, or a
// buffer near the core. Elements after the row's end are -inf and stay -inf. Steps that were not
// requested are not read, and their elements are -inf too.
//
//   Load(row, t, steps, f, &tile)     tile t with f applied to every element of the row in `steps`
//   MaskOf(words, others, V, t)       a Mask: the ids of tile t that two rows of a MaskView for V
//                                     ids allow; null allows all
//   StepsLeft(mask)                   the steps with allowed ids, and perhaps others
//   ApplyMask(mask, &tile)            -inf for every id that the mask forbids
//   Set(element, value, &tile)        writes one element, unless its step was not loaded
//   SetEach(i, end, element_of, value_of, &tile)  the same for i, i + 1, .. while i < end and
//                                     element_of(i), which ascends and is not negative, is in a
//                                     tile
//   Keep(value, last, &tile)          -inf unless x > value, or x == value and element <= last
//
// kReadsInPlace says that Load may leave elements in the row if f is Identity. Tiles that will be
// written then need a copy, which Load makes in the order of memory.
//
// The functions on tiles take element functions f(x) or f(x, y), with one argument for each tile.
// They return values that are equal in all lanes of the group:
//
//   Max(f, tiles...)        the largest f; NaN if any is NaN; +0 if it is a zero of both signs.
//                           f after the end of the row must not be larger than all others
//   MaxBySteps(tile, out)   the largest element; out[s] is the largest of step s: -inf if it was
//                           not loaded, any value if there is a NaN
//   Sum(f, tiles...)        fp32, in the canonical order of tiles.h; f is +0 after the end
//   Count(f, tile)          the number of elements whose f is true
//   SumWeights(f, E, tiles...)     the sum of IntegerWeight(f, E): exact, so in any order
//   FindPrefix(f, E, T, tiles...)  the first element, in element order, whose inclusive prefix of
//                           those integers exceeds T, with its own integer and the prefix before it
//   SumInOrder(f, tiles...) in double, one element after another; not after the end
//   FindFirst(f, tile)      the first element whose f is true; -1 if there is none
//   Pack(f, tile, first_id, values, ids)  writes the elements whose f is true, in element order, to
//                           values[0..], and first_id + element to ids[0..]; returns their number
//   Store(f, tile, count, out)        out[e] = f(x) for the first `count` elements
//
// Element indices count from the start of the tile. Count, FindFirst and Pack do not look after the
// end, nor at steps that were not loaded. Max of a tile without any step is -inf or f(-inf).
//
// Element functions are pure, without branches on elements, and generic in their argument (`auto
// x`): a team may call them with float or with its own vector type. They use only +, -, *, / and
// comparisons between elements and floats, and functions of numerics.h. A vector type overloads
// these functions in namespace specd: Exp2, Log2, Tanh, Divide, PositivePart, Select. A product and
// a sum are two roundings unless Fma is written.
//
// If a body reads memory without these functions, such as one element of a row, every worker reads
// for itself. If another process writes that memory, workers may see different values.
//
//   Agree(value)            the value of one worker of the group, in all of them
//
// KeepsDraws: a team with a member `draw` of type DrawFacts keeps the integers of its last draw
// there, so that a round can be recorded (kernels/core/decision.h). Teams without it record
// nothing, and no code is made for it.
//
// Publish(value, &where) stores one value into the workspace, once per group. Replace(&where, f)
// stores f of the value that is there. The worker that stores it also reads it: another one might
// read the new value. leader() is true in exactly one worker of the team, which writes the results.
#pragma once

#include <concepts>
#include <cstdint>

#include "kernels/bodies/tiles.h"
#include "kernels/core/check.h"
#include "kernels/core/decision.h"
#include "kernels/core/numerics.h"
#include "kernels/core/types.h"

// A body is a function of its own on a GPU: inlining all bodies into one kernel takes every
// register and half a minute of compilation.
#if defined(__CUDACC__)
#define SPECD_BODY __host__ __device__ __noinline__
#else
#define SPECD_BODY
#endif

// A step that bodies use at many places. On a GPU it is a function for the same reason; on a CPU it
// is part of the loop around it.
#if defined(__CUDACC__)
#define SPECD_STEP __host__ __device__ __noinline__
#else
#define SPECD_STEP SPECD_INLINE
#endif

// A part of the tile pass, which is one function on a GPU (tile_pass.h): its parts are inlined
// there.
#if defined(__CUDACC__)
#define SPECD_HOT SPECD_INLINE
#else
#define SPECD_HOT
#endif

namespace specd {

// The element at which a prefix sum passes a threshold.
struct PrefixPlace {
  int32_t element = -1;  // -1: no element
  uint64_t before = 0;
  uint64_t weight = 0;
};

namespace internal {

// Stand-ins that let the concept name calls with generic element functions.
struct UnaryFunction {
  SPECD_INLINE float operator()(float x) const { return x; }
};
struct BinaryFunction {
  SPECD_INLINE float operator()(float x, float y) const { return x - y; }
};
struct Predicate {
  SPECD_INLINE bool operator()(float x) const { return x == 0.0f; }
};
struct ElementFunction {
  SPECD_INLINE int32_t operator()(int32_t i) const { return i; }
};
struct ValueFunction {
  SPECD_INLINE float operator()(int32_t) const { return 0; }
};

}  // namespace internal

template <typename T>
concept Team = requires(T team, const T const_team, typename T::Tile tile, const RowView& row,
                        int32_t index, uint64_t threshold, const uint32_t* words, float* values,
                        TokenId* ids) {
  typename T::Mask;
  { T::kReadsInPlace } -> std::convertible_to<bool>;
  { const_team.group() } -> std::same_as<int32_t>;
  { const_team.num_groups() } -> std::same_as<int32_t>;
  { const_team.leader() } -> std::same_as<bool>;
  { team.Sync() } -> std::same_as<void>;
  { const_team.Agree(0.0f) } -> std::same_as<float>;
  { team.Publish(0.0f, values) } -> std::same_as<void>;
  { team.Replace(values, internal::UnaryFunction{}) } -> std::same_as<void>;
  { team.Load(row, index, kAllSteps, internal::UnaryFunction{}, &tile) } -> std::same_as<void>;
  { team.StepsLeft(team.MaskOf(words, words, index, index)) } -> std::same_as<uint32_t>;
  { team.ApplyMask(team.MaskOf(words, words, index, index), &tile) } -> std::same_as<void>;
  { team.Set(index, 0.0f, &tile) } -> std::same_as<void>;
  {
    team.SetEach(index, index, internal::ElementFunction{}, internal::ValueFunction{}, &tile)
    } -> std::same_as<void>;
  { team.Keep(0.0f, index, &tile) } -> std::same_as<void>;
  { team.Max(internal::UnaryFunction{}, tile) } -> std::same_as<float>;
  { team.Max(internal::BinaryFunction{}, tile, tile) } -> std::same_as<float>;
  { team.MaxBySteps(tile, values) } -> std::same_as<float>;
  { team.Sum(internal::UnaryFunction{}, tile) } -> std::same_as<float>;
  { team.Sum(internal::BinaryFunction{}, tile, tile) } -> std::same_as<float>;
  { team.Count(internal::Predicate{}, tile) } -> std::same_as<int32_t>;
  { team.SumWeights(internal::UnaryFunction{}, index, tile) } -> std::same_as<uint64_t>;
  { team.SumWeights(internal::BinaryFunction{}, index, tile, tile) } -> std::same_as<uint64_t>;
  {
    team.FindPrefix(internal::UnaryFunction{}, index, threshold, tile)
    } -> std::same_as<PrefixPlace>;
  {
    team.FindPrefix(internal::BinaryFunction{}, index, threshold, tile, tile)
    } -> std::same_as<PrefixPlace>;
  { team.SumInOrder(internal::UnaryFunction{}, tile) } -> std::same_as<double>;
  { team.SumInOrder(internal::BinaryFunction{}, tile, tile) } -> std::same_as<double>;
  { team.FindFirst(internal::Predicate{}, tile) } -> std::same_as<int32_t>;
  { team.Pack(internal::Predicate{}, tile, index, values, ids) } -> std::same_as<int32_t>;
  { team.Store(internal::UnaryFunction{}, tile, index, values) } -> std::same_as<void>;
};

template <typename T>
concept KeepsDraws = requires(T team) {
  requires std::same_as<decltype(team.draw), DrawFacts>;
};

// A team with ReadPlainTiles(row, t, scale, with_sums, stats) has a faster first pass over a row
// that nothing changes. It notes the maxima, peaks and all sums of its tiles from t on, as NoteTile
// would, and returns the first tile that it leaves to NoteTile.
template <typename T>
concept ReadsPlainTiles = requires(const T team, const RowView& row, const RowStats& stats) {
  { team.ReadPlainTiles(row, int32_t{}, 0.0f, true, stats) } -> std::same_as<int32_t>;
};

// A team with a member `raw` of type ScaledSums has a first pass that adds up these sums beside its
// own (ReadTiles). The caller sets them, and the pass resets them.
template <typename T>
concept SumsRaw = requires(T team) {
  requires std::same_as<decltype(team.raw), ScaledSums>;
};

// A team with ReadPeaks(row, t, mask, other, stats, max) reads the peaks of tile t and its largest
// element faster, of a row that only two masks change; a null mask allows all. It returns false if
// it leaves the tile.
template <typename T>
concept ReadsPeaks = requires(const T team, const RowView& row, const uint32_t* mask,
                              const RowStats& stats, float* max) {
  { team.ReadPeaks(row, int32_t{}, mask, mask, stats, max) } -> std::same_as<bool>;
};

// A team with SumPlain(f, x, y, t, sum) has a faster Sum over tile t of two rows that nothing
// changes. It returns false if it leaves the tile.
template <typename T>
concept SumsPlainRows = requires(const T team, const RowView& row, float* sum) {
  { team.SumPlain(internal::BinaryFunction{}, row, row, int32_t{}, sum) } -> std::same_as<bool>;
};

// LooksByLane: a team whose lanes read short arrays by themselves. It has every function of
// warp_arrays.h, warp_lists.h and warp_draws.h in kernels/warps. Other teams read such arrays as
// tiles, without these, and read no rows ahead.
template <typename T>
concept LooksByLane = requires(T team, const float* values, int32_t count) {
  { team.LargestOf(values, count) } -> std::same_as<float>;
};

// Runs `pass(tile_index)` for the tiles of this group, between the Syncs that both rules ask for.
template <typename T, typename Pass>
SPECD_INLINE void ForEachTile(T& team, int32_t num_tiles, const Pass& pass) {
  team.Sync();
  for (int32_t t = team.group(); t < num_tiles; t += team.num_groups()) pass(t);
  team.Sync();
}

}  // namespace specd
