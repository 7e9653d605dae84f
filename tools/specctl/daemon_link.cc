#include "tools/specctl/daemon_link.h"

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "ipc/base/unique_fd.h"
#include "ipc/sockets/unix_socket.h"

namespace specd::ctl {
namespace {

// The daemon takes up to four seconds for a trace.
constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

absl::StatusOr<Reply> Exchange(const std::string& socket_path, const Request& request) {
  absl::StatusOr<UnixConnection> connection = UnixConnection::Connect(socket_path, kPatience);
  if (!connection.ok()) return connection.status();
  const absl::StatusOr<std::vector<uint8_t>> message = EncodeRequest(request, 1);
  if (!message.ok()) return message.status();
  if (absl::Status s = connection->Send(*message, {}, kPatience); !s.ok()) return s;
  std::vector<uint8_t> buffer(kControlBytesMax);
  std::vector<UniqueFd> fds;
  const absl::StatusOr<Received> received = connection->Receive(buffer, &fds, kPatience);
  if (!received.ok()) return received.status();
  if (received->result == ReceiveResult::kHangup) {
    return MakeError(SPECD_ERROR_DISCONNECTED, "", "the daemon hung up; look into its log");
  }
  if (received->result == ReceiveResult::kTimeout) {
    return MakeError(
        SPECD_ERROR_TIMEOUT, "",
        fmt::format("the daemon did not answer within {}", absl::FormatDuration(kPatience)));
  }
  const std::span<const uint8_t> bytes(buffer.data(), received->size_bytes);
  const absl::StatusOr<ControlHeader> header = DecodeHeader(bytes, ControlReader::kLibrary);
  if (!header.ok()) return header.status();
  absl::StatusOr<Reply> reply = DecodeReply(*header, bytes);
  if (!reply.ok()) return reply.status();
  if (const auto* const error = std::get_if<ErrorReply>(&*reply)) return StatusFromReply(*error);
  return reply;
}

}  // namespace specd::ctl
