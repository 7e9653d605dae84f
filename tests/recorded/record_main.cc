// specd_record_rounds FOLDER plays every plan of scenarios.h and writes a file for each engine.
//
// Run it by hand only, with code whose answers are to be kept. The test expects the written answers
// from then on.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "tests/recorded/file.h"
#include "tests/recorded/lockstep.h"
#include "tests/recorded/scenarios.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: specd_record_rounds FOLDER\n");
    return 2;
  }
  try {
    for (const specd::recorded::Scenario& scenario : specd::recorded::Scenarios()) {
      specd::recorded::Recording recording{scenario.engine, {}};
      for (const specd::recorded::LifePlan& plan : scenario.plans) {
        recording.lives.push_back(Resolve(scenario.engine, plan));
      }
      recording.lives = PlayAlone(scenario.engine, std::move(recording.lives));
      WriteRecording(fmt::format("{}/{}.jsonl", argv[1], scenario.engine.name), recording);
      fmt::print("{}: {} lives\n", scenario.engine.name, recording.lives.size());
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
