#include "tools/bench/verify_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"
#include "tools/bench/chain_rounds.h"
#include "tools/bench/needed_rows.h"
#include "tools/bench/peers.h"
#include "tools/bench/read_floor.h"
#include "tools/bench/round_check.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// The ratio that the design asks for, if it asks for one.
double TargetOf(const VerifyCase& verify_case, const Measurement& m, const Machine& machine) {
  if (m.vocab_size != 128256 || m.rows != RowShapeName(RowShape::kLlm)) return 0;
  if (verify_case.target_tree > 0) {
    const bool is_own =
        m.ratio_of == (verify_case.method == VerifyMethod::kTree ? kChainOfTree : kRead);
    const bool is_asked = m.batch == 8 && m.cold && m.dtype == DType::kFloat32;
    return is_own && is_asked ? verify_case.target_tree : 0;
  }
  if (m.draft != 5) return 0;
  if (m.ratio_of == kLlama) {
    return m.batch == 1 && !m.cold && m.threads == 1 ? verify_case.target_llama : 0;
  }
  const bool asked =
      m.ratio_of == kRead && m.batch == 32 && m.cold && m.threads == machine.usable_cpus;
  if (!asked) return 0;
  return m.dtype == DType::kFloat32 ? verify_case.target_fp32 : verify_case.target_bf16;
}

// A read of the rows that the rounds need, with as many threads, chains over them, or a peer.
class Base {
 public:
  Base(std::string_view name, const AnsweredCell& cell, int32_t threads)
      : backend_(*cell.backend), floor_(threads) {
    const RoundSet& set = *cell.set;
    if (name == kLlama) peer_ = MakeLlamaLoop(set);
    SPECD_CHECK((peer_ == nullptr) == (name == kRead || name == kChainOfTree));
    for (int32_t round = 0; round < set.shape().num_rounds; ++round) {
      const std::vector<MemorySpan> spans =
          NeededRows(set, round, cell.answers[static_cast<size_t>(round)]);
      for (const MemorySpan& span : spans) needed_bytes_ += static_cast<double>(span.size_bytes);
      num_rows_ += static_cast<double>(spans.size());
      parts_.push_back(SplitEvenly(spans, threads));
    }
  }

  absl::Status MakeChains(const AnsweredCell& cell) {
    SPECD_TAKE(chains_, ChainRounds::Make(*cell.set, cell.answers, cell.backend.get()));
    return absl::OkStatus();
  }

  // Of all rounds.
  double needed_bytes() const { return needed_bytes_; }
  double num_rows() const { return num_rows_; }

  absl::Status Run(int32_t round, Times* times_us) {
    if (chains_ != nullptr) {
      const RoundBatch batch = chains_->Batch(round);
      const SteadyClock::time_point start = SteadyClock::now();
      const absl::Status status = backend_.Run(batch);
      times_us->push_back(MicrosSince(start));
      return status;
    }
    if (peer_ == nullptr) {
      const ReadFloor::Duration time = floor_.Measure(parts_[static_cast<size_t>(round)]);
      times_us->push_back(std::chrono::duration<double, std::micro>(time).count());
      return absl::OkStatus();
    }
    tokens_.clear();
    peer_->Prepare(round);
    const SteadyClock::time_point start = SteadyClock::now();
    peer_->Run(&tokens_);
    times_us->push_back(MicrosSince(start));
    return absl::OkStatus();
  }

 private:
  Backend& backend_;
  std::unique_ptr<ChainRounds> chains_;  // null: a read or a peer
  ReadFloor floor_;
  std::unique_ptr<Peer> peer_;  // null: a read or chains
  std::vector<TokenId> tokens_;
  std::vector<std::vector<std::vector<MemorySpan>>> parts_;
  double needed_bytes_ = 0;
  double num_rows_ = 0;
};

}  // namespace

// In a cold measurement at least twice the last-level cache is read between two visits of a round.
// The number is odd, so that floor and case, taken in turn, both come to every round.
int32_t VerifySuite::NumRounds(const Cell& cell) const {
  if (!options_.cold) return 1;
  const int64_t round_bytes = cell.round_bytes();
  const int64_t between = (2 * machine_.last_level_bytes + round_bytes - 1) / round_bytes;
  return static_cast<int32_t>(std::max<int64_t>(between + 1, 3) | 1);
}

std::string_view VerifySuite::BaseOf(const VerifyCase& verify_case) const {
  if (!options_.base.empty()) return options_.base;
  return verify_case.method == VerifyMethod::kTree ? kChainOfTree : kRead;
}

absl::Status VerifySuite::Run() {
  const std::string_view base = options_.base;
  const auto supports = [base](const VerifyCase& verify_case, DType dtype) {
    if (base.empty() || base == kRead) return true;
    if (base == kChainOfTree) return verify_case.method == VerifyMethod::kTree;
    return dtype == DType::kFloat32 && HasPeer(verify_case);
  };
  return RunCells(
      CellsOf(options_, supports), hooks_, [this](const Cell& cell) { return NumRounds(cell); },
      [this](const Cell& cell) { return RunCell(cell); });
}

