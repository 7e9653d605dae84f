#include "speculative/grammar/masks/mask_words.h"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <new>

namespace specd::grammar {
namespace {

constexpr size_t kBlockBytes = size_t{2} << 20;  // a large page
constexpr size_t kRowAlign = 64;                 // a line of a cache
// Rows of less than a page share pages with others, and a block has room for several rows.
constexpr size_t kRowBytesMin = 4096;
constexpr size_t kRowBytesMax = kBlockBytes / 8;

#if defined(SPECD_SANITIZED)        // tools/cmake/SpecdFlags.cmake
constexpr bool kHasBlocks = false;  // the sanitizer looks after single rows
#else
constexpr bool kHasBlocks = true;
#endif

struct FreeRow {
  FreeRow* next = nullptr;
};

// The first bytes of its memory. A row's block begins at the multiple of kBlockBytes before it.
struct Block {
  // Those of one size, from one with room on.
  Block* before = nullptr;
  Block* after = nullptr;
  FreeRow* free = nullptr;  // given back
  size_t num_used = 0;      // rows
  size_t begin_bytes = 0;   // of the rows that were never taken
};
static_assert(sizeof(Block) <= kRowAlign);

bool IsInBlocks(size_t size_bytes) {
  return kHasBlocks && size_bytes >= kRowBytesMin && size_bytes <= kRowBytesMax;
}

size_t AlignUp(size_t bytes) { return (bytes + kRowAlign - 1) / kRowAlign * kRowAlign; }

bool HasRoom(const Block& block, size_t row_bytes) {
  return block.free != nullptr || block.begin_bytes + row_bytes <= kBlockBytes;
}

Block* MapBlock() {
  // Twice as much holds one that begins where a large page may.
  void* const mapped = ::mmap(nullptr, 2 * kBlockBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<char*>(mapped);
  const size_t skipped = -reinterpret_cast<uintptr_t>(first) % kBlockBytes;
  if (skipped > 0) ::munmap(first, skipped);
  ::munmap(first + skipped + kBlockBytes, kBlockBytes - skipped);
  // A kernel without large pages gives small ones.
  ::madvise(first + skipped, kBlockBytes, MADV_HUGEPAGE);
  return new (first + skipped) Block{.begin_bytes = kRowAlign};
}

// The blocks of one size of rows.
struct Blocks {
  Block* with_room = nullptr;
  size_t num_blocks = 0;

  void Link(Block* block) {
    block->before = nullptr;
    block->after = with_room;
    if (with_room != nullptr) with_room->before = block;
    with_room = block;
  }
  void Unlink(Block* block) {
    (block->before == nullptr ? with_room : block->before->after) = block->after;
    if (block->after != nullptr) block->after->before = block->before;
  }
};

struct Pool {
  std::mutex mutex;
  std::map<size_t, Blocks> sizes;  // by the bytes of a row
};

// Rows may be given back while the process ends.
Pool& ThePool() {
  static Pool* const pool = new Pool;
  return *pool;
}

}  // namespace

void* MaskMemory::Take(size_t size_bytes) {
  if (!IsInBlocks(size_bytes)) return ::operator new(size_bytes);
  const size_t row_bytes = AlignUp(size_bytes);
  Pool& pool = ThePool();
  const std::lock_guard lock(pool.mutex);
  Blocks& blocks = pool.sizes[row_bytes];
  if (blocks.with_room == nullptr) {
    blocks.Link(MapBlock());
    ++blocks.num_blocks;
  }
  Block* const block = blocks.with_room;
  void* row = block->free;
  if (row != nullptr) {
    block->free = block->free->next;
  } else {
    row = reinterpret_cast<char*>(block) + block->begin_bytes;
    block->begin_bytes += row_bytes;
  }
  ++block->num_used;
  if (!HasRoom(*block, row_bytes)) blocks.Unlink(block);
  return row;
}

void MaskMemory::Give(void* row, size_t size_bytes) noexcept {
  if (!IsInBlocks(size_bytes)) return ::operator delete(row);
  const size_t row_bytes = AlignUp(size_bytes);
  const uintptr_t at = reinterpret_cast<uintptr_t>(row);
  auto* const block = reinterpret_cast<Block*>(at - at % kBlockBytes);
  Pool& pool = ThePool();
  const std::lock_guard lock(pool.mutex);
  Blocks& blocks = pool.sizes.find(row_bytes)->second;
  if (!HasRoom(*block, row_bytes)) blocks.Link(block);
  block->free = new (row) FreeRow{.next = block->free};
  // One block stays, so that a row that comes and goes maps nothing.
  if (--block->num_used > 0 || blocks.num_blocks == 1) return;
  blocks.Unlink(block);
  --blocks.num_blocks;
  ::munmap(block, kBlockBytes);
}

size_t MaskMemory::block_bytes() {
  Pool& pool = ThePool();
  const std::lock_guard lock(pool.mutex);
  size_t num_blocks = 0;
  for (const auto& [row_bytes, blocks] : pool.sizes) num_blocks += blocks.num_blocks;
  return num_blocks * kBlockBytes;
}

}  // namespace specd::grammar
