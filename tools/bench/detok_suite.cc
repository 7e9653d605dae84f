// The suite `detok`: what the text of a token costs, and what loading a tokenizer costs.
//
// Streams push tokens in turn, one token each, as the rounds of a busy daemon do. So their states
// compete for the caches. All texts are the same words at other places, and the text that a stream
// gives out is compared once with the bytes of its tokens.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "detokenizer/text_stream.h"
#include "detokenizer/tokenizer_file.h"
#include "tools/bench/child_process.h"
#include "tools/bench/suite.h"
#include "tools/bench/synthetic_vocabulary.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr CaseWords kCases[] = {
    {"push", "nanoseconds for each token, by streams in turn and stop strings"},
    {"load", "milliseconds to read a tokenizer.json in the style of byte-level BPE"}};
constexpr int32_t kVocabSize = 262'144;
constexpr int32_t kStreams[] = {1, 64, 4096};
constexpr int32_t kStops[] = {0, 4, 1024};
constexpr size_t kTextTokens = 4096;
constexpr size_t kPushesOfSample = 1 << 16;
// The design's: nanoseconds for each token without and with stop strings, and milliseconds.
constexpr double kPlainNs = 40;
constexpr double kStopsNs = 60;
constexpr double kLoadMs = 150;

constexpr std::string_view kText =
    "The server reads a request, looks for the first line that has no answer, and writes one. "
    "If the name of a field is unknown, the error says which names there are: \"id\", \"role\" and "
    "\"email\".\n\n{\"status\": \"open\", \"total\": 128.5, \"tags\": [\"read\", \"write\"]}\n";

std::vector<TokenId> Tokens(const SyntheticVocabulary& vocabulary) {
  std::string text;
  while (text.size() < 8 * kTextTokens) text += kText;
  std::vector<TokenId> ids = vocabulary.Tokenize(text);
  ids.resize(std::min(ids.size(), kTextTokens));
  return ids;
}

// Strings that begin as the text does now and then, and never complete.
std::shared_ptr<const StopSet> MakeStops(int32_t count) {
  std::vector<std::string> strings;
  for (int32_t i = 0; i < count; ++i) {
    const char* const front[] = {"\n\nHuman:", "</answer", " the end ", "<|im_"};
    strings.push_back(fmt::format("{}{}#", front[i % 4], i));
  }
  return count == 0 ? nullptr : *StopSet::Create(std::move(strings));
}

absl::Status CheckText(const SyntheticVocabulary& vocabulary, const std::vector<TokenId>& ids,
                       const std::shared_ptr<const StopSet>& stops) {
  TextStream stream(&vocabulary.vocabulary(), stops, {});
  TextChunk chunk;
  std::string expected;
  for (const TokenId id : ids) {
    stream.Push(id, false, &chunk);
    expected += vocabulary.vocabulary().Bytes(id);
  }
  stream.Finish(TextEnd::kFlush, &chunk);
  return chunk.text == expected ? absl::OkStatus()
                                : absl::InternalError("a text is not the bytes of its tokens");
}

// Takes samples, and ends the line with them. `sample` has the time in the unit of the goal.
absl::Status Measure(Goal goal, double seconds, absl::FunctionRef<absl::StatusOr<double>()> sample,
                     Line line, Output* out) {
  std::vector<Side> sides = {{.turn = [&](Times* all) -> absl::Status {
    SPECD_TAKE(all->emplace_back(), sample());
    return absl::OkStatus();
  }}};
  SPECD_TAKE(const ForeignLoad load, TakeTurns({seconds}, &sides));
  const Summary summary = Summarise(std::move(sides[0].times_us));
  goal.measured = summary.median;
  out->Print(line.Spread(summary, goal.unit).Target(goal).Load(load));
  return absl::OkStatus();
}

absl::Status MeasurePush(const SyntheticVocabulary& vocabulary, int32_t num_streams,
                         int32_t num_stops, double seconds, Output* out) {
  const std::vector<TokenId> ids = Tokens(vocabulary);
  const auto stops = MakeStops(num_stops);
  SPECD_TRY(CheckText(vocabulary, ids, stops));
  std::vector<TextStream> streams(static_cast<size_t>(num_streams),
                                  TextStream(&vocabulary.vocabulary(), stops, {}));
  TextChunk chunk;
  size_t pushed = 0;
  const auto sample = [&]() -> absl::StatusOr<double> {
    const SteadyClock::time_point start = SteadyClock::now();
    for (size_t i = 0; i < kPushesOfSample; ++i, ++pushed) {
      const size_t stream = pushed % streams.size();
      const size_t place = pushed / streams.size() + 37 * stream;
      chunk.Clear();
      streams[stream].Push(ids[place % ids.size()], i % 2 == 0, &chunk);
    }
    return 1e3 * MicrosSince(start) / static_cast<double>(kPushesOfSample);
  };
  Line line;
  line.Name("case", "push", 6).Count("streams", num_streams, 8).Count("stops", num_stops, 6);
  // A token's, of one stream.
  return Measure({.bound = num_stops == 0 ? kPlainNs : kStopsNs, .unit = "ns"}, seconds, sample,
                 std::move(line), out);
}

absl::Status MeasureLoad(const SyntheticVocabulary& made, double seconds, Output* out) {
  const Vocabulary& vocabulary = made.vocabulary();
  SPECD_TAKE(const auto folder, TemporaryFolder::Make());
  const std::string json = TokenizerJson(vocabulary);
  SPECD_TAKE(const std::string path, folder->Write("tokenizer.json", json));
  const auto sample = [&]() -> absl::StatusOr<double> {
    const SteadyClock::time_point start = SteadyClock::now();
    const absl::StatusOr<Vocabulary> loaded = OpenTokenizer(path);
    const double ms = MicrosSince(start) / 1e3;
    if (!loaded.ok()) return loaded.status();
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
      if (loaded->Bytes(id) != vocabulary.Bytes(id)) {
        return absl::InternalError(fmt::format("id {} was loaded with other bytes", id));
      }
    }
    return ms;
  };
  out->NextTable();
  Line line;
  line.Name("case", "load", 6)
      .Count("ids", vocabulary.size(), 8)
      .Cell("MB", 6, "{:.1f}", static_cast<double>(json.size()) / 1e6);
  return Measure({.bound = kLoadMs, .unit = "ms"}, seconds, sample, std::move(line), out);
}

absl::Status RunDetok(const Flags& flags, Output* out) {
  const SyntheticVocabulary vocabulary(kVocabSize);
  const double seconds = flags.Real("seconds");
  for (const CaseWords* const each : Chosen(flags, kCases)) {
    if (each->name == "load") {
      out->Show("load");
      SPECD_TRY(MeasureLoad(vocabulary, seconds, out));
      continue;
    }
    for (const int32_t streams : kStreams) {
      for (const int32_t stops : kStops) {
        out->Show(fmt::format("{} streams, {} stops", streams, stops));
        SPECD_TRY(MeasurePush(vocabulary, streams, stops, seconds, out));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

Suite DetokCommand() {
  return {.name = "detok",
          .summary = "the text of a token, and the load of a tokenizer, beside their targets",
          .cases = WordsOf(kCases),
          .flags = {Flag::Seconds("3", "0.3")},
          .run = &RunDetok};
}

}  // namespace specd::bench
