#include "speculative/grammar/xgrammar_backend.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "speculative/grammar/xgrammar_install.h"

namespace specd::grammar {
namespace {

namespace fs = std::filesystem;

// A directory with the given files, removed at the end.
class PackageDir {
 public:
  PackageDir() {
    std::string path = (fs::temp_directory_path() / "specd_xgrammar_XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~PackageDir() { fs::remove_all(path_); }
  PackageDir(const PackageDir&) = delete;
  PackageDir& operator=(const PackageDir&) = delete;

  PackageDir& Add(const std::string& file, const std::string& text = "") {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
    return *this;
  }
  PackageDir& AddVersions(const std::string& xgrammar, const std::string& tvm_ffi) {
    return Add("xgrammar-" + xgrammar + ".dist-info/METADATA")
        .Add("apache_tvm_ffi-" + tvm_ffi + ".dist-info/METADATA");
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

// Sets the variable that names the directory, and puts the old value back.
class DirVariable {
 public:
  explicit DirVariable(const char* value) {
    if (const char* old = std::getenv(kXgrammarDirVariable)) old_ = old;
    if (value == nullptr) {
      unsetenv(kXgrammarDirVariable);
    } else {
      setenv(kXgrammarDirVariable, value, 1);
    }
  }
  ~DirVariable() {
    if (old_.empty()) {
      unsetenv(kXgrammarDirVariable);
    } else {
      setenv(kXgrammarDirVariable, old_.c_str(), 1);
    }
  }
  DirVariable(const DirVariable&) = delete;
  DirVariable& operator=(const DirVariable&) = delete;

 private:
  std::string old_;
};

absl::Status LoadFrom(const std::string& directory) {
  Vocabulary::Builder builder;
  builder.Set(0, "a", {});
  const Vocabulary vocabulary = std::move(builder).Build();
  return LoadXgrammar({.directory = directory, .vocabulary = &vocabulary, .vocab_size = 1})
      .status();
}

constexpr const char* kCommand =
    "pip install --no-deps --target DIR xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2";

// Every refusal says how to install what is missing.
void CheckRefused(const absl::Status& status, const std::string& part, bool has_command = true) {
  const std::string text(status.message());
  INFO(text);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(text.find(part) != std::string::npos);
  CHECK((text.find(kCommand) != std::string::npos) == has_command);
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("xgrammar without a directory is refused with the command that installs it") {
    const DirVariable unset(nullptr);
    CheckRefused(LoadFrom(""), "no directory is given, and SPECD_XGRAMMAR_DIR is not set");
  }

  TEST_CASE("the directory of xgrammar may come from the environment") {
    const PackageDir dir;
    const DirVariable set(dir.path().c_str());
    CheckRefused(LoadFrom(""), dir.path() + " has no package apache-tvm-ffi");
  }

  TEST_CASE("an xgrammar directory that is not there is refused") {
    CheckRefused(LoadFrom("/nowhere/at/all"), "/nowhere/at/all cannot be read");
  }

  TEST_CASE("another version of xgrammar or tvm-ffi is refused by its number") {
    PackageDir old_xgrammar;
    old_xgrammar.AddVersions("0.2.7", "0.1.15.post2");
    CheckRefused(LoadFrom(old_xgrammar.path()),
                 "has version 0.2.7 of xgrammar, and specd calls version 0.2.8 only");
    PackageDir old_tvm_ffi;
    old_tvm_ffi.AddVersions("0.2.8", "0.1.15");
    CheckRefused(LoadFrom(old_tvm_ffi.path()), "has version 0.1.15 of apache-tvm-ffi");
    PackageDir longer_number;
    longer_number.AddVersions("0.2.80", "0.1.15.post2");
    CheckRefused(LoadFrom(longer_number.path()), "has version 0.2.80 of xgrammar");
  }

  TEST_CASE("a directory with two versions of xgrammar is refused") {
    PackageDir dir;
    dir.AddVersions("0.2.8", "0.1.15.post2").Add("xgrammar-0.2.7.dist-info/METADATA");
    CheckRefused(LoadFrom(dir.path()), "has version 0.2.7 and 0.2.8 of xgrammar");
  }

  TEST_CASE("an xgrammar package without its library is refused") {
    PackageDir dir;
    dir.AddVersions("0.2.8", "0.1.15.post2").Add("xgrammar_helper-1.0.dist-info/METADATA");
    CheckRefused(LoadFrom(dir.path()), "/tvm_ffi/lib/libtvm_ffi.so cannot be read");
    dir.Add("tvm_ffi/lib/libtvm_ffi.so");
    CheckRefused(LoadFrom(dir.path()), "/xgrammar/libxgrammar_bindings.so cannot be read");
  }

  TEST_CASE("a file that is no library is refused, and the process goes on") {
    PackageDir dir;
    dir.AddVersions("0.2.8", "0.1.15.post2")
        .Add("tvm_ffi/lib/libtvm_ffi.so", "not a library")
        .Add("xgrammar/libxgrammar_bindings.so", "not a library");
    CheckRefused(LoadFrom(dir.path()), "libtvm_ffi.so cannot be loaded", false);
    CheckRefused(LoadFrom(dir.path()), "libtvm_ffi.so cannot be loaded", false);
  }
}

}  // namespace specd::grammar
