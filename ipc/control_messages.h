// What an engine and the daemon can say to each other over the unix socket, message by message.
//
// Plain data, each with the list of its fields; ipc/control.h turns them into bytes and back. What
// the values mean is checked by whoever uses them. docs/PROTOCOL.md lists every message.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ipc/layout.h"
#include "ipc/unix_socket.h"

namespace specd {

enum class ControlType : uint16_t {
  kHello = 1,
  kMapped = 2,
  kRegisterRegion = 3,
  kBindTensor = 4,
  kOpenSequence = 5,
  kCloseSequence = 6,
  kAbortSequence = 7,
  kForkSequence = 8,
  kGetStats = 9,
  kRegisterDeviceRegion = 10,
  kUnregisterRegion = 11,

  kHelloReply = 101,
  kRegionReply = 102,
  kSequenceReply = 103,
  kOkReply = 104,
  kErrorReply = 105,
  kStatsReply = 106,
};

// ---- requests: engine to daemon -----------------------------------------------------------------
// Fields() names every field once; encoder, decoder and tests all go through it. The last argument
// bounds strings (in bytes) and arrays (in elements).

struct HelloRequest {
  static constexpr ControlType kType = ControlType::kHello;
  std::string name;     // shown in the daemon's log
  std::string version;  // of the library
  uint32_t pid = 0;
  SessionLimits limits;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("name", self.name, 64);
    f("version", self.version, 64);
    f("pid", self.pid);
    f("vocab_size", self.limits.vocab_size);
    f("max_batch", self.limits.max_batch);
    f("max_sequences", self.limits.max_sequences);
    f("max_draft", self.limits.max_draft);
    f("ring_depth", self.limits.ring_depth);
    f("max_scores_per_token", self.limits.max_scores);
  }
};

// The engine has mapped the segment: the daemon may seal it.
struct MappedRequest {
  static constexpr ControlType kType = ControlType::kMapped;
  template <class Self, class F>
  static void Fields(Self&, F&&) {}
};

// Comes with one descriptor.
struct RegisterRegionRequest {
  static constexpr ControlType kType = ControlType::kRegisterRegion;
  uint64_t size_bytes = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("size_bytes", self.size_bytes);
  }
};

// Comes with a descriptor for each piece, with one of a pool, and with none beside a CUDA IPC
// handle. As in ipc/device_region.h.
struct RegisterDeviceRegionRequest {
  static constexpr ControlType kType = ControlType::kRegisterDeviceRegion;
  uint32_t kind = 0;
  std::string device_uuid;
  std::string handle;  // hexadecimal digits
  uint64_t base_bytes = 0;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  uint64_t buffer_id = 0;
  uint32_t export_pid = 0;
  std::vector<uint64_t> piece_bytes;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("kind", self.kind);
    f("device_uuid", self.device_uuid, 64);
    f("handle", self.handle, 256);
    f("base_bytes", self.base_bytes);
    f("offset_bytes", self.offset_bytes);
    f("size_bytes", self.size_bytes);
    f("buffer_id", self.buffer_id);
    f("export_pid", self.export_pid);
    f("piece_bytes", self.piece_bytes, kMessageFdsMax);
  }
};

// The reply says that the memory is no longer mapped: the engine may free it.
struct UnregisterRegionRequest {
  static constexpr ControlType kType = ControlType::kUnregisterRegion;
  uint32_t region = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("region", self.region);
  }
};

struct BindTensorRequest {
  static constexpr ControlType kType = ControlType::kBindTensor;
  uint32_t role = 0;  // SPECD_TARGET_ROWS, ...
  uint32_t region = 0;
  uint32_t dtype = 0;
  uint32_t kind = 0;  // SPECD_LOGITS, ...
  uint64_t offset_bytes = 0;
  uint64_t num_rows = 0;
  uint64_t row_stride = 0;
  double scale = 1;
  double cap = 0;
  bool renormalise = false;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("role", self.role);
    f("region", self.region);
    f("dtype", self.dtype);
    f("kind", self.kind);
    f("offset_bytes", self.offset_bytes);
    f("num_rows", self.num_rows);
    f("row_stride", self.row_stride);
    f("scale", self.scale);
    f("cap", self.cap);
    f("renormalise", self.renormalise);
  }
};

// All of specd_params. The lists that may be as long as a prompt or a vocabulary are too large for
// a packet: the message says how many ids each has, and a memfd that comes with it holds them as
// int32, in the order of the counts. Without any there is no descriptor.
struct OpenSequenceRequest {
  static constexpr ControlType kType = ControlType::kOpenSequence;
  std::string request_id;
  uint32_t verify = 0;
  bool has_seed = false;
  uint64_t seed = 0;
  uint32_t n = 1;

