// SchemaFolder compiles every schema of a folder with a large vocabulary, and tells what became of
// them, for the judge of grammars.
//
// A schema is a file that ends in .json. Its name is its path below the folder, without the ending.
// The outcomes are lines "name outcome cpu_ms first_mask_ms"; a refusal has its reason after them.
// A list of expectations is about some schemas, chosen evenly: it has a line "name outcome" for
// each of them that is not ok. The calling process must have one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/fuzz/judge/trial_runner.h"

namespace specd::grammar {

class SchemaFolder {
 public:
  struct Options {
    std::string folder;
    std::string outcomes = {};  // a file to write; empty: none
    std::string expect = {};    // a list to compare with; empty: none
    std::string list = {};      // a list to write; empty: none
    size_t list_size = 2400;    // schemas that a list is about
    bool any_order = false;     // of keys
    TrialRunner::Options runner = {};
  };

  explicit SchemaFolder(const Options& options) : options_(options) {}

  // Prints a summary. Aborted: there are findings, or an expected outcome became worse.
  absl::Status Run();

 private:
  absl::Status FindSchemas();
  void Compile();
  // The schemas that a list is about.
  std::vector<size_t> Chosen() const;
  absl::Status WriteOutcomes() const;
  absl::Status WriteList() const;
  void PrintSummary() const;
  void PrintTimes() const;
  // The number of expectations that are not met.
  absl::StatusOr<size_t> Compare() const;

  const Options options_;
  std::vector<std::string> names_;
  std::vector<TrialResult> results_;  // of each name
};

// The sort of a refusal: its message without pointers, texts and numbers.
std::string ReasonOf(std::string_view message);

}  // namespace specd::grammar