absl::Status VerifySuite::RunCell(const Cell& cell) {
  SPECD_TAKE(auto backend, hooks_.make_backend());
  SPECD_TAKE(AnsweredCell answered,
             AnswerCell(cell, options_.threads, std::move(backend), &pools_));
  answered.measurement.threads = options_.threads;
  answered.measurement.cold = options_.cold;
  answered.measurement.ratio_of = BaseOf(*cell.verify_case);
  SPECD_TAKE(answered.measurement.num_checked, CheckRound(*answered.set, 0, answered.answers[0]));
  SPECD_TRY(Time(cell, &answered));
  hooks_.on_result(answered.measurement);
  return absl::OkStatus();
}

absl::Status VerifySuite::Time(const Cell& cell, AnsweredCell* answered) {
  const RoundSet& set = *answered->set;
  const std::string_view base_name = answered->measurement.ratio_of;
  Base base(base_name, *answered, options_.threads);
  if (base_name == kChainOfTree) SPECD_TRY(base.MakeChains(*answered));
  RoundAnswer answer = set.MakeAnswer();
  answer.decisions.clear();
  int32_t next = 0;
  const auto next_round = [&] { return next++ % cell.shape.num_rounds; };
  std::vector<Side> sides(2);
  sides[0].turn = [&](Times* times_us) { return base.Run(next_round(), times_us); };
  sides[1].turn = [&](Times* times_us) -> absl::Status {
    const int32_t round = next_round();
    const RoundBatch batch = set.Batch(round, &answer);
    const SteadyClock::time_point start = SteadyClock::now();
    const absl::Status status = answered->backend->Run(batch);
    times_us->push_back(MicrosSince(start));
    SPECD_TRY(status);
    if (DifferenceOf(set, round, answer, answered->answers[static_cast<size_t>(round)]).empty()) {
      return status;
    }
    return absl::InternalError(
        fmt::format("{}: a round was answered otherwise than the first time", Describe(cell)));
  };
  Measurement& m = answered->measurement;
  SPECD_TAKE(m.load, TakeTurns({options_.seconds}, 0, &sides));
  SetTimes(sides[1].times_us, sides[0].times_us, &m);
  m.rows_read = base.num_rows() / cell.shape.num_rounds / cell.shape.batch;
  m.rows_given = NumRowsGiven(set);
  m.base_gigabytes_per_s = base.needed_bytes() / cell.shape.num_rounds / m.base_us.median / 1e3;
  m.target = TargetOf(*cell.verify_case, m, machine_);
  return absl::OkStatus();
}

namespace {

absl::Status RunVerify(const Flags& flags, Output* out) {
  const Machine machine = ReadMachine();
  VerifyOptions options = OptionsOf(flags, VerifyCases(), machine);
  options.cold = flags.Text("state") == "cold";
  const std::string& base = flags.Text("base");
  if (!base.empty()) options.base = base;
  if (options.base == kLlama && !IsLlamaBuiltIn()) {
    return absl::InvalidArgumentError(
        "base = llama needs llama.cpp, which this specd-bench was built without: configure with "
        "-DSPECD_LLAMA=PREFIX of an installed llama.cpp");
  }
  out->Begin(machine.processor, Describe(machine, options.threads));
  return VerifySuite(options, machine, HooksFor("cpu", out)).Run();
}

}  // namespace

Suite VerifyCommand() {
  Suite suite = {.name = "verify",
                 .summary = "rounds of the CPU backend beside a read of the same rows",
                 .examples = {"--quick", "--quick --json > verify.jsonl",
                              "--case=topk40,flat_topp95 --vocab=151936 --batch=8 --draft=3",
                              "--quick --threads=1 --state=warm --batch=1",
                              "--rows=logits.f32 --vocab=128256 --batch=1 --draft=0"},
                 .cases = WordsOf(VerifyCases()),
                 .seconds = "0.5",
                 .quick_seconds = "1",
                 .flags = RoundFlags("1,8,32,64", "32", "0,3,5,8"),
                 .run = &RunVerify};
  suite.flags.push_back({.name = "state",
                         .help = "cold: rows come from memory; warm: the same rows again and again",
                         .usual = "cold",
                         .choices = {"cold", "warm"}});
  suite.flags.push_back(
      {.name = "base",
       .help =
           "what to compare with: read, chain (of a tree: `token` over chains of the rows that it "
           "reads) or llama (llama.cpp's samplers); without it read, or chain for `tree`",
       .choices = {kRead, kChainOfTree, kLlama}});
  return suite;
}

}  // namespace specd::bench
