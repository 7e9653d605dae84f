// An engine whose forward runs on a pretended GPU, with rows that the CPU reaches:
// stream_engine URI MODE [ROUNDS], the modes of tests/support/stream_engine_program.h.
#include <cstdlib>
#include <string>

#include "tests/gpu/driver/fake_cuda.h"
#include "tests/support/stream_engine_program.h"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  return specd::RunStreamEngine(&specd::FakeCuda(0), {.uri = argv[1]}, argv[2],
                                argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0);
}
