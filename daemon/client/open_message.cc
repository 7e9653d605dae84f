#include "daemon/client/open_message.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/client/param_fields.h"
#include "daemon/session/open_request.h"
#include "ipc/base/error.h"
#include "speculative/params/params.h"

namespace specd {
namespace {

// Checked before an array is read: a wild count must not become a wild read.
absl::Status CheckList(const char* field, const void* items, uint64_t count, uint64_t max) {
  if (count > max) {
    return Invalid(field, fmt::format("{}.count = {} is outside 0 .. {}", field, count, max));
  }
  if (count > 0 && items == nullptr) {
    return Invalid(field, fmt::format("{}.items is NULL but {}.count = {}", field, field, count));
  }
  return absl::OkStatus();
}

// Copies lists, and remembers the first list that cannot be copied.
class ListCopier {
 public:
  void Copy(const char* field, const specd_ids& from, uint64_t max, std::vector<int32_t>* to) {
    if (Check(field, from.items, from.count, max)) to->assign(from.items, from.items + from.count);
  }

  // Copies into the file; only the count goes into the message.
  void CopyToFile(const char* field, const specd_ids& from, uint32_t* count) {
    if (!Check(field, from.items, from.count, kListIdsMax - file_.size())) return;
    *count = static_cast<uint32_t>(from.count);
    file_.insert(file_.end(), from.items, from.items + from.count);
  }

  void Copy(const char* field, const specd_strings& from, uint64_t max,
            std::vector<std::string>* to) {
    if (!Check(field, from.items, from.count, max)) return;
    for (uint64_t i = 0; i < from.count; ++i) {
      if (from.items[i] == nullptr) {
        return Fail(Invalid(field, fmt::format("{}.items[{}] is NULL", field, i)));
      }
      to->emplace_back(from.items[i]);
    }
  }

  // Appends to the numbers that are there.
  void Copy(const specd_numbers& from, NamedNumbers* to) {
    if (!Check("numbers", from.items, from.count, kNumbersMax)) return;
    for (uint64_t i = 0; i < from.count; ++i) {
      if (from.items[i].name == nullptr) {
        return Fail(Invalid("numbers", fmt::format("numbers.items[{}].name is NULL", i)));
      }
      to->emplace_back(from.items[i].name, from.items[i].value);
    }
  }

  void CopyBias(const specd_params& params, OpenSequenceRequest* request) {
    Copy("logit_bias_ids", params.logit_bias_ids, kLogitBiasMax, &request->logit_bias_ids);
    Copy("logit_bias", params.logit_bias, kLogitBiasMax, &request->logit_bias);
  }

  void Copy(const char* field, const specd_floats& from, uint64_t max, std::vector<double>* to) {
    if (Check(field, from.items, from.count, max)) to->assign(from.items, from.items + from.count);
  }

  void CopyProcessors(const specd_params& params, OpenSequenceRequest* request) {
    if (!Check("processors", params.processors, params.num_processors, kProcessorsMax)) return;
    for (uint32_t i = 0; i < params.num_processors; ++i) {
      const specd_processor& processor = params.processors[i];
      if (processor.name == nullptr) {
        return Fail(Invalid("processors", fmt::format("processors[{}].name is NULL", i)));
      }
      request->processor_names.emplace_back(processor.name);
      request->processor_values.emplace_back(processor.values == nullptr ? "" : processor.values);
    }
  }

  // Notes the text; it follows the ids in the file. A length of 0 means that a NUL ends it.
  void CopyText(const char* text, uint64_t size_bytes, OpenSequenceRequest* request) {
    constexpr uint64_t kMax = grammar::kGrammarTextBytesMax;
    if (text != nullptr && size_bytes == 0) size_bytes = strnlen(text, kMax + 1);
    if (size_bytes > kMax) {
      return Fail(Invalid("grammar", fmt::format("grammar has more than {} bytes; split the "
                                                 "constraint, or mask rows in the engine",
                                                 kMax)));
    }
    if (text == nullptr && size_bytes > 0) {
      return Fail(
          Invalid("grammar", fmt::format("grammar is NULL but grammar_bytes = {}", size_bytes)));
    }
    text_ = {text, size_bytes};
    request->num_grammar_bytes = static_cast<uint32_t>(size_bytes);
  }

