// PtxFiles finds the PTX of a kernel in the folder that the build wrote.
//
// nvcc puts a hash of the source file into the names of kernels without linkage. The hash of a .ptx
// file may differ from that of the object that registered the kernel, so that names are compared
// without it.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

class PtxFiles {
 public:
  // Reads every .ptx file of the folder.
  static absl::StatusOr<std::unique_ptr<PtxFiles>> Read(const std::string& folder);

  // Null if no file has the kernel.
  const Function* Find(const std::string& kernel) const;

  const std::vector<std::unique_ptr<Module>>& modules() const { return modules_; }

 private:
  std::vector<std::unique_ptr<Module>> modules_;
  std::map<std::string, const Function*> entries_;
};

// A kernel's name without hashes of its source file.
std::string NameWithoutHash(const std::string& kernel);

}  // namespace specd::ptx
