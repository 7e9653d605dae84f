#include "daemon/text/kept_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/core/check.h"

namespace specd {
namespace {

// Upper bounds of an event on the wire: its keys and numbers, and an id with its logprob.
constexpr size_t kEventBytes = 160;
constexpr size_t kIdBytes = 14;

// An answer begins within so many rounds of the offset that is asked for.
constexpr size_t kStride = 256;

size_t OpeningBytes(const StreamOpening& opening) {
  size_t bytes = opening.request_id.size() + opening.profile.size();
  for (const std::string& stop : opening.stop_strings) bytes += stop.size() + sizeof(stop);
  for (const std::string& stop : opening.stop_regex) bytes += stop.size() + sizeof(stop);
  return bytes + sizeof(TokenId) * (opening.prompt_tail.size() + opening.output_tail.size() +
                                    opening.earlier.size());
}

}  // namespace

void KeptStreams::Take(TokenEvent* event, int64_t now_ns) {
  if (event->opening() != nullptr) return Open(*event);
  Kept* const kept = table_.Find(event->stream);
  if (kept == nullptr || kept->has_ended()) return;
  if (event->tokens() != nullptr) {
    Append(*event->tokens(), kept);
    return Fit(event->stream);
  }
  // The text side may have ended the stream before its last tokens.
  const bool is_cut = event->offset < kept->tokens;
  if (is_cut && kept->is_whole) Cut(event->offset, kept);
  if (!is_cut || kept->is_whole) event->end()->checksum = kept->checksum.value();
  kept->tokens = event->offset;
  kept->end = *event;
  table_.End(event->stream, now_ns);
}

void KeptStreams::Open(const TokenEvent& event) {
  Kept opened = {.begin = event, .tokens = event.offset};
  StreamOpening& opening = opened.opening();
  const std::string request_id = opening.request_id;
  if (opening.forked_from != 0) {
    // The events of a session are in order, so the source is where the copy was made.
    Kept* const source = table_.Find(opening.forked_from);
    opened.is_whole = source != nullptr && source->is_whole && source->tokens == event.offset &&
                      source->opening().earlier.size() + source->ids.size() <= kOutputTailMax;
    if (opened.is_whole) {
      const StreamOpening& from = source->opening();
      opened.forked_from = std::exchange(opening.forked_from, 0);
      opening.prompt_tail = from.prompt_tail;
      opening.output_tail = from.output_tail;
      opening.reasoning_end = from.reasoning_end;
      opening.reasoning_progress = from.reasoning_progress;
      opening.reasoning_tokens = from.reasoning_tokens;
      opening.earlier = from.earlier;
      opening.earlier.insert(opening.earlier.end(), source->ids.begin(), source->ids.end());
    }
  }
  newest_ = std::max(newest_, event.stream);
  opened.opening_bytes = OpeningBytes(opening);
  table_.Erase(event.stream);
  *table_.Add(event.stream, request_id) = std::move(opened);
  Fit(event.stream);
}

void KeptStreams::Append(const RoundTokens& tokens, Kept* kept) {
  for (const TokenId id : tokens.ids) kept->checksum.Add(id);
  kept->tokens += tokens.ids.size();
  if (!kept->is_whole) return;
  if (kept->rounds.size() % kStride == 0) {
    kept->strides.push_back(static_cast<uint32_t>(kept->ids.size()));
  }
  kept->ids.insert(kept->ids.end(), tokens.ids.begin(), tokens.ids.end());
  std::transform(tokens.logprobs.begin(), tokens.logprobs.end(), std::back_inserter(kept->logprobs),
                 [](double logprob) { return static_cast<float>(logprob); });
  kept->rounds.push_back({.num_ids = static_cast<uint8_t>(tokens.ids.size()),
                          .accepted = static_cast<uint8_t>(tokens.accepted)});
  if (tokens.stop_token != kNoToken) kept->stop_token = tokens.stop_token;
}

void KeptStreams::Cut(uint64_t offset, Kept* kept) {
  for (uint64_t left = kept->tokens - offset; left > 0 && !kept->rounds.empty();) {
    Round& last = kept->rounds.back();
    const uint8_t cut = std::min<uint64_t>(left, last.num_ids);
    last.num_ids = static_cast<uint8_t>(last.num_ids - cut);
    last.accepted = std::min(last.accepted, last.num_ids);
    left -= cut;
    if (last.num_ids == 0) kept->rounds.pop_back();
  }
  kept->strides.resize((kept->rounds.size() + kStride - 1) / kStride);
  // The text of a fork may have ended in the tokens of its source.
  const uint64_t begin = std::min(offset, kept->begin.offset);
  kept->ids.resize(std::min<size_t>(kept->ids.size(), offset - begin));
  kept->logprobs.resize(std::min(kept->logprobs.size(), kept->ids.size()));
  kept->checksum = {};
  for (const TokenId id : kept->ids) kept->checksum.Add(id);
}

void KeptStreams::Fit(uint64_t stream) {
  Kept* const kept = table_.Find(stream);
  if (table_.Resize(stream, SizeBytes(*kept))) return;
  kept->is_whole = false;
  // An assignment of {} would keep the memory.
  kept->ids = std::vector<TokenId>();
  kept->logprobs = std::vector<float>();
  kept->rounds = std::vector<Round>();
  kept->strides = std::vector<uint32_t>();
  if (kept->forked_from != 0) {
    // Without the tokens of its source the opening is the one that was published: a text side must
    // not take the copy for a stream that begins here.
    StreamOpening& opening = kept->opening();
    opening.forked_from = kept->forked_from;
    opening.prompt_tail = std::vector<TokenId>();
    opening.output_tail = std::vector<TokenId>();
    opening.earlier = std::vector<TokenId>();
  }
  kept->opening_bytes = OpeningBytes(kept->opening());
  if (!table_.Resize(stream, SizeBytes(*kept))) table_.Erase(stream);
}

size_t KeptStreams::SizeBytes(const Kept& kept) {
  return kept.opening_bytes + kept.ids.capacity() * sizeof(TokenId) +
         kept.logprobs.capacity() * sizeof(float) + kept.rounds.capacity() * sizeof(Round) +
         kept.strides.capacity() * sizeof(uint32_t);
}

bool KeptStreams::IsWhole(uint64_t stream) const {
  const Kept* const kept = table_.Find(stream);
  return kept != nullptr && kept->is_whole;
}

absl::StatusOr<TokenAnswer> KeptStreams::Answer(const Ask& ask) const {
  TokenAnswer answer = {.newest = newest_};
  if (ask.kind != AskKind::kFrom) answer.events.reserve(kAnswerBytes / kEventBytes);
  size_t bytes = 0;
  if (ask.kind != AskKind::kFrom) {
    if (ask.offset > 0 && table_.Find(ask.stream) == nullptr) {
      return absl::NotFoundError(
          fmt::format("stream = {} is not kept any more, and the tokens from offset = {} on were "
                      "not given; ask for the streams from {} on",
                      ask.stream, ask.offset, ask.stream + 1));
    }
    table_.VisitFrom(ask.stream, ask.kind == AskKind::kEnded, ask.request_id,
                     [&](uint64_t stream, const Kept& kept) {
                       if (bytes >= kAnswerBytes) {
                         answer.next = {.stream = stream, .offset = 0};
                         return false;
                       }
                       const uint64_t offset = stream == ask.stream ? ask.offset : 0;
                       return AppendEvents(kept, offset, &bytes, &answer);
                     });
    return answer;
  }
  const Kept* const kept = table_.Find(ask.stream);
  if (kept == nullptr) {
    return absl::NotFoundError(
        fmt::format("stream = {} is not kept: it ended longer ago than --keep_ended, found no room "
                    "in --memory_mib, or is of another daemon; ask sooner",
                    ask.stream));
  }
  // A stop string may have taken tokens back that the reader has.
  if (ask.offset > kept->tokens && !kept->has_ended()) {
    return absl::NotFoundError(
        fmt::format("offset = {} is outside 0 .. {}, the tokens of stream {}", ask.offset,
                    kept->tokens, ask.stream));
  }
  if (!kept->is_whole && ask.offset < kept->tokens) {
    return absl::NotFoundError(
        fmt::format("offset = {}: the ids of stream {} found no room and were not kept; raise "
                    "--memory_mib",
                    ask.offset, ask.stream));
  }
  AppendEvents(*kept, ask.offset, &bytes, &answer);
  return answer;
}

bool KeptStreams::AppendEvents(const Kept& kept, uint64_t offset, size_t* bytes,
                               TokenAnswer* answer) {
  const uint64_t stream = kept.begin.stream;
  uint64_t at = kept.begin.offset;
  if (offset <= at) {
    answer->events.push_back(kept.begin);
    *bytes += kEventBytes + kept.opening_bytes * 2;
  }
  if (!kept.is_whole && !kept.has_ended() && kept.tokens > std::max(offset, at)) {
    answer->events.push_back({.stream = stream, .offset = kept.tokens});
  }
  bool has_round = false;
  const auto stride =
      std::upper_bound(kept.strides.begin(), kept.strides.end(), offset - std::min(offset, at));
  size_t first_round = 0;
  if (stride != kept.strides.begin()) {
    first_round = kStride * static_cast<size_t>(stride - kept.strides.begin() - 1);
    at += *(stride - 1);
  }
  for (size_t i = first_round; i < kept.rounds.size(); ++i) {
    const Round& round = kept.rounds[i];
    const uint64_t begin = at;
    at += round.num_ids;
    if (at <= offset) continue;
    if (has_round && *bytes >= kAnswerBytes) {
      answer->next = {.stream = stream, .offset = begin};
      return false;
    }
    has_round = true;
    const auto first = static_cast<ptrdiff_t>(begin - kept.begin.offset);
    RoundTokens tokens = {
        .ids = {kept.ids.begin() + first, kept.ids.begin() + first + round.num_ids},
        .accepted = round.accepted};
    if (!kept.logprobs.empty()) {
      tokens.logprobs.assign(kept.logprobs.begin() + first,
                             kept.logprobs.begin() + first + round.num_ids);
    }
    if (i + 1 == kept.rounds.size()) {
      tokens.stop_token = kept.has_ended() ? kept.end->end()->stop_token : kept.stop_token;
    }
    answer->events.push_back({.stream = stream, .offset = begin, .what = std::move(tokens)});
    *bytes += kEventBytes + round.num_ids * kIdBytes;
  }
  if (kept.has_ended()) answer->events.push_back(*kept.end);
  *bytes += kEventBytes;
  return true;
}

}  // namespace specd
