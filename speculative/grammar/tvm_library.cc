#include "speculative/grammar/tvm_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>

#include <limits>
#include <mutex>

#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

// libtvm_ffi.so replaces the handler of SIGSEGV while it is loaded. The process keeps its own.
class SavedFaultHandler {
 public:
  SavedFaultHandler() { SPECD_CHECK(sigaction(SIGSEGV, nullptr, &saved_) == 0); }
  ~SavedFaultHandler() { SPECD_CHECK(sigaction(SIGSEGV, &saved_, nullptr) == 0); }
  SavedFaultHandler(const SavedFaultHandler&) = delete;
  SavedFaultHandler& operator=(const SavedFaultHandler&) = delete;

 private:
  struct sigaction saved_ = {};
};

absl::StatusOr<void*> OpenLibrary(const std::string& path) {
  const SavedFaultHandler saved;
  // Local, so that no symbol of the plugin takes the place of one of ours.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("the library {} cannot be loaded: {}", path, dlerror()));
  }
  return library;
}

tvm::ByteArray ToByteArray(std::string_view text) { return {text.data(), text.size()}; }
std::string_view ToView(const tvm::ByteArray& bytes) { return {bytes.data, bytes.size_bytes}; }

template <typename Content>
const Content& ContentOf(const void* object) {
  return *reinterpret_cast<const Content*>(static_cast<const char*>(object) +
                                           sizeof(tvm::ObjectHeader));
}

absl::Status WrongType(std::string_view wanted, const tvm::Any& any) {
  return absl::InternalError(fmt::format(
      "the library answered with a value of type {} instead of {}", any.type_index, wanted));
}

}  // namespace

TvmValue::~TvmValue() {
  if (IsObject()) entries_->TVMFFIObjectDecRef(any_.object);
}

absl::StatusOr<bool> TvmValue::ToBool() const {
  if (any_.type_index != tvm::kBool) return WrongType("a truth value", any_);
  return any_.number != 0;
}

absl::StatusOr<int64_t> TvmValue::ToInt() const {
  if (any_.type_index != tvm::kInt) return WrongType("a number", any_);
  return any_.number;
}

absl::StatusOr<std::string> TvmValue::ToText() const {
  switch (any_.type_index) {
    case tvm::kSmallString:
    case tvm::kSmallBytes:
      return std::string(any_.small_bytes, any_.small_size_bytes);
    case tvm::kString:
    case tvm::kBytes:
      return std::string(ToView(ContentOf<tvm::ByteArray>(any_.object)));
    default:
      return WrongType("text", any_);
  }
}

absl::StatusOr<const TvmLibrary*> TvmLibrary::Load(const TvmPaths& paths) {
  struct Loaded {
    std::mutex mutex;
    TvmPaths paths;
    TvmLibrary* library = nullptr;
  };
  // Never destroyed: values of the library may live until the process ends.
  static Loaded& loaded = *new Loaded;
  const std::lock_guard<std::mutex> lock(loaded.mutex);
  if (loaded.library == nullptr) {
    auto* library = new TvmLibrary;
    if (absl::Status status = library->Open(paths); !status.ok()) {
      delete library;
      return status;
    }
    loaded.library = library;
    loaded.paths = paths;
  } else if (loaded.paths.runtime != paths.runtime || loaded.paths.plugin != paths.plugin) {
    return absl::FailedPreconditionError(
        fmt::format("{} cannot be loaded: this process has loaded {} and one such library is the "
                    "limit. Start another process",
                    paths.plugin, loaded.paths.plugin));
  }
  return loaded.library;
}

