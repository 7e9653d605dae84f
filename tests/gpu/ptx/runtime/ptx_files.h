// PtxFiles finds the PTX of a kernel in the folder that the build wrote.
//
// A file is loaded when the first of its kernels is asked for: loading all of them takes seconds.
// nvcc puts a hash of the source file into the names of kernels without linkage. The hash of a .ptx
// file may differ from that of the object that registered the kernel, so that names are compared
// without it. Not thread-safe.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

class PtxFiles {
 public:
  // Looks for the kernels of every .ptx file of the folder.
  static absl::StatusOr<std::unique_ptr<PtxFiles>> Open(const std::string& folder);

  bool Has(const std::string& kernel) const;
  // Null if no file has the kernel.
  absl::StatusOr<const Function*> Find(const std::string& kernel);

 private:
  absl::StatusOr<const Module*> Load(const std::string& path);

  std::map<std::string, std::unique_ptr<Module>> modules_;  // by path; null until it is loaded
  std::map<std::string, std::string> paths_;                // of the kernels
};

// A kernel's name without hashes of its source file.
std::string NameWithoutHash(const std::string& kernel);

}  // namespace specd::ptx
