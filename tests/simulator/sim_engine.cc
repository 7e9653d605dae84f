#include "tests/simulator/sim_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"
#include "tests/simulator/sim_link.h"
#include "tests/support/c_drafts.h"
#include "tests/support/sealed_memory.h"

namespace specd::sim {
namespace {

constexpr uint32_t kMaxDraft = 3;
constexpr uint32_t kSequences = 4;
constexpr uint32_t kRows = kSequences * (kMaxDraft + 1);
constexpr uint64_t kRowsBytes = uint64_t{kRows} * kVocab * sizeof(float);
// Longer than any run.
constexpr uint32_t kReconnectMs = 3'600'000;

specd_options EngineOptions() {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = kVocab;
  options.max_batch = 3;
  options.max_sequences = kSequences;
  options.max_draft = kMaxDraft;
  options.ring_depth = 2;
  options.max_scores_per_token = 1;
  options.reconnect_ms = kReconnectMs;
  return options;
}

absl::Status Broken(std::string text) { return absl::DataLossError(std::move(text)); }

}  // namespace

std::unique_ptr<SimEngine> SimEngine::Attach(Host* host, Options options) {
  const specd_options asked = EngineOptions();
  HelloRequest hello;
  hello.name = "engine";
  hello.version = "simulated";
  hello.limits = Engine::LimitsOf(asked);
  hello.resumes = true;
  hello.pid = 1;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Attach(MakeSimLink(host), std::move(hello), asked);
  if (!engine.ok()) return nullptr;
  return std::unique_ptr<SimEngine>(new SimEngine(*std::move(engine), std::move(options)));
}

SimEngine::SimEngine(std::unique_ptr<Engine> engine, Options options)
    : engine_(std::move(engine)), options_(std::move(options)) {
  ShareRows();
}

SimEngine::~SimEngine() = default;

void SimEngine::ShareRows() {
  const UniqueFd fd = SealedMemory(kRowsBytes);
  rows_.emplace(*Mapping::Map(fd.get(), kRowsBytes, MapAccess::kReadWrite));
  specd_region region = {};
  SPECD_CHECK(engine_->ImportFd(fd.get(), kRowsBytes, &region).ok());
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = kRows;
  SPECD_CHECK(engine_->Bind(SPECD_TARGET_ROWS, tensor).ok());
}

absl::Status SimEngine::Step(Random* random) {
  if (options_.alone) {
    if (live_.empty() && next_plan_ < options_.plans.size()) return Open();
    absl::Status status = Submit(random);
    if (status.ok()) status = Poll();
    if (status.ok() && !live_.empty() && live_[0]->has_finished) status = Finish(live_[0].get());
    return status.ok() ? CloseOne() : status;
  }
  if (options_.on_fork != nullptr && random->OneIn(60)) return Fork(random);
  if (random->OneIn(300)) return Abort(random);
  switch (random->Below(8)) {
    case 0:
      return Open();
    case 1:
    case 2:
    case 3:
      return Submit(random);
    case 4:
    case 5:
      return Poll();
    case 6:
      for (const auto& live : live_) {
        if (!live->has_finished || live->is_final || live->is_in_flight) continue;
        return Finish(live.get());
      }
      return absl::OkStatus();
    default:
      return CloseOne();
  }
}

absl::Status SimEngine::Open() {
  if (next_plan_ == options_.plans.size() || live_.size() == kSequences) return absl::OkStatus();
  const SequencePlan& plan = options_.plans[next_plan_];
  specd_params params;
  specd_params_init(&params);
  params.temperature = plan.temperature;
  params.repetition_penalty = plan.repetition_penalty;
  params.has_seed = 1;
  params.seed = plan.seed;
  params.max_tokens = plan.max_tokens;
  params.logprobs = plan.logprobs;
  params.prompt_ids = {plan.prompt.data(), plan.prompt.size()};
  params.output_ids = {plan.outputs.data(), plan.outputs.size()};
  const char* const stop = plan.stop.c_str();
  if (!plan.stop.empty() && !options_.alone) params.stop_strings = {&stop, 1};
  specd_sequence_info info = Sized<specd_sequence_info>();
  const absl::Status status = engine_->OpenSequence(plan.name.c_str(), params, &info);
  if (!status.ok()) {
    // There is no text side, or it is behind: later there is room.
    const int code = ErrorCodeOf(status);
    if (code == SPECD_ERROR_EXHAUSTED || code == SPECD_ERROR_UNSUPPORTED ||
        code == SPECD_ERROR_STATE) {
      return absl::OkStatus();
    }
    return Broken(fmt::format("\"{}\" is refused: {}", plan.name, std::string(status.message())));
  }
  ++next_plan_;
  Add(&plan, info.sequence);
  return absl::OkStatus();
}

void SimEngine::Add(const SequencePlan* plan, specd_sequence sequence) {
  auto live = std::make_unique<Live>();
  live->plan = plan;
  live->sequence = sequence;
  live->ids = plan->prompt;
  live->ids.insert(live->ids.end(), plan->outputs.begin(), plan->outputs.end());
  live->row = specd_sequence_slot(sequence) * (kMaxDraft + 1);
  live_.push_back(std::move(live));
}

absl::Status SimEngine::Fork(Random* random) {
  if (live_.empty() || live_.size() == kSequences || engine_->rounds().channel().awaits_answers()) {
    return absl::OkStatus();
  }
  const Live& source = *live_[random->Below(live_.size())];
  if (source.has_finished || !source.plan->stop.empty() || aborted_.contains(source.plan->name)) {
    return absl::OkStatus();
  }
  SequencePlan plan = *source.plan;
  plan.name = fmt::format("{}+{}", plan.name, forks_.size());
  plan.seed = random->Next();
  plan.outputs.assign(source.ids.begin() + static_cast<ptrdiff_t>(plan.prompt.size()),
                      source.ids.end());
  specd_sequence_info info = Sized<specd_sequence_info>();
  const absl::Status status =
      engine_->ForkSequence(source.sequence, plan.name.c_str(), &plan.seed, &info);
  if (ErrorCodeOf(status) == SPECD_ERROR_EXHAUSTED) return absl::OkStatus();
  if (!status.ok()) {
    return Broken(
        fmt::format("\"{}\" cannot be copied: {}", plan.name, std::string(status.message())));
  }
  forks_.push_back(std::move(plan));
  Add(&forks_.back(), info.sequence);
  options_.on_fork(forks_.back());
  return absl::OkStatus();
}

absl::Status SimEngine::Abort(Random* random) {
  if (live_.empty()) return absl::OkStatus();
  Live& live = *live_[random->Below(live_.size())];
  if (live.is_final) return absl::OkStatus();
  aborted_.insert(live.plan->name);
  const absl::Status status = engine_->AbortSequence(live.sequence);
  live.has_finished = true;
  return status.ok() ? status : Broken("no abort: " + std::string(status.message()));
}

absl::Status SimEngine::Submit(Random* random) {
  std::vector<specd_draft> drafts;
  std::vector<Live*> drafted;
  std::vector<std::vector<int32_t>> tokens(3);
  std::vector<std::vector<uint32_t>> rows(3);
  auto* const logits = static_cast<float*>(rows_->data());
  for (const auto& live : live_) {
    if (live->is_in_flight || live->has_finished || drafts.size() == 3) continue;
    if (!options_.alone && random->OneIn(3)) continue;
    const size_t i = drafts.size();
    std::vector<int32_t> ids = live->ids;
    const uint64_t num_nodes = options_.alone ? 0 : random->Below(kMaxDraft + 1);
    for (uint64_t place = 0; place <= num_nodes; ++place) {
      const uint32_t row = live->row + static_cast<uint32_t>(place);
      float* const begin = logits + size_t{row} * kVocab;
      FillRow(ids, {begin, kVocab});
      rows[i].push_back(row);
      if (place == num_nodes) break;
      const auto best = std::max_element(begin, begin + kVocab) - begin;
      const uint64_t other = random->Below(kVocab);
      tokens[i].push_back(static_cast<int32_t>(random->OneIn(4) ? other : best));
      ids.push_back(tokens[i].back());
    }
    drafts.push_back(ChainDraft(live->sequence, static_cast<uint32_t>(num_nodes), tokens[i].data(),
                                rows[i].data()));
    drafted.push_back(live.get());
  }
  if (drafts.empty()) return absl::OkStatus();
  const absl::StatusOr<int> code =
      engine_->rounds().Submit(next_round_, drafts.data(), static_cast<uint32_t>(drafts.size()));
  if (!code.ok()) return Broken("a round is refused: " + std::string(code.status().message()));
  if (*code != SPECD_OK) return absl::OkStatus();
  ++next_round_;
  for (Live* const live : drafted) live->is_in_flight = true;
  return absl::OkStatus();
}

absl::Status SimEngine::Poll() {
  specd_completion done = SizedCompletion();
  const absl::StatusOr<int> code = engine_->rounds().Poll(&done, 0);
  if (!code.ok()) return Broken("no answer: " + std::string(code.status().message()));
  if (*code != SPECD_OK) return absl::OkStatus();
  ++num_taken_;
  for (uint32_t i = 0; i < done.num_results; ++i) {
    if (absl::Status status = Take(done.results[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SimEngine::Take(const specd_result& result) {
  const auto found = std::find_if(live_.begin(), live_.end(), [&](const auto& live) {
    return live->sequence == result.sequence;
  });
  if (found == live_.end()) return Broken("the answer is about a sequence that was not asked");
  Live& live = **found;
  live.is_in_flight = false;
  if (result.status == SPECD_STATUS_ABORTED) return absl::OkStatus();
  if (result.status == SPECD_STATUS_FINISHED) {
    live.has_finished = true;
    return absl::OkStatus();
  }
  if (result.status != SPECD_STATUS_OK) {
    return Broken(fmt::format("\"{}\" has status {}", live.plan->name, result.status));
  }
  live.ids.insert(live.ids.end(), result.tokens, result.tokens + result.num_kept);
  live.has_finished = live.has_finished || result.finish_reason != SPECD_FINISH_NONE;
  if (result.total_kept != live.num_outputs()) {
    return Broken(fmt::format("\"{}\" has {} outputs, and the daemon counts {}", live.plan->name,
                              live.num_outputs(), result.total_kept));
  }
  return absl::OkStatus();
}

absl::Status SimEngine::Finish(Live* live) {
  specd_sequence_state state = {};
  const absl::StatusOr<int> code = engine_->AwaitFinal(live->sequence, &state, 0);
  if (!code.ok()) {
    return Broken(
        fmt::format("\"{}\": {}", live->plan->name, std::string(code.status().message())));
  }
  if (*code != SPECD_OK) return absl::OkStatus();
  live->is_final = true;
  return Compare(*live, state);
}

absl::Status SimEngine::Compare(const Live& live, const specd_sequence_state& state) {
  const std::string& name = live.plan->name;
  if (state.kept_tokens > live.num_outputs()) {
    return Broken(fmt::format("\"{}\" kept {} tokens, and the engine has {}", name,
                              state.kept_tokens, live.num_outputs()));
  }
  const auto begin = live.ids.begin() + static_cast<ptrdiff_t>(live.plan->prompt.size());
  Expected found;
  found.ids.assign(begin, begin + state.kept_tokens);
  found.finish_reason = state.finish_reason;
  found.cumulative_logprob = state.cumulative_logprob;
  if (options_.expected != nullptr && !aborted_.contains(name)) {
    const Expected& expected = options_.expected->at(name);
    if (found.ids != expected.ids || found.finish_reason != expected.finish_reason) {
      return Broken(fmt::format("\"{}\" ends by {} after [{}], and alone by {} after [{}]", name,
                                found.finish_reason, fmt::join(found.ids, " "),
                                expected.finish_reason, fmt::join(expected.ids, " ")));
    }
    // The sum of a text that a stop string cut may be unknown after a restart.
    if (live.plan->stop.empty() && live.plan->outputs.empty() && live.plan->logprobs >= 0 &&
        found.cumulative_logprob != expected.cumulative_logprob) {
      return Broken(fmt::format("\"{}\": the sum of its logprobs is {}, and alone {}", name,
                                found.cumulative_logprob, expected.cumulative_logprob));
    }
  }
  outcomes_[name] = std::move(found);
  return absl::OkStatus();
}

absl::Status SimEngine::CloseOne() {
  const auto found =
      std::find_if(live_.begin(), live_.end(), [](const auto& live) { return live->is_final; });
  if (found == live_.end()) return absl::OkStatus();
  const std::string name = (*found)->plan->name;
  const absl::Status status = engine_->CloseSequence((*found)->sequence);
  if (!status.ok()) {
    return Broken(fmt::format("\"{}\" cannot be closed: {}", name, std::string(status.message())));
  }
  closed_.push_back(name);
  live_.erase(found);
  return absl::OkStatus();
}

std::string SimEngine::Describe() const {
  std::string text = fmt::format("{} of {} opened", next_plan_, options_.plans.size());
  for (const auto& live : live_) {
    text += fmt::format(", \"{}\" has {} of {}{}{}{}", live->plan->name, live->num_outputs(),
                        live->plan->max_tokens, live->is_in_flight ? " in flight" : "",
                        live->has_finished ? " finished" : "", live->is_final ? " final" : "");
  }
  return text;
}

}  // namespace specd::sim
