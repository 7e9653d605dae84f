#include "tests/support/gpu_peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "kernels/core/check.h"

extern char** environ;

namespace specd {

bool SendToPeer(int socket, const void* bytes, size_t size_bytes, int fd) {
  iovec part = {const_cast<void*>(bytes), size_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size_bytes);
}

bool ReceiveFromPeer(int socket, void* bytes, size_t size_bytes, UniqueFd* fd) {
  iovec part = {bytes, size_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(size_bytes)) return false;
  if (const cmsghdr* const header = CMSG_FIRSTHDR(&message); header != nullptr) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof(received));
    UniqueFd owned(received);
    if (fd != nullptr) *fd = std::move(owned);
  }
  return true;
}

namespace {

// Ends with null, as programs take it; the texts are the caller's.
std::vector<char*> PointersTo(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

GpuPeer::GpuPeer(const std::string& program, const std::vector<std::string>& arguments,
                 const PeerEnvironment& environment) {
  int ends[2];
  SPECD_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  socket_.Reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  std::vector<std::string> texts = {program};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  // If two variables have one name, getenv finds the first.
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  const int error = posix_spawn(&pid_, program.c_str(), &actions, nullptr,
                                PointersTo(&texts).data(), PointersTo(&variables).data());
  posix_spawn_file_actions_destroy(&actions);
  SPECD_CHECK(error == 0);
}

GpuPeer::~GpuPeer() { Kill(); }

PeerReply GpuPeer::Call(const PeerRequest& request, int fd, UniqueFd* reply_fd) {
  PeerReply reply;
  SPECD_CHECK(TryCall(request, &reply, fd, reply_fd));
  return reply;
}

bool GpuPeer::TryCall(const PeerRequest& request, PeerReply* reply, int fd, UniqueFd* reply_fd) {
  return SendToPeer(socket_.get(), &request, sizeof(request), fd) &&
         ReceiveFromPeer(socket_.get(), reply, sizeof(*reply), reply_fd);
}

void GpuPeer::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace specd
