#include "tools/bench/verify_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tools/bench/chain_rounds.h"
#include "tools/bench/llama_loop.h"
#include "tools/bench/read_floor.h"
#include "tools/bench/round_check.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// The ratio that the design asks for, if it asks for one.
double TargetOf(const Measurement& m, const Machine& machine) {
  const auto& [verify_case, dtype, vocab_size, shape] = m.cell;
  const Targets& targets = verify_case->targets;
  if (vocab_size != 128256) return 0;
  if (targets.tree > 0) {
    const bool is_own =
        m.ratio_of == (verify_case->method == VerifyMethod::kTree ? kChainOfTree : kRead);
    const bool is_asked = shape.batch == 8 && m.cold && dtype == DType::kFloat32;
    return is_own && is_asked ? targets.tree : 0;
  }
  if (shape.draft != 5) return 0;
  if (m.ratio_of == kLlama) {
    return shape.batch == 1 && !m.cold && m.threads == 1 ? targets.llama : 0;
  }
  const bool is_asked =
      m.ratio_of == kRead && shape.batch == 32 && m.cold && m.threads == machine.usable_cpus;
  if (!is_asked) return 0;
  return dtype == DType::kFloat32 ? targets.fp32 : targets.bf16;
}

absl::Status RunTimed(Backend& backend, const RoundBatch& batch, Times* times_us) {
  const SteadyClock::time_point start = SteadyClock::now();
  const absl::Status status = backend.Run(batch);
  times_us->push_back(MicrosSince(start));
  return status;
}

// Runs the base of a round, and appends its time.
using Base = std::function<absl::Status(int32_t round, Times* times_us)>;

// A read of the rows that each round needs, with as many threads, chains over them, or a peer.
absl::StatusOr<Base> MakeBase(const AnsweredCell& cell,
                              const std::vector<std::vector<NeededRow>>& needed) {
  const std::string_view name = cell.measurement.ratio_of;
  if (name == kChainOfTree) {
    SPECD_TAKE(const std::shared_ptr<ChainRounds> chains,
               ChainRounds::Make(*cell.set, cell.answers, cell.backend.get()));
    return [chains, &backend = *cell.backend](int32_t round, Times* times_us) {
      return RunTimed(backend, chains->Batch(round), times_us);
    };
  }
  if (name == kLlama) {
    return [peer = std::shared_ptr<LlamaLoop>(MakeLlamaLoop(*cell.set)),
            tokens = std::vector<TokenId>()](int32_t round, Times* times_us) mutable {
      tokens.clear();
      peer->Prepare(round);
      const SteadyClock::time_point start = SteadyClock::now();
      peer->Run(&tokens);
      times_us->push_back(MicrosSince(start));
      return absl::OkStatus();
    };
  }
  std::vector<std::vector<std::vector<MemorySpan>>> parts;
  for (const std::vector<NeededRow>& rows : needed) {
    std::vector<MemorySpan> spans;
    for (const auto& [is_draft, row] : rows) {
      const RowView view = RowAt(is_draft ? cell.set->draft() : cell.set->target(), row);
      spans.push_back({static_cast<const char*>(view.data),
                       static_cast<size_t>(view.vocab_size * SizeBytes(view.dtype))});
    }
    parts.push_back(SplitEvenly(spans, cell.measurement.threads));
  }
  return [parts](int32_t round, Times* times_us) {
    times_us->push_back(TimeRead(parts[static_cast<size_t>(round)]));
    return absl::OkStatus();
  };
}

