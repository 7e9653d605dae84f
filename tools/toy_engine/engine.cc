#include "tools/toy_engine/engine.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "tools/toy_engine/answer_texts.h"

namespace specd::toy {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kPollTimeoutMs = 50;  // bounds the delay of an interrupt while waiting
// The text side answers within milliseconds, or is gone after 3 seconds (Publisher).
constexpr int kFinalTimeoutMs = 10000;

// Ends of GenerateAll that are not specd's codes: above specd's positive answers.
constexpr int kInterrupted = 1000;
constexpr int kOwnProblem = 1001;

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace

struct ToyEngine::Stream {
  Stream(size_t prompt_index_in, uint64_t seed) : prompt_index(prompt_index_in), sampler(seed) {}

  size_t prompt_index;
  specd_sequence sequence = 0;
  SteadyClock::time_point start = SteadyClock::now();
  DraftSampler sampler;
  std::vector<int32_t> context;  // prompt and kept tokens, and for a moment the draft

  ProposedDraft draft;  // of the round in flight
};

ToyEngine::ToyEngine(EngineOptions options, const NgramModel* target, const NgramModel* drafter,
                     const std::atomic<bool>* stop)
    : options_(std::move(options)),
      target_(*target),
      drafter_(*drafter),
      stop_(*stop),
      scratch_row_(static_cast<size_t>(options_.vocab_size)),
      slots_(options_.max_batch) {}

ToyEngine::~ToyEngine() { specd_close(engine_); }

EngineResult ToyEngine::Run(const std::vector<Prompt>& prompts, RunReport* report) {
  prompts_ = &prompts;
  report_ = report;
  report_->streams.resize(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    report_->streams[i].request_id = prompts[i].request_id;

  int code = Attach();
  if (code == SPECD_OK) code = BindRows();
  const SteadyClock::time_point start = SteadyClock::now();
  if (code == SPECD_OK) code = GenerateAll();
  report_->seconds = SecondsSince(start);
  const EngineResult result = ResultOf(code);
  AbortAll();
  return result;
}

// ---- attaching ----------------------------------------------------------------------------------

int ToyEngine::Attach() {
  specd_options attach;
  specd_options_init(&attach);
  attach.vocab_size = static_cast<uint32_t>(options_.vocab_size);
  attach.max_batch = options_.max_batch;
  attach.max_draft = options_.num_drafts;
  attach.name = "toy_engine";
  attach.reconnect_ms = options_.reconnect_ms;
  const bool is_embedded = options_.uri.starts_with("embedded:");
  if (is_embedded && options_.grammar_kind != SPECD_GRAMMAR_NONE) {
    attach.tokenizer = options_.tokenizer.c_str();
  }
  if (!options_.trace.empty()) attach.trace = options_.trace.c_str();
  if (!options_.trace_options.empty()) attach.trace_options = options_.trace_options.c_str();
  return specd_open(options_.uri.c_str(), &attach, &engine_);
}

// One piece of memory for both tensors: all target rows, then all draft rows.
int ToyEngine::BindRows() {
  const uint64_t row_size = static_cast<uint64_t>(options_.vocab_size) * sizeof(float);
  const uint64_t num_target_rows = uint64_t{options_.max_batch} * (options_.num_drafts + 1);
  const uint64_t num_draft_rows =
      HasDraftRows() ? uint64_t{options_.max_batch} * options_.num_drafts : 0;
  specd_region region;
  int code = specd_alloc(engine_, (num_target_rows + num_draft_rows) * row_size, &region);
  if (code != SPECD_OK) return code;
  target_rows_ = static_cast<float*>(region.data);
  draft_rows_ = target_rows_ + num_target_rows * static_cast<uint64_t>(options_.vocab_size);

  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.dtype = SPECD_FLOAT32;
  tensor.num_rows = num_target_rows;
  code = specd_bind(engine_, SPECD_TARGET_ROWS, &tensor);
  if (code != SPECD_OK || num_draft_rows == 0) return code;
  tensor.offset_bytes = num_target_rows * row_size;
  tensor.num_rows = num_draft_rows;
  return specd_bind(engine_, SPECD_DRAFT_ROWS, &tensor);
}

// ---- sequences ----------------------------------------------------------------------------------

int ToyEngine::OpenWaiting() {
  for (size_t slot = 0; slot < slots_.size() && next_prompt_ < prompts_->size(); ++slot) {
    if (slots_[slot] != nullptr) continue;
    const int code = OpenStream(slot, next_prompt_);
    if (code != SPECD_OK) return code;
    ++next_prompt_;
  }
  return SPECD_OK;
}

int ToyEngine::OpenStream(size_t slot, size_t prompt_index) {
  const Prompt& prompt = (*prompts_)[prompt_index];
  std::vector<const char*> stop_strings;
  for (const std::string& stop : options_.stop_strings) stop_strings.push_back(stop.c_str());

  specd_params params;
  specd_params_init(&params);
  params.verify = options_.verify;
  params.synthetic_rates = {options_.synthetic_rates.data(), options_.synthetic_rates.size()};
  params.temperature = options_.temperature;
  params.draft_temperature = options_.draft_temperature;
  params.seed = options_.seed + prompt_index;
  params.has_seed = 1;
  params.max_tokens = options_.max_tokens;
  // A daemon may know the end token from its flags. Embedded, only this program knows it.
  params.stop_token_ids = {&options_.end_token, 1};
  params.stop_strings = {stop_strings.data(), stop_strings.size()};
  params.grammar_kind = options_.grammar_kind;
  params.grammar = options_.grammar.data();
  params.grammar_bytes = options_.grammar.size();
  params.grammar_whitespace = SPECD_WHITESPACE_COMPACT;

  specd_sequence_info info = {};
  info.struct_size = sizeof(info);
  const int code = specd_open_sequence(engine_, prompt.request_id.c_str(), &params, &info);
  if (code != SPECD_OK) return code;
  auto stream = std::make_unique<Stream>(prompt_index, params.seed);
  stream->sequence = info.sequence;
  stream->context = prompt.ids;
  slots_[slot] = std::move(stream);
  return SPECD_OK;
}

// The text side may have ended a sequence since the last round. Its rows then need not be computed.
int ToyEngine::CloseFinished() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] == nullptr) continue;
    specd_sequence_state state;
    int code = specd_get_sequence_state(engine_, slots_[slot]->sequence, &state);
    if (code == SPECD_OK && state.finish_reason != SPECD_FINISH_NONE) code = CloseStream(slot);
    if (code != SPECD_OK) return code;
  }
  return SPECD_OK;
}

