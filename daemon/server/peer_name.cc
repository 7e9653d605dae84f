#include "daemon/server/peer_name.h"

#include <fmt/format.h>

#include <fstream>

#include "daemon/base/logging.h"
#include "ipc/base/valid_text.h"

namespace specd {
namespace {

constexpr size_t kProgramBytesMax = 64;

}  // namespace

std::string ProgramOf(pid_t pid) {
  if (pid <= 0) return {};
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return ValidText(name, kProgramBytesMax);
}

std::string NamePeer(const PeerCredentials& peer, std::string_view name) {
  return fmt::format("\"{}\" (program {}, pid {}, uid {})", Printable(std::string(name)),
                     Printable(ProgramOf(peer.pid)), peer.pid, peer.uid);
}

}  // namespace specd
