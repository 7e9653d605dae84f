#include "ipc/control/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ipc/base/error.h"
#include "ipc/base/msgpack_codec.h"
#include "ipc/base/protocol_version.h"
#include "ipc/base/valid_text.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"
#include "kernels/core/gpu_context.h"

namespace specd {
namespace {

// The header on the wire. All supported machines are little-endian (ipc/segment/layout.h).
struct WireHeader {
  uint32_t magic;
  uint16_t version;  // kProtocolVersion
  uint16_t type;
  uint32_t body_bytes;
  uint32_t request_id;
  uint32_t num_fds;
  uint32_t reserved;  // 0
};
static_assert(sizeof(WireHeader) == kControlHeaderBytes);

constexpr bool FdsFit(ControlType type, uint32_t num_fds) {
  if (type == ControlType::kOpenSequence) return num_fds <= 1;
  if (type == ControlType::kRegisterDeviceRegion) return num_fds <= kMessageFdsMax;
  return num_fds == (type == ControlType::kRegisterRegion || type == ControlType::kHelloReply ||
                     type == ControlType::kOpenSequences);
}

// Descriptors that travel with a message.
template <class Message>
uint32_t FdsOf(const Message&) {
  return FdsFit(Message::kType, 1) ? 1 : 0;
}
uint32_t FdsOf(const OpenSequenceRequest& request) { return request.has_file() ? 1 : 0; }
uint32_t FdsOf(const RegisterDeviceRegionRequest& request) {
  if (request.spec.kind == static_cast<uint32_t>(GpuMemoryKind::kIpc)) return 0;
  if (request.spec.kind == static_cast<uint32_t>(GpuMemoryKind::kPool)) return 1;
  return static_cast<uint32_t>(request.spec.piece_bytes.size());
}

struct NamedType {
  ControlType type;
  const char* name;
};
constexpr NamedType kNames[] = {
    {ControlType::kHello, "Hello"},
    {ControlType::kMapped, "Mapped"},
    {ControlType::kRegisterRegion, "RegisterRegion"},
    {ControlType::kBindTensor, "BindTensor"},
    {ControlType::kOpenSequence, "OpenSequence"},
    {ControlType::kCloseSequence, "CloseSequence"},
    {ControlType::kAbortSequence, "AbortSequence"},
    {ControlType::kForkSequence, "ForkSequence"},
    {ControlType::kGetStats, "GetStats"},
    {ControlType::kRegisterDeviceRegion, "RegisterDeviceRegion"},
    {ControlType::kUnregisterRegion, "UnregisterRegion"},
    {ControlType::kGetGroup, "GetGroup"},
    {ControlType::kJoin, "Join"},
    {ControlType::kDumpTrace, "DumpTrace"},
    {ControlType::kOpenSequences, "OpenSequences"},
    {ControlType::kGiveUp, "GiveUp"},
    {ControlType::kGetOpening, "GetOpening"},
    {ControlType::kListSequences, "ListSequences"},
    {ControlType::kAbortStreams, "AbortStreams"},
    {ControlType::kDrain, "Drain"},
    {ControlType::kDumpSession, "DumpSession"},
    {ControlType::kListSessions, "ListSessions"},
    {ControlType::kHelloReply, "HelloReply"},
    {ControlType::kRegionReply, "RegionReply"},
    {ControlType::kSequenceReply, "SequenceReply"},
    {ControlType::kOkReply, "OkReply"},
    {ControlType::kErrorReply, "ErrorReply"},
    {ControlType::kStatsReply, "StatsReply"},
    {ControlType::kGroupReply, "GroupReply"},
    {ControlType::kJoinReply, "JoinReply"},
    {ControlType::kTraceReply, "TraceReply"},
    {ControlType::kSequencesReply, "SequencesReply"},
    {ControlType::kSequenceListReply, "SequenceListReply"},
    {ControlType::kAbortedReply, "AbortedReply"},
    {ControlType::kDrainReply, "DrainReply"},
    {ControlType::kSessionTraceReply, "SessionTraceReply"},
    {ControlType::kSessionListReply, "SessionListReply"},
};

// Null: there is no such type.
const char* NameOf(ControlType type) {
  for (const NamedType& named : kNames) {
    if (named.type == type) return named.name;
  }
  return nullptr;
}

// ---- fields: visitors for the Fields() functions ------------------------------------------------

template <class T>
bool IsSet(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value != 0;
  } else {
    return !value.empty();
  }
}

struct CountFields {
  size_t count = 0;
  template <class T>
  void operator()(const char*, const T&, size_t = 0) {
    ++count;
  }
  template <class T>
  void operator()(OptionalKey, const T& value, size_t = 0) {
    count += IsSet(value) ? 1 : 0;
  }
};

struct WriteFields {
  MapWriter* writer;
  absl::Status* status;

