// IsReservedFrom keeps descriptors of a process free, for daemons.
//
// One peer may bring or hold many descriptors. If the process had none left, a message of another
// peer would lose its own. A daemon therefore turns away a descriptor whose number lies in the
// reserve: the kernel always gives the lowest free number. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace specd {

// A message brings up to 250, and three threads open files of their own. A process that may have
// few descriptors keeps a quarter of them.
inline constexpr size_t kReservedDescriptors = 300;

// Subscribers leave a second reserve to engines.
enum class Peer { kEngine, kSubscriber };

bool IsReservedFrom(Peer peer, int fd);

// The lowest limit of open files at which an engine's descriptor number `count` is not reserved,
// counted from 1.
uint64_t LimitWithRoomFor(uint64_t count);

}  // namespace specd
