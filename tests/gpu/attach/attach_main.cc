// specd-gpu-attach runs RunAttachProgram on the first device of this machine.
#include "tests/gpu/attach/attach_program.h"
#include "tests/gpu/attach/cuda_peer_gpu.h"

int main(int argc, char** argv) {
  return specd::RunAttachProgram(argc, argv, specd::MakeCudaPeerGpu);
}
