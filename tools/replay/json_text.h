// JsonString and JsonNumber write values as JSON, for stats, export and report.
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace specd::replay {

// In quotes. Bytes that are not UTF-8 become lone surrogates, and '<' becomes an escape, as
// tools/replay/report/DATA.md wants them.
std::string JsonString(std::string_view bytes);

// The shortest text that gives the same double; "null" for NaN, infinities and nothing.
std::string JsonNumber(std::optional<double> value);

}  // namespace specd::replay
