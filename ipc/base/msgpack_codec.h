// MapWriter and MapReader write and read one msgpack map with string keys, for control messages and
// events.
//
// MapWriter appends to a string. MapReader reads fields by name from a parsed map and remembers the
// first error. A decoder is therefore a list of fields and one question at the end. Exceptions of
// msgpack become Status in this file only. For use inside ipc/; an object of these classes belongs
// to one thread.
#pragma once

#include <bit>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace specd {

// StringSink is the output of msgpack's packer.
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
  // msgpack-c would send 1.0 as the integer 1. This overload keeps a double a double on the wire.
  void Field(std::string_view key, double value) {
    Key(key);
    PutDouble(value);
  }
  void Field(std::string_view key, const std::vector<double>& values) {
    BeginArray(key, values.size());
    for (const double value : values) PutDouble(value);
  }
  // Writes a map inside the map.
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
  // This overload keeps a float a float, as Field does.
  void Element(float value) { PutBits(0xca, std::bit_cast<uint32_t>(value)); }
  void BeginArrayElement(size_t size) { packer_.pack_array(static_cast<uint32_t>(size)); }

 private:
  void Key(std::string_view key) {
    packer_.pack_str(static_cast<uint32_t>(key.size()));
    packer_.pack_str_body(key.data(), static_cast<uint32_t>(key.size()));
  }

  void PutDouble(double value) { PutBits(0xcb, std::bit_cast<uint64_t>(value)); }

  template <class Bits>
  void PutBits(uint8_t type, Bits bits) {
    char bytes[1 + sizeof(Bits)] = {static_cast<char>(type)};
    for (size_t i = sizeof(Bits); i > 0; --i, bits >>= 8) bytes[i] = static_cast<char>(bits);
    sink_.write(bytes, sizeof(bytes));
  }

  StringSink sink_;
  msgpack::packer<StringSink> packer_;
};

// The largest claims of a map. The deepest message is a token batch with scores, whose triples lie
// depth_max levels deep: map, events, event, scores, tokens, triples. An array may claim as many
// elements as there are sequences. Memory for a claim is taken before its elements are seen.
struct MapLimits {
  static constexpr size_t kFieldsMax = 128;
  size_t array_max = 65536;
  size_t depth_max = 6;
};

// Parses `bytes` as exactly one map. The result refers to `bytes`, which must outlive it.
absl::Status ParseMap(std::string_view bytes, msgpack::object_handle* out,
                      const MapLimits& limits = {});

class MapReader {
 public:
  // `map` must be of type MAP and come from ParseMap. It must outlive the reader, and so must
  // `context`, with which every error text begins, such as "token batch".
  MapReader(const msgpack::object& map, std::string_view context);

  // Each function reads the field of that name. A missing field, a wrong type or a value over its
  // bound is an error. The reader remembers the first error and leaves *out unchanged.
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
  // Reads a map of doubles, in its order. The code that interprets the names judges them, and
  // refuses a name that occurs twice. A value of another type is the error of its name.
  void Read(std::string_view key, std::vector<std::pair<std::string, double>>* out,
            size_t size_max);

  // Tells whether there is a field of that name, for fields that may be left out.
  bool Has(std::string_view key) const;

  // Reads an integer, or `absent` for nil.
  void ReadOrNil(std::string_view key, int32_t absent, int32_t* out);

  // Returns the raw value. If the field is missing, that is an error. Null after an error.
  const msgpack::object* Find(std::string_view key);
  // Returns the elements of an array field; empty after an error.
  std::vector<const msgpack::object*> Array(std::string_view key, size_t size_max);

  void Fail(std::string_view key, std::string_view text);

  // Makes unread fields, and keys that are no strings, an error. A strict reader calls this last.
  void RefuseOthers();

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  void WrongType(std::string_view key, std::string_view wanted, const msgpack::object& found);
  bool ReadUnsigned(std::string_view key, const msgpack::object& value, uint64_t max,
                    uint64_t* out);
  bool ReadDouble(std::string_view key, const msgpack::object& value, double* out);
  // Reads every element of an array with `read`(element, &value). Sets *out if all succeed.
  template <class T, class F>
  void ReadArray(std::string_view key, std::vector<T>* out, size_t size_max, F read);
  bool ReadSigned(std::string_view key, const msgpack::object& value, int32_t* out);

  // The index of the field, or the size of the map. A peer writes the fields in the order in which
  // they are read, so the search begins with the field that was found last.
  uint32_t IndexOf(std::string_view key) const;

  const msgpack::object_map& map_;
  const std::string_view context_;
  std::bitset<MapLimits::kFieldsMax> is_read_;
  uint32_t next_ = 0;  // the index of the field that was found last
  absl::Status status_;
};

}  // namespace specd
