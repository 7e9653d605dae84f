// RowHash gives each row and mask of a traced round a number of 64 bits, near the speed of memory.
//
// Equal bytes have equal hashes in every process and on every machine of the same byte order. The
// hash tells rows apart that differ by an accident, such as one bit; it withstands no attacker, who
// could make two rows with one hash. Pure functions, safe from any thread.
//
// The bytes are read in stripes of 64: eight words of eight bytes, one for each of eight lanes. A
// lane adds the product of the two halves of (word xor key), and its neighbour adds the word
// itself, so that no product by 0 hides a word. The keys change from stripe to stripe. The lanes do
// not wait for each other, so vector instructions do four at a time. After each block of 1,024
// bytes the lanes are mixed, which gives every block another place. The rest is padded with 0 to a
// stripe, and the size is part of the hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace specd {

// Never 0, which stands for "not computed" in a trace.
uint64_t RowHash(std::span<const std::byte> bytes);

// The same number without vector instructions, for tests.
uint64_t PlainRowHash(std::span<const std::byte> bytes);

}  // namespace specd