// Times the rounds of a cell, in turns with the base.
absl::Status Time(const Cell& cell, double seconds, AnsweredCell* answered) {
  const RoundSet& set = *answered->set;
  Measurement& m = answered->measurement;
  std::vector<std::vector<NeededRow>> needed;
  double num_rows = 0;
  for (const RoundAnswer& answer : answered->answers) {
    needed.push_back(NeededRows(set, static_cast<int32_t>(needed.size()), answer));
    num_rows += static_cast<double>(needed.back().size());
  }
  SPECD_TAKE(const Base base, MakeBase(*answered, needed));
  RoundAnswer answer = set.MakeAnswer();
  answer.decisions.clear();
  int32_t next = 0;
  const auto next_round = [&] { return next++ % cell.shape.num_rounds; };
  std::vector<Side> sides(2);
  sides[0].turn = [&](Times* times_us) { return base(next_round(), times_us); };
  sides[1].turn = [&](Times* times_us) -> absl::Status {
    const int32_t round = next_round();
    SPECD_TRY(RunTimed(*answered->backend, set.Batch(round, &answer), times_us));
    if (DifferenceOf(set, round, answer, answered->answers[static_cast<size_t>(round)]).empty()) {
      return absl::OkStatus();
    }
    return absl::InternalError("a round was answered otherwise than the first time");
  };
  SPECD_TAKE(m.load, TakeTurns({seconds}, &sides));
  m.SetTimes(sides[1].times_us, sides[0].times_us);
  m.SetRows(num_rows / cell.shape.num_rounds);
  return absl::OkStatus();
}

absl::Status RunVerify(const Flags& flags, Output* out) {
  if (flags.Text("base") == kLlama && !HasLlama()) {
    return absl::InvalidArgumentError(
        "base = llama needs llama.cpp, which this specd-bench was built without: configure with "
        "-DSPECD_LLAMA=PREFIX of an installed llama.cpp");
  }
  const auto make_backend = [] { return MakeBackend("cpu"); };
  return MeasureVerify(flags, ReadMachine(), make_backend, out).status();
}

}  // namespace

absl::StatusOr<std::vector<Measurement>> MeasureVerify(
    const Flags& flags, const Machine& machine,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<Backend>>()> make_backend, Output* out) {
  const bool is_cold = flags.Text("state") == "cold";
  const auto base_of = [&](const VerifyCase& verify_case) -> std::string_view {
    if (!flags.Text("base").empty()) return flags.Text("base");
    return verify_case.method == VerifyMethod::kTree ? kChainOfTree : kRead;
  };
  const auto supports = [&](const VerifyCase& verify_case, DType dtype) {
    const std::string_view base = base_of(verify_case);
    if (base == kChainOfTree) return verify_case.method == VerifyMethod::kTree;
    return base == kRead || (dtype == DType::kFloat32 && HasPeer(verify_case));
  };
  // In a cold measurement at least twice the last-level cache is read between two visits of a
  // round. The number is odd, so that floor and case, taken in turn, both come to every round.
  const auto num_rounds = [&](const Cell& cell) {
    if (!is_cold) return 1;
    const int64_t round_bytes = cell.round_bytes();
    const int64_t between = (2 * machine.last_level_bytes + round_bytes - 1) / round_bytes;
    return static_cast<int32_t>(std::max<int64_t>(between + 1, 3) | 1);
  };
  PoolCache pools;
  const auto run = [&](const Cell& cell) -> absl::StatusOr<Measurement> {
    SPECD_TAKE(auto backend, make_backend());
    SPECD_TAKE(AnsweredCell answered,
               AnswerCell(cell, ThreadsOf(flags), std::move(backend), &pools));
    Measurement& m = answered.measurement;
    m.threads = ThreadsOf(flags);
    m.cold = is_cold;
    m.ratio_of = base_of(*cell.verify_case);
    SPECD_TAKE(m.num_checked, CheckRound(*answered.set, 0, answered.answers[0]));
    SPECD_TRY(Time(cell, flags.Real("seconds"), &answered));
    m.target = TargetOf(m, machine);
    return m;
  };
  return RunCells(CellsOf(flags, VerifyCases(), supports), out, num_rounds, run);
}

Suite VerifyCommand() {
  Suite suite = {.name = "verify",
                 .summary = "rounds of the CPU backend beside a read of the same rows",
                 .cases = WordsOf(VerifyCases()),
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
