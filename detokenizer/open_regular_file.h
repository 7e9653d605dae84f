// OpenRegularFile opens a file of a model to be read, and refuses what is none.
//
// A FIFO, a socket or a device may let its reader wait without end. A program that reads it before
// it serves could then not even be stopped.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OpenedFile = std::unique_ptr<std::FILE, FileCloser>;

// The words of an error: "cannot read the tokenizer file", "name a readable tokenizer.json".
struct FileRole {
  const char* what = "the file";
  const char* example = "file";
};

// INVALID_ARGUMENT: the path is of another kind, which the error names. Other errors are those of
// the system.
absl::StatusOr<OpenedFile> OpenRegularFile(const std::string& path, const FileRole& role);
// The error of a read that failed with this errno.
absl::Status UnreadableFile(const std::string& path, const FileRole& role, int error);

}  // namespace specd
