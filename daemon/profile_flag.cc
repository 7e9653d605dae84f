#include "daemon/profile_flag.h"

#include <fmt/format.h>

#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/session/profile_file.h"

namespace specd {

// Abseil keeps the value of the last flag only, so the texts of the earlier ones are kept here.
bool AbslParseFlag(absl::string_view text, ProfileFlag* flag, std::string*) {
  static std::vector<std::string> all;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    all.emplace_back(part);
  }
  flag->texts = all;
  return true;
}

std::string AbslUnparseFlag(const ProfileFlag& flag) { return absl::StrJoin(flag.texts, ","); }

absl::Status ReadProfiles(const ProfileFlag& flag, std::vector<NamedProfile>* profiles) {
  for (const std::string& text : flag.texts) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.first.empty() || parts.second.empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "profile = {} is not of the form NAME=FILE, as in qwen3=/etc/specd/qwen3.json", text));
    }
    absl::StatusOr<ModelProfileOptions> options = ReadProfileFile(parts.second);
    if (!options.ok()) return options.status();
    profiles->push_back({parts.first, *std::move(options)});
  }
  return absl::OkStatus();
}

}  // namespace specd
