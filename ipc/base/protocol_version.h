// kProtocolVersion is the one version of all that engine and daemon exchange: control messages, the
// segment's layout and the records in it.
//
// Each side sends its version with every control message. A daemon of another version refuses the
// engine's first message and says which side to upgrade. The segment carries the version too.
#pragma once

#include <cstdint>

namespace specd {

inline constexpr uint32_t kProtocolVersion = 2;

}  // namespace specd
