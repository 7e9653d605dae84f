// The C functions of <specd/specd.h> over Engine: null checks, struct sizes, error texts. No
// exception leaves this file.

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "daemon/engine.h"
#include "daemon/version.h"
#include "ipc/error.h"
#include "ipc/include/specd/specd.h"

struct specd_engine {
  std::unique_ptr<specd::Engine> engine;
};

namespace {

thread_local std::string last_error;

int Fail(int code, std::string text) {
  last_error = std::move(text);
  return code;
}

int Finish(const absl::Status& status) {
  if (status.ok()) return SPECD_OK;
  return Fail(specd::ErrorCodeOf(status), std::string(status.message()));
}

int Finish(const absl::StatusOr<int>& answer) {
  return answer.ok() ? *answer : Finish(answer.status());
}

// Runs `body`, which returns something that Finish takes. Memory may run out and libraries may
// throw: C must not see it.
template <class Body>
int Guard(Body body) {
  try {
    return Finish(body());
  } catch (const std::bad_alloc&) {
    return Fail(SPECD_ERROR_EXHAUSTED, "out of memory");
  } catch (const std::exception& error) {
    return Fail(SPECD_ERROR_INTERNAL, error.what());
  }
}

int NullArgument(const char* field) {
  return Fail(SPECD_ERROR_INVALID_ARGUMENT, fmt::format("{} is NULL", field));
}

// Brings a struct of the caller's version to this one's: what an older caller does not have keeps
// its default, what a newer caller has must be zero here, because it could not be honoured.
template <class T>
absl::Status Adopt(const T* from, void (*init)(T*), T* to) {
  init(to);
  const uint32_t size = from->struct_size;
  if (size < sizeof(uint32_t) || size > 65536) {
    return specd::MakeError(
        SPECD_ERROR_INVALID_ARGUMENT, "struct_size",
        fmt::format("struct_size = {}; fill the struct with its _init function", size));
  }
  const char* bytes = reinterpret_cast<const char*>(from);
  for (uint32_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return specd::MakeError(
        SPECD_ERROR_UNSUPPORTED, "struct_size",
        fmt::format(
            "the struct has a field at byte {} that this version ({}) does not know; leave it "
            "at its default, or use a newer library",
            i, specd::kVersion));
  }
  std::memcpy(to, from, std::min<size_t>(size, sizeof(T)));
  to->struct_size = sizeof(T);
  return absl::OkStatus();
}

}  // namespace

extern "C" {

const char* specd_last_error(void) { return last_error.c_str(); }
const char* specd_code_name(int code) { return specd::ErrorCodeName(code); }
const char* specd_version(void) { return specd::kVersion; }

void specd_options_init(specd_options* options) {
  *options = {};
  options->struct_size = sizeof(*options);
  options->max_batch = 16;
  options->max_draft = 8;
  options->ring_depth = 4;
  options->timeout_ms = 5000;
}

void specd_tensor_init(specd_tensor* tensor) {
  *tensor = {};
  tensor->struct_size = sizeof(*tensor);
}

void specd_params_init(specd_params* params) {
  *params = {};
  params->struct_size = sizeof(*params);
  params->temperature = 1.0;
  params->draft_temperature = 1.0;
  params->max_tokens = 16;
  params->skip_special_tokens = 1;
}

int specd_open(const char* uri, const specd_options* options, specd_engine** engine) {
  if (uri == nullptr) return NullArgument("uri");
  if (options == nullptr) return NullArgument("options");
  if (engine == nullptr) return NullArgument("engine");
  *engine = nullptr;
  return Guard([&]() -> absl::Status {
    specd_options adopted;
    if (absl::Status status = Adopt(options, specd_options_init, &adopted); !status.ok()) {
      return status;
    }
    absl::StatusOr<std::unique_ptr<specd::Engine>> opened = specd::Engine::Open(uri, adopted);
    if (!opened.ok()) return opened.status();
    *engine = new specd_engine{*std::move(opened)};
    return absl::OkStatus();
  });
}

void specd_close(specd_engine* engine) { delete engine; }

int specd_alloc(specd_engine* engine, uint64_t size_bytes, specd_region* region) {
  if (engine == nullptr) return NullArgument("engine");
  if (region == nullptr) return NullArgument("region");
  return Guard([&] { return engine->engine->Alloc(size_bytes, region); });
}

int specd_import_fd(specd_engine* engine, int fd, uint64_t size_bytes, specd_region* region) {
  if (engine == nullptr) return NullArgument("engine");
  if (region == nullptr) return NullArgument("region");
  return Guard([&] { return engine->engine->ImportFd(fd, size_bytes, region); });
}

int specd_bind(specd_engine* engine, int role, const specd_tensor* tensor) {
  if (engine == nullptr) return NullArgument("engine");
  if (tensor == nullptr) return NullArgument("tensor");
  return Guard([&]() -> absl::Status {
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
  if (request_id == nullptr) return NullArgument("request_id");
  if (params == nullptr) return NullArgument("params");
  if (info == nullptr) return NullArgument("info");
  return Guard([&]() -> absl::Status {
    specd_params adopted;
    if (absl::Status status = Adopt(params, specd_params_init, &adopted); !status.ok()) {
      return status;
    }
    return engine->engine->OpenSequence(request_id, adopted, info);
  });
}

int specd_close_sequence(specd_engine* engine, specd_sequence sequence) {
  if (engine == nullptr) return NullArgument("engine");
  return Guard([&] { return engine->engine->CloseSequence(sequence); });
}

int specd_abort(specd_engine* engine, specd_sequence sequence) {
  if (engine == nullptr) return NullArgument("engine");
  return Guard([&] { return engine->engine->AbortSequence(sequence); });
}

int specd_get_sequence_state(specd_engine* engine, specd_sequence sequence,
                             specd_sequence_state* state) {
  if (engine == nullptr) return NullArgument("engine");
  if (state == nullptr) return NullArgument("state");
  return Guard([&] { return engine->engine->GetState(sequence, state); });
}

int specd_submit(specd_engine* engine, uint64_t round_id, const specd_draft* drafts,
                 uint32_t num_drafts) {
  if (engine == nullptr) return NullArgument("engine");
  if (drafts == nullptr) return NullArgument("drafts");
  return Guard([&] { return engine->engine->Submit(round_id, drafts, num_drafts); });
}

int specd_poll(specd_engine* engine, specd_completion* completion, int timeout_ms) {
  if (engine == nullptr) return NullArgument("engine");
  if (completion == nullptr) return NullArgument("completion");
  return Guard([&] { return engine->engine->Poll(completion, timeout_ms); });
}

}  // extern "C"
