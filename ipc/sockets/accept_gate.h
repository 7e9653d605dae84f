// AcceptGate decides which peers may connect to a bound ZeroMQ endpoint, for ZmqSocket.
//
// libzmq accepts every connection, and ends the process where there is no descriptor for one. It
// has filters of users, which ask the name service on the thread that moves all messages. The gate
// stands before it: accept_gate.cc defines accept4, so a program that links it calls the gate for
// every listener, and libzmq sees a connection that is turned away as one that the peer gave up. A
// listener without rules is passed on as it is. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace specd {

struct AcceptRules {
  // Besides this process's own user. Only unix sockets tell the user.
  std::vector<uint32_t> uids = {};
  size_t connections_max = 256;
  // Called on a thread of libzmq, with the reason.
  std::function<void(std::string_view why)> on_turned_away = [](std::string_view) {};
};

// The rules of an endpoint, ipc://PATH or tcp://HOST:PORT, while this object lives.
class AcceptGate {
 public:
  AcceptGate(const std::string& endpoint, AcceptRules rules);
  AcceptGate(AcceptGate&& other) noexcept;
  AcceptGate& operator=(AcceptGate&&) = delete;
  ~AcceptGate();

 private:
  std::string key_;  // empty after a move
};

}  // namespace specd
