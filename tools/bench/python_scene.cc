#include "tools/bench/python_scene.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "daemon/trace/crc32.h"
#include "tools/bench/python_script.h"
#include "tools/bench/steady_clock.h"

namespace specd::bench {
namespace {

constexpr uint32_t kPlaces = kPythonBatch * (kPythonDraft + 1);
constexpr uint32_t kPromptIds = 32;
constexpr int kTimeoutMs = 20'000;

absl::Status Broken(std::string_view what) {
  return absl::InternalError(fmt::format("python: {}", what));
}

absl::Status Refused(std::string_view call) {
  return Broken(fmt::format("{}: {}", call, specd_last_error()));
}

double MicrosSince(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

int32_t BestId(uint32_t row, uint32_t vocab_size) {
  return static_cast<int32_t>((7 * row + 3) % vocab_size);
}

}  // namespace

std::string_view NameOf(BatchWork work) {
  switch (work) {
    case BatchWork::kRoundBatch:
      return "round_batch";
    case BatchWork::kRoundEach:
      return "round_each";
    case BatchWork::kOpenBatch:
      return "open_batch";
    case BatchWork::kOpenEach:
      return "open_each";
    case BatchWork::kDrawBatch:
      return "draw_batch";
    case BatchWork::kDrawEach:
      return "draw_each";
  }
  return {};
}

// ---- C

absl::StatusOr<std::unique_ptr<BatchEngine>> BatchEngine::Open(const std::string& uri,
                                                               uint32_t vocab_size) {
  std::unique_ptr<BatchEngine> engine(new BatchEngine());
  if (absl::Status status = engine->Start(uri, vocab_size); !status.ok()) return status;
  return engine;
}

BatchEngine::~BatchEngine() { specd_close(engine_); }

absl::Status BatchEngine::Start(const std::string& uri, uint32_t vocab_size) {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = vocab_size;
  options.max_batch = kPythonBatch;
  options.max_sequences = 2 * kPythonBatch;
  options.max_draft = kPythonDraft;
  if (specd_open(uri.c_str(), &options, &engine_) != SPECD_OK) return Refused("specd_open");
  tokens_.resize(kPlaces);
  status_.resize(kPythonBatch);
  num_kept_.resize(kPythonBatch);
  if (absl::Status status = BindRows(vocab_size); !status.ok()) return status;
  if (absl::Status status = BindDraftRows(vocab_size); !status.ok()) return status;
  MakeOpenings(vocab_size);
  return OpenForRounds();
}

// Binds rows of zeros.
absl::StatusOr<float*> BatchEngine::BindRole(uint32_t role, uint32_t num_rows,
                                             uint32_t vocab_size) {
  specd_region region;
  const uint64_t size_bytes = uint64_t{num_rows} * vocab_size * sizeof(float);
  if (specd_alloc(engine_, size_bytes, &region) != SPECD_OK) return Refused("specd_alloc");
  auto* const rows = static_cast<float*>(region.data);
  std::fill(rows, rows + uint64_t{num_rows} * vocab_size, 0.0f);
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = num_rows;
  if (specd_bind(engine_, role, &tensor) != SPECD_OK) return Refused("specd_bind");
  return rows;
}

// The best id of every row is known, and every second sequence has a wrong draft token.
absl::Status BatchEngine::BindRows(uint32_t vocab_size) {
  const absl::StatusOr<float*> rows = BindRole(SPECD_TARGET_ROWS, kPlaces, vocab_size);
  if (!rows.ok()) return rows.status();
  for (uint32_t i = 0; i < kPlaces; ++i) {
    (*rows)[uint64_t{i} * vocab_size + static_cast<uint32_t>(BestId(i, vocab_size))] = 8;
    rows_.push_back(i);
  }
  for (uint32_t i = 0; i < kPythonBatch; ++i) {
    offsets_.push_back(i * kPythonDraft);
    for (uint32_t k = 0; k < kPythonDraft; ++k) {
      const int32_t best = BestId(i * (kPythonDraft + 1) + k, vocab_size);
      const bool is_wrong = i % 2 == 1 && k == 2;
      drafts_.push_back(is_wrong ? (best + 1) % static_cast<int32_t>(vocab_size) : best);
    }
  }
  offsets_.push_back(kPythonBatch * kPythonDraft);
  return absl::OkStatus();
}

absl::Status BatchEngine::BindDraftRows(uint32_t vocab_size) {
  const absl::StatusOr<float*> rows = BindRole(SPECD_DRAFT_ROWS, kPythonBatch, vocab_size);
  if (!rows.ok()) return rows.status();
  for (uint32_t i = 0; i < kPythonBatch; ++i) {
    // With this logit any coin draws the id.
    (*rows)[uint64_t{i} * vocab_size + static_cast<uint32_t>(BestId(i, vocab_size))] = 100;
  }
  drawn_.resize(kPythonBatch);
  return absl::OkStatus();
}

void BatchEngine::MakeOpenings(uint32_t vocab_size) {
  for (uint32_t i = 0; i < kPythonBatch * kPromptIds; ++i) {
    prompts_.push_back(static_cast<int32_t>(i % vocab_size));
  }
  params_.resize(kPythonBatch);
  for (uint32_t i = 0; i < kPythonBatch; ++i) {
    specd_params_init(&params_[i]);
    params_[i].top_p = 0.9;
    params_[i].temperature = 0.5 + i / 512.0;
    params_[i].has_seed = 1;
    params_[i].seed = i;
    params_[i].prompt_ids = {prompts_.data() + size_t{i} * kPromptIds, kPromptIds};
    names_.push_back(fmt::format("bench-{}-{}", getpid(), i));
  }
  for (const std::string& name : names_) name_pointers_.push_back(name.c_str());
  specd_sequence_info info = {};
  info.struct_size = sizeof(info);
  infos_.assign(kPythonBatch, info);
}

absl::Status BatchEngine::OpenForRounds() {
  specd_params params;
  specd_params_init(&params);
  params.temperature = 0;
  params.max_tokens = INT32_MAX;
  for (uint32_t i = 0; i < kPythonBatch; ++i) {
    const std::string name = fmt::format("rounds-{}-{}", getpid(), i);
    if (specd_open_sequence(engine_, name.c_str(), &params, &infos_[0]) != SPECD_OK) {
      return Refused("specd_open_sequence");
    }
    sequences_.push_back(infos_[0].sequence);
    requests_.push_back({});
    requests_.back().struct_size = sizeof(specd_draft_request);
    requests_.back().sequence = infos_[0].sequence;
    requests_.back().row = i;
    requests_.back().mask_row = -1;
    requests_.back().num_children = 1;
  }
  children_.resize(kPythonBatch);
  for (specd_draft_children& each : children_) each.struct_size = sizeof(each);
  return absl::OkStatus();
}

void BatchEngine::AddToDigest(const std::vector<int32_t>& ids) {
  const std::string_view bytes(reinterpret_cast<const char*>(ids.data()),
                               ids.size() * sizeof(int32_t));
  digest_ = JoinCrc32(digest_, Crc32(bytes), bytes.size());
}

absl::StatusOr<double> BatchEngine::RoundBatch() {
  specd_batch batch;
  specd_batch_init(&batch);
  batch.num_sequences = kPythonBatch;
  batch.sequences = sequences_.data();
  batch.draft_offsets = offsets_.data();
  batch.tokens = drafts_.data();
  specd_batch_results results;
  specd_batch_results_init(&results);
  results.max_results = kPythonBatch;
  results.tokens_stride = kPythonDraft + 1;
  results.status = status_.data();
  results.num_kept = num_kept_.data();
  results.tokens = tokens_.data();
  const SteadyClock::time_point start = SteadyClock::now();
  if (specd_verify_batch(engine_, ++num_rounds_, &batch, &results, kTimeoutMs) != SPECD_OK) {
    return Refused("specd_verify_batch");
  }
  const double time_us = MicrosSince(start);
  if (std::any_of(status_.begin(), status_.end(),
                  [](uint32_t s) { return s != SPECD_STATUS_OK; })) {
    return Broken("a sequence was not verified");
  }
  AddToDigest(tokens_);
  return time_us;
}

absl::StatusOr<double> BatchEngine::RoundEach() {
  const SteadyClock::time_point start = SteadyClock::now();
  std::vector<specd_draft> drafts(kPythonBatch);
  for (uint32_t i = 0; i < kPythonBatch; ++i) {
    drafts[i].struct_size = sizeof(specd_draft);
    drafts[i].sequence = sequences_[i];
    drafts[i].num_nodes = kPythonDraft;
    drafts[i].tokens = drafts_.data() + offsets_[i];
    drafts[i].target_rows = rows_.data() + offsets_[i] + i;
  }
  specd_completion done = {};
  done.struct_size = sizeof(done);
  done.result_size = sizeof(specd_result);
  if (specd_submit(engine_, ++num_rounds_, drafts.data(), kPythonBatch) != SPECD_OK) {
    return Refused("specd_submit");
  }
  if (specd_poll(engine_, &done, kTimeoutMs) != SPECD_OK) return Refused("specd_poll");
  const double time_us = MicrosSince(start);
  std::fill(tokens_.begin(), tokens_.end(), -1);
  for (uint32_t i = 0; i < kPythonBatch; ++i) {
    const specd_result& result = done.results[i];
    if (result.status != SPECD_STATUS_OK) return Broken("a sequence was not verified");
    std::copy_n(result.tokens, result.num_kept, tokens_.data() + size_t{i} * (kPythonDraft + 1));
  }
  AddToDigest(tokens_);
  return time_us;
}

absl::StatusOr<double> BatchEngine::OpenBatch() {
  specd_openings openings;
  specd_openings_init(&openings);
  openings.num_openings = openings.max_infos = kPythonBatch;
  openings.request_ids = name_pointers_.data();
  openings.params = params_.data();
  openings.infos = infos_.data();
  const SteadyClock::time_point start = SteadyClock::now();
  if (specd_open_sequences(engine_, &openings) != SPECD_OK) return Refused("specd_open_sequences");
  const double time_us = MicrosSince(start);
  if (absl::Status status = CloseAll(); !status.ok()) return status;
  return time_us;
}

absl::StatusOr<double> BatchEngine::OpenEach() {
  const SteadyClock::time_point start = SteadyClock::now();
  for (uint32_t i = 0; i < kPythonBatch; ++i) {
    if (specd_open_sequence(engine_, name_pointers_[i], &params_[i], &infos_[i]) != SPECD_OK) {
      return Refused("specd_open_sequence");
    }
  }
  const double time_us = MicrosSince(start);
  if (absl::Status status = CloseAll(); !status.ok()) return status;
  return time_us;
}

absl::Status BatchEngine::Draw(uint32_t first, uint32_t count) {
  if (specd_sample_draft(engine_, &requests_[first], count, &children_[first]) != SPECD_OK) {
    return Refused("specd_sample_draft");
  }
  for (uint32_t i = first; i < first + count; ++i) {
    if (children_[i].status != SPECD_STATUS_OK) return Broken("a sequence has no draft token");
    drawn_[i] = children_[i].children[0].id;
  }
  return absl::OkStatus();
}

absl::StatusOr<double> BatchEngine::DrawBatch() {
  const SteadyClock::time_point start = SteadyClock::now();
  if (absl::Status status = Draw(0, kPythonBatch); !status.ok()) return status;
  const double time_us = MicrosSince(start);
  AddToDigest(drawn_);
  return time_us;
}

absl::StatusOr<double> BatchEngine::DrawEach() {
  const SteadyClock::time_point start = SteadyClock::now();
  for (uint32_t i = 0; i < kPythonBatch; ++i) {
    if (absl::Status status = Draw(i, 1); !status.ok()) return status;
  }
  const double time_us = MicrosSince(start);
  AddToDigest(drawn_);
  return time_us;
}

absl::Status BatchEngine::CloseAll() {
  for (const specd_sequence_info& info : infos_) {
    if (specd_close_sequence(engine_, info.sequence) != SPECD_OK) {
      return Refused("specd_close_sequence");
    }
  }
  return absl::OkStatus();
}

absl::Status BatchEngine::Run(BatchWork work, int count, std::vector<double>* times_us) {
  constexpr absl::StatusOr<double> (BatchEngine::*kWorks[])() = {
      &BatchEngine::RoundBatch, &BatchEngine::RoundEach, &BatchEngine::OpenBatch,
      &BatchEngine::OpenEach,   &BatchEngine::DrawBatch, &BatchEngine::DrawEach};
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<double> time_us = (this->*kWorks[static_cast<int>(work)])();
    if (!time_us.ok()) return time_us.status();
    times_us->push_back(*time_us);
  }
  return absl::OkStatus();
}

// ---- Python

absl::StatusOr<std::unique_ptr<PythonEngine>> PythonEngine::Start(const std::string& interpreter,
                                                                  const std::string& uri,
                                                                  uint32_t vocab_size) {
  absl::StatusOr<std::unique_ptr<PythonProcess>> process =
      PythonProcess::Start({.interpreter = interpreter,
                            .script = kPythonScript,
                            .arguments = {uri, fmt::format("{}", vocab_size)}});
  if (!process.ok()) return process.status();
  const absl::StatusOr<std::string> line = (*process)->ReadLine();
  if (!line.ok() || *line != "ready") {
    return Broken(
        fmt::format("{} did not get ready; give --python an interpreter with numpy, and "
                    "set PYTHONPATH to the package specd",
                    interpreter));
  }
  return std::unique_ptr<PythonEngine>(new PythonEngine(*std::move(process)));
}

absl::Status PythonEngine::Run(BatchWork work, int count, std::vector<double>* times_us) {
  const absl::StatusOr<std::string> line = process_->Ask(fmt::format("{} {}", NameOf(work), count));
  if (!line.ok()) return line.status();
  const std::vector<std::string> words = absl::StrSplit(*line, ' ');
  if (words.size() != static_cast<size_t>(count) + 1 || !absl::SimpleAtoi(words.back(), &digest_)) {
    return Broken(fmt::format("the interpreter said \"{}\"", *line));
  }
  for (int i = 0; i < count; ++i) {
    double time_us = 0;
    if (!absl::SimpleAtod(words[static_cast<size_t>(i)], &time_us)) {
      return Broken(fmt::format("the interpreter said \"{}\"", *line));
    }
    times_us->push_back(time_us);
  }
  return absl::OkStatus();
}

}  // namespace specd::bench
