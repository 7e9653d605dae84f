// TextHub keeps the text of all streams for the clients of specd-http, and says what a client has
// not had yet.
//
// The threads that read the daemon's texts write it, the server's thread reads it. It keeps one
// copy of a text for all clients. A stream that has ended stays for a while, and the streams that
// ended first give way if there is no room (KeptTexts). Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/reader/text_reader.h"
#include "daemon/text/kept_texts.h"

namespace specd::http {

// What a client gets next of a stream.
struct TextPart {
  std::vector<TextEvent> events = {};  // an opening if it asked from byte 0 on; text; the end
  bool has_more = false;
  std::string lost = {};  // unless empty: no more comes, and why
};

class TextHub {
 public:
  // The streams of `num_readers` readers, who number them 1, 2, 3, ... each.
  TextHub(const KeepLimits& limits, size_t num_readers, std::function<void()> on_news);

  // Of a reader, 0 .. num_readers - 1.
  void Take(size_t reader, const std::vector<ReadEvent>& events, bool is_current, int64_t now_ns);

  // The newest stream of a request.
  std::optional<uint64_t> Find(const std::string& request_id) const;
  // The same, unless it has ended.
  std::optional<uint64_t> Running(const std::string& request_id) const;
  // True if every reader has read all that was there when it began.
  bool is_current() const;
  struct Named {
    bool has_ended = false;
    uint64_t stream = 0;
    std::string request_id;
  };
  // The newest stream of each request that runs or ended lately, those that run first.
  std::vector<Named> Streams() const;

  // What there is from a byte on. An error: the stream is not kept, or has no such byte.
  absl::StatusOr<TextPart> From(uint64_t stream, uint64_t offset) const;
  // The whole text, for formats that repeat it. An error as From's.
  absl::StatusOr<std::string> TextOf(uint64_t stream) const;

 private:
  void TakeOne(const ReadEvent& read, uint64_t stream, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetNames() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t num_readers_;
  const std::function<void()> on_news_;
  mutable absl::Mutex mutex_;
  KeptTexts texts_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, uint64_t> newest_ ABSL_GUARDED_BY(mutex_);
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = 1024;  // so many names: look which are kept
  std::map<uint64_t, std::string> lost_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> is_current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specd::http
