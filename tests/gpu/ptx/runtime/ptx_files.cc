#include "tests/gpu/ptx/runtime/ptx_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string_view>
#include <utility>

#include "tests/gpu/ptx/machine/module_loader.h"

namespace specd::ptx {

namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// The names behind each `.entry`.
std::vector<std::string> KernelsOf(const std::string& text) {
  constexpr std::string_view kEntry = ".entry ";
  std::vector<std::string> kernels;
  for (size_t at = text.find(kEntry); at != std::string::npos; at = text.find(kEntry, at)) {
    at += kEntry.size();
    kernels.push_back(text.substr(at, text.find('(', at) - at));
  }
  return kernels;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PtxFiles>> PtxFiles::Open(const std::string& folder) {
  auto files = std::make_unique<PtxFiles>();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".ptx") continue;
    const std::string path = entry.path().string();
    files->modules_[path] = nullptr;
    for (const std::string& kernel : KernelsOf(TextOf(path))) {
      files->paths_[NameWithoutHash(kernel)] = path;
    }
  }
  if (files->modules_.empty()) {
    return absl::NotFoundError(fmt::format("{} holds no .ptx file; build specd_kernels", folder));
  }
  return files;
}

absl::StatusOr<const Module*> PtxFiles::Load(const std::string& path) {
  std::unique_ptr<Module>& module = modules_[path];
  if (module == nullptr) {
    const std::string name = std::filesystem::path(path).filename().string();
    absl::StatusOr<std::unique_ptr<Module>> loaded = LoadModule(name, TextOf(path));
    if (!loaded.ok()) return loaded.status();
    module = std::move(*loaded);
  }
  return module.get();
}

bool PtxFiles::Has(const std::string& kernel) const {
  return paths_.contains(NameWithoutHash(kernel));
}

absl::StatusOr<const Function*> PtxFiles::Find(const std::string& kernel) {
  const std::string wanted = NameWithoutHash(kernel);
  const Function* found = nullptr;
  const auto path = paths_.find(wanted);
  if (path == paths_.end()) return found;
  const absl::StatusOr<const Module*> module = Load(path->second);
  if (!module.ok()) return module.status();
  for (const auto& [name, function] : (*module)->functions) {
    if (function->is_entry && NameWithoutHash(name) == wanted) found = function.get();
  }
  return found;
}

std::string NameWithoutHash(const std::string& kernel) {
  static const std::regex hash(
      "(_GLOBAL__N__|_INTERNAL_)[0-9a-f]{8}_[0-9]+_(\\w+?_cu)_[0-9a-f]{8}");
  return std::regex_replace(kernel, hash, "$1$2");
}

}  // namespace specd::ptx
