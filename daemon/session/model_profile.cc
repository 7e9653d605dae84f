#include "daemon/session/model_profile.h"

#include <fmt/format.h>

#include <utility>

#include "detokenizer/tokenizer_json.h"

namespace specd {

absl::StatusOr<ModelProfile> LoadModelProfile(const ModelProfileOptions& options) {
  ModelProfile profile;
  profile.vocab_size = options.vocab_size;
  if (options.vocab_size < 0 || options.vocab_size > kVocabSizeMax) {
    return absl::InvalidArgumentError(
        fmt::format("vocab_size = {} is outside 0 .. {}", options.vocab_size, kVocabSizeMax));
  }
  if (options.tokenizer_path.empty()) {
    if (!options.eos_tokens.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("eos_tokens = {} needs a tokenizer to look it up in; give --tokenizer",
                      options.eos_tokens.front()));
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
    profile.eos_token_ids.push_back(*id);
  }
  return profile;
}

absl::Status CheckVocabSize(const ModelProfile& profile, uint32_t engine_vocab_size) {
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
