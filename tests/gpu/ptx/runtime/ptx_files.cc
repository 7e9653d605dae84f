#include "tests/gpu/ptx/runtime/ptx_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/gpu/ptx/machine/module_loader.h"

namespace specd::ptx {

absl::StatusOr<std::unique_ptr<PtxFiles>> PtxFiles::Read(const std::string& folder) {
  auto files = std::make_unique<PtxFiles>();
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".ptx") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    return absl::NotFoundError(fmt::format("{} holds no .ptx file; build specd_kernels", folder));
  }
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    absl::StatusOr<std::unique_ptr<Module>> module =
        LoadModule(path.filename().string(), text.str());
    if (!module.ok()) return module.status();
    for (const auto& [name, function] : (*module)->functions) {
      if (function->is_entry) files->entries_[NameWithoutHash(name)] = function.get();
    }
    files->modules_.push_back(std::move(*module));
  }
  return files;
}

const Function* PtxFiles::Find(const std::string& kernel) const {
  const auto found = entries_.find(NameWithoutHash(kernel));
  return found == entries_.end() ? nullptr : found->second;
}

std::string NameWithoutHash(const std::string& kernel) {
  static const std::regex hash(
      "(_GLOBAL__N__|_INTERNAL_)[0-9a-f]{8}_[0-9]+_(\\w+?_cu)_[0-9a-f]{8}");
  return std::regex_replace(kernel, hash, "$1$2");
}

}  // namespace specd::ptx
