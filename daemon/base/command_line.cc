#include "daemon/base/command_line.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "kernels/core/nearest_name.h"

namespace specd {
namespace {

bool is_parsing = false;
bool is_help_wanted = false;
std::span<char* const> arguments;

bool IsHelp(std::string_view argument) {
  const size_t name = argument.find_first_not_of('-');
  return name > 0 && name <= 2 && argument.substr(name).starts_with("help");
}

const absl::CommandLineFlag* FindFlag(std::string_view name) {
  return absl::FindCommandLineFlag({name.data(), name.size()});
}

// The names of the program's own flags, in order, so that the first of equally near ones is meant.
std::vector<std::string_view> OwnFlags() {
  std::vector<std::string_view> names;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    const std::string file = flag->Filename();
    if (file.find("absl/") == std::string::npos) names.emplace_back(name.data(), name.size());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Abseil has named the flags that it does not know.
void SuggestFlags() {
  const std::vector<std::string_view> names = OwnFlags();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--") return;
    if (!argument.starts_with("--")) continue;
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(2, equals - 2);
    if (const absl::CommandLineFlag* const flag = FindFlag(name); flag != nullptr) {
      // The next word is its value.
      if (equals == std::string_view::npos && !flag->IsOfType<bool>()) ++i;
      continue;
    }
    if (name.starts_with("no") && FindFlag(name.substr(2)) != nullptr) continue;
    const std::string meant = DidYouMean(name, names);
    if (!meant.empty()) std::cerr << "--" << name << " is unknown" << meant << std::endl;
  }
}

void GiveCode(int code, void*) {
  if (!is_parsing || code != 1) return;
  if (!is_help_wanted) SuggestFlags();
  std::cout.flush();
  std::fflush(nullptr);
  _exit(is_help_wanted ? 0 : kExitBadCommandLine);
}

}  // namespace

std::vector<char*> ParseFlags(int argc, char** argv, const ProgramWords& program) {
  absl::SetProgramUsageMessage({program.usage.data(), program.usage.size()});
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [source = std::string(program.source)](absl::string_view file) {
    return file.find(source) != absl::string_view::npos;
  };
  // Without the path of a build.
  usage.normalize_filename = [folder = std::string(program.source.substr(
                                  0, program.source.find('/') + 1))](absl::string_view file) {
    const size_t at = file.rfind(folder);
    return std::string(at == absl::string_view::npos ? file : file.substr(at));
  };
  if (!program.version.empty()) {
    usage.version_string = [version = std::string(program.version)] { return version + "\n"; };
  }
  absl::SetFlagsUsageConfig(usage);
  for (int i = 1; i < argc; ++i) is_help_wanted = is_help_wanted || IsHelp(argv[i]);
  on_exit(&GiveCode, nullptr);
  arguments = {argv + 1, argv + argc};
  is_parsing = true;
  std::vector<char*> positional = absl::ParseCommandLine(argc, argv);
  is_parsing = false;
  return positional;
}

}  // namespace specd
