#include "speculative/grammar/xgrammar_install.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace specd::grammar {
namespace {

struct Package {
  std::string_view name;           // as pip calls it
  std::string_view metadata_name;  // as its dist-info directory calls it
  std::string_view wanted_version;
};
constexpr Package kPackages[] = {
    {"apache-tvm-ffi", "apache_tvm_ffi", kTvmFfiVersion},
    {"xgrammar", "xgrammar", kXgrammarVersion},
};

absl::Status Refuse(std::string_view reason) {
  return absl::FailedPreconditionError(
      fmt::format("grammar backend xgrammar: {}. Install the packages with `{}` and set {}=DIR",
                  reason, XgrammarInstallCommand(), kXgrammarDirVariable));
}

// The VERSION of a file name NAME-VERSION.dist-info.
std::optional<std::string> VersionIn(std::string_view file, std::string_view name) {
  constexpr std::string_view kSuffix = ".dist-info";
  if (file.size() <= name.size() + 1 + kSuffix.size() || !file.starts_with(name) ||
      file[name.size()] != '-' || !file.ends_with(kSuffix)) {
    return std::nullopt;
  }
  return std::string(file.substr(name.size() + 1, file.size() - name.size() - 1 - kSuffix.size()));
}

absl::Status CheckVersion(const Package& package, const std::vector<std::string>& files,
                          const std::string& directory) {
  std::vector<std::string> found;
  for (const std::string& file : files) {
    if (std::optional<std::string> version = VersionIn(file, package.metadata_name)) {
      found.push_back(*std::move(version));
    }
  }
  if (found.size() == 1 && found[0] == package.wanted_version) return absl::OkStatus();
  if (found.empty()) {
    return Refuse(fmt::format("{} has no package {} (no {}-VERSION.dist-info)", directory,
                              package.name, package.metadata_name));
  }
  std::sort(found.begin(), found.end());
  return Refuse(fmt::format("{} has version {} of {}, and specd calls version {} only", directory,
                            fmt::join(found, " and "), package.name, package.wanted_version));
}

}  // namespace

std::string XgrammarInstallCommand() {
  return fmt::format("pip install --no-deps --target DIR xgrammar=={} apache-tvm-ffi=={}",
                     kXgrammarVersion, kTvmFfiVersion);
}

absl::StatusOr<TvmPaths> FindXgrammar(std::string directory) {
  if (directory.empty()) {
    const char* variable = std::getenv(kXgrammarDirVariable);
    if (variable != nullptr) directory = variable;
  }
  if (directory.empty()) {
    return Refuse(fmt::format("no directory is given, and {} is not set", kXgrammarDirVariable));
  }
  std::vector<std::string> files;
  {
    const std::unique_ptr<DIR, int (*)(DIR*)> handle(opendir(directory.c_str()), &closedir);
    if (handle == nullptr) {
      return Refuse(
          fmt::format("the directory {} cannot be read: {}", directory, std::strerror(errno)));
    }
    while (const dirent* entry = readdir(handle.get())) files.emplace_back(entry->d_name);
  }
  for (const Package& package : kPackages) {
    if (absl::Status status = CheckVersion(package, files, directory); !status.ok()) return status;
  }
  TvmPaths paths = {.runtime = directory + "/tvm_ffi/lib/libtvm_ffi.so",
                    .plugin = directory + "/xgrammar/libxgrammar_bindings.so"};
  for (const std::string& path : {paths.runtime, paths.plugin}) {
    if (access(path.c_str(), R_OK) != 0) {
      return Refuse(fmt::format("the library {} cannot be read: {}", path, std::strerror(errno)));
    }
  }
  return paths;
}

}  // namespace specd::grammar
