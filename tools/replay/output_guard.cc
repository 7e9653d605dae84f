#include "tools/replay/output_guard.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "tools/replay/trace_reader.h"

namespace specd::replay {
namespace {

bool IsSameFile(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;
  return a == b || std::filesystem::equivalent(a, b, error);
}

// The row file that the trace names; empty: none.
std::string RowsOf(const std::string& trace) {
  TraceReader reader({trace});
  TraceItem item;
  const bool has_info = reader.Next(&item).ok() && reader.info() != nullptr;
  if (!has_info || reader.info()->row_file.empty()) return {};
  return RowPathOf(trace, *reader.info());
}

// A file that is written takes the place of what has its name.
absl::Status CheckPlace(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(fmt::format(
      "o = {} is a directory, a device or a pipe, and a file would replace it; give the name of a "
      "file",
      path));
}

}  // namespace

absl::Status CheckOutputs(std::span<const std::string> inputs, const OutputPaths& outputs) {
  if (outputs.file == outputs.rows) {
    return absl::InvalidArgumentError(fmt::format(
        "o = {} is the name of its own row file; give a name that ends in .mcap", outputs.file));
  }
  for (const std::string& path : {outputs.file, outputs.rows}) {
    if (absl::Status status = CheckPlace(path); !status.ok()) return status;
  }
  for (const std::string& trace : inputs) {
    const std::string rows = RowsOf(trace);
    for (const auto& [input, role] :
         {std::pair(&trace, "the trace"), std::pair(&rows, "the row file of the trace")}) {
      if (IsSameFile(outputs.file, *input)) {
        return absl::InvalidArgumentError(
            fmt::format("o = {} is {} that is read", outputs.file, role));
      }
      if (!IsSameFile(outputs.rows, *input)) continue;
      return absl::InvalidArgumentError(fmt::format("o = {}: its row file, {}, is {} that is read",
                                                    outputs.file, outputs.rows, role));
    }
  }
  return absl::OkStatus();
}

}  // namespace specd::replay
