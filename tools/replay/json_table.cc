#include "tools/replay/json_table.h"

#include <fmt/format.h>

#include "kernels/core/check.h"
#include "tools/replay/json_text.h"

namespace specd::replay {

uint64_t StringTable::IndexOf(std::string_view text) {
  const auto [place, is_new] = indices_.try_emplace(std::string(text), indices_.size());
  if (is_new) json_ += (place->second == 0 ? "" : ",\n") + JsonString(text);
  return place->second;
}

std::string StringTable::Json() const { return fmt::format("[{}]", json_); }

JsonTable::JsonTable(std::vector<std::string_view> columns) {
  for (const std::string_view name : columns) columns_.push_back({name, "", false});
}

void JsonTable::Add(const std::vector<std::string>& values) {
  SPECD_CHECK(values.size() == columns_.size());
  for (size_t i = 0; i < values.size(); ++i) {
    Column& column = columns_[i];
    if (count_ > 0) column.json += ',';
    column.json += values[i];
    column.has_value = column.has_value || values[i] != "null";
  }
  ++count_;
}

std::string JsonTable::Json() const {
  if (count_ == 0) return "";
  std::string text;
  for (const Column& column : columns_) {
    if (!column.has_value) continue;
    text += fmt::format("{}\"{}\": [{}]", text.empty() ? "" : ",\n  ", column.name, column.json);
  }
  return fmt::format("{{{}}}", text);
}

}  // namespace specd::replay
