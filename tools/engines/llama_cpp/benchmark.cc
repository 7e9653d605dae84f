// specd-llama-benchmark times one step of llama.cpp's own sampler chain beside one step of specd.
//
// Both choose from the same rows, which the model's forward has just written, in one process and on
// one thread. A step of llama.cpp is llama_sampler_sample at each place, as its own speculative
// loop does it. A step of specd is specd_verify_batch. The order of the two changes from step to
// step, because the first one finds the rows in a colder cache. The text goes on with specd's
// tokens.
//
// Each draft is the text that a first run of specd gave, so all of its places are sampled.

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "daemon/base/command_line.h"
#include "specd/specd.h"
#include "tools/engines/llama_cpp/answers.h"
#include "tools/engines/llama_cpp/cached_model.h"
#include "tools/engines/llama_cpp/vocabulary.h"

ABSL_FLAG(std::string, model, "", "GGUF file of the model; required");
ABSL_FLAG(std::string, prompt, "The daemon", "what the text begins with");
ABSL_FLAG(uint32_t, tokens, 120, "steps of each run");
ABSL_FLAG(uint32_t, runs, 5, "runs of each case");
ABSL_FLAG(uint32_t, draft, 5, "draft tokens of the steps with drafts");

namespace specd::llama_cpp {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Case {
  const char* name;
  double temperature;
  int32_t top_k;
  double top_p;
  double min_p;
  double repetition;
};
constexpr Case kCases[] = {
    {"greedy", 0, 0, 1, 0, 1},
    {"temperature .8", .8, 0, 1, 0, 1},
    {"top_k 40, top_p .95, min_p .05, temperature .8", .8, 40, .95, .05, 1},
    {"the same with repetition 1.1", .8, 40, .95, .05, 1.1},
};
constexpr int32_t kPenaltyWindow = 64;  // llama.cpp's default; specd counts the whole text

struct FreeSampler {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using Chain = std::unique_ptr<llama_sampler, FreeSampler>;

// The samplers in the default order of llama.cpp's programs, without those that are off.
Chain MakeChain(const Case& asked, int32_t vocab_size) {
  Chain chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain.get(), sampler); };
  if (asked.repetition != 1) {
    add(llama_sampler_init_penalties(vocab_size, kPenaltyWindow,
                                     static_cast<float>(asked.repetition), 0, 0));
  }
  if (asked.temperature == 0) {
    add(llama_sampler_init_greedy());
    return chain;
  }
  constexpr size_t kMinKeep = 1;
  if (asked.top_k > 0) add(llama_sampler_init_top_k(asked.top_k));
  if (asked.top_p < 1) add(llama_sampler_init_top_p(static_cast<float>(asked.top_p), kMinKeep));
  if (asked.min_p > 0) add(llama_sampler_init_min_p(static_cast<float>(asked.min_p), kMinKeep));
  add(llama_sampler_init_temp(static_cast<float>(asked.temperature)));
  add(llama_sampler_init_dist(1));
  return chain;
}

struct Quantiles {
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
};

Quantiles Summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[share * static_cast<double>(samples.size() - 1)];
  };
  return {at(.5), at(.1), at(.9)};
}