// Copies the sequence's results into the report and frees its slot.
int ToyEngine::CloseStream(size_t slot) {
  const std::unique_ptr<Stream> stream = std::move(slots_[slot]);
  StreamReport& report = report_->streams[stream->prompt_index];
  report.seconds = SecondsSince(stream->start);
  // A stop string in the last tokens may still move the end. An abort is not waited for.
  specd_sequence_state state;
  int code = specd_get_sequence_state(engine_, stream->sequence, &state);
  if (code == SPECD_OK && state.finish_reason != SPECD_FINISH_NONE &&
      state.finish_reason != SPECD_FINISH_ABORT) {
    code = specd_sequence_final(engine_, stream->sequence, &state, kFinalTimeoutMs);
    if (code == SPECD_EMPTY) {
      problem_ = fmt::format("the text side said nothing about the end of \"{}\" for {} ms",
                             report.request_id, kFinalTimeoutMs);
      code = kOwnProblem;
    }
  }
  if (code == SPECD_OK) {
    report.finish = FinishName(state.finish_reason);
    if (state.finish_reason != SPECD_FINISH_NONE && state.kept_tokens < report.tokens.size()) {
      report.tokens.resize(state.kept_tokens);
    }
  }
  const int closed = specd_close_sequence(engine_, stream->sequence);
  return code != SPECD_OK ? code : closed;
}

bool ToyEngine::HasLiveStreams() const {
  for (const std::unique_ptr<Stream>& stream : slots_) {
    if (stream != nullptr) return true;
  }
  return false;
}

