// The part of tvm-ffi's C ABI that TvmLibrary calls, as apache-tvm-ffi 0.1.15 has it.
//
// The records are declared here, so that specd builds without the package. The library reports the
// version of its ABI (TVMFFIGetVersion), which TvmLibrary compares with kAbiVersion before it calls
// anything else. Every function reports an error by a return code other than 0; none throws.
#pragma once

#include <cstddef>
#include <cstdint>

namespace specd::grammar::tvm {

struct Version {
  uint32_t major;
  uint32_t minor;
  uint32_t patch;
};
// The package 0.1.15.post2 calls its ABI 0.1.16.
inline constexpr Version kAbiVersion = {.major = 0, .minor = 1, .patch = 16};

// The types of values in an Any. Values from kFirstObject on are counted references to objects.
enum TypeIndex : int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kTensorPointer = 7,  // a borrowed Tensor*
  kSmallString = 11,   // at most seven bytes, in the Any itself
  kSmallBytes = 12,
  kFirstObject = 64,
  kString = 65,
  kBytes = 66,
  kFunction = 68,
};

struct ByteArray {
  const char* data;
  size_t size_bytes;
};

// Each object begins with this header. Its content follows the header.
struct ObjectHeader {
  uint64_t reference_counts;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
};

struct Any {
  int32_t type_index;
  uint32_t small_size_bytes;  // of kSmallString and kSmallBytes; 0 for other types
  union {
    int64_t number;  // kInt and kBool
    void* pointer;
    ObjectHeader* object;
    char small_bytes[8];
  };
};

// The first two members of the content of an error.
struct ErrorContent {
  ByteArray kind;
  ByteArray message;
};

struct Method {
  ByteArray name;
  ByteArray doc;
  ByteArray metadata;
  int64_t flags;
  Any function;
};

struct Type {
  int32_t type_index;
  int32_t depth;
  ByteArray key;
  const Type** ancestors;
  uint64_t key_hash;
  int32_t num_fields;
  int32_t num_methods;
  const void* fields;
  const Method* methods;
  const void* metadata;
};

// A DLPack tensor.
struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_index;
  int32_t num_dimensions;
  uint8_t element_code;
  uint8_t element_bits;
  uint16_t element_lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t offset_bytes;
};
inline constexpr int32_t kDeviceCpu = 1;
inline constexpr uint8_t kElementInt = 0;

static_assert(sizeof(void*) == 8 && sizeof(size_t) == 8,
              "the offsets below are of 64-bit programs");
static_assert(sizeof(Version) == 12);
static_assert(sizeof(ByteArray) == 16);
static_assert(sizeof(ObjectHeader) == 24 && offsetof(ObjectHeader, deleter) == 16);
static_assert(sizeof(Any) == 16 && offsetof(Any, number) == 8);
static_assert(sizeof(Method) == 72 && offsetof(Method, function) == 56);
static_assert(sizeof(Type) == 72 && offsetof(Type, num_methods) == 44 &&
              offsetof(Type, methods) == 56);
static_assert(sizeof(Tensor) == 48 && offsetof(Tensor, shape) == 24);

// The entries of the library, under their C names.
struct Entries {
  void (*TVMFFIGetVersion)(Version* version);
  int (*TVMFFITypeKeyToIndex)(const ByteArray* key, int32_t* index);
  const Type* (*TVMFFIGetTypeInfo)(int32_t index);
  int (*TVMFFIFunctionGetGlobal)(const ByteArray* name, void** function);
  int (*TVMFFIFunctionCall)(void* function, const Any* arguments, int32_t num_arguments,
                            Any* result);
  int (*TVMFFIStringFromByteArray)(const ByteArray* text, Any* result);
  int (*TVMFFIBytesFromByteArray)(const ByteArray* bytes, Any* result);
  void (*TVMFFIErrorMoveFromRaised)(void** error);
  int (*TVMFFIObjectDecRef)(void* object);
};

}  // namespace specd::grammar::tvm
