// ProfileFlag is the value of --profile for specd and specd-detok: NAME=FILE, any number of them.
//
// The flag may be repeated, and one flag may have several, separated by commas. Used by one thread,
// at start.
//
//   ABSL_FLAG(specd::ProfileFlag, profile, {}, "...");
//   absl::Status status = specd::AddProfiles(absl::GetFlag(FLAGS_profile), &models);
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/config.h"

namespace specd {

struct ProfileFlag {
  std::vector<std::string> texts;  // of all flags so far
};

bool AbslParseFlag(absl::string_view text, ProfileFlag* flag, std::string* error);
std::string AbslUnparseFlag(const ProfileFlag& flag);

// Reads the files. An error has the name of the flag or the file.
absl::Status ReadProfiles(const ProfileFlag& flag, std::vector<NamedProfile>* profiles);

}  // namespace specd
