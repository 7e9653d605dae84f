// The suite `python`: what Python adds to the calls for many sequences.
//
// A C engine and a Python engine do the same work in blocks by turns: the call for all sequences
// and the calls for single ones.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tools/bench/batch_engine.h"
#include "tools/bench/child_process.h"
#include "tools/bench/python_script.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr uint32_t kBatch = 256;
constexpr uint32_t kDraft = 4;

struct PythonCase {
  std::string_view name;
  std::string_view summary;
  std::string_view work;  // of BatchEngine, without _batch and _each
  bool is_attached;
  int block;                  // repetitions in a block
  double divisor;             // of the times: 1, or the number of sequences
  double target_ratio = 0;    // of Python to C; 0: the targets are times
  double target_us = 0;       // of Python's call for all sequences
  double c_target_us = 0;     // of C's
  double each_target_us = 0;  // of Python's calls for single sequences; 0: no target
  uint32_t batch = kBatch;
  uint32_t draft = kDraft;
  bool is_cold = false;  // a forward clears the caches before each call
};
constexpr PythonCase kCases[] = {
    {"batch256", "a round of 256 sequences with 4 drafts each, embedded", "round", false, 16, 1,
     1.5},
    {"batch256_attached", "the same, attached to a daemon", "round", true, 16, 1, 1.5},
    {"open256", "256 openings with prompts of 32 ids, embedded; times are for one opening", "open",
     false, 2, kBatch, 0, 10, 10},
    {"open256_attached", "the same, attached to a daemon", "open", true, 2, kBatch, 0, 10, 10},
    {"drafts", "a draft token for each of 256 sequences, from rows of the drafter, embedded",
     "draw", false, 16, 1, 1.5},
    {"drafts_attached", "the same, attached to a daemon", "draw", true, 2, 1, 1.5},
    {.name = "step",
     .summary = "a round of one sequence without a draft, embedded",
     .work = "round",
     .is_attached = false,
     .block = 64,
     .divisor = 1,
     .target_us = 25,
     .c_target_us = 3,
     .each_target_us = 40,
     .batch = 1,
     .draft = 0},
    {.name = "step_cold",
     .summary = "the same after a forward that clears the caches",
     .work = "round",
     .is_attached = false,
     .block = 8,
     .divisor = 1,
     .target_us = 25,
     .c_target_us = 3,
     .each_target_us = 40,
     .batch = 1,
     .draft = 0,
     .is_cold = true},
};
constexpr size_t kLeastBlocks = 10;
// The calls for single sequences of a large batch take longer, and are a comparison only.
constexpr int kEachRepetitions = 2;

// The interpreter with tools/bench/python_rounds.py, as BatchEngine.
class PythonEngine {
 public:
  // `interpreter` has numpy and finds the package specd.
  absl::Status Start(const std::string& interpreter, const std::string& uri,
                     const BatchShape& shape) {
    std::vector<std::string> arguments = {uri};
    for (const uint64_t number : {uint64_t{shape.vocab_size}, uint64_t{shape.batch},
                                  uint64_t{shape.draft}, shape.forward_bytes}) {
      arguments.push_back(fmt::format("{}", number));
    }
    SPECD_TAKE(process_, PythonProcess::Start({.interpreter = interpreter,
                                               .script = kPythonScript,
                                               .arguments = std::move(arguments)}));
    const absl::StatusOr<std::string> line = process_->ReadLine();
    if (line.ok() && *line == "ready") return absl::OkStatus();
    return absl::InternalError(
        fmt::format("python: {} did not get ready; give --python an interpreter with numpy, and "
                    "set PYTHONPATH to the package specd",
                    interpreter));
  }

  absl::Status Run(std::string_view work, int count, Times* times_us) {
    SPECD_TAKE(const std::string line, process_->Ask(fmt::format("{} {}", work, count)));
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    bool is_right =
        words.size() == static_cast<size_t>(count) + 1 && absl::SimpleAtoi(words.back(), &digest_);
    for (int i = 0; i < count && is_right; ++i) {
      is_right = absl::SimpleAtod(words[static_cast<size_t>(i)], &times_us->emplace_back());
    }
    if (is_right) return absl::OkStatus();
    return absl::InternalError(fmt::format("python: the interpreter said \"{}\"", line));
  }

  uint32_t digest() const { return digest_; }

 private:
  std::unique_ptr<PythonProcess> process_;
  uint32_t digest_ = 0;
};

// The ratios of the medians of neighbouring blocks.
Times RatiosOf(const Times& python_us, const Times& c_us, std::ptrdiff_t block) {
  Times ratios;
  for (std::ptrdiff_t at = 0; at < std::ssize(c_us); at += block) {
    const auto median = [&](const Times& all) {
      return Summarise({all.begin() + at, all.begin() + at + block}).median;
    };
    ratios.push_back(median(python_us) / median(c_us));
  }
  return ratios;
}

