// ReaderWorld is a daemon and a text side for TextReader, whose messages and lives a test ends by
// chance.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "daemon/reader/text_reader.h"
#include "daemon/text/kept_texts.h"
#include "ipc/include/specd/specd.h"

namespace specd {

// A stream as its engine has it: the whole text, and how much of it was made.
struct ReaderSource {
  std::string name;
  std::string text = {};
  std::vector<bool> accepted = {};  // of each byte
  uint64_t stream = 0;              // at the daemon of now; 0: none
  size_t made = 0;
  bool has_ended = false;
  bool is_resumed = false;   // brought from another daemon
  bool may_be_lost = false;  // a daemon was gone before the reader had the end
};

inline TextEvent EventOf(TextEventKind kind, uint64_t stream, const std::string& name) {
  TextEvent event;
  event.kind = kind;
  event.stream = stream;
  event.request_id = name;
  return event;
}

inline uint64_t ChecksumOf(std::string_view text) {
  Fnv1a sum;
  sum.Add(text);
  return sum.value();
}

// A daemon and a text side whose messages and lives the test ends by chance. Answers are those of
// the class that gives them in a real text side.
class ReaderWorld {
 public:
  explicit ReaderWorld(uint32_t seed) : random_(seed) {}

  void Run(int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      Disturb();
      Settle();
    }
    for (ReaderSource& source : sources_) {
      while (source.stream != 0 && !source.has_ended) {
        Advance(&source);
        Settle();
      }
    }
    for (int i = 0; i <= 60; ++i) {
      Beat();
      Settle();
    }
  }

  void Check() const {
    for (const ReaderSource& source : sources_) {
      CAPTURE(source.name);
      REQUIRE(opened_.contains(source.name));
      const Got& got = got_.at(opened_.at(source.name));
      if (got.lost) {
        CHECK(source.may_be_lost);
        CHECK(source.text.starts_with(got.text));
        continue;
      }
      CHECK(got.ended);
      CHECK(got.text == source.text);
      CHECK(got.accepted == source.accepted);
    }
  }
  int num_asks() const { return num_asks_; }
  int num_lost() const { return num_lost_; }

