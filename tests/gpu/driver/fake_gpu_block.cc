#include "tests/gpu/driver/fake_gpu_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>

namespace specd {

namespace {

constexpr uint64_t kMagic = 0x554750454b414653;  // "SFAKEGPU"

// Locks on bytes of the memfd, each through an open file description of its own. The exporter locks
// the first byte as long as it holds the block. The importers share a lock on the second.
constexpr off_t kExporterByte = 0;
constexpr off_t kImporterByte = 1;

struct HandleBytes {
  uint64_t magic;
  int32_t pid;
  int32_t fd;
  uint64_t start_time;
  uint64_t base;
  uint64_t buffer_id;
  uint64_t check;
  uint64_t unused[2];
};
static_assert(sizeof(HandleBytes) == kGpuHandleBytes);

uint64_t CheckOf(const HandleBytes& bytes) {
  uint64_t sum = 14695981039346656037u;
  const auto* const data = reinterpret_cast<const unsigned char*>(&bytes);
  for (size_t i = 0; i < offsetof(HandleBytes, check); ++i) sum = (sum ^ data[i]) * 1099511628211u;
  return sum;
}

// A process id alone may be another process's by now. 0: there is none.
uint64_t StartTimeOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  // The state follows the name; the start time is 19 fields after the state.
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return 0;
  uint64_t start_time = 0;
  for (int i = 0; i < 18; ++i) fields >> field;
  fields >> start_time;
  return start_time;
}

bool Lock(int fd, off_t byte, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// Would somebody else's lock be in the way?
bool IsLockedByOthers(int fd, off_t byte) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

bool FakeGpuBlock::Map(void* place, uint64_t size_bytes) {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  void* const page = mmap(nullptr, kPageBytes, kAccess, MAP_SHARED, fd_.get(), 0);
  if (page == MAP_FAILED) return false;
  header_ = static_cast<FakeBlockHeader*>(page);
  struct stat info = {};
  if (fstat(fd_.get(), &info) != 0) return false;
  data_bytes_ = size_bytes;
  if (size_bytes == 0) data_bytes_ = static_cast<uint64_t>(info.st_size) - kPageBytes;
  if (data_bytes_ == 0) return true;
  void* const data =
      mmap(place, data_bytes_, kAccess,
           MAP_SHARED | MAP_NORESERVE | (place == nullptr ? 0 : MAP_FIXED), fd_.get(), kPageBytes);
  if (data == MAP_FAILED) return false;
  data_ = static_cast<char*>(data);
  return true;
}

std::unique_ptr<FakeGpuBlock> FakeGpuBlock::Make(const Spec& spec) {
  std::unique_ptr<FakeGpuBlock> block(new FakeGpuBlock);
  block->fd_.Reset(memfd_create("fake_gpu", MFD_CLOEXEC));
  if (!block->fd_.valid() || spec.size_bytes > uint64_t{1} << 46) return nullptr;
  const uint64_t data_bytes = (spec.size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (ftruncate(block->fd_.get(), static_cast<off_t>(kPageBytes + data_bytes)) != 0 ||
      !block->Map(spec.place, 0) || !Lock(block->fd_.get(), kExporterByte, F_WRLCK)) {
    return nullptr;
  }
  block->is_exporter_ = true;
  FakeBlockHeader* const header = new (block->header_) FakeBlockHeader{};
  header->magic = kMagic;
  header->kind = spec.kind;
  header->size_bytes = spec.size_bytes;
  header->buffer_id = spec.buffer_id;
  header->pool_id = spec.pool_id;
  header->base = reinterpret_cast<uintptr_t>(block->data_);
  spec.device_uuid.copy(header->device_uuid, sizeof(header->device_uuid) - 1);
  block->name_ = {getpid(), StartTimeOf(getpid()), header->base, header->buffer_id};
  return block;
}

GpuHandle FakeGpuBlock::handle() const {
  HandleBytes bytes = {};
  bytes.magic = kMagic;
  bytes.pid = name_.pid;
  bytes.fd = fd_.get();
  bytes.start_time = name_.start_time;
  bytes.base = name_.base;
  bytes.buffer_id = name_.buffer_id;
  bytes.check = CheckOf(bytes);
  GpuHandle handle;
  std::memcpy(handle.data(), &bytes, sizeof(bytes));
  return handle;
}

bool FakeGpuBlock::ParseHandle(const GpuHandle& handle, Name* name) {
  HandleBytes bytes;
  std::memcpy(&bytes, handle.data(), sizeof(bytes));
  if (bytes.magic != kMagic || bytes.check != CheckOf(bytes)) return false;
  *name = {bytes.pid, bytes.start_time, bytes.base, bytes.buffer_id};
  return true;
}

std::unique_ptr<FakeGpuBlock> FakeGpuBlock::Open(const GpuHandle& handle, FakeBlockKind kind,
                                                 int* code) {
  Name name;
  *code = kGpuInvalidHandle;
  if (!ParseHandle(handle, &name)) return nullptr;
  *code = kGpuInvalidContext;
  if (name.pid == getpid() && name.start_time == StartTimeOf(getpid())) return nullptr;
  *code = kGpuInvalidValue;
  if (StartTimeOf(name.pid) != name.start_time) return nullptr;
  HandleBytes bytes;
  std::memcpy(&bytes, handle.data(), sizeof(bytes));
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(bytes.fd);
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return nullptr;
  std::unique_ptr<FakeGpuBlock> block = Open(fd.get(), kind, code);
  // The exporter's descriptor may be another block's by now.
  if (block != nullptr && block->header_->buffer_id != name.buffer_id) {
    *code = kGpuInvalidValue;
    return nullptr;
  }
  if (block != nullptr) block->name_ = name;
  return block;
}

std::unique_ptr<FakeGpuBlock> FakeGpuBlock::Open(int fd, FakeBlockKind kind, int* code, void* place,
                                                 uint64_t size_bytes) {
  *code = kGpuInvalidValue;
  uint64_t magic = 0;
  // Sockets, pipes and files of others are left alone; opening some devices has effects.
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) ||
      pread(fd, &magic, sizeof(magic), 0) != sizeof(magic) || magic != kMagic) {
    return nullptr;
  }
  // An open file description of our own, so that its locks are ours.
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  std::unique_ptr<FakeGpuBlock> block(new FakeGpuBlock);
  block->fd_.Reset(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!block->fd_.valid() || !Lock(block->fd_.get(), kImporterByte, F_RDLCK) ||
      !block->Map(place, size_bytes)) {
    return nullptr;
  }
  const FakeBlockHeader& header = *block->header_;
  if (header.kind != kind || (header.is_freed.load() != 0 && kind != FakeBlockKind::kVmm)) {
    return nullptr;
  }
  block->name_ = {0, 0, header.base, header.buffer_id};
  *code = kGpuOk;
  return block;
}

FakeGpuBlock::~FakeGpuBlock() {
  if (is_exporter_) {
    // Physical memory of kind kVmm lives on where it is mapped.
    if (data_ != nullptr && header_->kind != FakeBlockKind::kVmm && IsImported()) {
      std::memset(data_, kPoison, data_bytes_);
    }
    header_->is_freed.store(1);
  }
  // At no time may another thread's mapping get the address that is kept.
  if (keeps_place_) {
    mmap(data_, data_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  } else if (data_ != nullptr) {
    munmap(data_, data_bytes_);
  }
  if (header_ != nullptr) munmap(header_, kPageBytes);
}

bool FakeGpuBlock::IsImported() const { return IsLockedByOthers(fd_.get(), kImporterByte); }

bool FakeGpuBlock::IsExporterGone() const {
  return header_->is_freed.load() != 0 || !IsLockedByOthers(fd_.get(), kExporterByte);
}

bool FakeGpuBlock::SharesAddressWith(const FakeGpuBlock& other) const {
  return name_.pid == other.name_.pid && name_.start_time == other.name_.start_time &&
         name_.base == other.name_.base;
}

}  // namespace specd
