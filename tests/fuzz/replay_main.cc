// Stands in for libFuzzer where there is none: runs a fuzzer once over every file of the folders
// named on the command line. A crash is the failure; so is a folder without files, because a replay
// of nothing would pass for ever.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes);

int main(int argc, char** argv) {
  size_t num_inputs = 0;
  for (int i = 1; i < argc; ++i) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i], error)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string input{std::istreambuf_iterator<char>(file), {}};
      if (!file) {
        std::fprintf(stderr, "cannot read %s\n", entry.path().c_str());
        return 1;
      }
      // Named before it runs, so that a crash can be told apart.
      std::printf("%s, %zu bytes\n", entry.path().filename().c_str(), input.size());
      std::fflush(stdout);
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
      ++num_inputs;
    }
    if (error) {
      std::fprintf(stderr, "cannot list %s: %s\n", argv[i], error.message().c_str());
      return 1;
    }
  }
  std::printf("%zu inputs replayed\n", num_inputs);
  return num_inputs > 0 ? 0 : 1;
}