  double temperature = 1;
  double top_p = 1;
  int32_t top_k = 0;
  double min_p = 0;
  uint32_t filter_order = 0;

  double frequency_penalty = 0;
  double presence_penalty = 0;
  double repetition_penalty = 1;
  std::vector<int32_t> logit_bias_ids;
  std::vector<double> logit_bias;
  std::vector<int32_t> bad_word_ids;
  std::vector<int32_t> bad_word_lengths;
  uint32_t no_repeat_ngram_size = 0;
  uint32_t no_repeat_ngram_window = 0;

  int32_t thinking_budget = -1;
  int32_t thinking_start_id = -1;
  std::vector<int32_t> thinking_end_ids;
  int32_t thinking_newline_id = -1;
  std::string thinking_preset;
  std::vector<std::string> processor_names;
  std::vector<std::string> processor_values;  // "key=value,key=value", one for each name

  uint32_t max_tokens = 16;
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  bool include_stop = false;
  bool skip_special_tokens = true;

  int32_t logprobs = -1;
  uint32_t logprobs_mode = 0;
  std::vector<int32_t> logprob_token_ids;

  double draft_temperature = 1;
  double draft_top_p = 1;
  int32_t draft_top_k = 0;
  double draft_min_p = 0;
  uint32_t draft_filter_order = 0;
  bool draft_edits = false;

  uint32_t num_prompt_ids = 0;
  uint32_t num_output_ids = 0;
  uint32_t num_allowed_token_ids = 0;
  uint32_t num_disallowed_token_ids = 0;
  uint32_t num_no_repeat_ngram_whitelist = 0;

  // Of the memfd. The counts are checked by whoever reads it (daemon/open_request.h).
  uint64_t num_list_ids() const {
    return uint64_t{num_prompt_ids} + num_output_ids + num_allowed_token_ids +
           num_disallowed_token_ids + num_no_repeat_ngram_whitelist;
  }

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("request_id", self.request_id, 128);
    f("verify", self.verify);
    f("has_seed", self.has_seed);
    f("seed", self.seed);
    f("n", self.n);
    f("temperature", self.temperature);
    f("top_p", self.top_p);
    f("top_k", self.top_k);
    f("min_p", self.min_p);
    f("filter_order", self.filter_order);
    f("frequency_penalty", self.frequency_penalty);
    f("presence_penalty", self.presence_penalty);
    f("repetition_penalty", self.repetition_penalty);
    f("logit_bias_ids", self.logit_bias_ids, 1024);
    f("logit_bias", self.logit_bias, 1024);
    f("bad_word_ids", self.bad_word_ids, 1024);
    f("bad_word_lengths", self.bad_word_lengths, 128);
    f("no_repeat_ngram_size", self.no_repeat_ngram_size);
    f("no_repeat_ngram_window", self.no_repeat_ngram_window);
    f("thinking_budget", self.thinking_budget);
    f("thinking_start_id", self.thinking_start_id);
    f("thinking_end_ids", self.thinking_end_ids, 64);
    f("thinking_newline_id", self.thinking_newline_id);
    f("thinking_preset", self.thinking_preset, 64);
    f("processor_names", self.processor_names, 8);
    f("processor_values", self.processor_values, 8);
    f("max_tokens", self.max_tokens);
    f("min_tokens", self.min_tokens);
    f("ignore_eos", self.ignore_eos);
    f("stop_token_ids", self.stop_token_ids, 64);
    f("stop_strings", self.stop_strings, 1024);
    f("include_stop", self.include_stop);
    f("skip_special_tokens", self.skip_special_tokens);
    f("logprobs", self.logprobs);
    f("logprobs_mode", self.logprobs_mode);
    f("logprob_token_ids", self.logprob_token_ids, 64);
    f("draft_temperature", self.draft_temperature);
    f("draft_top_p", self.draft_top_p);
    f("draft_top_k", self.draft_top_k);
    f("draft_min_p", self.draft_min_p);
    f("draft_filter_order", self.draft_filter_order);
    f("draft_edits", self.draft_edits);
    f("num_prompt_ids", self.num_prompt_ids);
    f("num_output_ids", self.num_output_ids);
    f("num_allowed_token_ids", self.num_allowed_token_ids);
    f("num_disallowed_token_ids", self.num_disallowed_token_ids);
    f("num_no_repeat_ngram_whitelist", self.num_no_repeat_ngram_whitelist);
  }
};

