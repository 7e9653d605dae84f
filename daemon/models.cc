#include "daemon/models.h"

#include <fmt/format.h>

#include <string>

namespace specd {

absl::Status LoadModels(const DaemonConfig& config, ModelProfiles* models) {
  if (config.profiles.empty() || !config.model.IsEmpty()) {
    if (absl::Status status = models->Add("", config.model); !status.ok()) return status;
  }
  for (const NamedProfile& named : config.profiles) {
    if (absl::Status status = models->Add(named.name, named.model); !status.ok()) return status;
  }
  if (config.detokenizer != DetokenizerMode::kThread) return absl::OkStatus();
  for (const auto& [name, model] : models->models()) {
    if (model->profile.vocabulary.has_value()) continue;
    return absl::InvalidArgumentError(
        name.empty()
            ? "detokenizer = thread needs --tokenizer; give one, or start with --detokenizer=off "
              "for ids only"
            : fmt::format(
                  "detokenizer = thread needs a tokenizer for every model, and profile = {} "
                  "has none; name it in the file, or start with --detokenizer=off for ids "
                  "only",
                  name));
  }
  return absl::OkStatus();
}

TextVocabularies VocabulariesOf(const ModelProfiles& models) {
  TextVocabularies vocabularies;
  for (const auto& [name, model] : models.models()) {
    if (model->profile.vocabulary.has_value()) {
      vocabularies.emplace(name, &*model->profile.vocabulary);
    }
  }
  return vocabularies;
}

}  // namespace specd
