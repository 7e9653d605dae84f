#include "ipc/base/msgpack_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr size_t kStringMax = 4 * 1024 * 1024;
constexpr size_t kZoneBytesMin = 256;
constexpr size_t kZoneBytesMax = 64 * 1024;

const char* TypeName(const msgpack::object& value) {
  switch (value.type) {
    case msgpack::type::NIL:
      return "nil";
    case msgpack::type::BOOLEAN:
      return "a boolean";
    case msgpack::type::POSITIVE_INTEGER:
    case msgpack::type::NEGATIVE_INTEGER:
      return "an integer";
    case msgpack::type::FLOAT32:
    case msgpack::type::FLOAT64:
      return "a float";
    case msgpack::type::STR:
      return "a string";
    case msgpack::type::BIN:
      return "bytes";
    case msgpack::type::ARRAY:
      return "an array";
    case msgpack::type::MAP:
      return "a map";
    default:
      return "an extension";
  }
}

std::string_view ViewOf(const msgpack::object_str& text) { return {text.ptr, text.size}; }

bool ReferAlways(msgpack::type::object_type, size_t, void*) { return true; }

}  // namespace

absl::Status ParseMap(std::string_view bytes, msgpack::object_handle* out,
                      const MapLimits& limits) {
  const msgpack::unpack_limit limit(limits.array_max, MapLimits::kFieldsMax, kStringMax, kStringMax,
                                    kStringMax, limits.depth_max);
  size_t used = 0;
  bool referenced = false;
  try {
    // The values of a message take about so many times its bytes.
    constexpr size_t kExpansion = 6;
    auto zone = std::make_unique<msgpack::zone>(
        std::clamp(kExpansion * bytes.size(), kZoneBytesMin, kZoneBytesMax));
    const msgpack::object map = msgpack::unpack(*zone, bytes.data(), bytes.size(), used, referenced,
                                                ReferAlways, nullptr, limit);
    *out = msgpack::object_handle(map, std::move(zone));
  } catch (const msgpack::unpack_error& error) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "body",
                     fmt::format("body is no msgpack within the limits ({})", error.what()));
  } catch (const std::bad_alloc&) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "body", "no memory for a message body");
  }
  if (used != bytes.size()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "body",
                     fmt::format("body has {} bytes after its map", bytes.size() - used));
  }
  if (out->get().type != msgpack::type::MAP) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "body",
                     fmt::format("body is {}, not a map", TypeName(out->get())));
  }
  return absl::OkStatus();
}

MapReader::MapReader(const msgpack::object& map, std::string_view context)
    : map_(map.via.map), context_(context) {
  // The limit of ParseMap holds for maps inside its map too.
  SPECD_CHECK(map.type == msgpack::type::MAP && map_.size <= MapLimits::kFieldsMax);
}

void MapReader::Fail(std::string_view key, std::string_view text) {
  if (!status_.ok()) return;
  status_ =
      MakeError(SPECD_ERROR_INVALID_ARGUMENT, key, fmt::format("{}: {} {}", context_, key, text));
}

void MapReader::WrongType(std::string_view key, std::string_view wanted,
                          const msgpack::object& found) {
  Fail(key, fmt::format("must be {}, not {}", wanted, TypeName(found)));
}

const msgpack::object* MapReader::Find(std::string_view key) {
  if (!status_.ok()) return nullptr;
  const uint32_t i = IndexOf(key);
  if (i == map_.size) {
    Fail(key, "is missing");
    return nullptr;
  }
  is_read_[i] = true;
  next_ = i;
  return &map_.ptr[i].val;
}

bool MapReader::Has(std::string_view key) const { return IndexOf(key) < map_.size; }

uint32_t MapReader::IndexOf(std::string_view key) const {
  for (uint32_t n = 0; n < map_.size; ++n) {
    const uint32_t i = n < map_.size - next_ ? next_ + n : n - (map_.size - next_);
    const msgpack::object& name = map_.ptr[i].key;
    if (name.type == msgpack::type::STR && ViewOf(name.via.str) == key) return i;
  }
  return map_.size;
}

void MapReader::Read(std::string_view key, bool* out) {
  const msgpack::object* value = Find(key);
  if (value == nullptr) return;
  if (value->type != msgpack::type::BOOLEAN) return WrongType(key, "a boolean", *value);
  *out = value->via.boolean;
}

bool MapReader::ReadUnsigned(std::string_view key, const msgpack::object& value, uint64_t max,
                             uint64_t* out) {
  if (value.type == msgpack::type::NEGATIVE_INTEGER) {
    Fail(key, fmt::format("= {} must be in 0..{}", value.via.i64, max));
    return false;
  }
  if (value.type != msgpack::type::POSITIVE_INTEGER) {
    WrongType(key, "an integer", value);
    return false;
  }
  if (value.via.u64 > max) {
    Fail(key, fmt::format("= {} must be in 0..{}", value.via.u64, max));
    return false;
  }
  *out = value.via.u64;
  return true;
}

void MapReader::Read(std::string_view key, uint32_t* out) {
  const msgpack::object* value = Find(key);
  uint64_t number = 0;
  if (value != nullptr &&
      ReadUnsigned(key, *value, std::numeric_limits<uint32_t>::max(), &number)) {
    *out = static_cast<uint32_t>(number);
  }
}

void MapReader::Read(std::string_view key, uint64_t* out) {
  const msgpack::object* value = Find(key);
  if (value != nullptr) {
    ReadUnsigned(key, *value, std::numeric_limits<uint64_t>::max(), out);
  }
}

