// The C functions of <specd/specd.h> over Engine: null checks, struct sizes, error texts. No
// exception leaves this file.

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/client/engine_device.h"
#include "daemon/client/engine_handle.h"
#include "daemon/client/params_check.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/backend_plugin.h"

namespace {

using specd::api::Adopt;
using specd::api::Guard;
using specd::api::NullArgument;
using specd::api::Open;
using specd::api::Use;

template <class Result>
void TellWhy(const specd::Engine& engine, const Result* results, uint32_t count) {
  const bool failed = std::any_of(results, results + count, [](const Result& result) {
    return result.status == SPECD_STATUS_DEVICE_ERROR;
  });
  if (failed) specd::api::TellWhy(engine);
}

}  // namespace

extern "C" {

const char* specd_last_error(void) { return specd::api::LastError().c_str(); }
const char* specd_code_name(int code) { return specd::ErrorCodeName(code); }
const char* specd_detail_text(uint32_t detail) {
  const bool is_known = detail <= specd::kRefusalMax;
  // The texts are literals, so each ends with a zero.
  return is_known ? specd::RefusalText(static_cast<specd::Refusal>(detail)).data() : "unknown";
}
const char* specd_version(void) { return specd::kVersion; }

void specd_options_init(specd_options* options) {
  *options = {};
  options->struct_size = sizeof(*options);
  options->max_batch = 16;
  options->max_draft = 8;
  options->ring_depth = 4;
  options->timeout_ms = 5000;
  options->max_scores_per_token = 21;
  options->spin_us = -1;
}

void specd_tensor_init(specd_tensor* tensor) {
  *tensor = {};
  tensor->struct_size = sizeof(*tensor);
  tensor->scale = 1;
}

void specd_engine_stats_init(specd_engine_stats* stats) {
  *stats = {};
  stats->struct_size = sizeof(*stats);
}

int specd_load_backends(const char* path) {
  if (path == nullptr) return NullArgument("path");
  return Guard([&] { return specd::LoadBackendPlugin(path, &specd::EngineBackends()); });
}

int specd_open(const char* uri, const specd_options* options, specd_engine** engine) {
  if (uri == nullptr) return NullArgument("uri");
  if (options == nullptr) return NullArgument("options");
  if (engine == nullptr) return NullArgument("engine");
  return Open(
      options, specd_options_init,
      [&](const specd_options& adopted) { return specd::Engine::Open(uri, adopted); }, engine);
}

void specd_close(specd_engine* engine) {
  // The parent's engine goes on. A forked child leaves its copy as it is.
  if (engine != nullptr && engine->gate.Close()) delete engine;
}

int specd_alloc(specd_engine* engine, uint64_t size_bytes, specd_region* region) {
  if (engine == nullptr) return NullArgument("engine");
  if (region == nullptr) return NullArgument("region");
  return Use(engine, [&] { return engine->engine->Alloc(size_bytes, region); });
}

int specd_import_fd(specd_engine* engine, int fd, uint64_t size_bytes, specd_region* region) {
  if (engine == nullptr) return NullArgument("engine");
  if (region == nullptr) return NullArgument("region");
  return Use(engine, [&] { return engine->engine->ImportFd(fd, size_bytes, region); });
}

int specd_import_device(specd_engine* engine, uint64_t address, uint64_t size_bytes,
                        specd_region* region) {
  if (engine == nullptr) return NullArgument("engine");
  if (region == nullptr) return NullArgument("region");
  return Use(engine, [&] { return engine->engine->ImportDevice(address, size_bytes, region); });
}

int specd_lend(specd_engine* engine, void* data, uint64_t size_bytes, specd_region* region) {
  if (engine == nullptr) return NullArgument("engine");
  if (data == nullptr) return NullArgument("data");
  if (region == nullptr) return NullArgument("region");
  return Use(engine, [&] { return engine->engine->Lend(data, size_bytes, region); });
}

int specd_unregister(specd_engine* engine, uint32_t region) {
  if (engine == nullptr) return NullArgument("engine");
  return Use(engine, [&] { return engine->engine->Unregister(region); });
}

uint32_t specd_sequence_slot(specd_sequence sequence) { return specd::SlotOf(sequence); }

int specd_bind(specd_engine* engine, int role, const specd_tensor* tensor) {
  if (engine == nullptr) return NullArgument("engine");
  if (tensor == nullptr) return NullArgument("tensor");
  return Use(engine, [&]() -> absl::Status {
    specd_tensor adopted;
    if (absl::Status status = Adopt(tensor, specd_tensor_init, &adopted); !status.ok()) {
      return status;
    }
    return engine->engine->Bind(role, adopted);
  });
}

int specd_open_sequence(specd_engine* engine, const char* request_id, const specd_params* params,
                        specd_sequence_info* info) {
  if (engine == nullptr) return NullArgument("engine");
  return Use(engine, [&]() -> absl::StatusOr<int> {
    engine->engine->ForgetWarnings();
    if (request_id == nullptr) return NullArgument("request_id");
    if (params == nullptr) return NullArgument("params");
    if (info == nullptr) return NullArgument("info");
    specd_params adopted;
    if (absl::Status status = Adopt(params, specd_params_init, &adopted); !status.ok()) {
      return status;
    }
    if (absl::Status status = engine->engine->OpenSequence(request_id, adopted, info);
        !status.ok()) {
      return status;
    }
    return SPECD_OK;
  });
}

int specd_params_check(const specd_params* params, const specd_options* options) {
  if (params == nullptr) return NullArgument("params");
  if (options == nullptr) return NullArgument("options");
  return Guard([&]() -> absl::Status {
    specd_params known;
    specd_options model;
    for (absl::Status status :
         {Adopt(params, specd_params_init, &known), Adopt(options, specd_options_init, &model)}) {
      if (!status.ok()) return status;
    }
    return specd::CheckParams(known, model);
  });
}

const char* specd_opening_warnings(specd_engine* engine) {
  const char* warnings = "";
  if (engine == nullptr) return warnings;
  engine->gate.Run("engine", [&] {
    warnings = engine->engine->opening_warnings().c_str();
    return SPECD_OK;
  });
  return warnings;
}

int specd_await_opening(specd_engine* engine, specd_sequence sequence, int timeout_ms) {
  if (engine == nullptr) return NullArgument("engine");
  return Use(engine, [&] { return engine->engine->AwaitOpening(sequence, timeout_ms); });
}

int specd_fork(specd_engine* engine, specd_sequence sequence, const char* request_id,
               const uint64_t* seed, specd_sequence_info* info) {
  if (engine == nullptr) return NullArgument("engine");
  if (request_id == nullptr) return NullArgument("request_id");
  if (info == nullptr) return NullArgument("info");
  return Use(engine,
             [&] { return engine->engine->ForkSequence(sequence, request_id, seed, info); });
}

int specd_close_sequence(specd_engine* engine, specd_sequence sequence) {
  if (engine == nullptr) return NullArgument("engine");
  return Use(engine, [&] { return engine->engine->CloseSequence(sequence); });
}

int specd_abort(specd_engine* engine, specd_sequence sequence) {
  if (engine == nullptr) return NullArgument("engine");
  return Use(engine, [&] { return engine->engine->AbortSequence(sequence); });
}

int specd_get_sequence_state(specd_engine* engine, specd_sequence sequence,
                             specd_sequence_state* state) {
  if (engine == nullptr) return NullArgument("engine");
  if (state == nullptr) return NullArgument("state");
  return Use(engine, [&] { return engine->engine->GetState(sequence, state); });
}

int specd_sequence_final(specd_engine* engine, specd_sequence sequence, specd_sequence_state* state,
                         int timeout_ms) {
  if (engine == nullptr) return NullArgument("engine");
  if (state == nullptr) return NullArgument("state");
  return Use(engine, [&] { return engine->engine->AwaitFinal(sequence, state, timeout_ms); });
}

int specd_sequence_text(specd_engine* engine, specd_sequence sequence, specd_text* text) {
  if (engine == nullptr) return NullArgument("engine");
  if (text == nullptr) return NullArgument("text");
  return Use(engine, [&] { return engine->engine->ReadText(sequence, text); });
}

int specd_token_bytes(specd_engine* engine, int32_t id, const char** bytes, uint64_t* size_bytes) {
  if (engine == nullptr) return NullArgument("engine");
  if (bytes == nullptr) return NullArgument("bytes");
  if (size_bytes == nullptr) return NullArgument("size_bytes");
  return Use(engine, [&]() -> absl::Status {
    const absl::StatusOr<std::string_view> found = engine->engine->TokenBytes(id);
    if (!found.ok()) return found.status();
    *bytes = found->data();
    *size_bytes = found->size();
    return absl::OkStatus();
  });
}

int specd_submit(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                 uint32_t num_drafts) {
  if (engine == nullptr) return NullArgument("engine");
  if (drafts == nullptr) return NullArgument("drafts");
  return Use(engine, [&] { return engine->engine->rounds().Submit(round_id, drafts, num_drafts); });
}

int specd_submit_on_stream(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                           uint32_t num_drafts, void* cuda_stream) {
  if (engine == nullptr) return NullArgument("engine");
  if (drafts == nullptr) return NullArgument("drafts");
  return Use(engine, [&] {
    return engine->engine->rounds().SubmitOnStream(round_id, drafts, num_drafts, cuda_stream);
  });
}

int specd_mark_drafts(specd_engine* engine, void* cuda_stream) {
  if (engine == nullptr) return NullArgument("engine");
  return Use(engine, [&] { return engine->engine->rounds().MarkDrafts(cuda_stream); });
}

int specd_enqueue_staged(specd_engine* engine, uint32_t num_sequences, void* cuda_stream) {
  if (engine == nullptr) return NullArgument("engine");
  return Use(engine,
             [&] { return engine->engine->rounds().EnqueueStaged(num_sequences, cuda_stream); });
}

int specd_stage_round(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                      uint32_t num_drafts) {
  if (engine == nullptr) return NullArgument("engine");
  if (drafts == nullptr) return NullArgument("drafts");
  return Use(engine,
             [&] { return engine->engine->rounds().StageRound(round_id, drafts, num_drafts); });
}

int specd_get_round_end(specd_engine* engine, specd_round_end* end) {
  if (engine == nullptr) return NullArgument("engine");
  if (end == nullptr) return NullArgument("end");
  return Use(engine, [&] { return engine->engine->rounds().GetRoundEnd(end); });
}

int specd_get_sharing(specd_engine* engine, specd_sharing* sharing) {
  if (engine == nullptr) return NullArgument("engine");
  if (sharing == nullptr) return NullArgument("sharing");
  return Use(engine, [&]() -> absl::Status {
    engine->engine->GetSharing(sharing);
    return absl::OkStatus();
  });
}

int specd_get_group(specd_engine* engine, specd_group* group) {
  if (engine == nullptr) return NullArgument("engine");
  if (group == nullptr) return NullArgument("group");
  return Use(engine, [&] { return engine->engine->GetGroup(group); });
}

int specd_dump_trace(specd_engine* engine, specd_trace_dump* dump) {
  if (engine == nullptr) return NullArgument("engine");
  if (dump == nullptr) return NullArgument("dump");
  return Use(engine, [&] { return engine->engine->DumpTrace(dump); });
}

int specd_poll(specd_engine* engine, specd_completion* completion, int timeout_ms) {
  if (engine == nullptr) return NullArgument("engine");
  if (completion == nullptr) return NullArgument("completion");
  return Use(engine, [&] {
    absl::StatusOr<int> answer = engine->engine->rounds().Poll(completion, timeout_ms);
    if (answer.ok() && *answer == SPECD_OK) {
      TellWhy(*engine->engine, completion->results, completion->num_results);
    }
    return answer;
  });
}

int specd_sample_draft(specd_engine* engine, const specd_draft_request* requests,
                       uint32_t num_requests, specd_draft_children* results) {
  if (engine == nullptr) return NullArgument("engine");
  if (requests == nullptr) return NullArgument("requests");
  if (results == nullptr) return NullArgument("results");
  return Use(engine, [&] {
    absl::Status answer = engine->engine->calls().SampleDraft(requests, num_requests, results);
    if (answer.ok()) TellWhy(*engine->engine, results, num_requests);
    return answer;
  });
}

int specd_forced_tokens(specd_engine* engine, specd_sequence sequence, const int32_t* prefix,
                        uint32_t num_prefix, int32_t* ids, uint32_t max_ids, uint32_t* num_ids) {
  if (engine == nullptr) return NullArgument("engine");
  if (prefix == nullptr && num_prefix > 0) return NullArgument("prefix");
  if (ids == nullptr) return NullArgument("ids");
  if (num_ids == nullptr) return NullArgument("num_ids");
  return Use(engine, [&] {
    return engine->engine->calls().FindForced(sequence, {prefix, num_prefix}, {ids, max_ids},
                                              num_ids);
  });
}

int specd_score(specd_engine* engine, const specd_score_request* requests, uint32_t num_requests,
                specd_score_result* results) {
  if (engine == nullptr) return NullArgument("engine");
  if (requests == nullptr) return NullArgument("requests");
  if (results == nullptr) return NullArgument("results");
  return Use(engine, [&] {
    absl::Status answer = engine->engine->calls().Score(requests, num_requests, results);
    if (answer.ok()) TellWhy(*engine->engine, results, num_requests);
    return answer;
  });
}

int specd_set_coins(specd_engine* engine, specd_sequence sequence, const specd_coin* coins,
                    uint32_t num_coins) {
  if (engine == nullptr) return NullArgument("engine");
  if (coins == nullptr && num_coins > 0) return NullArgument("coins");
  return Use(engine, [&] { return engine->engine->SetCoins(sequence, {coins, num_coins}); });
}

int specd_get_engine_stats(specd_engine* engine, specd_engine_stats* stats) {
  if (engine == nullptr) return NullArgument("engine");
  if (stats == nullptr) return NullArgument("stats");
  return Use(engine, [&]() -> absl::Status {
    specd_engine_stats found;
    if (absl::Status status = Adopt(stats, specd_engine_stats_init, &found); !status.ok()) {
      return status;
    }
    if (absl::Status status = engine->engine->GetStats(&found); !status.ok()) return status;
    const uint32_t size = stats->struct_size;
    std::memcpy(stats, &found, std::min<size_t>(size, sizeof(found)));
    stats->struct_size = size;
    return absl::OkStatus();
  });
}

}  // extern "C"
