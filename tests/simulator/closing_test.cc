// A daemon that dies between two words of a conversation with an engine, chosen by the test.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>

#include "daemon/base/logging.h"
#include "tests/simulator/network.h"
#include "tests/simulator/sim_clock.h"
#include "tests/simulator/sim_daemon.h"
#include "tests/simulator/sim_engine.h"
#include "tests/simulator/sim_reader.h"

namespace specd::sim {
namespace {

// A daemon, the next one, and an engine with one sequence.
struct ClosingScene {
  ClosingScene() : profile(MakeProfile()), context(*ZmqContext::Make()) {
    REQUIRE(SetUpLogging({.levels = "off"}).ok());
    StartDaemon();
    host.daemon = [this] { return daemon.get(); };
    Network::OfProcess().serve = [this](const std::string&) { daemon->StepPublisher(); };
  }
  ~ClosingScene() {
    Network::OfProcess().serve = [](const std::string&) {};
  }

  void StartDaemon() {
    if (daemon != nullptr) daemon->Kill();
    dead = std::move(daemon);
    daemon = std::make_unique<SimDaemon>(SimDaemon::Options{
        .epoch = ++epoch, .profile = &profile, .context = &context, .has_text_side = true});
  }
  void Step(Random* random) {
    const absl::Status status = engine->Step(random);
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    daemon->StepVerify();
    daemon->StepPublisher();
    daemon->StepText();
    SimClock::OfProcess().AdvanceNs(20'000'000);
  }

  const ModelProfile profile;
  ZmqContext context;
  Host host;
  uint64_t epoch = 0;
  std::unique_ptr<SimDaemon> dead;
  std::unique_ptr<SimDaemon> daemon;
  std::unique_ptr<SimEngine> engine;
};

TEST_SUITE("simulator") {
  TEST_CASE("the end of a sequence was another one if its daemon had closed it and died") {
    size_t num_cut = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      CAPTURE(seed);
      Random random(seed);
      SequencePlan plan = DrawPlan("a", &random);
      if (plan.stop.empty()) continue;
      ClosingScene scene;
      SimEngine::Options options;
      options.plans = {plan};
      scene.engine = SimEngine::Attach(&scene.host, options);
      for (int i = 0; i < 5000 && scene.engine->outcomes().empty(); ++i) scene.Step(&random);
      REQUIRE_FALSE(scene.engine->outcomes().empty());
      int words = 0;
      scene.host.on_way = [&] {
        if (++words == 2) scene.StartDaemon();  // the daemon has closed it, and the reply is lost
      };
      for (int i = 0; i < 5000 && !scene.engine->IsDone(); ++i) scene.Step(&random);
      REQUIRE(scene.engine->IsDone());
      SimReader reader(SimReader::Kind::kIds, &scene.context);
      const Expected& end = scene.engine->outcomes().at("a");
      for (int i = 0; i < 20; ++i) {
        scene.daemon->StepPublisher();
        SimClock::OfProcess().AdvanceNs(200'000'000);
        REQUIRE(reader.Step().ok());
      }
      const ReadStream& read = reader.streams().at("a");
      CHECK(read.ids == end.ids);
      CHECK(read.finish_reason == end.finish_reason);
      num_cut += end.ids.size() < plan.max_tokens ? 1 : 0;
    }
    CHECK(num_cut > 5);
  }
}

}  // namespace
}  // namespace specd::sim
