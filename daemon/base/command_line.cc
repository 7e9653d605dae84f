#include "daemon/base/command_line.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string_view>

#include "absl/flags/parse.h"

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

std::vector<char*> ParseFlags(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) is_help_wanted = is_help_wanted || IsHelp(argv[i]);
  on_exit(&GiveCode, nullptr);
  is_parsing = true;
  std::vector<char*> positional = absl::ParseCommandLine(argc, argv);
  is_parsing = false;
  return positional;
}

}  // namespace specd