// An error may already have closed the connection, so the results of these calls do not matter.
// specd_close ends the sequences that they could not end.
void ToyEngine::AbortAll() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] == nullptr) continue;
    (void)specd_abort(engine_, slots_[slot]->sequence);
    (void)CloseStream(slot);
  }
}

// ---- rounds -------------------------------------------------------------------------------------

// Runs the drafter num_drafts times, and the target model over every prefix of the draft. A real
// engine runs the target model in one forward pass.
int ToyEngine::Propose(size_t slot) {
  Stream& stream = *slots_[slot];
  const size_t kept = report_->streams[stream.prompt_index].tokens.size();
  const size_t remaining = options_.max_tokens - kept;  // one of them is specd's own
  if (!options_.widths.empty()) return ProposeTree(slot, remaining);
  stream.draft = {};
  const uint32_t first_target = static_cast<uint32_t>(slot) * (options_.num_drafts + 1);
  const uint32_t first_draft = static_cast<uint32_t>(slot) * options_.num_drafts;

  std::vector<int32_t> forced;
  size_t num_used = 0;  // of `forced`
  for (uint32_t i = 0;; ++i) {
    stream.draft.target_rows.push_back(first_target + i);
    target_.FillRow(stream.context, TargetRow(first_target + i).data());
    // No token follows the last token or an end token.
    const bool ended = i > 0 && stream.draft.tokens.back() == options_.end_token;
    if (i == options_.num_drafts || i + 1 >= remaining || ended) break;

    if (options_.forced && num_used == forced.size()) {
      num_used = 0;
      if (const int code = FindForced(stream, &forced); code != SPECD_OK) return code;
    }
    const bool is_forced = num_used < forced.size();
    const bool is_sampled = options_.sampled_drafts && !is_forced;
    const std::span<float> row =
        is_sampled ? DraftRow(first_draft + i) : std::span<float>(scratch_row_);
    if (!is_forced) drafter_.FillRow(stream.context, row.data());
    const int32_t token = is_forced    ? forced[num_used++]
                          : is_sampled ? stream.sampler.Draw(row, options_.draft_temperature)
                                       : ArgMax(row);
    stream.draft.tokens.push_back(token);
    stream.draft.kinds.push_back(is_sampled ? SPECD_SAMPLED : SPECD_ONE_HOT);
    stream.draft.draft_rows.push_back(first_draft + i);
    stream.context.push_back(token);
  }
  stream.context.resize(stream.context.size() - stream.draft.tokens.size());
  return SPECD_OK;
}

int ToyEngine::ProposeTree(size_t slot, size_t remaining) {
  Stream& stream = *slots_[slot];
  return GrowDraft({.engine = engine_,
                    .sequence = stream.sequence,
                    .target = target_,
                    .drafter = drafter_,
                    .target_rows = target_rows_,
                    .first_target = static_cast<uint32_t>(slot) * (options_.num_drafts + 1),
                    .draft_rows = draft_rows_,
                    .first_draft = static_cast<uint32_t>(slot) * options_.num_drafts,
                    .vocab_size = static_cast<size_t>(options_.vocab_size),
                    .end_token = options_.end_token,
                    .widths = options_.widths,
                    .max_depth = remaining - 1,
                    .sampling = options_.sampling},
                   stream.context, &stream.draft);
}

// Asks for the tokens that the constraint forces behind the draft so far.
int ToyEngine::FindForced(const Stream& stream, std::vector<int32_t>* forced) {
  forced->resize(options_.num_drafts);
  uint32_t num_forced = 0;
  const int code = specd_forced_tokens(engine_, stream.sequence, stream.draft.tokens.data(),
                                       static_cast<uint32_t>(stream.draft.tokens.size()),
                                       forced->data(), options_.num_drafts, &num_forced);
  forced->resize(num_forced);
  return code;
}

