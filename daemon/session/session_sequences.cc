// Session, the sequences of the control thread: opening, copying and closing them.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "daemon/session/session.h"
#include "detokenizer/stop_matcher.h"
#include "detokenizer/utf8_stream.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr size_t kRequestIdBytesMax = 128;

absl::Status CheckRequestId(const std::string& request_id) {
  if (request_id.empty() || request_id.size() > kRequestIdBytesMax) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "request_id",
                     fmt::format("request_id has {} bytes, 1 .. {} are allowed", request_id.size(),
                                 kRequestIdBytesMax));
  }
  std::string decoded;
  Utf8Stream utf8;
  utf8.Push(request_id, &decoded);
  utf8.Finish(&decoded);
  const bool control = std::any_of(request_id.begin(), request_id.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (decoded != request_id || control) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "request_id",
                     "request_id must be UTF-8 without control characters");
  }
  return absl::OkStatus();
}

absl::Status SessionEnded() {
  return MakeError(SPECD_ERROR_SHUTDOWN, "", "the session has ended; close and attach again");
}

// The names of n sequences: the first has the request's own.
std::vector<std::string> NamesOf(const std::string& request_id, size_t n) {
  std::vector<std::string> names = {request_id};
  for (size_t i = 1; i < n; ++i) names.push_back(fmt::format("{}#{}", request_id, i));
  return names;
}

// Claims names and gives them back unless they are kept.
class NameClaim {
 public:
  explicit NameClaim(SharedNames* names) : names_(names) {}
  ~NameClaim() {
    for (const std::string& name : claimed_) names_->Release(name);
  }
  NameClaim(const NameClaim&) = delete;
  NameClaim& operator=(const NameClaim&) = delete;

  absl::Status Claim(std::span<const std::string> names) {
    for (const std::string& name : names) {
      if (absl::Status status = CheckRequestId(name); !status.ok()) return status;
      if (!names_->Claim(name)) {
        return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "request_id",
                         fmt::format("request_id = \"{}\" is the name of a sequence that is open; "
                                     "names must be unique among open sequences",
                                     name));
      }
      claimed_.push_back(name);
    }
    return absl::OkStatus();
  }

  void Keep() { claimed_.clear(); }

 private:
  SharedNames* names_;
  std::vector<std::string> claimed_;
};

}  // namespace

absl::Status Session::CheckText(const SequenceParams& params,
                                const SequenceHistory& history) const {
  if (params.stop_strings.empty()) return absl::OkStatus();
  if (!history.outputs.empty()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "stop_strings",
                     fmt::format("stop_strings cannot be given to a sequence that is opened with "
                                 "output_ids ({} here), because the beginning of a stop string may "
                                 "lie in their text, which the text side has not seen; stop in the "
                                 "engine and call specd_abort",
                                 history.outputs.size()));
  }
  if (!options_.text_side || !options_.text_side()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "stop_strings",
                     "stop_strings need a detokenizer, and none is attached; use a daemon with "
                     "--tokenizer (and specd-detok running, if --detokenizer=process), or stop "
                     "in the engine and call specd_abort");
  }
  if (auto stops = StopSet::Create(params.stop_strings); !stops.ok()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "stop_strings",
                     std::string(stops.status().message()));
  }
  return absl::OkStatus();
}

// Results have room for so many scores. What lies outside the ranges of the parameters themselves
// is refused by Verifier::Open, which knows them.
absl::Status Session::CheckScores(const SequenceParams& params) const {
  if (params.logprobs < 0 || params.logprobs > kLogprobsMax ||
      params.logprob_token_ids.size() > kLogprobTokenIdsMax) {
    return absl::OkStatus();
  }
  const uint64_t wanted =
      1 + static_cast<uint64_t>(params.logprobs) + params.logprob_token_ids.size();
  if (wanted <= options_.limits.max_scores) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_INVALID_ARGUMENT, "logprobs",
      fmt::format("logprobs = {} and {} logprob_token_ids are {} scores for each "
                  "token, but max_scores_per_token = {}; raise it in specd_options, or "
                  "ask for fewer",
                  params.logprobs, params.logprob_token_ids.size(), wanted,
                  options_.limits.max_scores));
}

