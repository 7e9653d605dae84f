// TvmLibrary loads a tvm-ffi plugin into this process and calls its functions for XgrammarBackend.
//
// Plugins are shared libraries that register classes with libtvm_ffi.so. TvmLibrary finds the
// methods of a class by name and calls them through the C ABI (tvm_ffi_abi.h). Nothing throws: an
// exception inside the plugin becomes a Status with its text. Any number of threads may call.
//
//   auto library = TvmLibrary::Load({.runtime = ".../libtvm_ffi.so", .plugin = ".../libx.so"});
//   auto make = (*library)->FindMethod("x.Matcher", "__ffi_init__");
//   auto matcher = (*library)->Call(*make, {grammar.view(), TvmInt(1), TvmBool(true)});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "speculative/grammar/tvm_ffi_abi.h"

namespace specd::grammar {

inline constexpr tvm::Any TvmNone() { return {}; }
inline constexpr tvm::Any TvmInt(int64_t number) {
  return {.type_index = tvm::kInt, .small_size_bytes = 0, .number = number};
}
inline constexpr tvm::Any TvmBool(bool value) {
  return {.type_index = tvm::kBool, .small_size_bytes = 0, .number = value ? 1 : 0};
}

// A value that the library returned. It owns its object.
class TvmValue {
 public:
  TvmValue() = default;
  TvmValue(const tvm::Entries* entries, const tvm::Any& any) : entries_(entries), any_(any) {}
  TvmValue(TvmValue&& other) noexcept { Swap(other); }
  TvmValue& operator=(TvmValue&& other) noexcept {
    Swap(other);
    return *this;
  }
  TvmValue(const TvmValue&) = delete;
  TvmValue& operator=(const TvmValue&) = delete;
  ~TvmValue();

  // For an argument of a call; it lives as long as this value.
  const tvm::Any& view() const { return any_; }
  bool IsObject() const { return any_.type_index >= tvm::kFirstObject; }

  absl::StatusOr<bool> ToBool() const;
  absl::StatusOr<int64_t> ToInt() const;
  absl::StatusOr<std::string> ToText() const;  // a string, or bytes

 private:
  void Swap(TvmValue& other) {
    std::swap(entries_, other.entries_);
    std::swap(any_, other.any_);
  }

  const tvm::Entries* entries_ = nullptr;
  tvm::Any any_ = {};
};

struct TvmPaths {
  std::string runtime;  // libtvm_ffi.so
  std::string plugin;
};

class TvmLibrary {
 public:
  // A function of the library. It is registered for the life of the process.
  struct Function {
    void* handle = nullptr;
  };

  // The libraries are never unloaded. One pair is loaded in a process, because a runtime has one
  // table of classes: a later call with the same paths answers with the same library, and a call
  // with others is refused.
  static absl::StatusOr<const TvmLibrary*> Load(const TvmPaths& paths);

  TvmLibrary(const TvmLibrary&) = delete;
  TvmLibrary& operator=(const TvmLibrary&) = delete;

  absl::StatusOr<Function> FindMethod(const std::string& class_name, std::string_view method) const;
  absl::StatusOr<TvmValue> Call(Function function, std::span<const tvm::Any> arguments) const;
  absl::StatusOr<TvmValue> Call(Function function,
                                std::initializer_list<tvm::Any> arguments) const {
    return Call(function, std::span<const tvm::Any>(arguments.begin(), arguments.size()));
  }

  absl::StatusOr<TvmValue> MakeString(std::string_view text) const;
  absl::StatusOr<TvmValue> MakeBytes(std::string_view bytes) const;
  absl::StatusOr<TvmValue> MakeArray(std::span<const tvm::Any> items) const;

 private:
  TvmLibrary() = default;
  absl::Status Open(const TvmPaths& paths);
  // Takes the error that the last failed call of this thread left.
  absl::Status TakeError() const;

  tvm::Entries entries_ = {};
  Function make_array_;
};

}  // namespace specd::grammar
