// TemporaryFolder gives a test a folder that goes with the object, and everything in it. One
// thread.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace specd {

class TemporaryFolder {
 public:
  TemporaryFolder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Of(const std::string& name) const { return path_ + "/" + name; }

  // Writes a file, and makes the folders on its way. Returns its path.
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(Of(name)).parent_path());
    std::ofstream(Of(name), std::ios::binary) << bytes;
    return Of(name);
  }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "specd-XXXXXX";
};

}  // namespace specd