struct CloseSequenceRequest {
  static constexpr ControlType kType = ControlType::kCloseSequence;
  uint64_t sequence = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("sequence", self.sequence);
  }
};

struct AbortSequenceRequest {
  static constexpr ControlType kType = ControlType::kAbortSequence;
  uint64_t sequence = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("sequence", self.sequence);
  }
};

// A copy of a sequence under another name.
struct ForkSequenceRequest {
  static constexpr ControlType kType = ControlType::kForkSequence;
  uint64_t sequence = 0;
  std::string request_id;
  bool has_seed = false;
  uint64_t seed = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("sequence", self.sequence);
    f("request_id", self.request_id, 128);
    f("has_seed", self.has_seed);
    f("seed", self.seed);
  }
};

struct GetStatsRequest {
  static constexpr ControlType kType = ControlType::kGetStats;
  template <class Self, class F>
  static void Fields(Self&, F&&) {}
};

// ---- replies: daemon to engine ------------------------------------------------------------------

// Comes with one descriptor: the session segment.
struct HelloReply {
  static constexpr ControlType kType = ControlType::kHelloReply;
  uint64_t session_id = 0;
  uint64_t daemon_epoch = 0;
  std::string version;          // of the daemon
  std::string device;           // "cpu" or "cuda"
  std::string tokens_endpoint;  // ZeroMQ; "" where there is none
  std::string text_endpoint;    // ZeroMQ; "" where there is no tokenizer
  std::string mps;              // of the daemon's devices: DescribeMps

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("session_id", self.session_id);
    f("daemon_epoch", self.daemon_epoch);
    f("version", self.version, 64);
    f("device", self.device, 64);
    f("tokens_endpoint", self.tokens_endpoint, 256);
    f("text_endpoint", self.text_endpoint, 256);
    f("mps", self.mps, 64);
  }
};

struct RegionReply {
  static constexpr ControlType kType = ControlType::kRegionReply;
  uint32_t region = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("region", self.region);
  }
};

// To OpenSequence (n of them) and to ForkSequence (one).
struct SequenceReply {
  static constexpr ControlType kType = ControlType::kSequenceReply;
  std::vector<uint64_t> sequences;
  std::vector<uint64_t> seeds;
  uint32_t verify = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("sequences", self.sequences, 64);
    f("seeds", self.seeds, 64);
    f("verify", self.verify);
  }
};

struct OkReply {
  static constexpr ControlType kType = ControlType::kOkReply;
  template <class Self, class F>
  static void Fields(Self&, F&&) {}
};

struct ErrorReply {
  static constexpr ControlType kType = ControlType::kErrorReply;
  int32_t code = 0;   // SPECD_ERROR_...
  std::string field;  // or ""
  std::string text;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("code", self.code);
    f("field", self.field, 64);
    f("text", self.text, 2048);
  }
};

// As in specd_engine_stats.
struct StatsReply {
  static constexpr ControlType kType = ControlType::kStatsReply;
  uint64_t rounds = 0;
  uint64_t sequence_rounds = 0;
  uint64_t drafted = 0;
  uint64_t accepted = 0;
  uint64_t kept = 0;
  uint64_t bad_target_rows = 0;
  uint64_t bad_draft_rows = 0;
  uint64_t empty_residuals = 0;
  uint64_t invalid_drafts = 0;
  uint64_t point_masses = 0;
  uint64_t invalid_records = 0;
  uint64_t bad_tokens = 0;
  uint64_t discarded = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("rounds", self.rounds);
    f("sequence_rounds", self.sequence_rounds);
    f("drafted", self.drafted);
    f("accepted", self.accepted);
    f("kept", self.kept);
    f("bad_target_rows", self.bad_target_rows);
    f("bad_draft_rows", self.bad_draft_rows);
    f("empty_residuals", self.empty_residuals);
    f("invalid_drafts", self.invalid_drafts);
    f("point_masses", self.point_masses);
    f("invalid_records", self.invalid_records);
    f("bad_tokens", self.bad_tokens);
    f("discarded", self.discarded);
  }
};

using Request = std::variant<HelloRequest, MappedRequest, RegisterRegionRequest, BindTensorRequest,
                             OpenSequenceRequest, CloseSequenceRequest, AbortSequenceRequest,
                             ForkSequenceRequest, GetStatsRequest, RegisterDeviceRegionRequest,
                             UnregisterRegionRequest>;
using Reply = std::variant<HelloReply, RegionReply, SequenceReply, OkReply, ErrorReply, StatsReply>;

}  // namespace specd
