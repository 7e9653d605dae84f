#include "daemon/recorder/wide_row.h"

#include <cstring>

namespace specd {

void WidenRow(const TensorView& rows, const int32_t* columns, const std::byte* from,
              std::byte* to) {
  const size_t element_bytes = SizeBytes(rows.dtype);
  // -inf in the upper bytes, which are all that 16-bit formats have.
  const uint32_t infinity = rows.dtype == DType::kFloat16 ? 0xFC00'0000u : 0xFF80'0000u;
  const uint32_t absent = rows.rules.kind == RowKind::kLogits ? infinity : 0;
  const std::byte* const absent_bytes =
      reinterpret_cast<const std::byte*>(&absent) + sizeof(absent) - element_bytes;
  for (int32_t id = 0; id < rows.vocab_size; ++id, to += element_bytes) {
    const int32_t column = columns[id];
    const std::byte* const element =
        column < 0 ? absent_bytes : from + static_cast<size_t>(column) * element_bytes;
    std::memcpy(to, element, element_bytes);
  }
}

}  // namespace specd
