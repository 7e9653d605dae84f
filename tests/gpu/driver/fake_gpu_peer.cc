// The program that pretends stands in this file alone, so that gpu_peer.cc can be used without it.
#include <string>

#include "tests/support/gpu_peer.h"

namespace specd {

GpuPeer::GpuPeer(size_t device_index, const PeerEnvironment& environment)
    : GpuPeer(SPECD_GPU_PEER, {std::to_string(device_index)}, environment) {}

}  // namespace specd
