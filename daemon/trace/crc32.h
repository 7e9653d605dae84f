// Crc32 computes the checksums of an MCAP file for McapWriter and McapReader.
//
// It is the CRC-32 of zip, PNG and zlib: polynomial 0x04c11db7, reflected. Boost.CRC computes it,
// because Boost is a dependency already and zlib is none. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace specd {

uint32_t Crc32(std::string_view bytes);

// Returns the checksum of two strings one after the other, from the checksum of each. A chunk is
// therefore read once for its own checksum and for that of the whole file. Boost has no such
// function.
uint32_t JoinCrc32(uint32_t first_crc, uint32_t second_crc, uint64_t second_size_bytes);

}  // namespace specd
