// TextSubscription reads all streams of a text endpoint over ZeroMQ, with TextReader.
//
// It never gives up: a publisher that comes back is found, and an ask without an answer is
// repeated. One thread.
//
//   TextSubscription texts(&context, {.text = "ipc:///run/specd/specd.sock.text", ...});
//   while (!stopped) {
//     events.clear();
//     absl::Status status = texts.Step(&events);
//     ...
//   }
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "daemon/reader/text_reader.h"
#include "ipc/sockets/request_socket.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd {

class TextSubscription {
 public:
  struct Options {
    std::string text;  // the endpoints of texts and of asks for them
    std::string text_ask;
  };
  // The context must outlive the subscription. INVALID_ARGUMENT names an endpoint that is none.
  static absl::StatusOr<TextSubscription> Create(ZmqContext* context, const Options& options);

  // Waits for a message, or asks once, for a short while, and appends the events. An error: a
  // message that cannot be read, or a refusal. The caller may go on.
  absl::Status Step(std::vector<ReadEvent>* out);

  bool is_current() const { return reader_.is_current(); }

 private:
  TextSubscription(ZmqSocket socket, RequestSocket asker)
      : socket_(std::move(socket)), asker_(std::move(asker)) {}
  absl::Status Hear(std::vector<ReadEvent>* out);
  absl::Status AskOnce(std::vector<ReadEvent>* out);

  ZmqSocket socket_;
  RequestSocket asker_;
  TextReader reader_;
  std::vector<std::string> frames_;
  std::string request_;
};

}  // namespace specd
