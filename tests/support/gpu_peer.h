// GpuPeer starts another process with a GPU of its own for tests that need two, and sends it
// requests.
//
// PeerRequest and PeerReply are the messages between the processes. In tests the program is
// gpu_peer_main.cc, whose GPU is a fake one. The peer is a real process, made with fork and exec,
// and dies when its socket closes. A GpuPeer belongs to one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/base/unique_fd.h"
#include "kernels/core/gpu_context.h"
#include "tests/support/peer_kernels.h"

namespace specd {

enum class PeerOp : uint32_t {
  kAllocate,  // kind, size_bytes, piece_bytes -> address
  kFree,      // address
  kExport,    // address, kind -> handle, address and size_bytes of the allocation, buffer_id, + fd
  kFill,      // address, size_bytes, value
  kRead,      // address -> value: the word there
  kImport,    // kind, handle, size_bytes, + fd -> address, size_bytes
  kWords,     // + fd: a page of words, registered
  kStore,     // word, value: a plain store
  kWriteValue,       // word, value: on its CUDA stream
  kWaitValue,        // word, value: on its CUDA stream
  kQuery,            // its CUDA stream
  kLoadKernel,       // launch.kernel
  kLaunch,           // launch, word: the first of its words; value: 1 on a second CUDA stream
  kCountViolations,  // -> value
  // Operations of an engine; the code is a SPECD_ERROR_*.
  kAttach,      // path of the daemon's socket
  kRegister,    // address, size_bytes -> value: the region
  kUnregister,  // value
  // Operations of an engine over libspecd (peer_engine.h), with the rows of ScriptEngine; the code
  // is a SPECD_ERROR_*.
  kOpenEngine,  // path: the uri, value: stream_timeout_ms, 0 for the default
  kCloseEngine,
  kFillRows,          // address, value: whether they are target rows
  kImportDevice,      // address, size_bytes -> value: the region, address
  kUnregisterRegion,  // value
  kBind,              // word: the role, value: the region, address: the offset, size_bytes: rows
  kOpenSequence,  // value: the seed, word: 1 for a greedy one -> value: the sequence, address: its
                  // slot
  kRound,         // value: the sequence, word: the first row -> tokens, size_bytes of them
  // Enqueues a forward, a round and the engine's use of its answer on a CUDA stream; address: the
  // sequence's next token. kFillRows has filled the target rows.
  kSubmitOnStream,  // value: the sequence, word: the first row, address
  kHoldStream,      // work enqueued from now on never runs
  kAwaitStream,     // -> value: rounds that the CUDA stream has passed
  kSeen,  // word: the round's index -> value: the next token seen after it, size_bytes: answered
  kPoll,  // -> value: the result's status; tokens, size_bytes of them
  kGetGroup,  // -> handle: the token's text, value: bound_ranks
  // Operations of a rank of another process's engine (peer_member.h); the code is a SPECD_ERROR_*.
  kJoin,        // path: the uri, handle: the token's text, word: the rank
  kBindMember,  // address, size_bytes: rows of next tokens
  kBindOutput,  // address, size_bytes from there on, word: the role, value: rows of int32
  kCheckMember,
  kLeave,
};

struct PeerRequest {
  PeerOp op = PeerOp::kAllocate;
  GpuMemoryKind kind = GpuMemoryKind::kIpc;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t piece_bytes = 0;  // kVmm: of each piece; the last piece has the rest; 0: one piece
  uint64_t word = 0;         // its number on the page
  uint64_t value = 0;
  GpuHandle handle = {};
  PeerLaunch launch = {};
  char path[108] = {};
};

struct PeerReply {
  int32_t code = 0;  // a GpuCode
  int32_t pid = 0;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t buffer_id = 0;
  uint64_t value = 0;
  GpuHandle handle = {};
  int32_t tokens[4] = {};
};

// A message of a fixed size, and at most one descriptor. False if the other side has gone.
bool SendToPeer(int socket, const void* bytes, size_t size_bytes, int fd);
bool ReceiveFromPeer(int socket, void* bytes, size_t size_bytes, UniqueFd* fd);

// NAME=VALUE entries, which precede this process's environment.
using PeerEnvironment = std::vector<std::string>;

class GpuPeer {
 public:
  // Starts a program that answers requests on its standard input.
  GpuPeer(const std::string& program, const std::vector<std::string>& arguments,
          const PeerEnvironment& environment = {});
  // Starts gpu_peer_main.cc, whose device is `device_index` of FakeGpuOptions.
  explicit GpuPeer(size_t device_index = 0, const PeerEnvironment& environment = {});
  ~GpuPeer();
  GpuPeer(const GpuPeer&) = delete;
  GpuPeer& operator=(const GpuPeer&) = delete;

  // `fd` goes with the request. A descriptor that comes with the reply is put into *reply_fd.
  PeerReply Call(const PeerRequest& request, int fd = -1, UniqueFd* reply_fd = nullptr);
  // False if the program has ended instead.
  bool TryCall(const PeerRequest& request, PeerReply* reply, int fd = -1,
               UniqueFd* reply_fd = nullptr);
  // Kills the peer with SIGKILL, and returns when it is gone.
  void Kill();
  pid_t pid() const { return pid_; }

 private:
  UniqueFd socket_;
  pid_t pid_ = -1;
};

}  // namespace specd