Line LineOf(const PythonCase& what, int32_t vocab_size, const std::vector<Side>& sides) {
  const Summary c = Summarise(sides[0].times_us);
  const Summary python = Summarise(sides[1].times_us);
  const Summary ratio = Summarise(RatiosOf(sides[1].times_us, sides[0].times_us, what.block));
  const Summary c_each = Summarise(sides[2].times_us);
  const Summary python_each = Summarise(sides[3].times_us);
  const bool is_met =
      what.target_ratio > 0
          ? ratio.median <= what.target_ratio
          : c.median <= what.c_target_us && python.median <= what.target_us &&
                (what.each_target_us == 0 || python_each.median <= what.each_target_us);
  const auto times = [](const Summary& s) {
    return fmt::format("{:.1f} ({:.1f} .. {:.1f})", s.median, s.p10, s.p90);
  };
  Line line;
  line.Name("case", what.name, 17)
      .Count("vocab", vocab_size, 6)
      .Cell("C us", 23, "{}", times(c))
      .Cell("Python us", 23, "{}", times(python))
      .Cell("ratio", 19, "{:.2f} ({:.2f} .. {:.2f})", ratio.median, ratio.p10, ratio.p90)
      .Cell("C each us", 9, "{:.1f}", c_each.median)
      .Cell("Python each us", 14, "{:.1f}", python_each.median)
      .Cell("target", 6, "{}", is_met ? "met" : "missed")
      .Count("samples", c.num_samples, 7);
  for (const auto& [name, s] :
       {std::pair("c_us", c), std::pair("python_us", python), std::pair("ratio", ratio),
        std::pair("c_each_us", c_each), std::pair("python_each_us", python_each)}) {
    line.Json(name, s.median)
        .Json(fmt::format("{}_p10", name), s.p10)
        .Json(fmt::format("{}_p90", name), s.p90);
  }
  return line;
}

absl::Status Measure(const PythonCase& what, int32_t vocab_size, const std::string& uri,
                     const Flags& flags, Output* out) {
  BatchEngine c;
  PythonEngine python;
  // A forward that reads twice the last-level cache leaves nothing else in it.
  const BatchShape shape = {
      .vocab_size = static_cast<uint32_t>(vocab_size),
      .batch = what.batch,
      .draft = what.draft,
      .forward_bytes =
          what.is_cold ? 2 * static_cast<uint64_t>(ReadMachine().last_level_bytes) : 0};
  SPECD_TRY(c.Start(uri, shape));
  SPECD_TRY(python.Start(flags.Text("python"), uri, shape));
  std::vector<Side> sides;
  const auto add = [&](auto* engine, std::string_view ending, int count) {
    const std::string work = fmt::format("{}_{}", what.work, ending);
    sides.push_back({.turn = [=, &what](Times* times_us) -> absl::Status {
      const auto first = std::ssize(*times_us);
      SPECD_TRY(engine->Run(work, count, times_us));
      for (double& time : std::span(*times_us).subspan(first)) time /= what.divisor;
      return absl::OkStatus();
    }});
  };
  add(&c, "batch", what.block);
  add(&python, "batch", what.block);
  const int each = what.batch == 1 ? what.block : kEachRepetitions;
  add(&c, "each", each);
  add(&python, "each", each);
  SPECD_TAKE(const ForeignLoad load,
             TakeTurns({flags.Real("seconds"), kLeastBlocks}, /*warm_up=*/1, &sides));
  if (c.digest() != python.digest()) {
    return absl::InternalError("python: the two engines have kept different tokens");
  }
  out->Print(LineOf(what, vocab_size, sides).Load(load));
  return absl::OkStatus();
}

absl::Status RunPython(const Flags& flags, Output* out) {
  out->Caption(
      "times in us: median (p10 .. p90); ratio = Python / C, of neighbouring blocks; each: the "
      "calls for single sequences");
  for (const PythonCase* const what : Chosen(flags, kCases)) {
    DaemonProcess daemon(ProgramOf(flags.Text("specd")), {"--spin_us=0"}, UsableCpus().back());
    if (what->is_attached) SPECD_TRY(daemon.Start().status());
    for (const int32_t vocab_size : flags.Numbers("vocab")) {
      out->Show(fmt::format("{}: vocabulary {}", what->name, vocab_size));
      SPECD_TRY(Measure(*what, vocab_size, what->is_attached ? daemon.uri() : "embedded:cpu", flags,
                        out));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Suite PythonCommand() {
  return {
      .name = "python",
      .summary = "calls for 256 sequences and for one, from Python and C",
      .examples = {"--quick", "--case=batch256 --python=.venv/bin/python"},
      .cases = WordsOf(kCases),
      .seconds = "10",
      .quick_seconds = "2",
      .flags = {Flag::Wholes("vocab", "vocabulary sizes", {16, 1 << 17}, "1024,32000", "1024"),
                {.name = "specd",
                 .help = "the daemon's program; without it the one beside specd-bench"},
                {.name = "python",
                 .help = "an interpreter with numpy, which finds the package specd (PYTHONPATH, "
                         "SPECD_LIBRARY)",
                 .usual = "python3"}},
      .run = &RunPython};
}

}  // namespace specd::bench
