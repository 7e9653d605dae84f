// Text inside rounds: the same text, cuts and reasons as the text side's, and as brute force.
//
// Three sessions answer the same rounds: one of an embedded engine, one of a daemon whose text side
// finds the stop strings, and one of a daemon with stops = inline beside a text side.
#include <doctest/doctest.h>

#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/daemon/text/inline_text_fixture.h"

namespace specd {
namespace {

using namespace inline_text;

TEST_SUITE("unit") {
  TEST_CASE("random texts end inside rounds as the text side and brute force end them") {
    Cases cases;
    Host hosts[] = {Host(Side::kEmbedded), Host(Side::kTextSide), Host(Side::kInlineDaemon)};
    int num_stops = 0;
    int num_brute = 0;
    for (int trial = 0; trial < 3000; ++trial) {
      const Case drawn = cases.Draw();
      const auto bursts = cases.Group(std::span(drawn.ids).subspan(drawn.num_given));
      std::vector<Outcome> outcomes;
      for (Host& host : hosts) {
        const SequenceHandle sequence = host.Open(drawn);
        host.Run(sequence, bursts);
        outcomes.push_back(host.End(sequence));
        host.Close(sequence);
      }
      CAPTURE(trial);
      for (const Outcome& outcome : {outcomes[1], outcomes[2]}) {
        CHECK_MESSAGE(outcomes[0] == outcome, Describe(outcomes[0]), " / ", Describe(outcome));
      }
      num_stops += outcomes[0].stop.empty() ? 0 : 1;
      // Text that was given before the opening is not given again, so brute force knows the text of
      // whole sequences alone. A prompt may begin their first code point.
      if (drawn.num_given > 0 || !drawn.prompt.empty()) continue;
      Outcome expected = BruteForce(drawn);
      std::tie(expected.reasoning_bytes, expected.reasoning_tokens) = ThoughtOf(drawn, expected);
      CHECK_MESSAGE(outcomes[0] == expected, Describe(outcomes[0]), " / ", Describe(expected));
      CHECK(outcomes[0].ends == expected.ends);
      ++num_brute;
    }
    CHECK(num_stops > 800);
    CHECK(num_brute > 300);
  }

  TEST_CASE("stop patterns are refused where a text side is missing, and by their own faults") {
    SequenceParams params;
    params.stop_regex = {"a+"};
    SessionFixture without(true, false);
    const absl::Status missing = without.session->OpenSequences("r", params).status();
    CHECK_MESSAGE(
        missing.ToString().find("as stop_regex does, and none is attached") != std::string::npos,
        missing.ToString());
    SessionFixture embedded(false, std::function<bool()>());
    CHECK_FALSE(embedded.session->OpenSequences("r", params).ok());  // without a tokenizer
    embedded.profile.vocabulary = MakePieces();
    CHECK(embedded.session->OpenSequences("r", params).ok());
    params.stop_regex = {"a", "<[^>]*>"};
    const absl::Status unbounded = embedded.session->OpenSequences("r2", params).status();
    CHECK_MESSAGE(unbounded.ToString().find("stop_regex[1]") != std::string::npos,
                  unbounded.ToString());
  }

  TEST_CASE("rounds make no text that nobody reads") {
    // Bug: in a daemon the rounds of a sequence without stop strings decoded for nobody.
    for (const bool is_daemon : {false, true}) {
      for (const bool has_stops : {false, true}) {
        SessionFixture f(is_daemon, is_daemon);
        SequenceParams params;
        params.stops = StopSearch::kInline;
        if (has_stops) params.stop_strings = {"ab"};
        CHECK_FALSE(f.session->OpenSequences("none", params).ok());  // without a tokenizer
        f.profile.vocabulary = MakePieces();
        const auto opened = f.session->OpenSequences("r", params);
        REQUIRE(opened.ok());
        CHECK(f.session->TextOf(opened->front().handle).ok() == (has_stops || !is_daemon));
      }
    }
  }

  TEST_CASE("forks go on where the text was given, inside rounds as at the text side") {
    Cases cases;
    Host hosts[] = {Host(Side::kEmbedded), Host(Side::kTextSide), Host(Side::kInlineDaemon)};
    int num_forks = 0;
    for (int trial = 0; trial < 2000; ++trial) {
      Case drawn = cases.Draw();
      drawn.params.max_tokens = 1000;
      const auto before = cases.Group(std::span(drawn.ids).subspan(drawn.num_given));
      const Ids more = cases.Text(12);
      const auto after = cases.Group(more);
      std::vector<Outcome> outcomes;
      for (Host& host : hosts) {
        const SequenceHandle source = host.Open(drawn);
        host.Run(source, before);
        // A sequence that has ended cannot be forked. Where the text side has yet to find a stop
        // string, the others have ended.
        if (outcomes.empty() && !host.IsRunning(source)) {
          host.Close(source);
          break;
        }
        const SequenceHandle fork = host.Fork(source);
        host.Run(fork, after);
        outcomes.push_back(host.End(fork));
        host.Close(fork);
        host.Close(source);
      }
      if (outcomes.empty()) continue;
      ++num_forks;
      CAPTURE(trial);
      for (const Outcome& outcome : {outcomes[1], outcomes[2]}) {
        CHECK_MESSAGE(outcomes[0] == outcome, Describe(outcomes[0]), " / ", Describe(outcome));
      }
    }
    CHECK(num_forks > 200);
  }
}

}  // namespace
}  // namespace specd
