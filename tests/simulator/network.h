// Network carries the messages of all ZmqSockets of a simulated run, in memory.
//
// The simulator links network.cc in place of ipc/sockets/zmq_socket.cc, so publisher, text side and
// readers use their real sockets' classes. A message of a publisher may be lost, a queue may be
// full, and a request waits until the simulator has let the other side work. A daemon that dies
// takes its bound endpoints along; sockets that are connected there meet the next one. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace zmq {
class socket_t;
}

namespace specd::sim {

class Network {
 public:
  static Network& OfProcess();

  // A socket waits for an answer from the endpoint. Called once for each wait.
  std::function<void(const std::string& endpoint)> serve = [](const std::string&) {};
  // True: this message of a publisher is lost to one subscriber.
  std::function<bool(const std::string& endpoint)> loses = [](const std::string&) { return false; };
  // A subscriber that is so many messages behind loses the next one.
  size_t queue_messages_max = 1000;

  size_t num_sockets() const { return connected_.size(); }

 private:
  friend class zmq::socket_t;
  std::map<std::string, zmq::socket_t*> bound_;
  std::vector<zmq::socket_t*> connected_;
};

}  // namespace specd::sim
