// LoadModels makes the models that a DaemonConfig names, for the daemon and for specd-detok.
//
// Used once, at start.
#pragma once

#include "absl/status/status.h"
#include "daemon/config.h"
#include "daemon/session/model_profiles.h"
#include "daemon/text/text_worker.h"

namespace specd {

// The flags of one model make the profile without a name. There is none if the flags name nothing
// and --profile names a model. With a thread for text, every model needs a tokenizer.
absl::Status LoadModels(const DaemonConfig& config, ModelProfiles* models);

// Returns the options of a text side for the models that have a tokenizer. The models and the
// context must outlive it.
TextWorker::Options TextWorkerFor(const DaemonConfig& config, const ModelProfiles& models,
                                  ZmqContext* context);

}  // namespace specd
