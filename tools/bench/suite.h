// Suite is one command of specd-bench: its name, its cases, its flags, and the function that
// measures.
//
// main.cc reads the flags, names the cases and turns errors into exit codes. Plain data.
#pragma once

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
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
  std::vector<std::string_view> examples;  // without "specd-bench NAME "
  std::vector<CaseWords> cases = {};
  // Seconds for each measurement, unless the help of --seconds says otherwise. Empty: no flag.
  std::string seconds = "";
  std::string quick_seconds = "";
  std::vector<Flag> flags = {};  // beside those that every suite has
  // INVALID_ARGUMENT, before anything is printed: bad flags. FAILED_PRECONDITION: no device, or no
  // peer.
  absl::Status (*run)(const Flags& flags, Output* out);
};

Suite VerifyCommand();
Suite AcceptCommand();
Suite GpuCommand();
Suite PtxCommand();
Suite StallCommand();
Suite GrammarCommand();
Suite TraceCommand();
Suite IpcCommand();
Suite PythonCommand();
Suite DetokCommand();
Suite EgressCommand();
Suite RestartCommand();

// The entries of `all` that --case names, in the order of the flag; all of them without the flag.
template <class Cases>
auto Chosen(const Flags& flags, const Cases& all) {
  std::vector<decltype(&*std::begin(all))> chosen;
  for (const auto& each : all) chosen.push_back(&each);
  const std::vector<std::string> names = flags.List("case");
  if (names.empty()) return chosen;
  const auto known = std::move(chosen);
  chosen.clear();
  for (const std::string& name : names) {
    for (const auto* const each : known) {
      if (each->name == name) chosen.push_back(each);
    }
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