  const absl::Status& status() const { return status_; }
  // The file's two parts.
  std::vector<int32_t> TakeIds() { return std::move(file_); }
  std::string_view text() const { return text_; }

 private:
  bool Check(const char* field, const void* items, uint64_t count, uint64_t max) {
    if (status_.ok()) status_ = CheckList(field, items, count, max);
    return status_.ok();
  }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  absl::Status status_;
  std::vector<int32_t> file_;
  std::string_view text_;
};

// The number of sequences that the message asks for. 1 if n is not a valid number; the reader of
// the message refuses such an n.
uint32_t SamplesOf(const NamedNumbers& numbers) {
  for (const auto& [name, value] : numbers) {
    if (name == "n" && value >= 1 && value <= kSamplesMax) return static_cast<uint32_t>(value);
  }
  return 1;
}

// Copies in the order that OpenSequenceRequest names. ReadOpenRequest takes the lists out in that
// order.
void CopyFileLists(const specd_params& params, ListCopier* copier, OpenSequenceRequest* request) {
  copier->CopyToFile("prompt_ids", params.prompt_ids, &request->num_prompt_ids);
  copier->CopyToFile("output_ids", params.output_ids, &request->num_output_ids);
  copier->CopyToFile("allowed_token_ids", params.allowed_token_ids,
                     &request->num_allowed_token_ids);
  copier->CopyToFile("disallowed_token_ids", params.disallowed_token_ids,
                     &request->num_disallowed_token_ids);
  copier->CopyToFile("no_repeat_ngram_whitelist", params.no_repeat_ngram_whitelist,
                     &request->num_no_repeat_ngram_whitelist);
}

template <class T>
std::string_view BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

absl::Status Append(const UniqueFd& fd, std::string_view field, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return MakeErrnoError(SPECD_ERROR_EXHAUSTED, field,
                            fmt::format("a file with {} more bytes", bytes.size()), errno);
    }
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> MakeMemfd(const char* name, std::string_view field) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC));
  if (!fd.valid()) return MakeErrnoError(SPECD_ERROR_EXHAUSTED, field, "no memory", errno);
  return fd;
}

absl::StatusOr<UniqueFd> MakeListFile(std::span<const int32_t> ids, std::string_view text) {
  absl::StatusOr<UniqueFd> made = MakeMemfd("specd-ids", "prompt_ids");
  if (!made.ok()) return made.status();
  UniqueFd fd = *std::move(made);
  if (absl::Status s = Append(fd, "prompt_ids", BytesOf(ids)); !s.ok()) return s;
  if (absl::Status s = Append(fd, "grammar", text); !s.ok()) return s;
  return fd;
}

}  // namespace

