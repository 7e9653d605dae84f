// CompileTurns keeps long compiles out of the way of short compiles and of rounds.
//
// A compile begins at once. When it has used kShortNs of a processor, it waits for its turn: a
// bounded number of long compiles run at a time, in the order in which they became long. An engine
// has one opening at a time, so engines take turns. The thread of a long compile gets a low
// priority and should end with the opening: Linux lets no ordinary user raise a priority again.
// Only the short beginnings of compiles run without a bound, so a compile that waits has taken
// little memory.
//
// Without a bound, as in an embedded engine, no compile waits or changes its thread. Safe from any
// thread.
//
//   CompileTurns::OfProcess().Bound(2);
//   const CompileTurn turn;                // around a compile
//   if (!CompileTurn::MayGoOn()) return CompileCancel::Refusal();  // in its loops
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace specd::grammar {

class CompileTurn;

class CompileTurns {
 public:
  // Most constraints of requests compile in less (estimate), and a machine with few processors
  // feels a compile of this length in few rounds.
  static constexpr int64_t kShortNs = 50'000'000;

  explicit CompileTurns(int64_t short_ns = kShortNs) : short_ns_(short_ns) {}
  CompileTurns(const CompileTurns&) = delete;
  CompileTurns& operator=(const CompileTurns&) = delete;
  static CompileTurns& OfProcess();

  // The number of long compiles at a time; 0: no bound. REQUIRES: no compile runs.
  void Bound(size_t num_max) { num_max_ = num_max; }

  // Long compiles that wait for their turn.
  size_t num_waiting() const;

 private:
  friend class CompileTurn;

  // False if the process stops.
  bool Take(const CompileTurn* turn);
  void GiveBack();

  const int64_t short_ns_;
  size_t num_max_ = 0;
  // Guarded by CompileCancel::waits().
  size_t num_running_ = 0;
  std::deque<const CompileTurn*> waiting_;
};

// A compile of this thread, from its beginning to its end.
class CompileTurn {
 public:
  explicit CompileTurn(CompileTurns* turns = &CompileTurns::OfProcess());
  ~CompileTurn();
  CompileTurn(const CompileTurn&) = delete;
  CompileTurn& operator=(const CompileTurn&) = delete;

  // A compile asks this every few milliseconds of its work. The call waits if the compile is long
  // and its turn has not come. False: the process stops, and the compile gives up.
  static bool MayGoOn();

  // The compile of the calling thread; null: none. OnThread makes it that of another thread, as
  // long as the object lives and the first thread waits (deep_stack.h).
  static CompileTurn* OfThread();
  class OnThread {
   public:
    explicit OnThread(CompileTurn* turn);
    ~OnThread();
    OnThread(const OnThread&) = delete;
    OnThread& operator=(const OnThread&) = delete;

   private:
    CompileTurn* const outer_;
    const int64_t outer_begin_ns_;
  };

 private:
  CompileTurns& turns_;
  bool is_long_ = false;  // has a turn
  const OnThread on_thread_;
};

}  // namespace specd::grammar
