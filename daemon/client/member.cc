#include "daemon/client/member.h"

#include <fmt/format.h>
#include <unistd.h>

#include <limits>
#include <utility>

#include "daemon/base/version.h"
#include "daemon/client/bind_request.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

absl::Status Gone() {
  return MakeError(SPECD_ERROR_DISCONNECTED, "",
                   "the session that this rank has joined has ended, or its daemon has; nothing is "
                   "written to its memory any more. Join the engine's new session with the token "
                   "of that one");
}

// The daemon checks the rest, whose limits only it knows.
absl::Status CheckTensor(const specd_tensor& tensor) {
  if (tensor.region != 0) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "region",
                     fmt::format("region = {} must be 0: the call says where the tensor of a rank "
                                 "lies",
                                 tensor.region));
  }
  if (tensor.num_rows == 0 || tensor.num_rows > std::numeric_limits<int32_t>::max()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "num_rows",
                     fmt::format("num_rows = {} is outside 1 .. 2^31 - 1; bind a row for each "
                                 "slot, as many as rank 0's max_sequences",
                                 tensor.num_rows));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Member>> Member::Join(const std::string& uri,
                                                     const std::string& token,
                                                     const specd_join_options& options) {
  if (absl::Status status = CheckTimeout("timeout_ms", options.timeout_ms, 1); !status.ok()) {
    return status;
  }
  if (options.reserved != 0) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "reserved", "reserved must be 0");
  }
  if (!uri.starts_with("unix:")) {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "uri",
        fmt::format("uri = \"{}\" is not unix:/path/to/socket: a rank joins the session "
                    "of a daemon. Embedded engines bind SPECD_NEXT_TOKEN + 1 .. 7 to "
                    "memory of their own process",
                    uri));
  }
  absl::StatusOr<std::unique_ptr<EngineLink>> link =
      MakeEngineLink(uri, {.timeout = absl::Milliseconds(options.timeout_ms)});
  if (!link.ok()) return link.status();
  const JoinRequest request{options.name == nullptr ? "rank" : options.name, kVersion,
                            static_cast<uint32_t>(getpid()), token, options.rank};
  const absl::Status joined = Expect<JoinReply>((*link)->Call(request, -1, nullptr)).status();
  if (!joined.ok()) return joined;
  return std::unique_ptr<Member>(new Member(*std::move(link), options.rank));
}

absl::StatusOr<Reply> Member::Call(const Request& request, int fd) {
  absl::StatusOr<Reply> reply = link_->Call(request, fd, nullptr);
  if (!reply.ok() && link_->HungUp()) return Gone();
  return reply;
}

absl::Status Member::Bind(uint32_t role, const RegionReply& region, const specd_tensor& tensor,
                          uint64_t skip_bytes) {
  specd_tensor bound_tensor = tensor;
  bound_tensor.region = region.region;
  const absl::StatusOr<BindTensorRequest> request =
      MakeBindRequest(role + rank_, bound_tensor, skip_bytes);
  const absl::Status bound =
      request.ok() ? ExplainSkip(Expect<OkReply>(Call(*request, -1)).status(), skip_bytes)
                   : request.status();
  uint32_t unused = region.region;
  bool is_unused = true;
  if (bound.ok()) {
    const auto [at, is_first] = regions_.try_emplace(role, region.region);
    is_unused = !is_first;
    std::swap(at->second, unused);
  }
  // The reply to this request does not matter: memory that is not bound is never written. The
  // binding alone is the answer.
  if (is_unused) (void)Call(UnregisterRegionRequest{unused}, -1);
  return bound;
}

absl::Status Member::BindDevice(uint32_t role, uint64_t address, uint64_t size_bytes,
                                const specd_tensor& tensor) {
  if (absl::Status status = CheckTensor(tensor); !status.ok()) return status;
  if (absl::Status status = Check(); !status.ok()) return status;
  const auto registered = link_->RegisterDevice(address, size_bytes);
  if (!registered.ok()) return link_->HungUp() ? Gone() : registered.status();
  return Bind(role, RegionReply{registered->region}, tensor, registered->skip_bytes);
}

absl::Status Member::BindFd(uint32_t role, int fd, uint64_t size_bytes,
                            const specd_tensor& tensor) {
  if (absl::Status status = CheckTensor(tensor); !status.ok()) return status;
  if (fd < 0) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "fd",
                     fmt::format("fd = {} is no descriptor", fd));
  }
  const absl::StatusOr<RegionReply> reply =
      Expect<RegionReply>(Call(RegisterRegionRequest{size_bytes}, fd));
  if (!reply.ok()) return reply.status();
  return Bind(role, *reply, tensor, 0);
}

absl::Status Member::Check() const {
  if (link_->HungUp()) return Gone();
  if (!link_->PeerGone()) return absl::OkStatus();
  return MakeError(SPECD_ERROR_DISCONNECTED, "timeout_ms",
                   "an earlier call was given up when timeout_ms had passed; leave, which says "
                   "whether the memory is free, and join again");
}

}  // namespace specd
