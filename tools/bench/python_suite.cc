// The suite `python`: what Python adds to the calls for many sequences, and for one.
//
// A C engine and a Python engine (python_rounds.py) with the same rows, drafts and openings do the
// same work in blocks by turns. Each checks its own answers.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/c_engine.h"
#include "tools/bench/child_process.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

struct PythonCase {
  std::string_view name;
  std::string_view summary;
  std::string_view work;
  int block;                // repetitions in a block
  double divisor = 1;       // of the times: 1, or the number of sequences
  double target_ratio = 0;  // of Python to C; 0: the targets are times
  double c_target_us = 0;
  double target_us = 0;
  uint32_t batch = 256;
  uint32_t draft = 4;
  bool is_cold = false;  // a forward clears the caches before each call
};
// `verify` is Engine.verify, and specd_verify_batch in C as in `round`.
constexpr PythonCase kCases[] = {
    {"batch256", "a round of 256 sequences with 4 drafts each", "round", 16, 1, 1.5},
    {"open256", "256 openings with prompts of 32 ids; times are for one opening", "open", 2, 256, 0,
     10, 10},
    {"drafts", "a draft token for each of 256 sequences, from rows of the drafter", "draw", 16, 1,
     1.5},
    {"step", "a round of one sequence without a draft", "round", 64, 1, 0, 3, 25, 1, 0},
    {"step_cold", "the same after a forward that clears the caches", "round", 8, 1, 0, 3, 25, 1, 0,
     true},
    {"verify_cold", "the same by Engine.verify", "verify", 8, 1, 0, 3, 40, 1, 0, true},
};
constexpr size_t kLeastBlocks = 10;
constexpr uint32_t kPromptIds = 32;

class CSide {
 public:
  // Before each call so many bytes are read, as a forward reads its weights; 0: none.
  absl::Status Start(const PythonCase& what, uint32_t vocab_size, uint64_t forward_bytes) {
    batch_ = what.batch;
    draft_ = what.draft;
    weights_.assign(forward_bytes / sizeof(uint64_t), 1);
    specd_options options = CEngine::Options(vocab_size, batch_, draft_);
    options.max_sequences = 2 * batch_;
    SPECD_TRY(
        engine_.Start("embedded:cpu", options, {.has_draft_rows = draft_ > 0, .has_wrong = true}));
    SPECD_TRY(engine_.Open("rounds", batch_, CEngine::Params(0)));
    SPECD_TRY(engine_.RunRound(draft_).status());  // which makes the drafts
    for (uint32_t i = 0; i < batch_ * kPromptIds; ++i) {
      prompts_.push_back(static_cast<int32_t>(i % vocab_size));
    }
    specd_draft_request request = {};
    request.struct_size = sizeof(request);
    request.mask_row = -1;
    request.num_children = 1;
    children_.resize(batch_);
    for (uint32_t i = 0; i < batch_; ++i) {
      specd_params params = CEngine::Params(0.5 + i / 512.0);
      params.top_p = 0.9;
      params.seed = i;
      params.prompt_ids = {prompts_.data() + size_t{i} * kPromptIds, kPromptIds};
      params_.push_back(params);
      names_.push_back(fmt::format("bench-{}", i));
      request.sequence = engine_.sequences()[i];
      request.row = i;
      requests_.push_back(request);
      children_[i].struct_size = sizeof(children_[i]);
    }
    for (const std::string& name : names_) name_pointers_.push_back(name.c_str());
    return absl::OkStatus();
  }

