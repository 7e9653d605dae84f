#include "daemon/text/text_streams.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "ipc/include/specd/specd.h"
#include "speculative/grammar/front_ends/stop_regex.h"

namespace specd {
namespace {

void TakeChunk(TextChunk chunk, TextEvent* event) {
  event->text = std::move(chunk.text);
  for (const TextSpan& span : chunk.spans) {
    event->spans.push_back(
        {static_cast<uint32_t>(span.size_bytes), span.accepted_draft, span.is_reasoning});
  }
}

}  // namespace

void TextStreams::Apply(const TokenEvent& event, std::vector<TextEvent>* texts,
                        std::vector<AbortRequest>* aborts) {
  if (const StreamOpening* const opening = event.opening(); opening != nullptr) {
    Open(event, *opening, texts, aborts);
    return;
  }
  const auto found = streams_.find(event.stream);
  if (found == streams_.end()) {
    ++meters_.unknown_events;
    return;
  }
  Stream* stream = found->second.get();
  if (stream->ended) {
    meters_.late_tokens += event.num_ids();
    if (event.tokens() != nullptr) ++meters_.overrun_rounds;
  } else if (event.offset > stream->tokens) {
    EndByGap(event.num_ids(), stream, texts, aborts);
  } else if (event.tokens() != nullptr) {
    PushTokens(*event.tokens(), event.offset, stream, texts, aborts);
  } else {
    End(*event.end(), stream, texts);
  }
  if (event.end() == nullptr) return;
  // The engine may wait for this word before it believes the end.
  if (stream->has_stops) {
    aborts->push_back({.stream = stream->number,
                       .kept_tokens = stream->tokens,
                       .finish_reason = SPECD_FINISH_NONE});
  }
  streams_.erase(found);
}

void TextStreams::Open(const TokenEvent& event, const StreamOpening& opening,
                       std::vector<TextEvent>* texts, std::vector<AbortRequest>* aborts) {
  if (streams_.contains(event.stream)) return;  // announced twice
  const Stream* const source = SourceOf(opening, event.offset);
  // Without its source a fork does not know whether a stop string has begun.
  const bool lost = opening.forked_from != 0 && source == nullptr && opening.HasStops();
  std::unique_ptr<Stream> stream = source != nullptr ? std::make_unique<Stream>(source->text.Fork())
                                                     : Begin(opening, event.offset);
  const bool refused = lost || stream == nullptr;
  if (stream == nullptr) {
    stream = std::make_unique<Stream>(TextStream(&no_vocabulary_, nullptr, {}));
  }
  stream->number = event.stream;
  stream->include_stop = opening.include_stop;
  stream->request_id = opening.request_id;
  stream->has_stops = opening.HasStops();
  stream->cumulative_logprob = opening.cumulative_logprob;
  if (source != nullptr) stream->reasoning = source->reasoning;
  if (source != nullptr && source->stop.has_value()) {
    stream->stop = source->stop;
    stream->tokens = source->tokens;
    stream->cumulative_logprob = source->cumulative_logprob;
  }
  // The engine may have made a copy before it heard of the stop string.
  const bool has_stopped = stream->stop.has_value();
  if (!has_stopped) stream->tokens = event.offset;
  ++num_live_;
  ++meters_.streams;
  TextEvent out = Next(*stream);
  out.kind = TextEventKind::kOpen;
  out.resumed = opening.resumed;
  texts->push_back(std::move(out));
  if (refused) {
    EndByGap(0, stream.get(), texts, aborts);
  } else if (has_stopped) {
    EndByStop(TextChunk{}, Next(*stream), stream.get(), texts, aborts);
  }
  streams_.emplace(event.stream, std::move(stream));
}

const TextStreams::Stream* TextStreams::SourceOf(const StreamOpening& opening,
                                                 uint64_t offset) const {
  if (opening.forked_from == 0) return nullptr;
  const auto found = streams_.find(opening.forked_from);
  if (found == streams_.end()) return nullptr;
  const Stream& source = *found->second;
  if (source.stop.has_value()) return &source;
  return !source.ended && source.tokens == offset ? &source : nullptr;
}

std::unique_ptr<TextStreams::Stream> TextStreams::Begin(const StreamOpening& opening,
                                                        uint64_t offset) const {
  const auto vocabulary = vocabularies_.find(opening.profile);
  if (vocabulary == vocabularies_.end()) return nullptr;
  std::shared_ptr<const StopSet> stops;
  if (opening.HasStops()) {
    // The daemon made the same set before it let the stream open, but any peer may write to the
    // wire.
    auto created = grammar::MakeStopSet(opening.stop_strings, opening.stop_regex);
    if (!created.ok()) return nullptr;
    stops = *std::move(created);
  }
  const uint64_t begin = offset - std::min<uint64_t>(offset, opening.earlier.size());
  TextStream text = TextStream::After(
      {.prompt_tail = opening.prompt_tail,
       .output_tail = opening.output_tail,
       .num_outputs = begin},
      vocabulary->second, std::move(stops),
      {.skip_special_tokens = opening.skip_special_tokens,
       .include_stop = opening.include_stop,
       .min_tokens = opening.min_tokens,
       .reasoning = opening.reasoning_end.empty()
                        ? nullptr
                        : std::make_shared<const ReasoningEnd>("", opening.reasoning_end),
       .reasoning_progress = opening.reasoning_progress});
  std::optional<int> stop;
  uint64_t reasoning = opening.reasoning_tokens;
  uint64_t tokens = begin;
  TextChunk ignored;  // the text of the source
  for (; tokens < offset && !stop.has_value(); ++tokens) {
    reasoning += text.IsReasoning() ? 1 : 0;
    stop = text.Push(opening.earlier[tokens - begin], false, &ignored);
  }
  auto stream = std::make_unique<Stream>(opening.earlier.empty() ? std::move(text) : text.Fork());
  stream->stop = stop;
  stream->tokens = tokens;
  stream->reasoning = reasoning;
  return stream;
}

TextEvent TextStreams::Next(const Stream& stream) const {
  TextEvent out;
  out.stream = stream.number;
  out.request_id = stream.request_id;
  out.token_offset = stream.tokens;
  out.byte_offset = stream.text.text_offset();
  return out;
}

void TextStreams::PushTokens(const RoundTokens& round, uint64_t offset, Stream* stream,
                             std::vector<TextEvent>* texts, std::vector<AbortRequest>* aborts) {
  TextEvent out = Next(*stream);
  TextChunk chunk;
  const uint64_t repeated = stream->tokens - offset;
  if (round.ids.size() > repeated) ++stream->rounds;
  const size_t num_scores = round.ids.empty() ? 0 : round.scores.size() / round.ids.size();
  for (size_t i = repeated; i < round.ids.size(); ++i) {
    const bool accepted = i < round.accepted;
    const bool withheld =
        round.stop_token != kNoToken && i + 1 == round.ids.size() && !stream->include_stop;
    ++stream->tokens;
    stream->accepted += accepted ? 1 : 0;
    stream->reasoning += stream->text.IsReasoning() ? 1 : 0;
    stream->cumulative_logprob +=
        i < round.logprobs.size() ? round.logprobs[i] : std::numeric_limits<double>::quiet_NaN();
    const auto scores = round.scores.begin() + static_cast<ptrdiff_t>(i * num_scores);
    out.scores.insert(out.scores.end(), scores, scores + static_cast<ptrdiff_t>(num_scores));
    for (size_t k = 0; k < num_scores; ++k) {
      out.score_bytes.emplace_back(
          stream->text.vocabulary().Bytes(scores[static_cast<ptrdiff_t>(k)].id));
    }
    ++meters_.tokens;
    const std::optional<int> stop = withheld
                                        ? stream->text.PushWithheld(round.ids[i], accepted, &chunk)
                                        : stream->text.Push(round.ids[i], accepted, &chunk);
    if (!stop.has_value()) continue;
    stream->stop = stop;
    out.late = round.ids.size() - i - 1;
    meters_.late_tokens += out.late;
    EndByStop(std::move(chunk), std::move(out), stream, texts, aborts);
    return;
  }
  // Scores do not wait for the text of their tokens. Text may be held back for long, and scores
  // would pile up meanwhile.
  if (chunk.text.empty() && out.scores.empty()) return;
  TakeChunk(std::move(chunk), &out);
  stream->checksum.Add(out.text);
  out.tokens = stream->tokens;
  texts->push_back(std::move(out));
}

void TextStreams::EndByStop(TextChunk chunk, TextEvent out, Stream* stream,
                            std::vector<TextEvent>* texts, std::vector<AbortRequest>* aborts) {
  out.finish_reason = SPECD_FINISH_STOP;
  out.stop_string = stream->text.stops()->TextOf(*stream->stop);
  aborts->push_back({.stream = stream->number,
                     .kept_tokens = stream->tokens,
                     .finish_reason = SPECD_FINISH_STOP});
  CloseWith(std::move(chunk), std::move(out), stream, texts);
}

void TextStreams::End(const StreamEnd& end, Stream* stream, std::vector<TextEvent>* texts) {
  TextEvent out = Next(*stream);
  TextChunk chunk;
  stream->text.Finish(TextEnd::kFlush, &chunk);
  out.finish_reason = end.finish_reason;
  out.stop_token = end.stop_token;
  // The logprobs of tokens before a restart of the daemon are not known one by one.
  if (std::isnan(stream->cumulative_logprob)) stream->cumulative_logprob = end.cumulative_logprob;
  CloseWith(std::move(chunk), std::move(out), stream, texts);
}

void TextStreams::EndByGap(uint64_t num_late, Stream* stream, std::vector<TextEvent>* texts,
                           std::vector<AbortRequest>* aborts) {
  TextEvent out = Next(*stream);
  TextChunk chunk;
  stream->text.Finish(TextEnd::kFlush, &chunk);
  out.finish_reason = SPECD_FINISH_ERROR;
  out.late = num_late;
  CloseWith(std::move(chunk), std::move(out), stream, texts);
  ++meters_.broken_streams;
  // The ids of a stream without stops need no text, and its readers lose nothing.
  if (!stream->has_stops) return;
  aborts->push_back({.stream = stream->number,
                     .kept_tokens = stream->tokens,
                     .finish_reason = SPECD_FINISH_ABORT});
}

void TextStreams::CloseWith(TextChunk chunk, TextEvent out, Stream* stream,
                            std::vector<TextEvent>* texts) {
  TakeChunk(std::move(chunk), &out);
  stream->checksum.Add(out.text);
  out.checksum = stream->checksum.value();
  out.kind = TextEventKind::kEnd;
  out.tokens = stream->tokens;
  out.accepted = stream->accepted;
  out.reasoning_tokens = stream->reasoning;
  out.rounds = stream->rounds;
  out.cumulative_logprob = stream->cumulative_logprob;
  texts->push_back(std::move(out));
  stream->ended = true;
  --num_live_;
}

void TextStreams::EndLost(uint64_t stream, std::vector<TextEvent>* texts,
                          std::vector<AbortRequest>* aborts) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  if (!found->second->ended) EndByGap(0, found->second.get(), texts, aborts);
  streams_.erase(found);
}

std::vector<std::pair<uint64_t, uint64_t>> TextStreams::Offsets() const {
  std::vector<std::pair<uint64_t, uint64_t>> offsets;
  for (const auto& [number, stream] : streams_) offsets.emplace_back(number, stream->tokens);
  return offsets;
}

void TextStreams::Forget() {
  streams_.clear();
  num_live_ = 0;
}

}  // namespace specd