absl::Status TvmLibrary::Open(const TvmPaths& paths) {
  absl::StatusOr<void*> runtime = OpenLibrary(paths.runtime);
  if (!runtime.ok()) return runtime.status();
  std::string_view missing;
  auto find = [&](auto& entry, const char* name) {
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(dlsym(*runtime, name));
    if (entry == nullptr) missing = name;
  };
  find(entries_.TVMFFIGetVersion, "TVMFFIGetVersion");
  find(entries_.TVMFFITypeKeyToIndex, "TVMFFITypeKeyToIndex");
  find(entries_.TVMFFIGetTypeInfo, "TVMFFIGetTypeInfo");
  find(entries_.TVMFFIFunctionGetGlobal, "TVMFFIFunctionGetGlobal");
  find(entries_.TVMFFIFunctionCall, "TVMFFIFunctionCall");
  find(entries_.TVMFFIStringFromByteArray, "TVMFFIStringFromByteArray");
  find(entries_.TVMFFIBytesFromByteArray, "TVMFFIBytesFromByteArray");
  find(entries_.TVMFFIErrorMoveFromRaised, "TVMFFIErrorMoveFromRaised");
  find(entries_.TVMFFIObjectDecRef, "TVMFFIObjectDecRef");
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("the library {} has no function {}", paths.runtime, missing));
  }
  tvm::Version version = {};
  entries_.TVMFFIGetVersion(&version);
  constexpr tvm::Version kWanted = tvm::kAbiVersion;
  if (version.major != kWanted.major || version.minor != kWanted.minor ||
      version.patch != kWanted.patch) {
    return absl::FailedPreconditionError(
        fmt::format("the library {} has version {}.{}.{} of its ABI, and specd calls {}.{}.{} only",
                    paths.runtime, version.major, version.minor, version.patch, kWanted.major,
                    kWanted.minor, kWanted.patch));
  }
  // The plugin names the runtime by its soname, which is found because the runtime is loaded.
  if (absl::StatusOr<void*> plugin = OpenLibrary(paths.plugin); !plugin.ok()) {
    return plugin.status();
  }
  const tvm::ByteArray name = ToByteArray("ffi.Array");
  if (entries_.TVMFFIFunctionGetGlobal(&name, &make_array_.handle) != 0) return TakeError();
  if (make_array_.handle == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("the library {} has not registered ffi.Array", paths.runtime));
  }
  return absl::OkStatus();
}

absl::Status TvmLibrary::TakeError() const {
  void* error = nullptr;
  entries_.TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) return absl::InternalError("the library failed without an error");
  const auto& content = ContentOf<tvm::ErrorContent>(error);
  absl::Status status =
      absl::InternalError(fmt::format("{}: {}", ToView(content.kind), ToView(content.message)));
  entries_.TVMFFIObjectDecRef(error);
  return status;
}

absl::StatusOr<TvmLibrary::Function> TvmLibrary::FindMethod(const std::string& class_name,
                                                            std::string_view method) const {
  const tvm::ByteArray key = ToByteArray(class_name);
  int32_t index = 0;
  if (entries_.TVMFFITypeKeyToIndex(&key, &index) != 0) return TakeError();
  const tvm::Type* type = entries_.TVMFFIGetTypeInfo(index);
  for (int32_t i = 0; type != nullptr && i < type->num_methods; ++i) {
    const tvm::Method& candidate = type->methods[i];
    if (ToView(candidate.name) == method && candidate.function.type_index == tvm::kFunction) {
      return Function{candidate.function.object};
    }
  }
  return absl::FailedPreconditionError(
      fmt::format("the library has no method {} of {}", method, class_name));
}

absl::StatusOr<TvmValue> TvmLibrary::Call(Function function,
                                          std::span<const tvm::Any> arguments) const {
  SPECD_CHECK(arguments.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  tvm::Any result = {};
  if (entries_.TVMFFIFunctionCall(function.handle, arguments.data(),
                                  static_cast<int32_t>(arguments.size()), &result) != 0) {
    return TakeError();
  }
  return TvmValue(&entries_, result);
}

absl::StatusOr<TvmValue> TvmLibrary::MakeString(std::string_view text) const {
  const tvm::ByteArray bytes = ToByteArray(text);
  tvm::Any result = {};
  if (entries_.TVMFFIStringFromByteArray(&bytes, &result) != 0) return TakeError();
  return TvmValue(&entries_, result);
}

absl::StatusOr<TvmValue> TvmLibrary::MakeBytes(std::string_view bytes) const {
  const tvm::ByteArray array = ToByteArray(bytes);
  tvm::Any result = {};
  if (entries_.TVMFFIBytesFromByteArray(&array, &result) != 0) return TakeError();
  return TvmValue(&entries_, result);
}

absl::StatusOr<TvmValue> TvmLibrary::MakeArray(std::span<const tvm::Any> items) const {
  return Call(make_array_, items);
}

}  // namespace specd::grammar