  // Does the work `count` times, and appends the time of each in us.
  absl::Status Run(std::string_view work, int count, Times* times_us) {
    constexpr size_t kLineWords = 64 / sizeof(uint64_t);
    for (int i = 0; i < count; ++i) {
      for (size_t at = 0; at < weights_.size(); at += kLineWords) sum_ += weights_[at];
      SPECD_TAKE(times_us->emplace_back(), work == "open"   ? Open()
                                           : work == "draw" ? Draw()
                                                            : engine_.RunRound(draft_));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<double> Open() {
    std::vector<specd_sequence_info> infos(batch_);
    for (specd_sequence_info& info : infos) info.struct_size = sizeof(info);
    specd_openings openings;
    specd_openings_init(&openings);
    openings.num_openings = openings.max_infos = batch_;
    openings.request_ids = name_pointers_.data();
    openings.params = params_.data();
    openings.infos = infos.data();
    const SteadyClock::time_point start = SteadyClock::now();
    SPECD_TRY(Done("specd_open_sequences", specd_open_sequences(engine_.get(), &openings)));
    const double time_us = MicrosSince(start);
    for (const specd_sequence_info& info : infos) {
      SPECD_TRY(Done("specd_close_sequence", specd_close_sequence(engine_.get(), info.sequence)));
    }
    return time_us;
  }
  absl::StatusOr<double> Draw() {
    const SteadyClock::time_point start = SteadyClock::now();
    SPECD_TRY(Done("specd_sample_draft",
                   specd_sample_draft(engine_.get(), requests_.data(), batch_, children_.data())));
    const double time_us = MicrosSince(start);
    for (uint32_t i = 0; i < batch_; ++i) {
      const specd_draft_children& drawn = children_[i];
      if (drawn.status != SPECD_STATUS_OK || drawn.children[0].id != engine_.BestOfDraft(i)) {
        return Broken("a sequence has another draft token");
      }
    }
    return time_us;
  }

  CEngine engine_;
  uint32_t batch_ = 0;
  uint32_t draft_ = 0;
  std::vector<uint64_t> weights_;
  uint64_t sum_ = 0;
  std::vector<specd_draft_request> requests_;
  std::vector<specd_draft_children> children_;
  std::vector<int32_t> prompts_;
  std::vector<std::string> names_;
  std::vector<const char*> name_pointers_;
  std::vector<specd_params> params_;
};

// `interpreter` has numpy and finds the package specd.
absl::StatusOr<std::unique_ptr<PythonProcess>> StartPython(const std::string& interpreter,
                                                           const PythonCase& what,
                                                           uint32_t vocab_size,
                                                           uint64_t forward_bytes) {
  SPECD_TAKE(std::unique_ptr<PythonProcess> process,
             PythonProcess::Start(
                 {.interpreter = interpreter,
                  .script = "python_rounds.py",
                  .arguments = {fmt::format("{}", vocab_size), fmt::format("{}", what.batch),
                                fmt::format("{}", what.draft), fmt::format("{}", forward_bytes)}}));
  if (process->ReadLine().value_or("") == "ready") return process;
  return absl::InternalError(
      fmt::format("python: {} did not get ready; give --python an interpreter with numpy, and "
                  "set PYTHONPATH to the package specd",
                  interpreter));
}

Line LineOf(const PythonCase& what, int32_t vocab_size, const std::vector<Side>& sides) {
  const Summary c = Summarise(sides[0].times_us);
  const Summary python = Summarise(sides[1].times_us);
  const double ratio = python.median / c.median;
  const auto spread = [](const Summary& s) {
    return fmt::format("{:.1f} ({:.1f} .. {:.1f})", s.median, s.p10, s.p90);
  };
  const std::string_view c_met = c.median <= what.c_target_us ? "met" : "missed";
  Line line;
  line.Name("case", what.name, 11)
      .Count("vocab", vocab_size, 6)
      .Cell("C us", 23, "{}", spread(c))
      .Cell("Python us", 23, "{}", spread(python))
      .Cell("C target", 14, "{}",
            what.c_target_us > 0 ? fmt::format("<= {} us {}", what.c_target_us, c_met) : "-")
      .Number("ratio", 6, 2, ratio)
      .Target(what.target_ratio > 0
                  ? Goal{.measured = ratio, .bound = what.target_ratio}
                  : Goal{.measured = python.median, .bound = what.target_us, .unit = "us"})
      .Count("samples", c.num_samples, 7)
      .Times("c_", c)
      .Times("python_", python);
  return line;
}

absl::Status Measure(const PythonCase& what, int32_t vocab_size, const Flags& flags, Output* out) {
  CSide c;
  // A forward that reads twice the last-level cache leaves nothing else in it.
  const auto forward_bytes =
      what.is_cold ? 2 * static_cast<uint64_t>(ReadMachine().last_level_bytes) : 0;
  const auto vocab = static_cast<uint32_t>(vocab_size);
  SPECD_TRY(c.Start(what, vocab, forward_bytes));
  SPECD_TAKE(const auto python, StartPython(flags.Text("python"), what, vocab, forward_bytes));
  std::vector<Side> sides(2);
  sides[0].turn = [&](Times* times_us) { return c.Run(what.work, what.block, times_us); };
  sides[1].turn = [&](Times* times_us) -> absl::Status {
    SPECD_TAKE(const Times more_us, python->AskTimes(fmt::format("{} {}", what.work, what.block),
                                                     static_cast<size_t>(what.block)));
    times_us->insert(times_us->end(), more_us.begin(), more_us.end());
    return absl::OkStatus();
  };
  SPECD_TAKE(const ForeignLoad load,
             TakeTurns({flags.Real("seconds"), kLeastBlocks, /*warm_up=*/1}, &sides));
  for (Side& side : sides) {
    for (double& time : side.times_us) time /= what.divisor;
  }
  out->Print(LineOf(what, vocab_size, sides).Load(load));
  return absl::OkStatus();
}

absl::Status RunPython(const Flags& flags, Output* out) {
  out->Caption(
      "times in us: median (p10 .. p90); ratio = Python / C, of the medians; the last target is "
      "Python's");
  for (const PythonCase* const what : Chosen(flags, kCases)) {
    for (const int32_t vocab_size : flags.Numbers("vocab")) {
      out->Show(fmt::format("{}: vocabulary {}", what->name, vocab_size));
      SPECD_TRY(Measure(*what, vocab_size, flags, out));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Suite PythonCommand() {
  return {
      .name = "python",
      .summary = "calls for 256 sequences and for one, from Python and C",
      .cases = WordsOf(kCases),
      .flags = {Flag::Seconds("10", "2"),
                Flag::Wholes("vocab", "vocabulary sizes", {16, 1 << 17}, "1024,32000", "1024"),
                {.name = "python",
                 .help = "an interpreter with numpy, which finds the package specd (PYTHONPATH, "
                         "SPECD_LIBRARY)",
                 .usual = "python3"}},
      .run = &RunPython};
}

}  // namespace specd::bench
