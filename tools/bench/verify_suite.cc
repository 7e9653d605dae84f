#include "tools/bench/verify_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tools/bench/chain_rounds.h"
#include "tools/bench/peers.h"
#include "tools/bench/read_floor.h"
#include "tools/bench/round_check.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// Takes the cases of HasPeer on rows of fp32.
constexpr std::string_view kLlama = "llama";

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
  static absl::StatusOr<std::unique_ptr<Base>> Make(std::string_view name, const AnsweredCell& cell,
                                                    int32_t threads) {
    const RoundSet& set = *cell.set;
    std::unique_ptr<Base> base(new Base(*cell.backend, threads));
    if (name == kLlama) base->peer_ = MakeLlamaLoop(set);
    if (name == kChainOfTree) {
      SPECD_TAKE(base->chains_, ChainRounds::Make(set, cell.answers, cell.backend.get()));
    }
    for (int32_t round = 0; round < set.shape().num_rounds; ++round) {
      const std::vector<MemorySpan> spans =
          NeededRows(set, round, cell.answers[static_cast<size_t>(round)]);
      for (const MemorySpan& span : spans) {
        base->needed_bytes += static_cast<double>(span.size_bytes);
      }
      base->num_rows += static_cast<double>(spans.size());
      base->parts_.push_back(SplitEvenly(spans, threads));
    }
    return base;
  }

  absl::Status Run(int32_t round, Times* times_us) {
    if (chains_ == nullptr && peer_ == nullptr) {
      const ReadFloor::Duration time = floor_.Measure(parts_[static_cast<size_t>(round)]);
      times_us->push_back(std::chrono::duration<double, std::micro>(time).count());
      return absl::OkStatus();
    }
    absl::Status status;
    tokens_.clear();
    if (peer_ != nullptr) peer_->Prepare(round);
    const RoundBatch batch = chains_ == nullptr ? RoundBatch() : chains_->Batch(round);
    const SteadyClock::time_point start = SteadyClock::now();
    if (peer_ != nullptr) {
      peer_->Run(&tokens_);
    } else {
      status = backend_.Run(batch);
    }
    times_us->push_back(MicrosSince(start));
    return status;
  }

  // Of all rounds.
  double needed_bytes = 0;
  double num_rows = 0;

 private:
  Base(Backend& backend, int32_t threads) : backend_(backend), floor_(threads) {}

  Backend& backend_;
  ReadFloor floor_;
  std::unique_ptr<ChainRounds> chains_;  // null: a read or a peer
  std::unique_ptr<Peer> peer_;           // null: a read or chains
  std::vector<TokenId> tokens_;
  std::vector<std::vector<std::vector<MemorySpan>>> parts_;
};

// Times the rounds of a cell, in turns with the base.
absl::Status Time(const Cell& cell, const VerifyOptions& options, AnsweredCell* answered) {
  const RoundSet& set = *answered->set;
  Measurement& m = answered->measurement;
  SPECD_TAKE(const auto base, Base::Make(m.ratio_of, *answered, options.threads));
  RoundAnswer answer = set.MakeAnswer();
  answer.decisions.clear();
  int32_t next = 0;
  const auto next_round = [&] { return next++ % cell.shape.num_rounds; };
  std::vector<Side> sides(2);
  sides[0].turn = [&](Times* times_us) { return base->Run(next_round(), times_us); };
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
  SPECD_TAKE(m.load, TakeTurns({options.seconds}, 0, &sides));
  SetTimes(sides[1].times_us, sides[0].times_us, &m);
  m.rows_read = base->num_rows / cell.shape.num_rounds / cell.shape.batch;
  m.rows_given = NumRowsGiven(set);
  m.base_gigabytes_per_s = base->needed_bytes / cell.shape.num_rounds / m.base_us.median / 1e3;
  return absl::OkStatus();
}

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
  return MeasureVerify(options, machine, HooksFor("cpu", out));
}

}  // namespace

absl::Status MeasureVerify(const VerifyOptions& options, const Machine& machine,
                           const RoundHooks& hooks) {
  const std::string_view base = options.base;
  const auto supports = [base](const VerifyCase& verify_case, DType dtype) {
    if (base.empty() || base == kRead) return true;
    if (base == kChainOfTree) return verify_case.method == VerifyMethod::kTree;
    return dtype == DType::kFloat32 && HasPeer(verify_case);
  };
  // In a cold measurement at least twice the last-level cache is read between two visits of a
  // round. The number is odd, so that floor and case, taken in turn, both come to every round.
  const auto num_rounds = [&](const Cell& cell) {
    if (!options.cold) return 1;
    const int64_t round_bytes = cell.round_bytes();
    const int64_t between = (2 * machine.last_level_bytes + round_bytes - 1) / round_bytes;
    return static_cast<int32_t>(std::max<int64_t>(between + 1, 3) | 1);
  };
  PoolCache pools(options.shape, options.rows_path);
  return RunCells(CellsOf(options, supports), hooks, num_rounds,
                  [&](const Cell& cell) -> absl::Status {
                    SPECD_TAKE(auto backend, hooks.make_backend());
                    SPECD_TAKE(AnsweredCell answered,
                               AnswerCell(cell, options.threads, std::move(backend), &pools));
                    Measurement& m = answered.measurement;
                    m.threads = options.threads;
                    m.cold = options.cold;
                    m.ratio_of = !base.empty()                                     ? base
                                 : cell.verify_case->method == VerifyMethod::kTree ? kChainOfTree
                                                                                   : kRead;
                    SPECD_TAKE(m.num_checked, CheckRound(*answered.set, 0, answered.answers[0]));
                    SPECD_TRY(Time(cell, options, &answered));
                    m.target = TargetOf(*cell.verify_case, m, machine);
                    hooks.on_result(m);
                    return absl::OkStatus();
                  });
}

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
