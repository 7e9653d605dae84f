// Reading and writing one msgpack map with string keys: what control messages and events share.
//
// MapWriter appends to a string; MapReader reads fields by name out of a parsed map and remembers
// the first thing that was wrong, so that a decoder is a list of fields and one question at the
// end. The one place where msgpack's exceptions become Status. For use inside ipc/; values of these
// classes belong to one thread.
#pragma once

#include <bit>
#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace specd {

// Where msgpack's packer writes.
class StringSink {
 public:
  explicit StringSink(std::string* out) : out_(out) {}
  void write(const char* data, size_t size_bytes) { out_->append(data, size_bytes); }

 private:
  std::string* out_;
};

class MapWriter {
 public:
  explicit MapWriter(std::string* out) : sink_(out), packer_(sink_) {}

  void BeginMap(size_t num_fields) { packer_.pack_map(static_cast<uint32_t>(num_fields)); }
  void BeginArray(std::string_view key, size_t size) {
    Key(key);
    packer_.pack_array(static_cast<uint32_t>(size));
  }
  template <class T>
  void Field(std::string_view key, const T& value) {
    Key(key);
    packer_.pack(value);
  }
  // msgpack-c would send 1.0 as the integer 1; a double stays one on the wire.
  void Field(std::string_view key, double value) {
    Key(key);
    PutDouble(value);
  }
  void Field(std::string_view key, const std::vector<double>& values) {
    BeginArray(key, values.size());
    for (const double value : values) PutDouble(value);
  }
  // A map in the map.
  void Field(std::string_view key, const std::vector<std::pair<std::string, double>>& numbers) {
    Key(key);
    BeginMap(numbers.size());
    for (const auto& [name, value] : numbers) Field(name, value);
  }
  void Nil(std::string_view key) {
    Key(key);
    packer_.pack_nil();
  }
  template <class T>
  void Element(const T& value) {
    packer_.pack(value);
  }
  void BeginArrayElement(size_t size) { packer_.pack_array(static_cast<uint32_t>(size)); }

 private:
  void Key(std::string_view key) {
    packer_.pack_str(static_cast<uint32_t>(key.size()));
    packer_.pack_str_body(key.data(), static_cast<uint32_t>(key.size()));
  }

  void PutDouble(double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    char bytes[9] = {static_cast<char>(0xcb)};
    for (int i = 0; i < 8; ++i) bytes[1 + i] = static_cast<char>(bits >> (56 - 8 * i));
    sink_.write(bytes, sizeof(bytes));
  }

  StringSink sink_;
  msgpack::packer<StringSink> packer_;
};

// Parses `bytes` as exactly one map. The result refers to `bytes`, which must outlive it.
absl::Status ParseMap(std::string_view bytes, msgpack::object_handle* out);

class MapReader {
 public:
  // `map` must be of type MAP and outlive the reader; `context` begins every error text, such as
  // "token batch".
  MapReader(const msgpack::object& map, std::string_view context);

  // Each reads the field of that name; a missing field, a wrong type or a value over its bound is
  // remembered as the error (the first one wins) and leaves *out as it was.
  void Read(std::string_view key, bool* out);
  void Read(std::string_view key, uint32_t* out);
  void Read(std::string_view key, int32_t* out);
  void Read(std::string_view key, uint64_t* out);
  void Read(std::string_view key, double* out);
  void Read(std::string_view key, std::string* out, size_t bytes_max);
  void Read(std::string_view key, std::vector<int32_t>* out, size_t size_max);
  void Read(std::string_view key, std::vector<uint64_t>* out, size_t size_max);
  void Read(std::string_view key, std::vector<double>* out, size_t size_max);
  void Read(std::string_view key, std::vector<std::string>* out, size_t size_max);
  // A map of doubles, in its order. The reader of the names judges them, and whether one is there
  // twice; a value of another type is the error of its name.
  void Read(std::string_view key, std::vector<std::pair<std::string, double>>* out,
            size_t size_max);

  // Is there a field of that name? For those that may be left out.
  bool Has(std::string_view key) const;

  // An integer, or nil for `absent`.
  void ReadOrNil(std::string_view key, int32_t absent, int32_t* out);

  // The raw value, or null after an error or when it is missing (which is then the error).
  const msgpack::object* Find(std::string_view key);
  // The elements of an array field; empty after an error.
  std::vector<const msgpack::object*> Array(std::string_view key, size_t size_max);

  void Fail(std::string_view key, std::string_view text);

  // Fields that nobody read, and keys that are no strings, become an error: a strict reader asks
  // for this last.
  void RefuseOthers();

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  void WrongType(std::string_view key, std::string_view wanted, const msgpack::object& found);
  bool ReadUnsigned(std::string_view key, const msgpack::object& value, uint64_t max,
                    uint64_t* out);
  bool ReadDouble(std::string_view key, const msgpack::object& value, double* out);
  // Reads every element of an array with `read`(element, &value); *out is set if all succeed.
  template <class T, class F>
  void ReadArray(std::string_view key, std::vector<T>* out, size_t size_max, F read);
  bool ReadSigned(std::string_view key, const msgpack::object& value, int32_t* out);

  // The index of the field, or the size of the map.
  uint32_t IndexOf(std::string_view key) const;

  const msgpack::object_map& map_;
  std::string context_;
  std::vector<bool> is_read_;
  absl::Status status_;
};

}  // namespace specd
