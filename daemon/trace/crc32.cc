#include "daemon/trace/crc32.h"

#include <array>
#include <boost/crc.hpp>

namespace specd {
namespace {

// The polynomial with its lowest power in the highest bit, as all polynomials here.
constexpr uint32_t kPolynomial = 0xedb88320;
constexpr uint32_t kOne = 0x80000000;
constexpr uint32_t kX = 0x40000000;

// a * b modulo the polynomial, over the field of two elements.
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t power = kOne; power != 0; power >>= 1) {
    if ((a & power) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// Entry i is x to the power 2^i. The powers repeat after 32 entries, because the polynomial is
// primitive: x to the power 2^32 is x.
constexpr std::array<uint32_t, 32> MakeSquares() {
  std::array<uint32_t, 32> squares = {kX};
  for (size_t i = 1; i < squares.size(); ++i) squares[i] = Multiply(squares[i - 1], squares[i - 1]);
  return squares;
}
constexpr std::array<uint32_t, 32> kSquares = MakeSquares();
static_assert(Multiply(kSquares[31], kSquares[31]) == kX);

}  // namespace

uint32_t Crc32(std::string_view bytes) {
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

uint32_t JoinCrc32(uint32_t first_crc, uint32_t second_crc, uint64_t second_size_bytes) {
  // The first string is followed by 8 * size bits, so its remainder is multiplied by x to that
  // power. The inversions at the beginning and the end of a checksum cancel out.
  uint32_t shift = kOne;
  uint32_t i = 3;  // 8 is 2^3
  for (uint64_t bits = second_size_bytes; bits != 0; bits >>= 1, ++i) {
    if ((bits & 1) != 0) shift = Multiply(kSquares[i % 32], shift);
  }
  return Multiply(shift, first_crc) ^ second_crc;
}

}  // namespace specd