int ToyEngine::RunRound() {
  round_slots_.clear();
  std::vector<specd_draft> drafts;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] == nullptr) continue;
    if (const int code = Propose(slot); code != SPECD_OK) return code;
    const Stream& stream = *slots_[slot];
    specd_draft draft = {};
    draft.struct_size = sizeof(draft);
    draft.sequence = stream.sequence;
    draft.num_nodes = static_cast<uint32_t>(stream.draft.tokens.size());
    draft.tokens = stream.draft.tokens.data();
    draft.parents = stream.draft.parents.empty() ? nullptr : stream.draft.parents.data();
    draft.kinds = stream.draft.kinds.data();
    draft.target_rows = stream.draft.target_rows.data();
    draft.draft_rows = HasDraftRows() ? stream.draft.draft_rows.data() : nullptr;
    drafts.push_back(draft);
    round_slots_.push_back(slot);
  }
  if (options_.forward_ms > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(options_.forward_ms));
  }
  // One round is in flight at a time, because the next prefix depends on its tokens, so the ring
  // cannot be full.
  int code =
      specd_submit(engine_, next_round_++, drafts.data(), static_cast<uint32_t>(drafts.size()));
  specd_completion completion = {};
  completion.struct_size = sizeof(completion);
  completion.result_size = sizeof(specd_result);
  if (code == SPECD_OK) code = AwaitCompletion(&completion);
  if (code == SPECD_OK) code = TakeResults(completion);
  return code;
}

int ToyEngine::AwaitCompletion(specd_completion* completion) {
  for (;;) {
    const int code = specd_poll(engine_, completion, kPollTimeoutMs);
    if (code != SPECD_EMPTY) return code;
    if (stop_) return kInterrupted;
  }
}

int ToyEngine::TakeResults(const specd_completion& completion) {
  report_->verify_ns.push_back(completion.verify_ns);
  report_->total_ns.push_back(completion.total_ns);
  for (uint32_t i = 0; i < completion.num_results; ++i) {
    const specd_result& result = completion.results[i];
    const size_t slot = round_slots_[i];
    Stream& stream = *slots_[slot];
    StreamReport& report = report_->streams[stream.prompt_index];
    if (result.status != SPECD_STATUS_OK && result.status != SPECD_STATUS_FINISHED) {
      problem_ = fmt::format("round {} of \"{}\": {}", completion.round_id, report.request_id,
                             StatusText(result.status));
      return kOwnProblem;
    }
    if (result.status == SPECD_STATUS_OK) {
      report.verify_ns.push_back(completion.verify_ns);
      report.total_ns.push_back(completion.total_ns);
      report.num_drafts += stream.draft.tokens.size();
      report.num_accepted += result.num_accepted;
      if (result.num_accepted > report.best.path.size()) {
        report.best = {stream.draft.tokens, stream.draft.parents, {}, -1};
        report.best.path.assign(result.path, result.path + result.num_accepted);
        if (result.num_kept > result.num_accepted)
          report.best.last_token = result.tokens[result.num_accepted];
      }
      stream.context.insert(stream.context.end(), result.tokens, result.tokens + result.num_kept);
      report.tokens.insert(report.tokens.end(), result.tokens, result.tokens + result.num_kept);
    }
    if (result.finish_reason != SPECD_FINISH_NONE) {
      const int code = CloseStream(slot);
      if (code != SPECD_OK) return code;
    }
  }
  return SPECD_OK;
}

int ToyEngine::GenerateAll() {
  for (;;) {
    if (stop_) return kInterrupted;
    int code = CloseFinished();
    if (code == SPECD_OK) code = OpenWaiting();
    if (code != SPECD_OK) return code;
    if (!HasLiveStreams()) return SPECD_OK;
    code = RunRound();
    if (code != SPECD_OK) return code;
  }
}

EngineResult ToyEngine::ResultOf(int code) {
  switch (code) {
    case SPECD_OK:
      return {};
    case kInterrupted:
      return {EngineEnd::kInterrupted, "interrupted"};
    case kOwnProblem:
      return {EngineEnd::kError, problem_};
    case SPECD_ERROR_DISCONNECTED:
    case SPECD_ERROR_SHUTDOWN:
      return {EngineEnd::kDisconnected, specd_last_error()};
    default:
      return {EngineEnd::kError, fmt::format("{} ({})", specd_last_error(), specd_code_name(code))};
  }
}

}  // namespace specd::toy
