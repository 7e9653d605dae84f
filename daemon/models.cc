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

TextWorker::Options TextWorkerFor(const DaemonConfig& config, const ModelProfiles& models,
                                  ZmqContext* context) {
  TextWorker::Options options;
  for (const auto& [name, model] : models.models()) {
    if (model->profile.vocabulary.has_value()) {
      options.vocabularies.emplace(name, &*model->profile.vocabulary);
    }
  }
  options.clock = Clock::Real();
  options.context = context;
  options.tokens_endpoint = config.tokens_endpoint;
  options.aborts_endpoint = config.aborts_endpoint;
  options.ask_endpoint = config.ask_endpoint;
  options.text_endpoint = config.text_endpoint;
  options.text_ask_endpoint = config.text_ask_endpoint;
  options.subscribers = SubscribersFor("text", config.allowed_uids, config.memory.endpoint_bytes);
  options.askers = AskersFor("text_ask", config.allowed_uids);
  options.keep = KeptFor(config);
  return options;
}

}  // namespace specd
