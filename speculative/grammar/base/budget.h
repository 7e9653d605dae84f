// Budget bounds the work, the memory and the depth of compiling one constraint, and the work of one
// mask, however small the constraint's text is.
//
// A text of ten bytes can ask for billions of steps. So the loops and recursions that can grow take
// from the budget of their thread, and stop once a part of it is used up:
//   - Spend takes units, about one for each node or edge that a loop looks at. A budget of CPU time
//     reads the clock each few thousand units, and asks there whether the compile has its turn
//     (compile_turns.h);
//   - a List (counted.h) takes the bytes that it holds, and throws BudgetSpent past the bound;
//   - a Level is one level of recursion.
// The refusal names the part that was used up and the place in the constraint; it is
// RESOURCE_EXHAUSTED, or DEADLINE_EXCEEDED for time, which another day may have. An inner budget
// replaces the outer one while the inner one lives; bytes and levels still count in both. Without a
// budget nothing is bounded. A budget belongs to the thread that made it.
//
//   absl::Status status = Budget::Run(CompileLimits(), [&] { network = Network::Build(rules); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace specd::grammar {

struct BudgetLimits {
  static constexpr uint64_t kNone = ~uint64_t{0};

  uint64_t units = kNone;
  uint64_t cpu_ms = kNone;  // of this thread
  uint64_t bytes = kNone;   // of the lists that live at one time
  uint64_t levels = kNone;
};

// The units that a caller may spend before it lets others go first. Work that can pause takes from
// the slice, stops where none is left, and goes on with another slice.
struct WorkSlice {
  uint64_t units = BudgetLimits::kNone;
};

// The bounds of one compile. The daemon and embedded engines have options for the first two
// (daemon/session/compile_limits.h).
inline constexpr uint64_t kCompileMsDefault = 2000;
inline constexpr uint64_t kCompileMibDefault = 256;
// A level of the compiler takes some 20 KB of stack under AddressSanitizer, less without it.
inline constexpr uint64_t kCompileLevelsMax = 1024;

inline BudgetLimits CompileLimits() {
  return {
      .cpu_ms = kCompileMsDefault, .bytes = kCompileMibDefault << 20, .levels = kCompileLevelsMax};
}

// A list would hold more bytes than the budget has, or the time was up when it grew.
struct BudgetSpent : std::bad_alloc {
  const char* what() const noexcept override { return "the budget of a compile is used up"; }
};

class Budget {
 public:
  explicit Budget(const BudgetLimits& limits);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Calls `function` under a budget. Returns the refusal if the budget was used up, whatever
  // `function` made of that.
  static absl::Status Run(const BudgetLimits& limits, absl::FunctionRef<void()> function);

  // False: the budget of this thread is used up, now or before.
  static bool Spend(uint64_t units);
  // Why it is used up, for the caller of Spend or Level. OK if nothing is.
  static absl::Status Refusal();
  static bool IsSpent() { return !Refusal().ok(); }
  // What this budget has given so far.
  uint64_t units() const { return units_; }

  // For lists. Take throws BudgetSpent; Give never does.
  static void Take(size_t bytes);
  static void Give(size_t bytes) noexcept;

  // One level of recursion, as long as it lives.
  class Level {
   public:
    Level();
    ~Level();
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    // False: it is one too many; return Refusal().
    bool ok() const { return is_ok_; }

   private:
    bool is_ok_ = true;
  };

  // The part of the constraint that is being compiled, for the refusal.
  class Place {
   public:
    // `name_of` names what `part` points to, if the budget is spent inside.
    Place(const void* part, std::string (*name_of)(const void* part));
    explicit Place(std::string_view rule);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    const void* outer_part_ = nullptr;
    std::string (*outer_name_of_)(const void* part) = nullptr;
    std::string_view outer_rule_;
  };

 private:
  // False, and the first refusal is kept.
  bool Refuse(std::string_view part, std::string_view remedy,
              absl::StatusCode code = absl::StatusCode::kResourceExhausted);
  bool IsTimeLeft();

  Budget* const outer_;
  const BudgetLimits limits_;
  uint64_t started_ns_ = 0;
  uint64_t units_ = 0;         // spent
  uint64_t units_looked_ = 0;  // at the last look at the clock
  uint64_t bytes_ = 0;         // of living lists
  uint64_t levels_ = 0;
  const void* part_ = nullptr;
  std::string (*name_of_)(const void* part) = nullptr;
  std::string_view rule_;
  absl::Status refusal_;
};

}  // namespace specd::grammar
