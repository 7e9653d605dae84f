#include "kernels/cpu/cpu_tile.h"

namespace specd::internal {

constexpr EmptyStep::EmptyStep() : values() {
  for (float& x : values) x = -kInfinity;
}

constinit const EmptyStep kEmptyStep;

}  // namespace specd::internal
