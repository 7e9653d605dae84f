#include "tests/recorded/file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <concepts>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace specd::recorded {
namespace {

using simdjson::dom::element;

void Require(bool condition, std::string_view text) {
  if (!condition) throw std::runtime_error(std::string(text));
}

// ---- reading

void Read(const element& from, std::string* to) {
  std::string_view text;
  Require(from.get(text) == simdjson::SUCCESS, "a text was expected");
  *to = text;
}

template <std::integral Integer>
void Read(const element& from, Integer* to) {
  if constexpr (std::signed_integral<Integer>) {
    int64_t value = 0;
    Require(from.get(value) == simdjson::SUCCESS && std::in_range<Integer>(value), "bad integer");
    *to = static_cast<Integer>(value);
  } else {
    uint64_t value = 0;
    Require(from.get(value) == simdjson::SUCCESS && std::in_range<Integer>(value), "bad integer");
    *to = static_cast<Integer>(value);
  }
}

template <class Struct>
void ReadStruct(const element& from, Struct* to);

template <class Struct>
requires std::is_class_v<Struct>
void Read(const element& from, Struct* to) { ReadStruct(from, to); }

void Read(const element& from, Answer* to) {
  simdjson::dom::object fields;
  Require(from.get(fields) == simdjson::SUCCESS, "an object was expected");
  for (const auto field : fields) {
    to->emplace_back(field.key, simdjson::minify(field.value));
  }
}

template <class Item>
void Read(const element& from, std::vector<Item>* to) {
  simdjson::dom::array items;
  Require(from.get(items) == simdjson::SUCCESS, "an array was expected");
  for (const element item : items) Read(item, &to->emplace_back());
}

class Reader {
 public:
  explicit Reader(const element& from) {
    Require(from.get(object_) == simdjson::SUCCESS, "an object was expected");
  }
  template <class Value>
  void operator()(std::string_view name, Value& value) {
    element field;
    if (object_[name].get(field) != simdjson::SUCCESS) return;
    Read(field, &value);
    ++num_read_;
  }
  void Finish() const { Require(num_read_ == object_.size(), "a field has an unknown name"); }

 private:
  simdjson::dom::object object_;
  size_t num_read_ = 0;
};

template <class Struct>
void ReadStruct(const element& from, Struct* to) {
  Reader reader(from);
  VisitFields(reader, *to);
  reader.Finish();
}

// ---- writing

std::string Write(const std::string& text) {
  Require(text.find_first_of("\"\\\n") == std::string::npos, "a text would have to be escaped");
  return fmt::format("\"{}\"", text);
}

template <std::integral Integer>
std::string Write(const Integer& value) {
  return fmt::format("{}", value);
}

template <class Struct>
requires std::is_class_v<Struct> std::string Write(const Struct& value);

std::string Write(const Answer& answer) {
  std::string line;
  for (const auto& [name, text] : answer) {
    line += fmt::format("{}\"{}\":{}", line.empty() ? "" : ",", name, text);
  }
  return fmt::format("{{{}}}", line);
}

template <class Item>
std::string Write(const std::vector<Item>& items) {
  std::string line;
  for (size_t i = 0; i < items.size(); ++i) line += (i == 0 ? "" : ",") + Write(items[i]);
  return fmt::format("[{}]", line);
}

class Writer {
 public:
  template <class Value>
  void operator()(std::string_view name, const Value& value) {
    const std::string text = Write(value);
    if (text == "0" || text == "\"\"" || text == "[]" || text == "{}") return;
    line_ += fmt::format("{}\"{}\":{}", line_.empty() ? "" : ",", name, text);
  }
  std::string Finish() const { return fmt::format("{{{}}}", line_); }

 private:
  std::string line_;
};

template <class Struct>
requires std::is_class_v<Struct> std::string Write(const Struct& value) {
  Writer writer;
  Struct copy = value;
  VisitFields(writer, copy);
  return writer.Finish();
}

}  // namespace

Recording ReadRecording(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("{} cannot be read", path));
  Recording recording;
  simdjson::dom::parser parser;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    try {
      element root;
      Require(parser.parse(line).get(root) == simdjson::SUCCESS, "this is no JSON");
      if (number == 1) {
        ReadStruct(root, &recording.engine);
      } else {
        ReadStruct(root, &recording.lives.emplace_back());
      }
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
  return recording;
}

void WriteRecording(const std::string& path, const Recording& recording) {
  std::ofstream file(path);
  file << Write(recording.engine) << '\n';
  for (const Life& life : recording.lives) file << Write(life) << '\n';
  file.close();
  if (!file) throw std::runtime_error(fmt::format("{} cannot be written", path));
}

}  // namespace specd::recorded