  template <class T>
  void operator()(const char* key, const T& value, size_t max = 0) {
    if constexpr (!std::is_arithmetic_v<T>) {
      if (value.size() > max && status->ok()) {
        *status =
            Invalid(key, fmt::format("{} has {} {}, at most {} are allowed", key, value.size(),
                                     std::is_same_v<T, std::string> ? "bytes" : "elements", max));
      }
    }
    writer->Field(key, value);
  }
  template <class T>
  void operator()(OptionalKey key, const T& value, size_t max = 0) {
    if (IsSet(value)) (*this)(key.name, value, max);
  }
};

struct ReadFields {
  MapReader* reader;

  template <class T>
  void operator()(const char* key, T& value, size_t max = 0) {
    if constexpr (std::is_arithmetic_v<T>) {
      reader->Read(key, &value);
    } else {
      reader->Read(key, &value, max);
    }
  }
  template <class T>
  void operator()(OptionalKey key, T& value, size_t max = 0) {
    if (reader->Has(key.name)) (*this)(key.name, value, max);
  }
};

// ---- both directions ----------------------------------------------------------------------------

// Room for an OpenSequence with few parameters, the longest of the frequent messages: ESTIMATE
constexpr size_t kUsualBodyBytes = 256;

template <class Message>
absl::StatusOr<std::vector<uint8_t>> Encode(const Message& message, uint32_t request_id) {
  std::string body;
  body.reserve(kUsualBodyBytes);
  MapWriter writer(&body);
  CountFields counter;
  Message::Fields(message, counter);
  writer.BeginMap(counter.count);
  absl::Status status;
  WriteFields write{&writer, &status};
  Message::Fields(message, write);
  if (!status.ok()) return status;
  if (body.size() > kControlBytesMax - kControlHeaderBytes) {
    return Invalid("message", fmt::format("{} has {} bytes, at most {} are allowed; send shorter "
                                          "strings",
                                          NameOf(Message::kType), body.size(),
                                          kControlBytesMax - kControlHeaderBytes));
  }
  const WireHeader header = {.magic = kControlMagic,
                             .version = kProtocolVersion,
                             .type = static_cast<uint16_t>(Message::kType),
                             .body_bytes = static_cast<uint32_t>(body.size()),
                             .request_id = request_id,
                             .num_fds = FdsOf(message),
                             .reserved = 0};
  std::vector<uint8_t> bytes(sizeof(header) + body.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), body.data(), body.size());
  return bytes;
}

// Decodes into the alternative of `Variant` that has the header's type.
template <class Variant, size_t kIndex = 0>
absl::Status DecodeInto(ControlType type, const msgpack::object& map, Variant* out) {
  if constexpr (kIndex == std::variant_size_v<Variant>) {
    return Invalid("type", fmt::format("type = {} ({}) travels in the other direction",
                                       static_cast<int>(type), NameOf(type)));
  } else {
    using Message = std::variant_alternative_t<kIndex, Variant>;
    if (type != Message::kType) return DecodeInto<Variant, kIndex + 1>(type, map, out);
    MapReader reader(map, NameOf(Message::kType));
    ReadFields read{&reader};
    Message::Fields(out->template emplace<Message>(), read);
    reader.RefuseOthers();
    return reader.status();
  }
}

template <class Variant>
absl::StatusOr<Variant> Decode(const ControlHeader& header, std::span<const uint8_t> message) {
  SPECD_CHECK(message.size() == kControlHeaderBytes + header.body_bytes);
  msgpack::object_handle body;
  const std::string_view bytes(reinterpret_cast<const char*>(message.data()) + kControlHeaderBytes,
                               header.body_bytes);
  if (absl::Status status = ParseMap(bytes, &body); !status.ok()) return status;
  absl::StatusOr<Variant> decoded{Variant()};
  if (absl::Status status = DecodeInto(header.type, body.get(), &*decoded); !status.ok()) {
    return status;
  }
  return decoded;
}