absl::StatusOr<OpenContent> ReadOpenContent(std::string_view request_id,
                                            const specd_params& params) {
  if (params.has_seed > 1) {
    return Invalid("has_seed", fmt::format("has_seed = {} must be 0 or 1", params.has_seed));
  }
  OpenContent content;
  OpenSequenceRequest& request = content.request;
  request.request_id = request_id;
  request.has_seed = params.has_seed != 0;
  request.seed = params.seed;
  if (params.thinking_preset != nullptr) request.thinking_preset = params.thinking_preset;
  request.numbers = ChangedFields(params);
  ListCopier copier;
  copier.Copy(params.numbers, &request.numbers);
  copier.CopyBias(params, &request);
  copier.Copy("bad_word_ids", params.bad_word_ids, kBadWordIdsMax, &request.bad_word_ids);
  copier.Copy("bad_word_lengths", params.bad_word_lengths, kBadWordsMax, &request.bad_word_lengths);
  copier.Copy("thinking_end_ids", params.thinking_end_ids, kThinkingEndIdsMax,
              &request.thinking_end_ids);
  copier.CopyProcessors(params, &request);
  copier.Copy("stop_token_ids", params.stop_token_ids, kStopIdsMax, &request.stop_token_ids);
  copier.Copy("stop_strings", params.stop_strings, kStopStringsMax, &request.stop_strings);
  copier.Copy("stop_regex", params.stop_regex, kStopRegexMax, &request.stop_regex);
  copier.Copy("logprob_token_ids", params.logprob_token_ids, kLogprobTokenIdsMax,
              &request.logprob_token_ids);
  copier.Copy("synthetic_rates", params.synthetic_rates, kSyntheticRatesMax,
              &request.synthetic_rates);
  CopyFileLists(params, &copier, &request);
  copier.CopyText(params.grammar, params.grammar_bytes, &request);
  if (!copier.status().ok()) return copier.status();
  content.ids = copier.TakeIds();
  content.text = copier.text();
  content.num_sequences = SamplesOf(request.numbers);
  return content;
}

absl::StatusOr<OpenMessage> MakeOpenMessage(std::string_view request_id,
                                            const specd_params& params) {
  absl::StatusOr<OpenContent> content = ReadOpenContent(request_id, params);
  if (!content.ok()) return content.status();
  OpenMessage message;
  message.request = std::move(content->request);
  message.num_sequences = content->num_sequences;
  if (!message.request.has_file()) return message;
  absl::StatusOr<UniqueFd> file = MakeListFile(content->ids, content->text);
  if (!file.ok()) return file.status();
  message.lists = *std::move(file);
  return message;
}

absl::StatusOr<bool> OpeningsFile::Add(OpenContent content) {
  const absl::StatusOr<std::vector<uint8_t>> message =
      EncodeRequest(std::move(content.request), num_openings_);
  if (!message.ok()) return message.status();
  const std::string_view ids = BytesOf<int32_t>(content.ids);
  const uint64_t size_bytes = bytes_.size() + message->size() + ids.size() + content.text.size();
  if (size_bytes > kOpeningsFileBytesMax) {
    if (num_openings_ > 0) return false;
    return Invalid("num_openings", fmt::format("the opening has {} bytes, at most {} are allowed",
                                               size_bytes, kOpeningsFileBytesMax));
  }
  bytes_.append(BytesOf<uint8_t>(*message));
  bytes_.append(ids);
  bytes_.append(content.text);
  ++num_openings_;
  num_sequences_ += content.num_sequences;
  return true;
}

absl::StatusOr<OpeningsMessage> OpeningsFile::Finish() && {
  OpeningsMessage message;
  absl::StatusOr<UniqueFd> file = MakeMemfd("specd-openings", "num_openings");
  if (!file.ok()) return file.status();
  if (absl::Status s = Append(*file, "num_openings", bytes_); !s.ok()) return s;
  message.request = {.num_openings = num_openings_,
                     .file_bytes = static_cast<uint32_t>(bytes_.size())};
  message.file = *std::move(file);
  message.num_sequences = num_sequences_;
  return message;
}

absl::StatusOr<OpeningsMessage> MakeOpeningsMessage(std::span<const NamedParams> openings,
                                                    uint32_t* refused) {
  OpeningsFile file;
  for (uint32_t i = 0; i < openings.size(); ++i) {
    absl::StatusOr<OpenContent> content =
        ReadOpenContent(openings[i].request_id, *openings[i].params);
    const absl::StatusOr<bool> added =
        content.ok() ? file.Add(*std::move(content)) : absl::StatusOr<bool>(content.status());
    if (added.ok() && *added) continue;
    *refused = i;
    if (!added.ok()) return added.status();
    return Invalid(
        "num_openings",
        fmt::format("the openings up to this one have more bytes than fit: at most {} are "
                    "allowed in one call; open the rest in another",
                    kOpeningsFileBytesMax));
  }
  return std::move(file).Finish();
}

}  // namespace specd
