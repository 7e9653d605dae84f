// FindXgrammar finds the libraries of the xgrammar package and checks their versions for
// XgrammarBackend.
//
// The package's functions are private, and their arguments change between releases. So specd calls
// one version of each package only. pip writes a NAME-VERSION.dist-info directory beside each
// package; its name is what is checked. No program is run, and no place is searched unasked.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/tvm_library.h"

namespace specd::grammar {

inline constexpr std::string_view kXgrammarVersion = "0.2.8";
inline constexpr std::string_view kTvmFfiVersion = "0.1.15.post2";

// The directory that pip installed the packages into, if the caller names none.
inline constexpr const char* kXgrammarDirVariable = "SPECD_XGRAMMAR_DIR";

// The command that installs the versions that specd calls.
std::string XgrammarInstallCommand();

// `directory` holds the packages xgrammar and tvm_ffi: a site-packages directory, or one given to
// `pip install --target`. If it is empty, SPECD_XGRAMMAR_DIR names the directory.
// FailedPrecondition, with the command, if a package is missing or has another version.
absl::StatusOr<TvmPaths> FindXgrammar(std::string directory);

}  // namespace specd::grammar
