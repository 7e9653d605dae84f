// Control messages: what an engine and the daemon say to each other over the unix socket.
//
// A message is a 24-byte little-endian header and a msgpack map with string keys. Decoding is
// strict: a missing, repeated, unknown or wrongly typed field is an error that names it, every
// string and array has a bound, and nothing larger than kControlBytesMax is looked at. Decoding
// checks types and sizes only; what the values mean is checked by whoever uses them. Descriptors
// travel beside the message; num_fds says how many.
//
// Pure functions, safe from any thread. docs/PROTOCOL.md lists every message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/layout.h"

namespace specd {

inline constexpr uint32_t kControlMagic = 0x44435053;  // the bytes "SPCD"
inline constexpr uint8_t kControlMajor = 1;
inline constexpr uint8_t kControlMinor = 0;
inline constexpr size_t kControlHeaderBytes = 24;
inline constexpr size_t kControlBytesMax = 64 * 1024;  // header and body

enum class ControlType : uint16_t {
  kHello = 1,
  kMapped = 2,
  kRegisterRegion = 3,
  kBindTensor = 4,
  kOpenSequence = 5,
  kCloseSequence = 6,
  kAbortSequence = 7,

  kHelloReply = 101,
  kRegionReply = 102,
  kSequenceReply = 103,
  kOkReply = 104,
  kErrorReply = 105,
};

struct ControlHeader {
  ControlType type = ControlType::kHello;
  uint8_t minor = kControlMinor;  // of the sender
  uint32_t request_id = 0;        // chosen by the engine, echoed in the reply
  uint32_t body_bytes = 0;
  uint32_t num_fds = 0;  // descriptors that travel with this message
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

struct BindTensorRequest {
  static constexpr ControlType kType = ControlType::kBindTensor;
  uint32_t role = 0;  // SPECD_TARGET_LOGITS, ...
  uint32_t region = 0;
  uint32_t dtype = 0;
  uint64_t offset_bytes = 0;
  uint64_t num_rows = 0;
  uint64_t row_stride = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("role", self.role);
    f("region", self.region);
    f("dtype", self.dtype);
    f("offset_bytes", self.offset_bytes);
    f("num_rows", self.num_rows);
    f("row_stride", self.row_stride);
  }
};

// All of specd_params.
struct OpenSequenceRequest {
  static constexpr ControlType kType = ControlType::kOpenSequence;
  std::string request_id;
  uint32_t verify = 0;
  double temperature = 1;
  double draft_temperature = 1;
  bool has_seed = false;
  uint64_t seed = 0;
  uint32_t max_tokens = 16;
  bool ignore_eos = false;
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("request_id", self.request_id, 128);
    f("verify", self.verify);
    f("temperature", self.temperature);
    f("draft_temperature", self.draft_temperature);
    f("has_seed", self.has_seed);
    f("seed", self.seed);
    f("max_tokens", self.max_tokens);
    f("ignore_eos", self.ignore_eos);
    f("include_stop", self.include_stop);
    f("skip_special_tokens", self.skip_special_tokens);
    f("stop_token_ids", self.stop_token_ids, 64);
    f("stop_strings", self.stop_strings, 1024);
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

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("session_id", self.session_id);
    f("daemon_epoch", self.daemon_epoch);
    f("version", self.version, 64);
    f("device", self.device, 64);
    f("tokens_endpoint", self.tokens_endpoint, 256);
    f("text_endpoint", self.text_endpoint, 256);
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

struct SequenceReply {
  static constexpr ControlType kType = ControlType::kSequenceReply;
  uint64_t sequence = 0;
  uint64_t seed = 0;
  uint32_t verify = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("sequence", self.sequence);
    f("seed", self.seed);
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

using Request = std::variant<HelloRequest, MappedRequest, RegisterRegionRequest, BindTensorRequest,
                             OpenSequenceRequest, CloseSequenceRequest, AbortSequenceRequest>;
using Reply = std::variant<HelloReply, RegionReply, SequenceReply, OkReply, ErrorReply>;

// ---- encoding and decoding ----------------------------------------------------------------------

// Which program reads the message: says whom to upgrade when the versions do not match.
enum class ControlReader { kLibrary, kDaemon };

// A message ready for UnixConnection::Send. INVALID_ARGUMENT (with the field) if a string or an
// array is over its bound, so that what leaves can always be read.
absl::StatusOr<std::vector<uint8_t>> EncodeRequest(const Request& request, uint32_t request_id);
absl::StatusOr<std::vector<uint8_t>> EncodeReply(const Reply& reply, uint32_t request_id);

// Checks magic, version, type and sizes against the message as received. The daemon decodes the
// header first, so that it can answer a bad body under its request_id.
absl::StatusOr<ControlHeader> DecodeHeader(std::span<const uint8_t> message, ControlReader reader);

// REQUIRES: `header` came from DecodeHeader of the same message.
absl::StatusOr<Request> DecodeRequest(const ControlHeader& header,
                                      std::span<const uint8_t> message);
absl::StatusOr<Reply> DecodeReply(const ControlHeader& header, std::span<const uint8_t> message);

// A status as a reply (texts over the bound are cut), and back.
ErrorReply MakeErrorReply(const absl::Status& status);
absl::Status StatusFromReply(const ErrorReply& reply);

}  // namespace specd
