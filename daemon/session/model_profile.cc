#include "daemon/session/model_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "detokenizer/tokenizer_json.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// Adds the id unless it is there.
absl::Status AddEos(TokenId id, ModelProfile* profile) {
  const int32_t size = profile->vocab_size != 0 ? profile->vocab_size : kVocabSizeMax;
  if (id < 0 || id >= size) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "eos_token_ids",
                     fmt::format("eos_token_ids: {} is outside 0 .. {}", id, size - 1));
  }
  std::vector<TokenId>& ids = profile->eos_token_ids;
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  return absl::OkStatus();
}

// The markers are made here once to learn whether they can be.
absl::Status SetReasoning(const grammar::ReasoningTexts& texts, ModelProfile* profile) {
  if (texts.start.empty() && texts.end.empty()) return absl::OkStatus();
  const auto refuse = [](std::string_view text) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "reasoning_end", text);
  };
  if (texts.end.empty()) {
    return refuse(
        fmt::format("reasoning_start = \"{}\" needs a reasoning_end, after which "
                    "constraints begin",
                    texts.start));
  }
  if (!profile->vocabulary.has_value()) {
    return refuse(
        fmt::format("reasoning_end = \"{}\" needs a tokenizer, in whose tokens it is "
                    "looked for; give --tokenizer",
                    texts.end));
  }
  const absl::Status made =
      grammar::ReasoningMarkers::Create(texts, &*profile->vocabulary, profile->vocabulary->size())
          .status();
  if (!made.ok()) {
    return refuse(
        fmt::format("reasoning_end = \"{}\": {}", texts.end, std::string(made.message())));
  }
  profile->reasoning = texts;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelProfile> LoadModelProfile(const ModelProfileOptions& options) {
  ModelProfile profile;
  profile.vocab_size = options.vocab_size;
  if (options.vocab_size < 0 || options.vocab_size > kVocabSizeMax) {
    return absl::InvalidArgumentError(
        fmt::format("vocab_size = {} is outside 0 .. {}", options.vocab_size, kVocabSizeMax));
  }
  for (const TokenId id : options.eos_token_ids) {
    if (absl::Status status = AddEos(id, &profile); !status.ok()) return status;
  }
  if (options.tokenizer_path.empty()) {
    if (!options.eos_tokens.empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "eos_tokens = {} needs a tokenizer to look it up in; give --tokenizer, or its "
          "number in --eos_token_ids",
          options.eos_tokens.front()));
    }
    if (absl::Status status = SetReasoning(options.reasoning, &profile); !status.ok()) {
      return status;
    }
    return profile;
  }
  absl::StatusOr<Vocabulary> vocabulary = LoadTokenizerJson(options.tokenizer_path);
  if (!vocabulary.ok()) return vocabulary.status();
  profile.vocabulary = *std::move(vocabulary);
  if (profile.vocab_size != 0 && profile.vocab_size < profile.vocabulary->size()) {
    return absl::InvalidArgumentError(
        fmt::format("vocab_size = {} is smaller than the tokenizer, which has ids up to {}",
                    profile.vocab_size, profile.vocabulary->size() - 1));
  }
  for (const std::string& content : options.eos_tokens) {
    const std::optional<TokenId> id = profile.vocabulary->FindAdded(content);
    if (!id.has_value()) {
      return absl::InvalidArgumentError(fmt::format(
          "eos_tokens: {} is not among the added_tokens of {}", content, options.tokenizer_path));
    }
    if (absl::Status status = AddEos(*id, &profile); !status.ok()) return status;
  }
  if (absl::Status status = SetReasoning(options.reasoning, &profile); !status.ok()) return status;
  return profile;
}

absl::Status CheckVocabSize(const ModelProfile& profile, uint32_t engine_vocab_size) {
  for (const TokenId id : profile.eos_token_ids) {
    if (static_cast<uint32_t>(id) < engine_vocab_size) continue;
    return absl::FailedPreconditionError(
        fmt::format("vocab_size = {}, but the model profile has the EOS id {}; use the profile of "
                    "your model",
                    engine_vocab_size, id));
  }
  if (profile.vocab_size != 0) {
    if (engine_vocab_size == static_cast<uint32_t>(profile.vocab_size)) return absl::OkStatus();
    return absl::FailedPreconditionError(fmt::format(
        "vocab_size = {}, but this daemon serves a model with {} columns (--vocab_size); attach to "
        "the daemon of your model",
        engine_vocab_size, profile.vocab_size));
  }
  if (!profile.vocabulary.has_value()) return absl::OkStatus();
  const auto ids = static_cast<uint32_t>(profile.vocabulary->size());
  if (engine_vocab_size >= ids && engine_vocab_size < ids + kPaddingColumnsMax) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(fmt::format(
      "vocab_size = {}, but the daemon's tokenizer has {} ids: {} .. {} columns fit (padding "
      "included); use the tokenizer of your model, or state the padded width with --vocab_size",
      engine_vocab_size, ids, ids, ids + kPaddingColumnsMax - 1));
}

}  // namespace specd
