// SimReader is a reader without losses, as docs/PROTOCOL.md describes one: of the ids of all
// streams, or of their text.
//
// It hears what the network lets through, asks for the rest, and drops what it has. Streams of one
// request at several daemons are one stream to it. Each repetition has to say the same as before.
// Request ids are used once in a run. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ipc/events/ask.h"
#include "ipc/sockets/request_socket.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd::sim {

// What has come of a request.
struct ReadStream {
  uint64_t begin = 0;        // tokens of the sequence before the stream
  std::vector<int32_t> ids;  // of a reader of ids
  std::string text;          // of a reader of text
  bool has_ended = false;
  uint32_t finish_reason = 0;
  // A later daemon has said that the text ends otherwise, as after an abort it may.
  bool has_another_end = false;
};

class SimReader {
 public:
  enum class Kind { kIds, kText };
  SimReader(Kind kind, ZmqContext* context);

  // Takes a message, or asks for what is missing; false if there was nothing to do. An error is a
  // broken promise.
  absl::StatusOr<bool> Step();

  const std::map<std::string, ReadStream>& streams() const { return by_name_; }
  // False: messages are missing, and no answer has come yet.
  bool has_all() const { return !must_ask_; }

 private:
  struct Position {
    uint64_t epoch = 0;
    uint64_t seq = 0;
    uint64_t instance = 0;
  };

  absl::Status Hear(std::string_view topic, std::string_view payload);
  void Follow(const Position& heard, bool is_message);
  // False: no answer came.
  absl::StatusOr<bool> AskAll();
  absl::StatusOr<bool> AskPages(Ask ask);
  absl::Status Take(const TokenEvent& event, bool is_answer);
  absl::Status Take(const TextEvent& event, bool is_answer);
  // The stream that goes on from the offset; null if it is to be left alone.
  absl::StatusOr<ReadStream*> Find(uint64_t stream, uint64_t offset, uint64_t has, bool is_answer);
  void Open(uint64_t stream, const std::string& name) { names_[stream] = name; }

  const Kind kind_;
  ZmqSocket events_;
  RequestSocket asks_;
  Position last_;
  bool must_ask_ = true;
  std::map<uint64_t, std::string> names_;  // of this epoch's streams
  std::map<std::string, ReadStream> by_name_;
  std::vector<std::string> frames_;
};

}  // namespace specd::sim
