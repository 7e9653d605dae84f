#include "daemon/session/open_request.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "speculative/params/param_numbers.h"
#include "speculative/processors/thinking_budget.h"

namespace specd {
namespace {

// ---- the file of lists

absl::Status CheckFile(const UniqueFd& fd) {
  // Only files in memory have seals, and reading them never waits.
  if (fcntl(fd.get(), F_GET_SEALS) >= 0) return absl::OkStatus();
  return Invalid("fd", "the descriptor of the lists is no file in memory; send a memfd");
}

absl::Status EndsEarly(uint64_t size_bytes, uint64_t wanted_bytes) {
  return Invalid("fd",
                 fmt::format("the file of lists ends after {} bytes; its counts say {} or more",
                             size_bytes, wanted_bytes));
}

absl::Status ReadFile(const UniqueFd& fd, uint64_t begin_bytes, std::span<char> bytes) {
  // The file belongs to the engine, and may change or shrink while it is read. The bytes that were
  // read are used, and missing bytes are an error. The file is never mapped, so no read can fault.
  size_t done_bytes = 0;
  while (done_bytes < bytes.size()) {
    const ssize_t got = pread(fd.get(), bytes.data() + done_bytes, bytes.size() - done_bytes,
                              static_cast<off_t>(begin_bytes + done_bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return EndsEarly(begin_bytes + done_bytes, begin_bytes + bytes.size());
    done_bytes += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

// The lists of an opening: a file, or the bytes that were read from one.
class ListSource {
 public:
  explicit ListSource(const UniqueFd& fd) : fd_(&fd) {}
  explicit ListSource(std::span<const char> bytes) : bytes_(bytes) {}

  // Refuses a descriptor that the counts do not ask for, and misses one that they do.
  absl::Status Check(const OpenSequenceRequest& request) const {
    if (fd_ == nullptr) return absl::OkStatus();
    if (fd_->valid() == request.has_file()) {
      return request.has_file() ? CheckFile(*fd_) : absl::OkStatus();
    }
    return Invalid("num_fds",
                   fmt::format("{} ids and {} bytes outside the message need {}, but {} came",
                               request.num_list_ids(), request.num_grammar_bytes,
                               request.has_file() ? "one descriptor" : "no descriptor",
                               fd_->valid() ? "one" : "none"));
  }

  absl::Status Read(uint64_t begin_bytes, std::span<char> to) const {
    if (fd_ != nullptr) return ReadFile(*fd_, begin_bytes, to);
    if (begin_bytes + to.size() > bytes_.size())
      return EndsEarly(bytes_.size(), begin_bytes + to.size());
    std::copy_n(bytes_.data() + begin_bytes, to.size(), to.data());
    return absl::OkStatus();
  }

 private:
  const UniqueFd* fd_ = nullptr;  // null: bytes_
  std::span<const char> bytes_;
};

absl::Status ReadLists(const OpenSequenceRequest& request, const ListSource& source,
                       OpenRequest* out) {
  const uint64_t count = request.num_list_ids();
  if (count > kListIdsMax) {
    return Invalid("num_prompt_ids",
                   fmt::format("num_prompt_ids, num_output_ids, num_allowed_token_ids, "
                               "num_disallowed_token_ids and num_no_repeat_ngram_whitelist are {} "
                               "together, at most {} are allowed",
                               count, kListIdsMax));
  }
  const uint64_t history = uint64_t{request.num_prompt_ids} + request.num_output_ids;
  const int64_t n = out->params.n;
  if (n > 0 && n <= kSamplesMax && static_cast<uint64_t>(n) * history > kSampleIdsMax) {
    return Invalid("n", fmt::format("n = {} samples of {} prompt_ids and output_ids are {} ids, at "
                                    "most {} are allowed in one opening; open fewer samples, or "
                                    "open one and fork it",
                                    n, history, static_cast<uint64_t>(n) * history, kSampleIdsMax));
  }
  if (request.num_grammar_bytes > grammar::kGrammarTextBytesMax) {
    return Invalid("grammar",
                   fmt::format("num_grammar_bytes = {} is outside 0 .. {}; split the "
                               "constraint, or mask rows in the engine",
                               request.num_grammar_bytes, grammar::kGrammarTextBytesMax));
  }
  if (absl::Status status = source.Check(request); !status.ok()) return status;
  if (!request.has_file()) return absl::OkStatus();
  std::vector<int32_t> ids(count);
  const std::span<char> bytes(reinterpret_cast<char*>(ids.data()), count * sizeof(int32_t));
  if (absl::Status status = source.Read(0, bytes); !status.ok()) return status;
  std::string& text = out->params.grammar_text;
  text.resize(request.num_grammar_bytes);
  if (absl::Status status = source.Read(bytes.size(), text); !status.ok()) return status;
  auto next = ids.begin();
  const auto take = [&next](uint32_t size, std::vector<TokenId>* to) {
    to->assign(next, next + size);
    next += size;
  };
  take(request.num_prompt_ids, &out->prompt);
  take(request.num_output_ids, &out->outputs);
  take(request.num_allowed_token_ids, &out->params.allowed_token_ids);
  take(request.num_disallowed_token_ids, &out->params.disallowed_token_ids);
  take(request.num_no_repeat_ngram_whitelist, &out->params.no_repeat_ngram_whitelist);
  return absl::OkStatus();
}

// ---- fields that are flat on the wire

absl::Status ReadNumbers(const OpenSequenceRequest& request, SequenceParams* params) {
  std::set<std::string_view> names;
  for (const auto& [name, value] : request.numbers) {
    if (!names.insert(name).second) {
      return Invalid(name, fmt::format("{} is given twice; name each parameter once", name));
    }
    if (const absl::Status status = SetNumber(name, value, params); !status.ok()) {
      return MakeError(ErrorCodeOf(status), name,
                       std::string_view(status.message().data(), status.message().size()));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadBias(const OpenSequenceRequest& request, SequenceParams* params) {
  if (request.logit_bias.size() != request.logit_bias_ids.size()) {
    return Invalid("logit_bias",
                   fmt::format("logit_bias has {} values for {} logit_bias_ids; each "
                               "id needs one",
                               request.logit_bias.size(), request.logit_bias_ids.size()));
  }
  for (size_t i = 0; i < request.logit_bias.size(); ++i) {
    params->logit_bias.push_back(
        {request.logit_bias_ids[i], static_cast<float>(request.logit_bias[i])});
  }
  return absl::OkStatus();
}

absl::Status ReadBadWords(const OpenSequenceRequest& request, SequenceParams* params) {
  const std::span<const int32_t> ids = request.bad_word_ids;
  size_t used = 0;
  for (const int32_t length : request.bad_word_lengths) {
    if (length < 1 || static_cast<size_t>(length) > ids.size() - used) {
      return Invalid("bad_word_lengths",
                     fmt::format("bad_word_lengths has {}, but {} of {} bad_word_ids are left; a "
                                 "word has 1 id or more",
                                 length, ids.size() - used, ids.size()));
    }
    const auto word = ids.subspan(used, length);
    params->bad_words.emplace_back(word.begin(), word.end());
    used += word.size();
  }
  if (used == ids.size()) return absl::OkStatus();
  return Invalid("bad_word_lengths",
                 fmt::format("bad_word_lengths add up to {}, but there are {} bad_word_ids", used,
                             ids.size()));
}

absl::Status ReadThinking(const OpenSequenceRequest& request, SequenceParams* params) {
  ThinkingParams& thinking = params->thinking;
  thinking.end_ids = request.thinking_end_ids;
  if (request.thinking_preset.empty()) return absl::OkStatus();
  std::optional<ThinkingParams> preset = FindThinkingPreset(request.thinking_preset);
  if (!preset.has_value()) {
    return Invalid("thinking_preset",
                   fmt::format("thinking_preset = \"{}\" is unknown; use glm-4.5, qwen3 or "
                               "deepseek-r1, or name the ids",
                               request.thinking_preset));
  }
  if (thinking.start_id != kNoToken || thinking.newline_id != kNoToken ||
      !thinking.end_ids.empty()) {
    return Invalid("thinking_preset",
                   fmt::format("thinking_preset = \"{}\" comes with thinking ids of its own; leave "
                               "thinking_start_id, thinking_end_ids and thinking_newline_id out",
                               request.thinking_preset));
  }
  preset->budget = thinking.budget;
  thinking = *std::move(preset);
  return absl::OkStatus();
}

absl::Status ReadProcessors(const OpenSequenceRequest& request, SequenceParams* params) {
  if (request.processor_values.size() != request.processor_names.size()) {
    return Invalid("processor_values",
                   fmt::format("{} processor_values for {} processor_names; "
                               "each name needs one, \"\" for every default",
                               request.processor_values.size(), request.processor_names.size()));
  }
  for (size_t i = 0; i < request.processor_names.size(); ++i) {
    ProcessorParams processor{request.processor_names[i], {}};
    for (const absl::string_view entry :
         absl::StrSplit(request.processor_values[i], ',', absl::SkipWhitespace())) {
      std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
      absl::StripAsciiWhitespace(&parts.first);
      double value = 0;
      if (parts.first.empty() || !absl::SimpleAtod(parts.second, &value)) {
        return Invalid("processors", fmt::format("processors[{}] ({}): \"{}\" is not key=number", i,
                                                 processor.name, std::string(entry)));
      }
      processor.values.emplace_back(parts.first, value);
    }
    params->processors.push_back(std::move(processor));
  }
  return absl::OkStatus();
}

absl::Status ReadResumed(const OpenSequenceRequest& request, OpenRequest* out) {
  if (request.refusal_code != 0) {
    return Invalid("refusal_code",
                   fmt::format("refusal_code = {} is for openings that are pending; send it with "
                               "OpenSequences",
                               request.refusal_code));
  }
  SequenceHistory& resumed = out->resumed;
  resumed.handle = request.handle;
  resumed.num_given = request.num_given_ids;
  resumed.cumulative_logprob = request.cumulative_logprob;
  resumed.finish_reason = static_cast<FinishReason>(request.finish_reason);
  resumed.stop_token = request.stop_token.empty() ? kNoToken : request.stop_token.front();
  if (request.finish_reason > static_cast<uint32_t>(FinishReason::kError)) {
    return Invalid("finish_reason",
                   fmt::format("finish_reason = {} is outside 0 .. {}", request.finish_reason,
                               static_cast<uint32_t>(FinishReason::kError)));
  }
  if (request.handle == 0 && (request.cumulative_logprob != 0 || request.finish_reason != 0 ||
                              request.num_given_ids != 0)) {
    return Invalid("handle",
                   "handle is missing: only a sequence that was open at another daemon "
                   "has num_given_ids, a cumulative_logprob and a finish_reason");
  }
  if (request.num_given_ids > request.num_output_ids) {
    return Invalid("num_given_ids",
                   fmt::format("num_given_ids = {} is outside 0 .. {}, the output_ids",
                               request.num_given_ids, request.num_output_ids));
  }
  if (request.handle != 0 && (out->params.n != 1 || !request.has_seed)) {
    return Invalid("handle", fmt::format("handle = {:#x} is of one sequence: n = {} must be 1, and "
                                         "has_seed true",
                                         request.handle, out->params.n));
  }
  return absl::OkStatus();
}

absl::StatusOr<OpenRequest> ReadFrom(const OpenSequenceRequest& request, const ListSource& source) {
  OpenRequest out;
  SequenceParams& params = out.params;
  params.has_seed = request.has_seed;
  params.seed = request.seed;
  params.stop_token_ids = request.stop_token_ids;
  params.logprob_token_ids = request.logprob_token_ids;
  params.stop_strings = request.stop_strings;
  params.stop_regex = request.stop_regex;
  params.synthetic_rates = request.synthetic_rates;
  for (const auto read : {ReadNumbers, ReadBias, ReadBadWords, ReadThinking, ReadProcessors}) {
    if (absl::Status status = read(request, &params); !status.ok()) return status;
  }
  if (absl::Status status = ReadResumed(request, &out); !status.ok()) return status;
  if (absl::Status status = ReadLists(request, source, &out); !status.ok()) return status;
  return out;
}

}  // namespace

absl::StatusOr<OpenRequest> ReadOpenRequest(const OpenSequenceRequest& request,
                                            const UniqueFd& lists) {
  return ReadFrom(request, ListSource(lists));
}

absl::StatusOr<OpenRequest> ReadOpenRequest(const OpenSequenceRequest& request,
                                            std::span<const char> lists) {
  return ReadFrom(request, ListSource(lists));
}

absl::StatusOr<SequenceHistory> ReadRefused(const OpenSequenceRequest& request,
                                            absl::Status* refusal) {
  if (request.handle == 0 || request.has_file() || !request.has_seed) {
    return Invalid("refusal_code",
                   fmt::format("refusal_code = {} is of one sequence that was open at another "
                               "daemon: handle and seed must be there, and no lists",
                               request.refusal_code));
  }
  if (request.refusal_code > SPECD_ERROR_INVALID_ARGUMENT ||
      request.refusal_code < SPECD_ERROR_TIMEOUT) {
    return Invalid("refusal_code",
                   fmt::format("refusal_code = {} is outside {} .. {}, the codes of errors",
                               request.refusal_code, static_cast<int>(SPECD_ERROR_TIMEOUT),
                               static_cast<int>(SPECD_ERROR_INVALID_ARGUMENT)));
  }
  *refusal = MakeError(request.refusal_code, request.refusal_field, request.refusal_text);
  SequenceHistory history;
  history.handle = request.handle;
  history.num_given = request.num_given_ids;
  return history;
}

absl::Status ReadListFile(const UniqueFd& fd, std::span<char> bytes) {
  if (absl::Status status = CheckFile(fd); !status.ok()) return status;
  return ReadFile(fd, 0, bytes);
}

absl::Status TooManySequences(size_t count) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "n",
                   fmt::format("the openings up to this one have {} sequences, at most {} are "
                               "allowed in one call; open the rest in another",
                               count, kOpeningsMax));
}

absl::Status CheckOpenings(const OpenSequencesRequest& request) {
  if (request.num_openings == 0 || request.num_openings > kOpeningsMax) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "num_openings",
                     fmt::format("num_openings = {} is outside 1 .. {}; open the rest in another "
                                 "call",
                                 request.num_openings, kOpeningsMax));
  }
  if (request.file_bytes > kOpeningsFileBytesMax) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "file_bytes",
                     fmt::format("file_bytes = {} of openings, at most {} are allowed in one call; "
                                 "open some of them in another",
                                 request.file_bytes, kOpeningsFileBytesMax));
  }
  return absl::OkStatus();
}

}  // namespace specd