// Times a call, in microseconds.
template <typename F>
double TimeOf(F&& call) {
  const SteadyClock::time_point start = SteadyClock::now();
  call();
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

enum class Rows { kLent = 0, kCopied = 1 };

// specd over the rows of a model, for one sequence at a time.
class SpecdSampler {
 public:
  SpecdSampler(const CachedModel& model, Rows rows) : model_(model), rows_(rows) {}
  ~SpecdSampler() { specd_close(engine_); }
  SpecdSampler(const SpecdSampler&) = delete;
  SpecdSampler& operator=(const SpecdSampler&) = delete;

  Rows rows() const { return rows_; }

  absl::Status Attach() {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = model_.vocab_size();
    options.max_batch = 1;
    options.max_draft = static_cast<uint32_t>(model_.max_rows() - 1);
    options.threads = 1;
    int code = specd_open("embedded:cpu", &options, &engine_);
    const uint64_t size_bytes = model_.max_rows() * uint64_t{model_.vocab_size()} * sizeof(float);
    specd_region region = {};
    if (code == SPECD_OK) {
      code = rows_ == Rows::kLent ? specd_lend(engine_, model_.rows(), size_bytes, &region)
                                  : specd_alloc(engine_, size_bytes, &region);
    }
    if (code != SPECD_OK) return StatusOf(code);
    copy_ = static_cast<float*>(region.data);
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region.id;
    tensor.num_rows = model_.max_rows();
    return StatusOf(specd_bind(engine_, SPECD_TARGET_ROWS, &tensor));
  }

  absl::Status Open(const Case& asked, const std::vector<int32_t>& prompt, uint32_t max_tokens) {
    if (sequence_ != 0) (void)specd_close_sequence(engine_, sequence_);
    specd_params params;
    specd_params_init(&params);
    params.temperature = asked.temperature;
    params.top_k = asked.top_k;
    params.top_p = asked.top_p;
    params.min_p = asked.min_p;
    params.repetition_penalty = asked.repetition;
    params.seed = 1;
    params.has_seed = 1;
    params.max_tokens = max_tokens;
    params.prompt_ids = {prompt.data(), prompt.size()};
    specd_sequence_info info = {};
    info.struct_size = sizeof(info);
    const int code = specd_open_sequence(engine_, "benchmark", &params, &info);
    sequence_ = info.sequence;
    return StatusOf(code);
  }

  // The part of a step that is timed.
  int Step(const std::vector<int32_t>& draft, std::vector<int32_t>* kept) {
    const size_t num_rows = draft.size() + 1;
    if (rows_ == Rows::kCopied) std::copy_n(model_.rows(), num_rows * model_.vocab_size(), copy_);
    const uint32_t offsets[] = {0, static_cast<uint32_t>(draft.size())};
    specd_batch batch;
    specd_batch_init(&batch);
    batch.num_sequences = 1;
    batch.sequences = &sequence_;
    batch.draft_offsets = offsets;
    batch.tokens = draft.data();
    uint32_t num_kept = 0;
    kept->resize(model_.max_rows());
    specd_batch_results results;
    specd_batch_results_init(&results);
    results.max_results = 1;
    results.tokens_stride = static_cast<uint32_t>(kept->size());
    results.num_kept = &num_kept;
    results.tokens = kept->data();
    const int code = specd_verify_batch(engine_, 1, &batch, &results, -1);
    kept->resize(num_kept);
    return code;
  }

 private:
  const CachedModel& model_;
  const Rows rows_;
  specd_engine* engine_ = nullptr;
  specd_sequence sequence_ = 0;
  float* copy_ = nullptr;
};

// What one case has measured, in microseconds of one step.
struct Samples {
  std::vector<double> llama;
  std::vector<double> specd[2];  // by Rows
};

class Benchmark {
 public:
  Benchmark(CachedModel* model, std::vector<int32_t> prompt)
      : model_(*model),
        prompt_(std::move(prompt)),
        samplers_{{*model, Rows::kLent}, {*model, Rows::kCopied}} {}

  absl::Status Attach() {
    const absl::Status status = samplers_[0].Attach();
    return status.ok() ? samplers_[1].Attach() : status;
  }

  // One run over `num_tokens` tokens with drafts of num_draft tokens. A draft is what `text` has
  // there; the run without drafts gives the text.
  absl::Status Run(const Case& asked, Rows rows, size_t num_draft, size_t num_tokens,
                   std::vector<int32_t>* text, Samples* samples) {
    const uint32_t max_tokens = num_tokens + num_draft + 1;
    SpecdSampler& sampler = samplers_[static_cast<size_t>(rows)];
    absl::Status status = sampler.Open(asked, prompt_, max_tokens);
    if (status.ok()) status = model_.Cut(0, 0);
    if (status.ok()) status = model_.Feed(0, std::span(prompt_).first(prompt_.size() - 1));
    const Chain chain = MakeChain(asked, static_cast<int32_t>(model_.vocab_size()));
    for (const int32_t token : prompt_) llama_sampler_accept(chain.get(), token);
    std::vector<int32_t> made = prompt_;
    while (status.ok() && made.size() < prompt_.size() + num_tokens) {
      if (num_draft > 0 && made.size() + num_draft > text->size()) break;
      const auto next = text->begin() + static_cast<ptrdiff_t>(num_draft > 0 ? made.size() : 0);
      const std::vector<int32_t> draft(next, next + static_cast<ptrdiff_t>(num_draft));
      status = Step(chain.get(), &sampler, draft, &made, samples);
    }
    if (num_draft == 0) *text = made;
    return status;
  }

 private:
  absl::Status Step(llama_sampler* chain, SpecdSampler* sampler, const std::vector<int32_t>& draft,
                    std::vector<int32_t>* made, Samples* samples) {
    std::vector<int32_t> input = {made->back()};
    input.insert(input.end(), draft.begin(), draft.end());
    const ForwardInput forward{.slot = 0, .tokens = input, .num_rows = input.size()};
    absl::Status status = model_.Forward({&forward, 1});
    if (!status.ok()) return status;

    int code = SPECD_OK;
    std::vector<int32_t> kept;
    const auto run_specd = [&] { code = sampler->Step(draft, &kept); };
    // Every place, whatever is drawn, so that both judge the same number of rows.
    const auto run_llama = [&] {
      for (size_t i = 0; i < input.size(); ++i) {
        (void)llama_sampler_sample(chain, model_.context(), static_cast<int32_t>(i));
      }
    };
    const bool is_llama_first = num_steps_++ % 2 == 0;
    if (is_llama_first) samples->llama.push_back(TimeOf(run_llama));
    samples->specd[static_cast<size_t>(sampler->rows())].push_back(TimeOf(run_specd));
    if (!is_llama_first) samples->llama.push_back(TimeOf(run_llama));
    if (code != SPECD_OK) return StatusOf(code);
    if (kept.size() != input.size()) {
      return absl::InternalError(
          fmt::format("{} of {} places were kept; the draft is the text, so "
                      "all should be",
                      kept.size(), input.size()));
    }
    status = model_.Cut(0, made->size() + draft.size());
    made->insert(made->end(), kept.begin(), kept.end());
    return status;
  }

  CachedModel& model_;
  const std::vector<int32_t> prompt_;
  SpecdSampler samplers_[2];  // by Rows
  uint64_t num_steps_ = 0;
};

absl::Status Measure() {
  const auto num_draft = absl::GetFlag(FLAGS_draft);
  auto model = CachedModel::Load(
      {.name = "model", .path = absl::GetFlag(FLAGS_model), .num_rows = num_draft + 1});
  if (!model.ok()) return model.status();
  Benchmark benchmark(model->get(), Tokenize((*model)->vocab(), absl::GetFlag(FLAGS_prompt)));
  absl::Status status = benchmark.Attach();
  fmt::print(
      "| case | K | V | llama.cpp us | p10..p90 | specd us | p10..p90 | ratio | rows copied us |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Case& asked : kCases) {
    std::vector<int32_t> text;
    for (const uint32_t k : {uint32_t{0}, num_draft}) {
      Samples samples;
      for (uint32_t run = 0; run <= absl::GetFlag(FLAGS_runs) && status.ok(); ++run) {
        if (run == 1) samples = {};  // the first run warms up
        for (const Rows rows : {Rows::kLent, Rows::kCopied}) {
          if (!status.ok()) return status;
          status = benchmark.Run(asked, rows, k, absl::GetFlag(FLAGS_tokens), &text, &samples);
        }
      }
      if (!status.ok()) return status;
      const Quantiles llama = Summarise(samples.llama);
      const Quantiles lent = Summarise(samples.specd[0]);
      fmt::print(
          "| {} | {} | {} | {:.1f} | {:.1f}..{:.1f} | {:.1f} | {:.1f}..{:.1f} | {:.2f} | {:.1f} "
          "|\n",
          asked.name, k, (*model)->vocab_size(), llama.median_us, llama.p10_us, llama.p90_us,
          lent.median_us, lent.p10_us, lent.p90_us, llama.median_us / lent.median_us,
          Summarise(samples.specd[1]).median_us);
    }
  }
  return status;
}

int Main(int argc, char** argv) {
  ParseFlags(argc, argv,
             {.usage = "times one step of llama.cpp's sampler chain beside one step of specd, on "
                       "the same rows.",
              .source = "tools/engines/llama_cpp/benchmark.cc"});
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const absl::Status status = Measure();
  if (status.ok()) return 0;
  fmt::print(stderr, "specd-llama-benchmark: {}\n", std::string(status.message()));
  return 1;
}

}  // namespace
}  // namespace specd::llama_cpp

int main(int argc, char** argv) { return specd::llama_cpp::Main(argc, argv); }
