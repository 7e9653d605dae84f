// The C functions of <specd/batches.h> over Engine: null checks, struct sizes, error texts. No
// exception leaves this file.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "daemon/client/engine_handle.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace {

using specd::api::Adopt;
using specd::api::NullArgument;
using specd::api::TellWhy;
using specd::api::Use;

// Copies what the call has written back to the caller's struct, which may be shorter or longer.
template <class T>
void GiveBack(const T& from, T* to) {
  const uint32_t size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(size, sizeof(from)));
  to->struct_size = size;
}

// Runs `call`(batch) with the batch of the caller's version.
template <class Call>
int WithBatch(specd_engine* engine, const specd_batch* batch, Call call) {
  if (engine == nullptr) return NullArgument("engine");
  if (batch == nullptr) return NullArgument("batch");
  return Use(engine, [&]() -> absl::StatusOr<int> {
    specd_batch adopted;
    if (absl::Status s = Adopt(batch, specd_batch_init, &adopted); !s.ok()) return s;
    return call(adopted);
  });
}

// Runs `call`(batch results, device failed) with the results of the caller's version.
template <class Call>
int WithResults(specd_engine* engine, specd_batch_results* results, Call call) {
  return Use(engine, [&]() -> absl::StatusOr<int> {
    specd_batch_results found;
    if (absl::Status s = Adopt(results, specd_batch_results_init, &found); !s.ok()) return s;
    bool device_failed = false;
    const absl::StatusOr<int> answer = call(&found, &device_failed);
    if (!answer.ok() || *answer != SPECD_OK) return answer;
    GiveBack(found, results);
    if (device_failed) TellWhy(*engine->engine);
    return answer;
  });
}

// The same status. If it is about one opening, its text begins with the opening.
absl::Status Locate(const absl::Status& status, uint32_t refused) {
  if (status.ok() || refused == SPECD_NO_OPENING) return status;
  return specd::MakeError(specd::ErrorCodeOf(status), specd::ErrorFieldOf(status),
                          fmt::format("openings[{}]: {}", refused, std::string(status.message())));
}

}  // namespace

extern "C" {

void specd_batch_init(specd_batch* batch) {
  *batch = {};
  batch->struct_size = sizeof(*batch);
}

void specd_batch_results_init(specd_batch_results* results) {
  *results = {};
  results->struct_size = sizeof(*results);
}

void specd_openings_init(specd_openings* openings) {
  *openings = {};
  openings->struct_size = sizeof(*openings);
  openings->refused = SPECD_NO_OPENING;
}

int specd_submit_batch(specd_engine* engine, uint64_t round_id, const specd_batch* batch) {
  return WithBatch(engine, batch, [&](const specd_batch& adopted) {
    return engine->engine->rounds().SubmitBatch(round_id, adopted);
  });
}

int specd_submit_batch_on_stream(specd_engine* engine, uint64_t round_id, const specd_batch* batch,
                                 void* cuda_stream) {
  return WithBatch(engine, batch, [&](const specd_batch& adopted) {
    return engine->engine->rounds().SubmitBatchOnStream(round_id, adopted, cuda_stream);
  });
}

int specd_poll_batch(specd_engine* engine, specd_batch_results* results, int timeout_ms) {
  if (engine == nullptr) return NullArgument("engine");
  if (results == nullptr) return NullArgument("results");
  return WithResults(engine, results, [&](specd_batch_results* found, bool* device_failed) {
    return engine->engine->rounds().PollBatch(found, timeout_ms, device_failed);
  });
}

int specd_verify_batch(specd_engine* engine, uint64_t round_id, const specd_batch* batch,
                       specd_batch_results* results, int timeout_ms) {
  if (engine == nullptr) return NullArgument("engine");
  if (batch == nullptr) return NullArgument("batch");
  if (results == nullptr) return NullArgument("results");
  return WithResults(engine, results,
                     [&](specd_batch_results* found, bool* device_failed) -> absl::StatusOr<int> {
                       specd_batch adopted;
                       if (absl::Status s = Adopt(batch, specd_batch_init, &adopted); !s.ok()) {
                         return s;
                       }
                       return engine->engine->rounds().VerifyBatch(round_id, adopted, found,
                                                                   timeout_ms, device_failed);
                     });
}

int specd_open_sequences(specd_engine* engine, specd_openings* openings) {
  if (engine == nullptr) return NullArgument("engine");
  if (openings == nullptr) return NullArgument("openings");
  return Use(engine, [&]() -> absl::Status {
    engine->engine->ForgetWarnings();
    specd_openings adopted;
    if (absl::Status s = Adopt(openings, specd_openings_init, &adopted); !s.ok()) return s;
    adopted.refused = SPECD_NO_OPENING;
    const absl::Status status = engine->engine->OpenSequences(adopted, &adopted.refused);
    GiveBack(adopted, openings);
    return Locate(status, adopted.refused);
  });
}

}  // extern "C"
