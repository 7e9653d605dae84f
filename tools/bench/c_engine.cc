#include "tools/bench/c_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tools/bench/rows.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

namespace specd::bench {

absl::Status Done(std::string_view call, int code) {
  if (code == SPECD_OK) return absl::OkStatus();
  return absl::InternalError(fmt::format("{}: {}", call, specd_last_error()));
}

CEngine::~CEngine() { specd_close(engine_); }

absl::Status CEngine::Open(const std::string& uri, const specd_options& options) {
  return Done("specd_open", specd_open(uri.c_str(), &options, &engine_));
}

absl::StatusOr<float*> CEngine::Bind(uint32_t role, uint32_t num_rows, uint32_t vocab_size) {
  specd_region region;
  const uint64_t num_elements = uint64_t{num_rows} * vocab_size;
  SPECD_TRY(Done("specd_alloc", specd_alloc(engine_, num_elements * sizeof(float), &region)));
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = num_rows;
  SPECD_TRY(Done("specd_bind", specd_bind(engine_, role, &tensor)));
  auto* const rows = static_cast<float*>(region.data);
  std::fill(rows, rows + num_elements, 0.0f);
  return rows;
}

absl::StatusOr<specd_sequence_info> CEngine::OpenSequence(const std::string& name,
                                                          const specd_params& params) {
  specd_sequence_info info = {};
  info.struct_size = sizeof(info);
  SPECD_TRY(
      Done("specd_open_sequence", specd_open_sequence(engine_, name.c_str(), &params, &info)));
  return info;
}

absl::StatusOr<double> CEngine::RunRound(const std::vector<specd_draft>& parts,
                                         specd_completion* done) {
  *done = {};
  done->struct_size = sizeof(*done);
  done->result_size = sizeof(specd_result);
  const SteadyClock::time_point start = SteadyClock::now();
  SPECD_TRY(Done("specd_submit", specd_submit(engine_, NextRound(), parts.data(),
                                              static_cast<uint32_t>(parts.size()))));
  SPECD_TRY(Done("specd_poll", specd_poll(engine_, done, kTimeoutMs)));
  const double time_us = MicrosSince(start);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (done->results[i].status != SPECD_STATUS_OK) return Broken("a sequence was not verified");
  }
  return time_us;
}

absl::Status RepeatingEngine::Start(const std::string& uri, const specd_options& options) {
  SPECD_TRY(engine_.Open(uri, options));
  const uint32_t num_rows = options.max_draft + 1;
  SPECD_TAKE(const RowPool pool,
             RowPool::Make(
                 {.vocab_size = static_cast<int32_t>(options.vocab_size), .num_rows = num_rows}));
  SPECD_TAKE(float* const rows, engine_.Bind(SPECD_TARGET_ROWS, num_rows, options.vocab_size));
  std::memcpy(rows, pool.view().data, static_cast<size_t>(num_rows * pool.row_bytes()));
  for (uint32_t i = 0; i < num_rows; ++i) best_.push_back(pool.best_id(i));
  rows_.resize(num_rows);
  std::iota(rows_.begin(), rows_.end(), 0);
  return absl::OkStatus();
}

absl::Status RepeatingEngine::OpenSequences(const std::string& prefix, uint32_t count,
                                            double temperature) {
  specd_params params;
  specd_params_init(&params);
  params.temperature = temperature;
  params.has_seed = 1;
  params.max_tokens = 1 << 30;
  is_greedy_ = temperature == 0;
  for (uint32_t i = 0; i < count; ++i) {
    params.seed = i + 1;
    SPECD_TAKE(const auto info, engine_.OpenSequence(fmt::format("{}.{}", prefix, i), params));
    specd_draft& part = parts_.emplace_back();
    part.struct_size = sizeof(part);
    part.sequence = info.sequence;
    part.tokens = best_.data();
    part.target_rows = rows_.data();
  }
  return absl::OkStatus();
}

absl::StatusOr<double> RepeatingEngine::RunRound(uint32_t num_nodes) {
  for (specd_draft& part : parts_) part.num_nodes = num_nodes;
  specd_completion done;
  SPECD_TAKE(const double time_us, engine_.RunRound(parts_, &done));
  for (size_t i = 0; i < parts_.size(); ++i) {
    const specd_result& result = done.results[i];
    const int32_t* const end = result.tokens + result.num_kept;
    if (is_greedy_ &&
        !std::equal(result.tokens, end, best_.begin(), best_.begin() + num_nodes + 1)) {
      return Broken("a round has other ids");
    }
    for (const int32_t* id = result.tokens; id != end; ++id) {
      digest_ = (digest_ ^ static_cast<uint64_t>(*id)) * 0x100000001b3;  // FNV
    }
  }
  return time_us;
}

}  // namespace specd::bench
