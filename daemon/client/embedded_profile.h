// LoadEmbeddedModel loads the model of an embedded engine from specd_options, for MakeEngineLink.
//
// The facts of a model come from a profile file, from the fields of specd_options, or from both; a
// fact that both name is refused. Over a socket the daemon has the models. Every such field is then
// refused with the flag that replaces it, except for the tokenizer, which the daemon compares with
// its own. Pure functions apart from reading files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/model_profile.h"
#include "daemon/session/model_profiles.h"

namespace specd {

struct EmbeddedModel {
  ModelProfileOptions fields = {};  // the fields of specd_options
  std::string profile_file = {};    // the path of a profile file, or empty
  uint32_t compile_ms = 0;          // of one constraint; 0: the default
  uint32_t compile_mib = 0;
  uint32_t allow_lossy = 0;
};

// REQUIRES an engine over a socket. Refuses the first field that is given.
absl::Status CheckNoProfile(const EmbeddedModel& model);

// The hash of the engine's tokenizer (Vocabulary::Hash); 0 if it names none.
absl::StatusOr<uint64_t> HashOfTokenizer(const EmbeddedModel& model);

// Every error has the field of specd_options that it is about.
absl::StatusOr<std::unique_ptr<ServedModel>> LoadEmbeddedModel(const EmbeddedModel& model);

}  // namespace specd
