#include "tests/gpu/check_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace specd {

namespace {

constexpr const char* kUsage =
    "{}: {}\n"
    "\n"
    "  --list           the checks, a line each: name <tab> what it promises\n"
    "  --check NAME     plays one; prints status <tab> detail, the status being pass, fail,\n"
    "                   skipped, or observed where CUDA promises nothing\n"
    "  --json           the result as a JSON object, with its figures\n"
    "{}"
    "  --help           this text\n"
    "\n"
    "Exit status: 0 not failed, 1 failed, 2 the arguments, 3 no device.\n";

std::string JsonText(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string JsonOf(const ProgramCheck& check, const AttachResult& result) {
  std::string figures;
  for (const auto& [name, value] : result.figures) {
    figures += fmt::format("{}{}: {}", figures.empty() ? "" : ", ", JsonText(name), value);
  }
  return fmt::format("{{\"name\": {}, \"status\": \"{}\", \"detail\": {}, \"figures\": {{{}}}}}\n",
                     JsonText(check.name), NameOf(result.status), JsonText(result.detail), figures);
}

int UsageError(const CheckProgram& program, const std::string& why) {
  fmt::print(stderr, "error: {}; see {} --help\n", why, program.name);
  return 2;
}

int Play(const ProgramCheck& check, bool as_json) {
  const std::optional<AttachResult> result = check.play();
  if (!result.has_value()) return 3;
  if (as_json) {
    fmt::print("{}", JsonOf(check, *result));
  } else {
    fmt::print("{}\t{}\n", NameOf(result->status), result->detail);
  }
  std::fflush(stdout);
  _exit(result->status == AttachStatus::kFail ? 1 : 0);
}

}  // namespace

int RunCheckProgram(const CheckProgram& program, const std::vector<std::string>& arguments) {
  std::string name;
  bool as_json = false;
  bool is_list = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto own = std::find_if(program.options.begin(), program.options.end(),
                                  [&](const auto& option) { return option.first == argument; });
    if (argument == "--help") {
      fmt::print(kUsage, program.name, program.about, program.options_text);
      return 0;
    }
    if (argument == "--list") {
      is_list = true;
    } else if (argument == "--json") {
      as_json = true;
    } else if (argument == "--check" && i + 1 < arguments.size()) {
      name = arguments[++i];
    } else if (own != program.options.end() && i + 1 < arguments.size()) {
      *own->second = arguments[++i];
    } else {
      return UsageError(program,
                        fmt::format("unknown argument '{}', or one without its value", argument));
    }
  }
  if (is_list) {
    for (const ProgramCheck& check : program.checks) {
      fmt::print("{}\t{}\n", check.name, check.promise);
    }
    return 0;
  }
  for (const ProgramCheck& check : program.checks) {
    if (name == check.name) return Play(check, as_json);
  }
  return UsageError(program, name.empty() ? "--list or --check NAME"
                                          : fmt::format("--check={} is none of --list", name));
}

}  // namespace specd
