// Suite is one command of specd-bench: its name, its cases, its flags, and the function that
// measures.
//
// main.cc reads the flags, names the cases and turns errors into exit codes. Plain data.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tools/bench/flags.h"
#include "tools/bench/output.h"

namespace specd::bench {

struct CaseWords {
  std::string_view name;
  std::string_view summary;
};

struct Suite {
  std::string_view name;
  std::string_view summary;
  std::vector<CaseWords> cases = {};
  std::vector<Flag> flags = {};
  // INVALID_ARGUMENT, before anything is printed: bad flags. FAILED_PRECONDITION: no device, or no
  // peer.
  absl::Status (*run)(const Flags& flags, Output* out);
};

Suite VerifyCommand();
Suite GpuCommand();
Suite StallCommand();
Suite GrammarCommand();
Suite TraceCommand();
Suite IpcCommand();
Suite PythonCommand();
Suite DetokCommand();
Suite EgressCommand();
Suite RestartCommand();

// Its cases and its own flags.
inline std::vector<Flag> TableOf(const Suite& suite) {
  std::vector<Flag> table;
  if (!suite.cases.empty()) {
    Flag& cases = table.emplace_back(Flag{
        .name = "case", .help = "cases by name, separated by commas; empty: all", .is_list = true});
    for (const CaseWords& words : suite.cases) cases.choices.push_back(words.name);
  }
  table.insert(table.end(), suite.flags.begin(), suite.flags.end());
  return table;
}

// The entries of `all` that --case names; all of them without the flag.
template <class Cases>
auto Chosen(const Flags& flags, const Cases& all) {
  std::vector<decltype(&*std::begin(all))> chosen;
  const std::vector<std::string> names = flags.List("case");
  for (const auto& each : all) {
    if (names.empty() || std::ranges::count(names, each.name) > 0) chosen.push_back(&each);
  }
  return chosen;
}

// The name and summary of each entry.
template <class Cases>
std::vector<CaseWords> WordsOf(const Cases& cases) {
  std::vector<CaseWords> words;
  for (const auto& each : cases) words.push_back({each.name, each.summary});
  return words;
}

}  // namespace specd::bench