absl::Status Session::CheckRoom(size_t count) {
  if (ended()) return SessionEnded();
  if (events_ != nullptr && EventRoom() < options_.limits.max_sequences + count) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "",
                     "the text side is behind: too many events wait; try again later");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SequenceInfo>> Session::OpenSequences(const std::string& request_id,
                                                                 const SequenceParams& params,
                                                                 const SequenceHistory& history) {
  if (params.n < 1 || params.n > kSamplesMax) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "n",
                     fmt::format("n = {} is outside 1 .. {}", params.n, kSamplesMax));
  }
  if (absl::Status status = CheckText(params, history); !status.ok()) return status;
  if (absl::Status status = CheckScores(params); !status.ok()) return status;
  const std::vector<std::string> names = NamesOf(request_id, static_cast<size_t>(params.n));

  MutexLock lock(&mutex_);
  if (absl::Status status = CheckRoom(names.size()); !status.ok()) return status;
  NameClaim claim(options_.names);
  if (absl::Status status = claim.Claim(names); !status.ok()) return status;
  absl::StatusOr<std::vector<SequenceInfo>> opened = OpenAll(params, history);
  if (!opened.ok()) return opened.status();
  claim.Keep();
  for (size_t i = 0; i < names.size(); ++i) {
    Announce((*opened)[i].handle,
             {options_.names->NextStream(),
              names[i],
              !params.stop_strings.empty(),
              params.include_stop,
              params.skip_special_tokens,
              {}},
             params.stop_strings);
  }
  return opened;
}

absl::StatusOr<std::vector<SequenceInfo>> Session::OpenAll(const SequenceParams& params,
                                                           const SequenceHistory& history) {
  std::vector<SequenceInfo> opened;
  // Nothing may throw between the opening of a sequence and its place in the list.
  opened.reserve(static_cast<size_t>(params.n));
  absl::Cleanup close_all = [this, &opened] {
    for (const SequenceInfo& before : opened) verifier_->Close(before.handle);
  };
  for (int64_t i = 0; i < params.n; ++i) {
    // The first has looked at everything, and its seed serves for all: the others are its copies.
    absl::StatusOr<SequenceInfo> info =
        i == 0 ? verifier_->Open(params, history)
               : verifier_->Fork(opened[0].handle, opened[0].seed + static_cast<uint64_t>(i));
    if (!info.ok()) return info.status();
    opened.push_back(*info);
  }
  std::move(close_all).Cancel();
  return opened;
}

absl::StatusOr<SequenceInfo> Session::ForkSequence(SequenceHandle source,
                                                   const std::string& request_id,
                                                   std::optional<uint64_t> seed) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckRoom(1); !status.ok()) return status;
  if (verifier_->Find(source) == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     fmt::format("sequence {:#x} is not open", source));
  }
  const Stream& parent = streams_[SlotOf(source)];
  if (parent.has_stop_strings) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "sequence",
                     "a sequence with stop_strings cannot be forked, because the text side may "
                     "have seen the beginning of one; open n sequences instead, or stop in the "
                     "engine and call specd_abort");
  }
  NameClaim claim(options_.names);
  if (absl::Status status = claim.Claim({&request_id, 1}); !status.ok()) return status;
  absl::StatusOr<SequenceInfo> forked = verifier_->Fork(source, seed);
  if (!forked.ok()) return forked.status();
  claim.Keep();
  Announce(forked->handle,
           {options_.names->NextStream(),
            request_id,
            false,
            parent.include_stop,
            parent.skip_special_tokens,
            {}},
           {});
  return forked;
}

void Session::Announce(SequenceHandle handle, const Stream& stream,
                       const std::vector<std::string>& stop_strings) {
  streams_[SlotOf(handle)] = stream;
  const Sequence& sequence = *verifier_->Find(handle);
  WriteState(sequence);
  if (events_ == nullptr) return;
  StreamEvent event = EventFor(sequence, StreamEventKind::kOpen);
  event.info =
      new StreamInfo{stream.request_id, stop_strings, stream.include_stop,
                     stream.skip_special_tokens, static_cast<uint32_t>(sequence.min_tokens)};
  PushEvent(event);
}

absl::Status Session::CloseSequence(SequenceHandle handle) {
  MutexLock lock(&mutex_);
  if (absl::Status status = Abort(handle); !status.ok()) return status;
  Stream& stream = streams_[SlotOf(handle)];
  options_.names->Release(stream.request_id);
  num_coins_ -= stream.coins.size();
  stream = {};
  verifier_->Close(handle);
  channel_.WriteState(SlotOf(handle), {});  // an empty slot: the handle is nobody's any more
  return absl::OkStatus();
}

absl::Status Session::AbortSequence(SequenceHandle handle) {
  MutexLock lock(&mutex_);
  return Abort(handle);
}

absl::Status Session::Abort(SequenceHandle handle) {
  if (ended()) return SessionEnded();
  const Sequence* sequence = verifier_->Find(handle);
  if (sequence == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     fmt::format("sequence {:#x} is not open", handle));
  }
  FinishFromOutside(handle, FinishReason::kAbort, sequence->kept_tokens);
  return absl::OkStatus();
}

}  // namespace specd
