// The control messages hold what an engine and the daemon exchange over the unix socket, one struct
// for each message.
//
// Plain data, each with the list of its fields. ipc/control/control.h turns a message into bytes
// and back. The code that uses a value checks its meaning. docs/PROTOCOL.md lists every message.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ipc/base/limits.h"
#include "ipc/base/memory_specs.h"
#include "ipc/control/control_type.h"
#include "ipc/control/open_sequence_request.h"
#include "ipc/control/openings_messages.h"
#include "ipc/control/operator_messages.h"
#include "ipc/sockets/unix_socket.h"
#include "kernels/core/counters.h"

namespace specd {

// ---- requests: engine to daemon -----------------------------------------------------------------
// Fields() names every field once; encoder, decoder and tests all use it. The last argument bounds
// strings (in bytes) and arrays (in elements).

struct HelloRequest {
  static constexpr ControlType kType = ControlType::kHello;
  std::string name;     // in logs and specctl
  std::string version;  // the library's version
  uint32_t pid = 0;
  SessionLimits limits;
  std::string profile = {};     // the name of a model of the daemon; empty: the one without a name
  uint64_t tokenizer_hash = 0;  // of the engine's tokenizer; 0: the engine names none
  // The engine goes on with its sequences at the next daemon, so this one's end does not end them.
  bool resumes = false;
  // Of an engine that has come from another daemon: the owner of its handles, and the highest
  // generation among them. 0: the daemon draws an owner, and generations begin at 1.
  uint32_t owner = 0;
  uint32_t generation = 0;
  // The token that the engine had there (GroupReply), with which its ranks join again; empty: none.
  std::string join_token = {};

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
    f("max_path", self.limits.max_path);
    f("profile", self.profile, 64);
    f("tokenizer_hash", self.tokenizer_hash);
    f("resumes", self.resumes);
    f("owner", self.owner);
    f("generation", self.generation);
    f(OptionalKey{"join_token"}, self.join_token, 64);
  }
};

// Says that the engine has mapped the segment. The daemon may then seal it.
struct MappedRequest {
  static constexpr ControlType kType = ControlType::kMapped;
  template <class Self, class F>
  static void Fields(Self&, F&&) {}
};

// Travels with one descriptor.
struct RegisterRegionRequest {
  static constexpr ControlType kType = ControlType::kRegisterRegion;
  uint64_t size_bytes = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("size_bytes", self.size_bytes);
  }
};

// Travels with a descriptor for each piece, or one descriptor of a pool, or none for a CUDA IPC
// handle.
struct RegisterDeviceRegionRequest {
  static constexpr ControlType kType = ControlType::kRegisterDeviceRegion;
  DeviceRegionSpec spec = {};

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("kind", self.spec.kind);
    f("device_uuid", self.spec.device_uuid, 64);
    f("handle", self.spec.handle, 256);
    f("base_bytes", self.spec.base_bytes);
    f("offset_bytes", self.spec.offset_bytes);
    f("size_bytes", self.spec.size_bytes);
    f("buffer_id", self.spec.buffer_id);
    f("export_pid", self.spec.export_pid);
    f("piece_bytes", self.spec.piece_bytes, kMessageFdsMax);
  }
};

// The reply says that the memory is no longer mapped. The engine may then free it.
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
  TensorSpec spec = {};

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("role", self.role);
    f("region", self.region);
    f("dtype", self.spec.dtype);
    f("kind", self.spec.kind);
    f("offset_bytes", self.spec.offset_bytes);
    f("num_rows", self.spec.num_rows);
    f("row_stride", self.spec.row_stride);
    f("scale", self.spec.scale);
    f("cap", self.spec.cap);
    f("renormalise", self.spec.renormalise);
    f("columns", self.spec.columns);
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

// Asks for a copy of a sequence under another name.
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

// Asks for the data that other processes need to join this session: GroupReply.
struct GetGroupRequest {
  static constexpr ControlType kType = ControlType::kGetGroup;
  template <class Self, class F>
  static void Fields(Self&, F&&) {}
};

// Asks for the trace of the session as a file: TraceReply.
struct DumpTraceRequest {
  static constexpr ControlType kType = ControlType::kDumpTrace;
  template <class Self, class F>
  static void Fields(Self&, F&&) {}
};

