// LoadXgrammar makes a GrammarBackend of the xgrammar library that pip installed.
//
// The library is loaded into this process at run time: no Python runs, and specd builds and starts
// without the package. XgrammarInstallCommand() installs the versions that specd calls. The library
// enforces less of JSON Schema than specd's own engine; CompiledGrammar::warnings() names what it
// ignores in a schema. The backend may be used by any number of threads.
//
//   auto backend = LoadXgrammar({.directory = "/opt/xgrammar", .vocabulary = &vocabulary,
//                                .vocab_size = 128256});
//   auto compiled = (*backend)->Compile({.kind = GrammarKind::kRegex, .text = "[0-9]+"});
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"
#include "speculative/grammar/grammar_backend.h"

namespace specd::grammar {

struct XgrammarOptions {
  // The directory of the packages that pip installed; SPECD_XGRAMMAR_DIR if it is empty
  // (xgrammar_install.h).
  std::string directory = {};
  // Read during the call only.
  const Vocabulary* vocabulary = nullptr;
  // The width of a logits row. Ids from the vocabulary's size on are never allowed.
  int32_t vocab_size = 0;
  // Threads of one Compile.
  int32_t num_compile_threads = 1;
  // The library cannot be interrupted. After this time the constraint is refused, and the thread
  // that compiles it runs on (slow_compile.h).
  int64_t compile_ms_max = 30000;
};

absl::StatusOr<std::shared_ptr<GrammarBackend>> LoadXgrammar(const XgrammarOptions& options);

}  // namespace specd::grammar
