// Long compiles wait for each other, and short ones wait for nothing. The compiles of these tests
// are threads that ask whether they may go on, as a compile does.
#include "speculative/grammar/base/compile_turns.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "speculative/grammar/base/compile_cancel.h"
#include "speculative/grammar/base/deep_stack.h"
#include "tests/support/eventually.h"

namespace specd::grammar {
namespace {

// A compile that becomes long with its first look, and then runs until it is ended.
class LongCompile {
 public:
  explicit LongCompile(CompileTurns* turns)
      : thread_([this, turns] {
          const CompileTurn turn(turns);
          went_on_ = CompileTurn::MayGoOn();
          has_looked_ = true;
          end_.get_future().wait();
        }) {}
  ~LongCompile() { End(); }

  bool has_looked() const { return has_looked_; }
  bool went_on() const { return went_on_; }
  void End() {
    if (!thread_.joinable()) return;
    end_.set_value();
    thread_.join();
  }

 private:
  std::atomic<bool> has_looked_{false};
  std::atomic<bool> went_on_{false};
  std::promise<void> end_;
  std::thread thread_;
};

TEST_SUITE("unit") {
  TEST_CASE("turns: two long compiles held up every other opening") {
    CompileTurns turns(0);
    turns.Bound(2);
    std::vector<std::unique_ptr<LongCompile>> compiles;
    for (size_t i = 0; i < 5; ++i) {
      compiles.push_back(std::make_unique<LongCompile>(&turns));
      // They become long one after another.
      REQUIRE(Eventually(
          [&] { return i < 2 ? compiles[i]->has_looked() : turns.num_waiting() == i - 1; }));
    }
    // A compile that is still short goes on beside them.
    CompileTurns patient(int64_t{1} << 60);
    patient.Bound(1);
    {
      const CompileTurn turn(&patient);
      CHECK(CompileTurn::MayGoOn());
    }
    // A turn goes to the compile that has waited longest.
    compiles[1]->End();
    REQUIRE(Eventually([&] { return compiles[2]->has_looked(); }));
    CHECK(turns.num_waiting() == 2);
    CHECK(!compiles[3]->has_looked());
    compiles[0]->End();
    REQUIRE(Eventually([&] { return compiles[3]->has_looked(); }));
    CHECK(!compiles[4]->has_looked());
    for (size_t i = 0; i < 4; ++i) CHECK(compiles[i]->went_on());
    compiles[2]->End();
    REQUIRE(Eventually([&] { return compiles[4]->has_looked(); }));
    CHECK(turns.num_waiting() == 0);
  }

  TEST_CASE("turns: a process that stopped waited for every compile") {
    CompileTurns turns(0);
    turns.Bound(1);
    LongCompile first(&turns);
    REQUIRE(Eventually([&] { return first.has_looked(); }));
    LongCompile second(&turns);
    REQUIRE(Eventually([&] { return turns.num_waiting() == 1; }));
    CHECK(!CompileCancel::IsAsked());
    {
      const CompileCancel cancel;
      CHECK(CompileCancel::IsAsked());
      REQUIRE(Eventually([&] { return second.has_looked(); }));
      // A compile that has its turn, and a thread without one, see it too.
      CHECK(!CompileTurn::MayGoOn());
    }
    CHECK(first.went_on());
    CHECK(!second.went_on());
    CHECK(turns.num_waiting() == 0);
    CHECK(CompileTurn::MayGoOn());
    // The turn that was not taken is not given back.
    second.End();
    LongCompile third(&turns);
    REQUIRE(Eventually([&] { return turns.num_waiting() == 1; }));
    CHECK(!third.has_looked());
    first.End();
    REQUIRE(Eventually([&] { return third.has_looked(); }));
  }

  TEST_CASE("turns: a compile on a deep stack has the turn of its opening") {
    CompileTurns turns(0);
    turns.Bound(1);
    const int niceness = getpriority(PRIO_PROCESS, 0);
    std::optional<LongCompile> other;
    {
      const CompileTurn turn(&turns);
      REQUIRE(RunOnDeepStack(1 << 20, [&] {
                CHECK(CompileTurn::OfThread() == &turn);
                CHECK(CompileTurn::MayGoOn());
                CHECK(getpriority(PRIO_PROCESS, 0) > niceness);
              }).ok());
      other.emplace(&turns);
      REQUIRE(Eventually([&] { return turns.num_waiting() == 1; }));
    }
    REQUIRE(Eventually([&] { return other->has_looked(); }));
    CHECK(CompileTurn::OfThread() == nullptr);
    // The priority was that thread's alone.
    CHECK(getpriority(PRIO_PROCESS, 0) == niceness);
  }

  TEST_CASE("turns: without a bound a compile keeps its thread as it is") {
    CompileTurns turns(0);
    const int niceness = getpriority(PRIO_PROCESS, 0);
    const CompileTurn turn(&turns);
    CHECK(CompileTurn::MayGoOn());
    CHECK(getpriority(PRIO_PROCESS, 0) == niceness);
  }
}

}  // namespace
}  // namespace specd::grammar
