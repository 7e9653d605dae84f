// Mapping maps the file of a descriptor into shared memory, through Boost.Interprocess
// mapped_region.
//
// Only this class maps memory of another process; ipc/segment/segment.h and ipc/memory/region.h use
// it. The mapping outlives the descriptor. Movable; not synchronized.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace boost::interprocess {
class mapped_region;
}  // namespace boost::interprocess

namespace specd {

enum class MapAccess { kReadOnly, kReadWrite };

class Mapping {
 public:
  // Maps the first size_bytes of the file. REQUIRES: the caller has checked that the file is that
  // long and cannot shrink. Otherwise a later read would be a SIGBUS.
  static absl::StatusOr<Mapping> Map(int fd, uint64_t size_bytes, MapAccess access);

  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();

  // The same memory at the same address. It stays mapped until both are gone.
  Mapping Share() const;

  void* data() const;  // page-aligned
  uint64_t size_bytes() const;

 private:
  explicit Mapping(std::shared_ptr<boost::interprocess::mapped_region> region);
  std::shared_ptr<boost::interprocess::mapped_region> region_;
};

}  // namespace specd
