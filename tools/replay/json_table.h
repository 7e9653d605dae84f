// JsonTable is one table of the report page's data: columns of equal length.
//
// A column in which every value is null is left out. StringTable holds the texts, each once
// (tools/replay/report/DATA.md). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace specd::replay {

class StringTable {
 public:
  // The index of a text.
  uint64_t IndexOf(std::string_view text);
  std::string Json() const;

 private:
  std::unordered_map<std::string, uint64_t> indices_;
  std::string json_;
};

class JsonTable {
 public:
  explicit JsonTable(std::vector<std::string_view> columns);

  // One value for each column, as JSON, in the order of the constructor.
  void Add(const std::vector<std::string>& values);
  uint64_t count() const { return count_; }
  // The object; empty if the table has no rows.
  std::string Json() const;

 private:
  struct Column {
    std::string_view name;
    std::string json;
    bool has_value = false;
  };
  std::vector<Column> columns_;
  uint64_t count_ = 0;
};

}  // namespace specd::replay