 private:
  struct Got {
    std::string text;
    std::vector<bool> accepted;
    bool ended = false;
    bool lost = false;
  };
  int Draw(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  void Disturb() {
    const int what = Draw(100);
    if (what < 4) return Open();
    if (what < 6) return ReplaceTextSide();
    if (what < 7) return ReplaceDaemon();
    if (what < 15) return Beat();
    if (sources_.empty()) return;
    ReaderSource& source = sources_[static_cast<size_t>(Draw(static_cast<int>(sources_.size())))];
    if (source.stream != 0 && !source.has_ended) Advance(&source);
  }

  void Open() {
    static const std::string kPieces[] = {"a", "bc", "\xc3\xa9", "\xe2\x82\xac",
                                          "\xf0\x9f\x98\x80"};
    ReaderSource source = {.name = "r" + std::to_string(sources_.size())};
    for (int i = Draw(60); i > 0; --i) {
      const std::string& piece = kPieces[static_cast<size_t>(Draw(5))];
      source.text += piece;
      source.accepted.insert(source.accepted.end(), piece.size(), Draw(2) == 1);
    }
    source.stream = ++last_stream_;
    sources_.push_back(source);
    Publish(EventOf(TextEventKind::kOpen, source.stream, source.name));
  }

  TextEvent Part(const ReaderSource& source, size_t from, size_t to) {
    TextEvent event = EventOf(TextEventKind::kText, source.stream, source.name);
    event.token_offset = from;
    event.tokens = to;
    event.byte_offset = from;
    event.text = source.text.substr(from, to - from);
    for (size_t i = from; i < to; ++i) event.spans.push_back({1, source.accepted[i]});
    return event;
  }

  void Advance(ReaderSource* source) {
    size_t to = std::min(source->text.size(), source->made + static_cast<size_t>(Draw(6)));
    while (to < source->text.size() && (static_cast<uint8_t>(source->text[to]) & 0xc0) == 0x80)
      ++to;
    TextEvent event = Part(*source, source->made, to);
    source->made = to;
    if (to == source->text.size() && Draw(2) == 0) MakeEnd(source, &event);
    Publish(event);
  }

  static void MakeEnd(ReaderSource* source, TextEvent* event) {
    source->has_ended = true;
    event->kind = TextEventKind::kEnd;
    event->finish_reason = SPECD_FINISH_LENGTH;
    event->checksum = ChecksumOf(source->text);
  }

  // The message may be lost.
  void Publish(TextEvent event, bool is_told = true) {
    kept_.Take(event, 0);
    if (!is_told) return;
    event.epoch = epoch_;
    event.seq = ++seq_;
    if (Draw(5) != 0) Tell([&](auto* out) { reader_.Hear(event, out); });
  }
  void Beat() {
    Tell([&](auto* out) {
      reader_.Hear(Heartbeat{.epoch = epoch_, .seq = seq_, .instance = instance_}, out);
    });
  }

  // A successor gives the running streams again from the beginning on, and knows the ended ones.
  void ReplaceTextSide() {
    kept_ = KeptTexts(KeepLimits());
    seq_ = 0;
    ++instance_;
    Republish();
  }
  // The engines go on with what runs; what has ended is forgotten.
  void ReplaceDaemon() {
    ++epoch_;
    last_stream_ = static_cast<uint64_t>(Draw(3));
    for (ReaderSource& source : sources_) {
      source.may_be_lost = source.may_be_lost || source.has_ended;
      source.stream = source.has_ended ? 0 : ++last_stream_;
      source.is_resumed = true;
    }
    kept_ = KeptTexts(KeepLimits());
    seq_ = 0;
    ++instance_;
    Republish();
  }
  void Republish() {
    for (const ReaderSource& source : sources_) {
      if (source.stream == 0) continue;
      const bool is_told = !source.has_ended;
      TextEvent open = EventOf(TextEventKind::kOpen, source.stream, source.name);
      open.resumed = source.is_resumed;
      Publish(open, is_told);
      TextEvent all = Part(source, 0, source.made);
      ReaderSource copy = source;
      if (source.has_ended) MakeEnd(&copy, &all);
      Publish(all, is_told);
    }
  }

  // Answers asks. The world may change between an ask and its answer.
  void Settle() {
    for (int i = 0; reader_.ask() != nullptr; ++i) {
      REQUIRE(i < 10'000);
      if (Draw(40) == 0) {
        is_quiet_ = true;
        Draw(2) == 0 ? ReplaceTextSide() : ReplaceDaemon();
        is_quiet_ = false;
      }
      ++num_asks_;
      absl::StatusOr<TextAnswer> answer = kept_.Answer(*reader_.ask());
      if (answer.ok()) answer->epoch = epoch_;
      Tell([&](auto* out) { REQUIRE(reader_.Answered(answer, out).ok()); });
    }
  }

  template <class Say>
  void Tell(Say say) {
    if (is_quiet_) return;  // while an answer is awaited no message is read
    std::vector<ReadEvent> out;
    say(&out);
    for (const ReadEvent& read : out) Take(read);
  }

  void Take(const ReadEvent& read) {
    const TextEvent& event = read.event;
    if (read.lost.empty() && event.kind == TextEventKind::kOpen) {
      REQUIRE(opened_.emplace(event.request_id, event.stream).second);  // no stream opens twice
      REQUIRE(got_.emplace(event.stream, Got()).second);
      return;
    }
    Got& got = got_.at(event.stream);
    REQUIRE_FALSE(got.ended);
    REQUIRE_FALSE(got.lost);
    REQUIRE(event.byte_offset == got.text.size());
    got.text += event.text;
    size_t covered = 0;
    for (const WireSpan& span : event.spans) {
      got.accepted.insert(got.accepted.end(), span.size_bytes, span.accepted);
      covered += span.size_bytes;
    }
    REQUIRE(covered == event.text.size());
    got.lost = !read.lost.empty();
    num_lost_ += got.lost ? 1 : 0;
    got.ended = !got.lost && event.kind == TextEventKind::kEnd;
  }

  std::mt19937 random_;
  TextReader reader_;
  KeptTexts kept_{KeepLimits()};
  std::vector<ReaderSource> sources_;
  uint64_t epoch_ = 1000;
  uint64_t instance_ = 1;
  uint64_t seq_ = 0;
  uint64_t last_stream_ = 0;
  bool is_quiet_ = false;
  int num_asks_ = 0;
  int num_lost_ = 0;
  std::map<std::string, uint64_t> opened_;
  std::map<uint64_t, Got> got_;
};

}  // namespace specd
