#include "daemon/client/member.h"

#include <fmt/format.h>
#include <unistd.h>

#include <limits>
#include <utility>

#include "daemon/base/version.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

absl::Status Gone() {
  return MakeError(SPECD_ERROR_DISCONNECTED, "",
                   "the session that this rank has joined has ended, or its daemon has; nothing is "
                   "written to its memory any more. Join the engine's new session with the token "
                   "of that one");
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

absl::Status Member::Bind(uint32_t region, uint64_t offset_bytes, uint64_t num_rows) {
  BindTensorRequest request;
  request.role = SPECD_NEXT_TOKEN + rank_;
  request.region = region;
  request.offset_bytes = offset_bytes;
  request.num_rows = num_rows;
  const absl::Status bound = Expect<OkReply>(Call(request, -1)).status();
  std::optional<uint32_t> unused = region;
  if (bound.ok()) std::swap(region_, unused);
  // The reply to this request does not matter: memory that is not bound is never written. The
  // binding alone is the answer.
  if (unused.has_value()) (void)Call(UnregisterRegionRequest{*unused}, -1);
  return bound;
}

absl::Status Member::BindDevice(uint64_t address, uint64_t num_rows) {
  if (num_rows == 0 || num_rows > std::numeric_limits<int32_t>::max()) {
    return MakeError(
        SPECD_ERROR_INVALID_ARGUMENT, "num_rows",
        fmt::format("num_rows = {} is outside 1 .. 2^31 - 1; bind an id for each slot, "
                    "as many as rank 0's max_sequences",
                    num_rows));
  }
  if (absl::Status status = Check(); !status.ok()) return status;
  const auto registered = link_->RegisterDevice(address, num_rows * sizeof(int32_t));
  if (!registered.ok()) return link_->HungUp() ? Gone() : registered.status();
  return Bind(registered->region, registered->skip_bytes, num_rows);
}

absl::Status Member::BindFd(int fd, uint64_t size_bytes, uint64_t offset_bytes, uint64_t num_rows) {
  if (fd < 0) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "fd",
                     fmt::format("fd = {} is no descriptor", fd));
  }
  const absl::StatusOr<RegionReply> reply =
      Expect<RegionReply>(Call(RegisterRegionRequest{size_bytes}, fd));
  if (!reply.ok()) return reply.status();
  return Bind(reply->region, offset_bytes, num_rows);
}

absl::Status Member::Check() const {
  if (link_->HungUp()) return Gone();
  if (!link_->PeerGone()) return absl::OkStatus();
  return MakeError(SPECD_ERROR_DISCONNECTED, "timeout_ms",
                   "an earlier call was given up when timeout_ms had passed; leave, which says "
                   "whether the memory is free, and join again");
}

}  // namespace specd
