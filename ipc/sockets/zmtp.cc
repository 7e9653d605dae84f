#include "ipc/sockets/zmtp.h"

#include <fmt/format.h>

#include <cstdint>

#include "absl/strings/match.h"

namespace specd {
namespace {

constexpr size_t kGreetingBytes = 64;
constexpr size_t kMajorAt = 10;
constexpr size_t kMechanismAt = 12;
constexpr size_t kMechanismBytes = 20;
constexpr uint8_t kMore = 1;
constexpr uint8_t kLong = 2;
constexpr uint8_t kCommand = 4;
constexpr size_t kPingTtlBytes = 2;

uint8_t ByteAt(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

// A number of kSize bytes, the most significant one first.
template <size_t kSize>
uint64_t NumberAt(std::string_view bytes, size_t at) {
  uint64_t number = 0;
  for (size_t i = 0; i < kSize; ++i) number = number << 8 | ByteAt(bytes, at + i);
  return number;
}

void AppendFrame(uint8_t flags, std::string_view body, std::string* out) {
  if (body.size() <= UINT8_MAX) {
    out->push_back(static_cast<char>(flags));
    out->push_back(static_cast<char>(body.size()));
  } else {
    out->push_back(static_cast<char>(flags | kLong));
    for (int shift = 56; shift >= 0; shift -= 8) {
      out->push_back(static_cast<char>(uint64_t{body.size()} >> shift));
    }
  }
  out->append(body);
}

std::string Mechanism() {
  std::string name = "NULL";
  name.resize(kMechanismBytes, '\0');
  return name;
}

// What a role says it is, and what its peers must be.
struct RoleRules {
  std::string_view type;
  std::string_view peer;
  std::string_view other_peer;
};
RoleRules RulesOf(ZmtpRole role) {
  switch (role) {
    case ZmtpRole::kPublisher:
      return {"PUB", "SUB", "XSUB"};
    case ZmtpRole::kPuller:
      return {"PULL", "PUSH", "PUSH"};
    case ZmtpRole::kReplier:
      return {"REP", "REQ", "DEALER"};
  }
  return {};
}

absl::Status Refused(std::string_view why) { return absl::InvalidArgumentError(std::string(why)); }

}  // namespace

std::string ZmtpHello(ZmtpRole role) {
  std::string out = "\xff";
  out.append(8, '\0');
  out += "\x7f\x03\x01";
  out += Mechanism();
  out.resize(kGreetingBytes, '\0');
  const std::string_view type = RulesOf(role).type;
  std::string ready = "\x05READY\x0bSocket-Type";
  ready.append({'\0', '\0', '\0', static_cast<char>(type.size())});
  ready += type;
  AppendFrame(kCommand, ready, &out);
  return out;
}

std::string ZmtpMessage(std::string_view topic, std::string_view payload) {
  constexpr size_t kHeadersBytesMax = 18;
  std::string out;
  out.reserve(topic.size() + payload.size() + kHeadersBytesMax);
  AppendFrame(kMore, topic, &out);
  AppendFrame(0, payload, &out);
  return out;
}

std::string ZmtpPong(std::string_view ping_body) {
  std::string body = "\x04PONG";
  if (ping_body.size() > kPingTtlBytes) body += ping_body.substr(kPingTtlBytes);
  std::string out;
  AppendFrame(kCommand, body, &out);
  return out;
}

absl::Status ZmtpReader::Read(std::string_view bytes, Take take) {
  kept_ += bytes;
  std::string_view rest = kept_;
  absl::Status status;
  if (!greeted_) status = TakeGreeting(&rest);
  bool complete = greeted_;
  while (status.ok() && complete) status = TakeFrame(&rest, &complete, take);
  kept_.erase(0, kept_.size() - rest.size());
  return status;
}

// Each part is looked at as soon as it is there: an older peer waits for an answer after ten bytes.
absl::Status ZmtpReader::TakeGreeting(std::string_view* rest) {
  if (!rest->empty() && ByteAt(*rest, 0) != 0xff) return Refused("its greeting is not ZMTP 3's");
  if (rest->size() > kMajorAt && ByteAt(*rest, kMajorAt) < 3) {
    return Refused("it speaks ZMTP 2, and 3 is needed (libzmq 4)");
  }
  if (rest->size() < kGreetingBytes) return absl::OkStatus();
  if (rest->substr(kMechanismAt, kMechanismBytes) != Mechanism()) {
    return Refused("its mechanism is not NULL");
  }
  rest->remove_prefix(kGreetingBytes);
  greeted_ = true;
  return absl::OkStatus();
}

absl::Status ZmtpReader::TakeFrame(std::string_view* rest, bool* complete, Take take) {
  *complete = false;
  if (rest->empty()) return absl::OkStatus();
  const uint8_t flags = ByteAt(*rest, 0);
  if ((flags & ~(kMore | kLong | kCommand)) != 0) return Refused("a frame has unknown flags");
  const bool more = (flags & kMore) != 0;
  if (more && (role_ == ZmtpRole::kPublisher || has_topic_ || (flags & kCommand) != 0)) {
    return Refused(role_ == ZmtpRole::kPublisher ? "it sends a message of several frames"
                                                 : "it sends a message of more than two frames");
  }
  const size_t header = (flags & kLong) != 0 ? 9 : 2;
  if (rest->size() < header) return absl::OkStatus();
  const uint64_t size = header == 9 ? NumberAt<8>(*rest, 1) : ByteAt(*rest, 1);
  if (size > kZmtpFrameBytesMax) {
    return Refused(fmt::format("it sends a frame of {} bytes, and a peer's has at most {}", size,
                               kZmtpFrameBytesMax));
  }
  if (rest->size() < header + size) return absl::OkStatus();
  const std::string_view body = rest->substr(header, size);
  rest->remove_prefix(header + size);
  *complete = true;
  if ((flags & kCommand) != 0) return TakeCommand(body, take);
  return TakeMessageFrame(more, body, take);
}

absl::Status ZmtpReader::TakeMessageFrame(bool more, std::string_view body, Take take) {
  if (!ready_) return Refused("it sends a message before READY");
  if (role_ != ZmtpRole::kPublisher) {
    if (role_ == ZmtpRole::kReplier && !has_topic_ && !body.empty()) {
      return Refused("the first frame of its request is not empty");
    }
    if (!more && !has_topic_) return Refused("it sends a message of one frame, and two are needed");
    take(has_topic_ ? ZmtpInput::kPayload : ZmtpInput::kTopic, body);
    has_topic_ = more;
    return absl::OkStatus();
  }
  if (body.starts_with('\1')) take(ZmtpInput::kSubscribe, body.substr(1));
  if (body.starts_with('\0')) take(ZmtpInput::kCancel, body.substr(1));
  return absl::OkStatus();
}

absl::Status ZmtpReader::TakeCommand(std::string_view body, Take take) {
  if (body.empty() || body.size() < 1u + ByteAt(body, 0)) return Refused("a command has no name");
  const std::string_view name = body.substr(1, ByteAt(body, 0));
  const std::string_view rest = body.substr(1 + name.size());
  if (!ready_) {
    if (name == "READY") return TakeReady(rest, take);
    return Refused("its first command is not READY");
  }
  if (name == "SUBSCRIBE") take(ZmtpInput::kSubscribe, rest);
  if (name == "CANCEL") take(ZmtpInput::kCancel, rest);
  if (name == "PING") take(ZmtpInput::kPing, rest);
  return absl::OkStatus();
}

absl::Status ZmtpReader::TakeReady(std::string_view properties, Take take) {
  while (!properties.empty()) {
    const size_t name_bytes = ByteAt(properties, 0);
    if (properties.size() < 1 + name_bytes + 4) return Refused("READY is cut short");
    const std::string_view name = properties.substr(1, name_bytes);
    const uint64_t size = NumberAt<4>(properties, 1 + name_bytes);
    properties.remove_prefix(1 + name_bytes + 4);
    if (properties.size() < size) return Refused("READY is cut short");
    const std::string_view value = properties.substr(0, size);
    properties.remove_prefix(size);
    if (!absl::EqualsIgnoreCase({name.data(), name.size()}, "Socket-Type")) continue;
    const RoleRules rules = RulesOf(role_);
    if (value != rules.peer && value != rules.other_peer) {
      return Refused(fmt::format("it is no {} socket", rules.peer));
    }
    ready_ = true;
  }
  if (!ready_) return Refused("READY names no socket type");
  take(ZmtpInput::kReady, {});
  return absl::OkStatus();
}

}  // namespace specd
