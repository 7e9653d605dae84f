#include "daemon/session/model_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "detokenizer/json_words.h"
#include "detokenizer/tokenizer_file.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// The name under which the tokenizer is given.
std::string_view TokenizerOption(bool embedded) { return embedded ? "tokenizer" : "--tokenizer"; }

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
absl::Status SetReasoning(const ModelProfileOptions& options, ModelProfile* profile) {
  const grammar::ReasoningTexts& texts = options.reasoning;
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
                    "looked for; give {}",
                    texts.end, TokenizerOption(options.embedded)));
  }
  if (options.reasoning_must_be_added && !profile->vocabulary->FindAdded(texts.end).has_value()) {
    return refuse(
        fmt::format("the reasoning_parser stands for {}, which is not among the added_tokens of "
                    "the tokenizer; name the text that ends the model's reasoning in "
                    "reasoning_end",
                    texts.end));
  }
  const auto made =
      grammar::ReasoningMarkers::Create(texts, &*profile->vocabulary, profile->vocabulary->size());
  if (!made.ok()) {
    return refuse(
        fmt::format("reasoning_end = \"{}\": {}", texts.end, std::string(made.status().message())));
  }
  const std::vector<TokenId>& forced = profile->thinking.end_ids;
  if (!forced.empty() && !(*made)->AreEnd(forced)) {
    return refuse(
        fmt::format("reasoning_end = \"{}\" is not the text of thinking_end_ids, so a constraint "
                    "would never begin after a thought that a budget ends; correct one of them",
                    texts.end));
  }
  profile->reasoning = texts;
  return absl::OkStatus();
}

// Every id of the markers, for a check.
std::vector<TokenId> ThinkingIds(const ThinkingParams& thinking) {
  std::vector<TokenId> ids = thinking.end_ids;
  for (const TokenId id : {thinking.start_id, thinking.newline_id}) {
    if (id != kNoToken) ids.push_back(id);
  }
  return ids;
}

absl::Status SetThinking(const ThinkingParams& thinking, ModelProfile* profile) {
  const auto refuse = [](std::string_view text) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "thinking_end_ids", text);
  };
  if (thinking.end_ids.size() > kThinkingEndIdsMax) {
    return refuse(fmt::format("thinking_end_ids has {} ids, at most {} are allowed",
                              thinking.end_ids.size(), kThinkingEndIdsMax));
  }
  const std::vector<TokenId> ids = ThinkingIds(thinking);
  if (!ids.empty() && (thinking.start_id == kNoToken || thinking.end_ids.empty())) {
    return refuse(
        "a thinking budget needs thinking_start_id and thinking_end_ids; give both, or neither of "
        "the thinking ids");
  }
  const int32_t size = profile->vocab_size != 0 ? profile->vocab_size : kVocabSizeMax;
  for (const TokenId id : ids) {
    if (id >= 0 && id < size) continue;
    return refuse(fmt::format("thinking ids: {} is outside 0 .. {}", id, size - 1));
  }
  profile->thinking = thinking;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelProfile> LoadModelProfile(const ModelProfileOptions& options) {
  ModelProfile profile;
  profile.vocab_size = options.vocab_size;
  profile.embedded = options.embedded;
  if (options.vocab_size < 0 || options.vocab_size > kVocabSizeMax) {
    return absl::InvalidArgumentError(
        fmt::format("vocab_size = {} is outside 0 .. {}", options.vocab_size, kVocabSizeMax));
  }
  for (const TokenId id : options.eos_token_ids) {
    if (absl::Status status = AddEos(id, &profile); !status.ok()) return status;
  }
  if (absl::Status status = SetThinking(options.thinking, &profile); !status.ok()) return status;
  profile.scale = options.scale;
  profile.cap = options.cap;
  profile.grammar = options.grammar;
  if (options.tokenizer_path.empty()) {
    if (!options.eos_tokens.empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "eos_tokens = {} needs a tokenizer to look it up in; give {}, or the token's number in "
          "eos_token_ids",
          options.eos_tokens.front(), TokenizerOption(options.embedded)));
    }
    if (absl::Status status = SetReasoning(options, &profile); !status.ok()) {
      return status;
    }
    return profile;
  }
  absl::StatusOr<Vocabulary> vocabulary = OpenTokenizer(options.tokenizer_path);
  if (!vocabulary.ok()) return vocabulary.status();
  profile.vocabulary = *std::move(vocabulary);
  profile.tokenizer_hash = profile.vocabulary->Hash();
  if (profile.vocab_size != 0 && profile.vocab_size < profile.vocabulary->MinColumns()) {
    return absl::InvalidArgumentError(
        fmt::format("vocab_size = {} is smaller than the tokenizer, whose model has ids up to {}; "
                    "correct it, or name the tokenizer of the model",
                    profile.vocab_size, profile.vocabulary->MinColumns() - 1));
  }
  for (const std::string& content : options.eos_tokens) {
    const std::optional<TokenId> id = profile.vocabulary->FindAdded(content);
    if (!id.has_value()) {
      return absl::InvalidArgumentError(fmt::format(
          "eos_tokens: {} is not among the added_tokens of {}", content, options.tokenizer_path));
    }
    if (absl::Status status = AddEos(*id, &profile); !status.ok()) return status;
  }
  if (absl::Status status = SetReasoning(options, &profile); !status.ok()) return status;
  return profile;
}

