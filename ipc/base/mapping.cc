#include "ipc/base/mapping.h"

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// The "memory mappable" that mapped_region asks for. It needs only the descriptor.
class FdHolder {
 public:
  explicit FdHolder(int fd) : fd_(fd) {}
  boost::interprocess::mapping_handle_t get_mapping_handle() const { return {fd_, false}; }

 private:
  int fd_;
};

}  // namespace

Mapping::Mapping(std::shared_ptr<boost::interprocess::mapped_region> region)
    : region_(std::move(region)) {}
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;
Mapping::~Mapping() = default;
Mapping Mapping::Share() const { return Mapping(region_); }

absl::StatusOr<Mapping> Mapping::Map(int fd, uint64_t size_bytes, MapAccess access) {
  namespace bip = boost::interprocess;
  try {
    return Mapping(std::make_shared<bip::mapped_region>(
        FdHolder(fd), access == MapAccess::kReadOnly ? bip::read_only : bip::read_write, 0,
        size_bytes));
  } catch (const bip::interprocess_exception& error) {
    return MakeErrnoError(SPECD_ERROR_REGION, "fd", "the memory could not be mapped",
                          error.get_native_error());
  }
}

void* Mapping::data() const { return region_->get_address(); }
uint64_t Mapping::size_bytes() const { return region_->get_size(); }

}  // namespace specd