// Replaces Hello: this connection belongs to a rank of a session that another connection has
// opened.
struct JoinRequest {
  static constexpr ControlType kType = ControlType::kJoin;
  std::string name;     // shown in the daemon's log
  std::string version;  // the library's version
  uint32_t pid = 0;
  std::string token;  // from GroupReply
  uint32_t rank = 0;
  // The rank goes on at the next daemon. While its session is not here, the reply names none.
  bool resumes = false;
  bool rejoins = false;  // the rank has bound slot outputs at another daemon

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("name", self.name, 64);
    f("version", self.version, 64);
    f("pid", self.pid);
    f("token", self.token, 64);
    f("rank", self.rank);
    f(OptionalKey{"resumes"}, self.resumes);
    f(OptionalKey{"rejoins"}, self.rejoins);
  }
};

// ---- replies: daemon to engine ------------------------------------------------------------------

// Travels with one descriptor: the session segment.
struct HelloReply {
  static constexpr ControlType kType = ControlType::kHelloReply;
  uint64_t session_id = 0;
  uint64_t daemon_epoch = 0;
  std::string version;          // the daemon's version
  std::string device;           // where rounds run: "cpu", "cuda:1"
  std::string device_uuid;      // the device whose memory rounds may use; "" if there is none
  std::string tokens_endpoint;  // ZeroMQ; "" if there is none
  std::string text_endpoint;    // ZeroMQ; "" if there is no tokenizer
  std::string mps;              // MPS of the daemon's devices: DescribeMps

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("session_id", self.session_id);
    f("daemon_epoch", self.daemon_epoch);
    f("version", self.version, 64);
    f("device", self.device, 64);
    f("device_uuid", self.device_uuid, 64);
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

// Says that the engine did not wait for the answer to its last request. The sequences and the
// region that the request has made go, because the engine does not know them.
struct GiveUpRequest {
  static constexpr ControlType kType = ControlType::kGiveUp;
  uint32_t given_up = 0;  // the request_id of that request

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("given_up", self.given_up);
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

// The counters of the session, each as a field of its own.
struct StatsReply {
  static constexpr ControlType kType = ControlType::kStatsReply;
  Counters counters;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
#define SPECD_COUNTER(name, metric, meaning) f(#name, self.counters.name);
#include "kernels/core/counter_list.inc"
  }
};

struct GroupReply {
  static constexpr ControlType kType = ControlType::kGroupReply;
  std::string token;         // a process that has it may join: JoinToken
  uint32_t bound_ranks = 0;  // bit k: next tokens of rank k are bound

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("token", self.token, 64);
    f("bound_ranks", self.bound_ranks);
  }
};

struct JoinReply {
  static constexpr ControlType kType = ControlType::kJoinReply;
  uint64_t session_id = 0;  // 0: the session of a rank that resumes is not here yet
  uint64_t daemon_epoch = 0;
  std::string version;         // the daemon's version
  uint32_t max_sequences = 0;  // of the session: each rank has this many ids
  uint32_t uid = 0;            // of the session's engine

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("session_id", self.session_id);
    f("daemon_epoch", self.daemon_epoch);
    f("version", self.version, 64);
    f("max_sequences", self.max_sequences);
    f("uid", self.uid);
  }
};

// The fields are those of specd_trace_dump.
struct TraceReply {
  static constexpr ControlType kType = ControlType::kTraceReply;
  std::string path;  // on the daemon's machine
  uint64_t num_rounds = 0;
  uint64_t num_lost = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("path", self.path, 4096);
    f("num_rounds", self.num_rounds);
    f("num_lost", self.num_lost);
  }
};

using Request =
    std::variant<HelloRequest, MappedRequest, RegisterRegionRequest, BindTensorRequest,
                 OpenSequenceRequest, CloseSequenceRequest, AbortSequenceRequest,
                 ForkSequenceRequest, GetStatsRequest, RegisterDeviceRegionRequest,
                 UnregisterRegionRequest, GetGroupRequest, JoinRequest, DumpTraceRequest,
                 OpenSequencesRequest, GiveUpRequest, GetOpeningRequest, ListSequencesRequest,
                 AbortStreamsRequest, DrainRequest, DumpSessionRequest, ListSessionsRequest>;
using Reply = std::variant<HelloReply, RegionReply, SequenceReply, OkReply, ErrorReply, StatsReply,
                           GroupReply, JoinReply, TraceReply, SequencesReply, SequenceListReply,
                           AbortedReply, DrainReply, SessionTraceReply, SessionListReply>;

}  // namespace specd