// A warning may quote a key of a schema, and a key may have any characters.
std::string MakeLine(std::string_view text) {
  std::string line = ValidText(text);
  if (line.size() > kReplyWarningBytesMax)
    line = ValidText(line, kReplyWarningBytesMax - 3) + "...";
  for (char& byte : line) {
    if (static_cast<uint8_t>(byte) < 0x20 || byte == 0x7f) byte = ' ';
  }
  return line;
}

absl::Status VersionError(const WireHeader& wire, ControlReader reader) {
  const bool is_daemon = reader == ControlReader::kDaemon;
  const char* mine = is_daemon ? "daemon" : "library";
  const char* theirs = is_daemon ? "library" : "daemon";
  return MakeError(SPECD_ERROR_VERSION, "version",
                   fmt::format("the {} speaks protocol version {}, the {} {}; upgrade the {}",
                               theirs, wire.version, mine, kProtocolVersion,
                               wire.version > kProtocolVersion ? mine : theirs));
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> EncodeRequest(const Request& request, uint32_t request_id) {
  return std::visit([request_id](const auto& message) { return Encode(message, request_id); },
                    request);
}

absl::StatusOr<std::vector<uint8_t>> EncodeReply(const Reply& reply, uint32_t request_id) {
  return std::visit([request_id](const auto& message) { return Encode(message, request_id); },
                    reply);
}

absl::StatusOr<ControlHeader> DecodeHeader(std::span<const uint8_t> message, ControlReader reader) {
  if (message.size() < kControlHeaderBytes || message.size() > kControlBytesMax) {
    return Invalid("message", fmt::format("a message has {} bytes, allowed are {}..{}",
                                          message.size(), kControlHeaderBytes, kControlBytesMax));
  }
  WireHeader wire;
  std::memcpy(&wire, message.data(), sizeof(wire));
  if (wire.magic != kControlMagic) {
    return Invalid("magic", fmt::format("magic = {:#010x} instead of {:#010x}: the peer does not "
                                        "speak specd's protocol",
                                        wire.magic, kControlMagic));
  }
  if (wire.version != kProtocolVersion) return VersionError(wire, reader);
  const auto type = static_cast<ControlType>(wire.type);
  if (NameOf(type) == nullptr) {
    return Invalid("type",
                   fmt::format("type = {} is unknown in version {}", wire.type, kProtocolVersion));
  }
  if (wire.body_bytes != message.size() - kControlHeaderBytes) {
    return Invalid("body_bytes",
                   fmt::format("body_bytes = {} but {} bytes follow the header", wire.body_bytes,
                               message.size() - kControlHeaderBytes));
  }
  if (!FdsFit(type, wire.num_fds)) {
    return Invalid("num_fds",
                   fmt::format("num_fds = {} descriptors do not travel with {}; docs/PROTOCOL.md "
                               "says how many do",
                               wire.num_fds, NameOf(type)));
  }
  if (wire.reserved != 0) {
    return Invalid("reserved", fmt::format("reserved = {} must be 0", wire.reserved));
  }
  return ControlHeader{.type = type,
                       .request_id = wire.request_id,
                       .body_bytes = wire.body_bytes,
                       .num_fds = wire.num_fds};
}

size_t FirstMessageBytes(std::span<const uint8_t> bytes) {
  WireHeader wire;
  if (bytes.size() < sizeof(wire)) return bytes.size();
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  return std::min(sizeof(wire) + wire.body_bytes, bytes.size());
}

absl::StatusOr<Request> DecodeRequest(const ControlHeader& header,
                                      std::span<const uint8_t> message) {
  return Decode<Request>(header, message);
}

absl::StatusOr<Reply> DecodeReply(const ControlHeader& header, std::span<const uint8_t> message) {
  return Decode<Reply>(header, message);
}

ErrorReply MakeErrorReply(const absl::Status& status) {
  const std::string_view text(status.message().data(), status.message().size());
  return {ErrorCodeOf(status), ValidText(ErrorFieldOf(status), 64), ValidText(text, 2048)};
}

absl::Status StatusFromReply(const ErrorReply& reply) {
  return MakeError(reply.code, reply.field, reply.text);
}

std::vector<std::string> MakeReplyWarnings(std::span<const std::string> warnings) {
  const bool fits = warnings.size() <= kReplyWarningsMax;
  const size_t num_kept = fits ? warnings.size() : kReplyWarningsMax - 1;
  std::vector<std::string> lines;
  for (const std::string& warning : warnings.first(num_kept)) lines.push_back(MakeLine(warning));
  if (!fits) lines.push_back(fmt::format("... and {} more warnings", warnings.size() - num_kept));
  return lines;
}

}  // namespace specd
