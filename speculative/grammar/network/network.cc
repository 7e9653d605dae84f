#include "speculative/grammar/network/network.h"

#include <algorithm>

namespace specd::grammar {
namespace {

// The bytes that the C library takes for an allocation: 8 of its own, steps of 16, and 32 at least.
size_t HeapBytes(size_t size_bytes) {
  return size_bytes == 0 ? 0 : std::max<size_t>(32, (size_bytes + 8 + 15) / 16 * 16);
}

}  // namespace

size_t Network::size_bytes() const {
  size_t size = sizeof(Network) + HeapBytes(nodes_.capacity() * sizeof(Node));
  for (const Node& node : nodes_) {
    size += HeapBytes(node.edges.capacity() * sizeof(Edge)) +
            HeapBytes(node.calls.capacity() * sizeof(Call));
  }
  size += key_lists_.capacity() * sizeof(uint32_t) + frames_.capacity() * sizeof(NetworkFrame);
  for (const NetworkFrame& frame : frames_) {
    size += 4 * frame.values.capacity() * sizeof(uint32_t);
    size += (frame.required_keys.capacity() + frame.needed_keys.capacity()) * sizeof(uint64_t);
  }
  return size;
}

}  // namespace specd::grammar
