#include "daemon/base/command_line.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"

namespace specd {
namespace {

bool is_parsing = false;
bool is_help_wanted = false;

bool IsHelp(std::string_view argument) {
  const size_t name = argument.find_first_not_of('-');
  return name > 0 && name <= 2 && argument.substr(name).starts_with("help");
}

void GiveCode(int code, void*) {
  if (!is_parsing || code != 1) return;
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
  is_parsing = true;
  std::vector<char*> positional = absl::ParseCommandLine(argc, argv);
  is_parsing = false;
  return positional;
}

}  // namespace specd
