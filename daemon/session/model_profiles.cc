#include "daemon/session/model_profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("._-/:").find(c) != std::string_view::npos;
}

absl::Status Refuse(std::string_view text) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "profile", text);
}

}  // namespace

absl::Status ModelProfiles::Add(const std::string& name, const ModelProfileOptions& options) {
  if (name.size() > kNameBytesMax || !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return Refuse(
        fmt::format("profile = \"{}\" is no name of a profile: 1 .. {} letters, digits "
                    "and ._-/: are allowed",
                    name.substr(0, kNameBytesMax), kNameBytesMax));
  }
  if (models_.contains(name)) {
    return Refuse(fmt::format("profile = {} is given twice; name each profile once", name));
  }
  if (models_.size() >= kProfilesMax) {
    return Refuse(fmt::format("more than {} profiles; start another daemon", kProfilesMax));
  }
  absl::StatusOr<ModelProfile> profile = LoadModelProfile(options);
  if (!profile.ok()) {
    return name.empty() ? profile.status()
                        : absl::Status(profile.status().code(),
                                       fmt::format("profile = {}: {}", name,
                                                   std::string(profile.status().message())));
  }
  profile->name = name;
  models_.emplace(name,
                  std::make_unique<ServedModel>(*std::move(profile), compile_limits_, on_compile_));
  return absl::OkStatus();
}

absl::StatusOr<ServedModel*> ModelProfiles::Find(std::string_view name) const {
  if (const auto found = models_.find(name); found != models_.end()) return found->second.get();
  std::vector<std::string_view> names;
  for (const auto& [known, model] : models_) {
    if (!known.empty()) names.push_back(known);
  }
  if (name.empty()) {
    return Refuse(
        fmt::format("profile is not named, and this daemon has a profile for each name "
                    "only; name one of {} in specd_options.profile",
                    fmt::join(names, ", ")));
  }
  return Refuse(
      fmt::format("profile = \"{}\" is not one of this daemon's ({}); name one of them, "
                  "or start the daemon with --profile={}=FILE",
                  name,
                  names.empty() ? std::string("it has none with a name")
                                : fmt::format("{}", fmt::join(names, ", ")),
                  name));
}

}  // namespace specd