absl::Status CheckTokenizer(const ModelProfile& profile, uint64_t engine_hash) {
  const uint64_t own = profile.tokenizer_hash;
  if (engine_hash == 0 || own == 0 || engine_hash == own) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_VOCABULARY, "tokenizer",
      fmt::format("the engine's tokenizer has the hash {:016x}, and that of {} has {:016x}, so "
                  "equal ids are other texts; start the daemon with the tokenizer.json of the "
                  "engine's model, attach to the daemon of that model, or name its profile",
                  engine_hash,
                  profile.name.empty() ? std::string("the daemon")
                                       : fmt::format("the daemon's profile \"{}\"", profile.name),
                  own));
}

static absl::Status WrongModel(std::string_view text) {
  return MakeError(SPECD_ERROR_VOCABULARY, "vocab_size", text);
}

absl::Status CheckVocabSize(const ModelProfile& profile, uint32_t engine_vocab_size) {
  for (const auto& [what, ids] : {std::pair{"EOS", profile.eos_token_ids},
                                  std::pair{"thinking", ThinkingIds(profile.thinking)}}) {
    for (const TokenId id : ids) {
      if (static_cast<uint32_t>(id) < engine_vocab_size) continue;
      return WrongModel(
          fmt::format("vocab_size = {}, but the model profile has the {} id {}; use the profile of "
                      "your model",
                      engine_vocab_size, what, id));
    }
  }
  if (profile.vocab_size != 0) {
    if (engine_vocab_size == static_cast<uint32_t>(profile.vocab_size)) return absl::OkStatus();
    return WrongModel(
        profile.embedded
            ? fmt::format("vocab_size = {}, but the profile_file has vocab_size = {}; correct one "
                          "of them",
                          engine_vocab_size, profile.vocab_size)
            : fmt::format("vocab_size = {}, but this daemon serves a model with {} columns "
                          "(--vocab_size); attach to the daemon of your model",
                          engine_vocab_size, profile.vocab_size));
  }
  if (!profile.vocabulary.has_value()) return absl::OkStatus();
  const int32_t columns_min = profile.vocabulary->MinColumns();
  if (engine_vocab_size >= static_cast<uint32_t>(columns_min)) return absl::OkStatus();
  return WrongModel(fmt::format(
      "vocab_size = {}, but the model of {} has ids up to {}, so {} columns or more fit; "
      "use the tokenizer of your model{}",
      engine_vocab_size, profile.embedded ? "tokenizer" : "the daemon's --tokenizer",
      columns_min - 1, columns_min,
      profile.embedded ? "" : ", or attach to the daemon of your model"));
}

std::string WarnOfUnreachableIds(const ModelProfile& profile, uint32_t engine_vocab_size) {
  if (!profile.vocabulary.has_value()) return {};
  const Vocabulary& vocabulary = *profile.vocabulary;
  constexpr int kShownMax = 8;
  std::string shown;
  int count = 0;
  for (auto id = static_cast<TokenId>(engine_vocab_size); id < vocabulary.size(); ++id) {
    if (!vocabulary.Contains(id) || ++count > kShownMax) continue;
    shown += fmt::format("{}{} {}", count > 1 ? ", " : "", id, Quote(vocabulary.Bytes(id)));
  }
  if (count == 0) return {};
  return fmt::format(
      "the tokenizer has {} ids that are never drawn, because a row has only {} "
      "columns: {}{}",
      count, engine_vocab_size, shown, count > kShownMax ? ", ..." : "");
}

}  // namespace specd
