// AcceptGate decides which peers may connect to a bound endpoint, for ZmqSocket and StreamListener.
//
// libzmq accepts every connection, and ends the process if no descriptor is left. Its filters of
// users ask the name service on the thread that moves all messages. accept_gate.cc therefore
// defines accept4, and a program that links it calls the gate for every listener. libzmq sees a
// refused connection as one that the peer gave up. The gate does not change a listener without
// rules. Safe from any thread.
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
