// UniqueFd owns one file descriptor and closes it.
//
// Use it for every descriptor that this process must close: received descriptors, memfds, sockets.
// Movable, not copyable; not synchronized.
#pragma once

#include <unistd.h>

#include <utility>

namespace specd {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { Reset(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }

  void Reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);  // close() frees the descriptor even if it fails
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace specd