bool MapReader::ReadSigned(std::string_view key, const msgpack::object& value, int32_t* out) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  if (value.type == msgpack::type::POSITIVE_INTEGER && value.via.u64 <= uint64_t{kMax}) {
    *out = static_cast<int32_t>(value.via.u64);
    return true;
  }
  if (value.type == msgpack::type::NEGATIVE_INTEGER && value.via.i64 >= kMin) {
    *out = static_cast<int32_t>(value.via.i64);
    return true;
  }
  if (value.type == msgpack::type::POSITIVE_INTEGER ||
      value.type == msgpack::type::NEGATIVE_INTEGER) {
    Fail(key, fmt::format("must be in {}..{}", kMin, kMax));
  } else {
    WrongType(key, "an integer", value);
  }
  return false;
}

void MapReader::Read(std::string_view key, int32_t* out) {
  const msgpack::object* value = Find(key);
  if (value != nullptr) ReadSigned(key, *value, out);
}

void MapReader::ReadOrNil(std::string_view key, int32_t absent, int32_t* out) {
  const msgpack::object* value = Find(key);
  if (value == nullptr) return;
  if (value->type == msgpack::type::NIL) {
    *out = absent;
  } else {
    ReadSigned(key, *value, out);
  }
}

bool MapReader::ReadDouble(std::string_view key, const msgpack::object& value, double* out) {
  if (value.type != msgpack::type::FLOAT64) {
    WrongType(key, "a 64-bit float", value);
    return false;
  }
  *out = value.via.f64;
  return true;
}

void MapReader::Read(std::string_view key, double* out) {
  const msgpack::object* value = Find(key);
  if (value != nullptr) ReadDouble(key, *value, out);
}

void MapReader::Read(std::string_view key, std::string* out, size_t bytes_max) {
  const msgpack::object* value = Find(key);
  if (value == nullptr) return;
  if (value->type != msgpack::type::STR) return WrongType(key, "a string", *value);
  const std::string_view text = ViewOf(value->via.str);
  if (text.size() > bytes_max) {
    return Fail(key, fmt::format("has {} bytes, at most {} are allowed", text.size(), bytes_max));
  }
  *out = text;
}

std::vector<const msgpack::object*> MapReader::Array(std::string_view key, size_t size_max) {
  const msgpack::object* value = Find(key);
  std::vector<const msgpack::object*> elements;
  if (value == nullptr) return elements;
  if (value->type != msgpack::type::ARRAY) {
    WrongType(key, "an array", *value);
    return elements;
  }
  const msgpack::object_array& array = value->via.array;
  if (array.size > size_max) {
    Fail(key, fmt::format("has {} elements, at most {} are allowed", array.size, size_max));
    return elements;
  }
  elements.reserve(array.size);
  for (uint32_t i = 0; i < array.size; ++i) elements.push_back(&array.ptr[i]);
  return elements;
}

template <class T, class F>
void MapReader::ReadArray(std::string_view key, std::vector<T>* out, size_t size_max, F read) {
  const std::vector<const msgpack::object*> elements = Array(key, size_max);
  if (!status_.ok()) return;
  std::vector<T> values(elements.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    if (!read(*elements[i], &values[i])) return;
  }
  *out = std::move(values);
}

void MapReader::Read(std::string_view key, std::vector<int32_t>* out, size_t size_max) {
  ReadArray(key, out, size_max, [this, key](const msgpack::object& element, int32_t* value) {
    return ReadSigned(key, element, value);
  });
}

void MapReader::Read(std::string_view key, std::vector<uint64_t>* out, size_t size_max) {
  ReadArray(key, out, size_max, [this, key](const msgpack::object& element, uint64_t* value) {
    return ReadUnsigned(key, element, std::numeric_limits<uint64_t>::max(), value);
  });
}

void MapReader::Read(std::string_view key, std::vector<double>* out, size_t size_max) {
  ReadArray(key, out, size_max, [this, key](const msgpack::object& element, double* value) {
    return ReadDouble(key, element, value);
  });
}

void MapReader::Read(std::string_view key, std::vector<std::string>* out, size_t size_max) {
  ReadArray(key, out, size_max, [this, key](const msgpack::object& element, std::string* value) {
    if (element.type != msgpack::type::STR) {
      WrongType(key, "an array of strings", element);
      return false;
    }
    *value = ViewOf(element.via.str);
    return true;
  });
}

void MapReader::Read(std::string_view key, std::vector<std::pair<std::string, double>>* out,
                     size_t size_max) {
  const msgpack::object* value = Find(key);
  if (value == nullptr) return;
  if (value->type != msgpack::type::MAP) return WrongType(key, "a map", *value);
  const msgpack::object_map& map = value->via.map;
  if (map.size > size_max) {
    return Fail(key, fmt::format("has {} elements, at most {} are allowed", map.size, size_max));
  }
  std::vector<std::pair<std::string, double>> numbers(map.size);
  for (uint32_t i = 0; i < map.size; ++i) {
    const msgpack::object& name = map.ptr[i].key;
    if (name.type != msgpack::type::STR) return WrongType(key, "a map with string keys", name);
    numbers[i].first = ViewOf(name.via.str);
    if (!ReadDouble(ViewOf(name.via.str).substr(0, 64), map.ptr[i].val, &numbers[i].second)) return;
  }
  *out = std::move(numbers);
}

void MapReader::RefuseOthers() {
  for (uint32_t i = 0; i < map_.size && status_.ok(); ++i) {
    if (is_read_[i]) continue;
    const msgpack::object& name = map_.ptr[i].key;
    if (name.type != msgpack::type::STR) {
      Fail("key", fmt::format("must be a string, not {}", TypeName(name)));
    } else {
      Fail(ViewOf(name.via.str).substr(0, 64), "is unknown or stands there twice");
    }
  }
}

}  // namespace specd
